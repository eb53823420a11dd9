"""Tools for what a session has seen: its definitions, its last error, and a fresh beginning."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from dovetail import Server, ToolError
from dovetail.content import CallToolResult, TextContent
from dovetail.servers.lisp.answers import plural
from dovetail.servers.lisp.calls import Entry
from dovetail.servers.lisp.evaluate import SessionName
from dovetail.servers.lisp.frames import Failure
from dovetail.servers.lisp.journal import kind_of
from dovetail.servers.lisp.render import schema
from dovetail.servers.lisp.session import Session
from dovetail.servers.lisp.sessions import DEFAULT, Lisp

__all__ = ["add_history_tools"]

Kind = Literal["function", "macro", "variable", "class", "method", "package", "other form"]


class Made(Struct):
    kind: str
    name: str
    package: str


class Definitions(Struct):
    definitions: list[Made]


class LastError(Struct):
    number: int
    code: str
    error: Failure


class Backtrace(Struct):
    frames: list[str]


def add_history_tools(server: Server, lisp: Lisp) -> None:
    @server.tool(
        name="list-definitions",
        title="List definitions",
        read_only=True,
        output_schema=schema(Definitions),
    )
    async def list_definitions(
        type: Annotated[Kind, "Only definitions of this kind"] | None = None,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """List what was defined in a session, in the order of the last definition"""
        entries = lisp.session(session).journal.entries
        made = [Made(kind_of(entry), entry.name, entry.package) for entry in entries]
        made = [one for one in made if type is None or one.kind == type]
        lines = [plural(len(made), "definition")]
        lines += [f"{one.kind} {one.name} ({one.package})" for one in made]
        return CallToolResult(
            content=[TextContent(text="\n".join(lines))], structured_content=Definitions(made)
        )

    @server.tool(
        name="describe-last-error",
        title="Describe the last error",
        read_only=True,
        output_schema=schema(LastError),
    )
    async def describe_last_error(session: SessionName = DEFAULT) -> CallToolResult:
        """Show the last error of a session with its restarts and backtrace"""
        entry, failure = _last_error(lisp.session(session))
        lines = [
            f"[ERROR] {failure.type}",
            failure.message,
            f"\n[Code of call {entry.number}]",
            entry.code,
        ]
        if failure.restarts:
            lines.append("\n[Restarts there were]")
            lines += [f"{one.number}: [{one.name}] {one.text}" for one in failure.restarts]
        lines += ["\n[Backtrace]", *_numbered(failure.frames)]
        return CallToolResult(
            content=[TextContent(text="\n".join(lines))],
            structured_content=LastError(entry.number, entry.code, failure),
        )

    @server.tool(
        name="get-backtrace",
        title="Backtrace of the last error",
        names="kebab",
        read_only=True,
        output_schema=schema(Backtrace),
    )
    async def get_backtrace(
        max_frames: Annotated[int, Meta(ge=1), "How many frames to show"] = 20,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Show the backtrace of the last error of a session"""
        frames = _last_error(lisp.session(session))[1].frames[:max_frames]
        return CallToolResult(
            content=[TextContent(text="\n".join(_numbered(frames)))],
            structured_content=Backtrace(frames),
        )

    @server.tool(name="reset-session", title="Reset a session", destructive=True)
    async def reset_session(session: SessionName = DEFAULT) -> str:
        """Start a session from nothing: a fresh Lisp, an empty journal"""
        place = lisp.session(session)
        if not place.owned:
            raise ToolError(f"Session {session!r} is attached: its Lisp is not ours to reset.")
        place.journal.clear()
        await place.restart()
        return f"Session {session!r} is as new: nothing defined, package COMMON-LISP-USER."


def _last_error(place: Session) -> tuple[Entry, Failure]:
    for entry in reversed(place.history):
        if entry.failure is not None and entry.failure.type:
            return entry, entry.failure
    raise ToolError(f"There has been no error in session {place.name!r}.")


def _numbered(frames: list[str]) -> list[str]:
    return [f"{number}: {frame}" for number, frame in enumerate(frames)]
