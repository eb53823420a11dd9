"""Tools for an evaluation that waits in the debugger, for clients that cannot be asked."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from dovetail import Context, Server
from dovetail.content import CallToolResult, TextContent
from dovetail.servers.lisp.asking import settled
from dovetail.servers.lisp.evaluate import SessionName
from dovetail.servers.lisp.frames import Output
from dovetail.servers.lisp.render import Evaluation, failed, lost, rendered, schema
from dovetail.servers.lisp.session import Outcome, Session, SessionLost
from dovetail.servers.lisp.sessions import DEFAULT, Lisp
from dovetail.servers.lisp.sexp import Keyword

__all__ = ["add_debug_tools"]

Token = Annotated[str, "The suspended evaluation, as the answer named it"]
FrameNumber = Annotated[int, Meta(ge=0), "The frame, as the backtrace numbers it"]


class Local(Struct):
    name: str
    value: str


class Locals(Struct):
    locals: list[Local]


def add_debug_tools(server: Server, lisp: Lisp) -> None:
    @server.tool(
        name="invoke-restart",
        title="Invoke a restart",
        output_schema=schema(Evaluation),
        destructive=True,
    )
    async def invoke_restart(
        suspended: Token,
        restart: Annotated[int, Meta(ge=0), "Its number in the list of restarts"],
        ctx: Context,
        value: Annotated[str | None, "A Lisp form, for restarts that want a value"] = None,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Let a suspended evaluation go on with one of its restarts"""
        place = lisp.session(session)
        command = [Keyword("restart"), Keyword("number"), restart, Keyword("value"), value]
        return await _resumed(place, suspended, command, ctx)

    @server.tool(name="abandon", title="Abandon an evaluation", output_schema=schema(Evaluation))
    async def abandon(
        suspended: Token, ctx: Context, session: SessionName = DEFAULT
    ) -> CallToolResult:
        """Unwind a suspended evaluation; the answer is its error"""
        return await _resumed(lisp.session(session), suspended, [Keyword("abandon")], ctx)

    @server.tool(name="frame-locals", title="Local variables of a frame", read_only=True)
    async def frame_locals(
        suspended: Token, frame: FrameNumber = 0, session: SessionName = DEFAULT
    ) -> CallToolResult:
        """Show the local variables in a frame of a suspended evaluation"""
        place = lisp.session(session)
        outcome = await place.in_frame(suspended, "locals", frame)
        if outcome.frame.status != "ok":
            return failed(place, outcome)
        found = Locals(outcome.frame.read(list[Local]))
        text = "\n".join(f"{local.name} = {local.value}" for local in found.locals)
        return CallToolResult(
            content=[TextContent(text=text or "No local variables are known here.")],
            structured_content=found,
        )

    @server.tool(name="eval-in-frame", title="Evaluate in a frame", destructive=True)
    async def eval_in_frame(
        suspended: Token,
        code: Annotated[str, "A Lisp form; local variables can be used by name"],
        frame: FrameNumber = 0,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Evaluate a form where a frame of a suspended evaluation stands"""
        place = lisp.session(session)
        outcome = await place.in_frame(suspended, "evaluate", frame, code)
        if outcome.frame.status != "ok":
            return failed(place, outcome)
        values = [f"=> {value.text}" for value in outcome.frame.read(list[Output])]
        return CallToolResult(content=[TextContent(text="\n".join(values) or "; No values")])


async def _resumed(place: Session, token: str, command: list[Any], ctx: Context) -> CallToolResult:
    try:
        outcome: Outcome = await place.resume(token, command)
        outcome = await settled(place, outcome, ctx)
    except SessionLost as error:
        return lost(place, error)
    return rendered(place, outcome)
