"""``evaluate-lisp``: the tool of requirement 001."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from dovetail import Context, Server
from dovetail.content import CallToolResult, TextContent
from dovetail.servers.lisp.asking import begun, can_ask, settled
from dovetail.servers.lisp.balance import imbalance
from dovetail.servers.lisp.frames import Failure, Frame
from dovetail.servers.lisp.progress import Reporter
from dovetail.servers.lisp.render import Evaluation, lost, rendered, schema
from dovetail.servers.lisp.session import Outcome, Session, SessionLost
from dovetail.servers.lisp.sessions import DEFAULT, Lisp

__all__ = ["SessionName", "Timeout", "add_evaluate", "refusal", "remembered"]

SessionName = Annotated[str, "The session to use; list-sessions shows them"]
Timeout = Annotated[float, Meta(ge=0), "Seconds it may take; 0 means any time"]


def add_evaluate(server: Server, lisp: Lisp) -> None:
    @server.tool(
        name="evaluate-lisp",
        title="Evaluate Lisp",
        names="kebab",
        output_schema=schema(Evaluation),
        task="optional",
        destructive=True,
        open_world=True,
    )
    async def evaluate_lisp(
        code: Annotated[str, "The Lisp code to evaluate"],
        ctx: Context,
        package: Annotated[str | None, "The package to evaluate in, for this call only"] = None,
        capture_time: Annotated[bool, "Also tell how long it took and how much it consed"] = False,
        session: SessionName = DEFAULT,
        timeout: Timeout | None = None,  # noqa: ASYNC109 - of the client
        debug: Annotated[bool, "Keep an error open, to choose one of its restarts"] = False,
        input: Annotated[str | None, "What the code reads from standard input"] = None,
    ) -> CallToolResult:
        """Evaluate Common Lisp code in a persistent session"""
        place = lisp.session(session)
        seconds: float | UnsetType = UNSET if timeout is None else timeout
        try:
            outcome = begun(place, ctx)
            if outcome is None:
                if (refused := await refusal(place, code)) is not None:
                    return refused
                options = {
                    "package": package,
                    "debug": debug,
                    "input": input,
                    "interactive": can_ask(ctx),
                }
                given = {name: value for name, value in options.items() if value}
                arguments = {"code": code, **given}
                outcome = await _evaluate(place, arguments, ctx, seconds)
            outcome = await settled(place, outcome, ctx, seconds)
        except SessionLost as error:
            result = lost(place, error)
            remembered(place, place.last_number, code, result)
            return result
        result = rendered(place, outcome, timing=capture_time)
        remembered(place, outcome.number, code, result, outcome.frame.failure)
        return result


async def _evaluate(
    place: Session, arguments: dict[str, Any], ctx: Context, seconds: float | UnsetType
) -> Outcome:
    reporter = Reporter(ctx)
    if not reporter.wanted:
        return await place.call("evaluate", arguments, seconds=seconds)
    return await place.call(
        "evaluate",
        {**arguments, "progress": True},
        seconds=seconds,
        on_progress=reporter.progress,
        on_output=reporter.output,
    )


async def refusal(place: Session, code: str) -> CallToolResult | None:
    """Unbalanced text is refused before any of it runs."""
    wrong = imbalance(code)
    if wrong is None or not await place.reads_standard():
        return None
    failure = Failure(wrong.type, wrong.message)
    frame = Frame("done", status="error", failure=failure)
    return rendered(place, Outcome(0, frame))


def remembered(
    place: Session,
    number: int,
    code: str,
    result: CallToolResult,
    failure: Failure | None = None,
) -> None:
    """A line in the session's history."""
    block = result.content[0]
    text = block.text if isinstance(block, TextContent) else ""
    place.remember(number, code, text, result.is_error is True, failure)
