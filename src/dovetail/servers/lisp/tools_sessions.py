"""Tools for sessions: list, create, close, restart, replay, attach."""

import time
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from dovetail import Server
from dovetail.content import CallToolResult, TextContent
from dovetail.servers.lisp.attach import Target
from dovetail.servers.lisp.evaluate import SessionName
from dovetail.servers.lisp.image import Image
from dovetail.servers.lisp.process import LispProcess
from dovetail.servers.lisp.session import Session
from dovetail.servers.lisp.sessions import DEFAULT, Lisp

__all__ = ["add_session_tools"]

NewName = Annotated[str, "A new name: letters, digits, - _ and ."]


class SessionInfo(Struct, rename="camel"):
    name: str
    kind: str
    state: str
    package: str
    definitions: int
    suspended: list[str]
    read_only: bool
    pid: int | None = None


class SessionList(Struct):
    sessions: list[SessionInfo]


class Replayed(Struct):
    session: str
    evaluated: int
    failed: list[str]


def add_session_tools(server: Server, lisp: Lisp) -> None:
    @server.tool(name="list-sessions", title="List sessions", read_only=True)
    async def list_sessions() -> SessionList:
        """List the Lisp sessions: their state, package and definitions"""
        return SessionList([_info(session) for session in lisp.sessions.values()])

    @server.tool(name="create-session", title="Create a session", names="kebab")
    async def create_session(
        session: NewName,
        heap_mb: Annotated[int, Meta(ge=64, le=65536), "Heap of its process, in megabytes"]
        | None = None,
        timeout: Annotated[float, Meta(ge=0), "Seconds an evaluation may take by default"]  # noqa: ASYNC109 - of the client
        | None = None,
    ) -> str:
        """Start a separate Lisp process under a new name"""
        made = lisp.add(session)
        lisp.limit(made, heap_mb=heap_mb, timeout=timeout)
        began = time.perf_counter()
        try:
            await made.ready()
        except BaseException:
            await lisp.remove(session)
            raise
        return f"Session {session!r} started in {_ms(time.perf_counter() - began)}."

    @server.tool(name="close-session", title="Close a session", destructive=True)
    async def close_session(session: SessionName) -> str:
        """End a session: its Lisp, the processes that it started, its journal and history"""
        attached = not lisp.session(session).owned
        await lisp.remove(session)
        return f"Session {session!r} closed." + (" The Lisp itself runs on." if attached else "")

    @server.tool(name="restart-session", title="Restart a session", destructive=True)
    async def restart_session(session: SessionName = DEFAULT) -> str:
        """End the Lisp of a session, whatever it does, and start a fresh one; the journal stays"""
        place = lisp.session(session)
        took = await place.restart()
        return f"Session {session!r} restarted in {_ms(took)}. {place.journal.epitaph()}"

    @server.tool(name="replay-session", title="Replay definitions", destructive=True)
    async def replay_session(session: SessionName = DEFAULT) -> CallToolResult:
        """Evaluate the recorded definitions of a session again, in order"""
        done = await _replay(lisp.session(session))
        count = done.evaluated
        text = f"Evaluated {count} recorded definition form{'s' * (count != 1)} again."
        lines = [text, *(f"[FAILED] {failure}" for failure in done.failed)]
        return CallToolResult(
            content=[TextContent(text="\n".join(lines))],
            structured_content=done,
            is_error=bool(done.failed),
        )

    @server.tool(name="attach-session", title="Attach to a running Lisp", names="kebab")
    async def attach_session(
        session: NewName,
        kind: Annotated[Literal["socket", "swank", "slynk"], "How the Lisp can be reached"],
        address: Annotated[str, "The path of the socket, or host:port"],
        read_write: Annotated[bool, "Allow forms that may change the image"] = False,
    ) -> str:
        """Make a session of a Lisp that runs already; it is never ended by us"""
        place = await lisp.attach(Target(session, kind, address, read_write))
        mode = "reading and writing" if read_write else "reading only"
        return f"Session {place.name!r} is attached to {kind} {address} for {mode}."


async def _replay(place: Session) -> Replayed:
    """Each form in the package it was read in; one that fails does not stop the others."""
    failed: list[str] = []
    entries = place.journal.entries
    for entry in entries:
        arguments: dict[str, Any] = {"code": entry.code, "package": entry.package}
        frame = (await place.call("evaluate", arguments)).frame
        if frame.status != "ok":
            why = frame.failure.message if frame.failure is not None else frame.status
            failed.append(f"{entry.operator} {entry.name}: {why}")
    return Replayed(place.name, len(entries) - len(failed), failed)


def _info(session: Session) -> SessionInfo:
    image = session.image
    return SessionInfo(
        name=session.name,
        kind=session.kind,
        state=_state(session, image),
        package=session.package,
        definitions=len(session.journal),
        suspended=list(session.suspended),
        read_only=session.read_only,
        pid=image.pid if isinstance(image, LispProcess) else None,
    )


def _state(session: Session, image: Image | None) -> str:
    if image is None:
        return "not started"
    if image.lost is not None:
        return "lost"
    return "busy" if session.busy else "idle"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
