"""``configure-limits``, and the full texts behind what the limits cut off."""

from typing import Annotated

from msgspec import Meta, Struct

from dovetail import ResourceNotFound, Server
from dovetail.content import CallToolResult, TextContent
from dovetail.servers.lisp.evaluate import SessionName
from dovetail.servers.lisp.render import schema
from dovetail.servers.lisp.sessions import DEFAULT, Lisp

__all__ = ["add_limits"]

OUTPUT = "lisp://{session}/output/{call}/{name}{?start,count}"
# Characters of one answer. A client that reads a whole spool file at once would choke on it.
_PAGE = 1_000_000


class Limits(Struct, rename="kebab"):
    session: str
    timeout: float
    max_output: int
    max_value: int
    max_spool: int
    heap_mb: int
    stack_mb: int


def add_limits(server: Server, lisp: Lisp) -> None:
    @server.tool(
        name="configure-limits",
        title="Configure limits",
        names="kebab",
        output_schema=schema(Limits),
    )
    async def configure_limits(
        timeout: Annotated[float, Meta(ge=0), "Seconds an evaluation may take; 0: any"]  # noqa: ASYNC109 - of the client
        | None = None,
        max_output: Annotated[int, Meta(ge=1), "Characters of stdout and stderr shown"]
        | None = None,
        max_value: Annotated[int, Meta(ge=1), "Characters of a value shown"] | None = None,
        max_spool: Annotated[int, Meta(ge=0), "Characters kept of a longer text"] | None = None,
        heap_mb: Annotated[int, Meta(ge=64, le=65536), "Heap, from the next restart on"]
        | None = None,
        stack_mb: Annotated[int, Meta(ge=1, le=1024), "Stack, from the next restart on"]
        | None = None,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Change limits of a session and show all of them; without arguments only show them"""
        place = lisp.session(session)
        now = lisp.limit(
            place,
            timeout=timeout,
            max_output=max_output,
            max_value=max_value,
            max_spool=max_spool,
            heap_mb=heap_mb,
            stack_mb=stack_mb,
        )
        names = [name for name in Limits.__struct_fields__ if name != "session"]
        shown = Limits(session, **{name: getattr(now, name) for name in names})
        lines = [f"{name.replace('_', '-')}: {getattr(now, name):g}" for name in names]
        return CallToolResult(
            content=[TextContent(text="\n".join([f"Limits of session {session!r}", *lines]))],
            structured_content=shown,
        )

    @server.resource(OUTPUT, name="output", title="Full output", mime_type="text/plain")
    def output(session: str, call: int, name: str, start: int = 0, count: int = _PAGE) -> str:
        """The text behind a truncation, as far as it was kept; at most a million characters
        at once, from the character `start` on"""
        uri = f"lisp://{session}/output/{call}/{name}"
        place = lisp.sessions.get(session)
        found = None if place is None else place.outputs.get(call, {}).get(name)
        if found is None or found.spool is None or start < 0:
            raise ResourceNotFound(uri)
        text = _read(found.spool, start, min(max(count, 0), _PAGE))
        rest = found.spooled - start - len(text)
        if rest <= 0 or count < _PAGE:
            return text
        return f"{text}\n[{rest} characters more: {uri}?start={start + len(text)}]"


def _read(path: str, start: int, count: int) -> str:
    """Characters, not bytes: what comes before has to be decoded too."""
    with open(path, encoding="utf-8", newline="") as file:
        while start > 0 and (skipped := len(file.read(min(start, _PAGE)))):
            start -= skipped
        return file.read(count)
