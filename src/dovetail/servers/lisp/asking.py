"""Asking the client what a suspended evaluation waits for."""

import asyncio
from typing import Any

from msgspec import UNSET, UnsetType

from dovetail import ClientError, Context, ToolError
from dovetail.servers.lisp.frames import Frame
from dovetail.servers.lisp.session import Outcome, Session, Suspended
from dovetail.servers.lisp.sexp import Keyword

__all__ = ["begun", "can_ask", "key_of", "settled"]

_HAVE_ELICITATION = ("2025-06-18", "2025-11-25", "2026-07-28")
_ABANDON = "abandon the evaluation"


def can_ask(ctx: Context) -> bool:
    """Whether the client shows forms to its user."""
    modes = ctx.capabilities.elicitation
    if modes is UNSET or ctx.revision not in _HAVE_ELICITATION:
        return False
    return modes.form is not UNSET or modes.url is UNSET


def key_of(waiting: Suspended) -> str:
    """Names one question: an evaluation may ask several."""
    return f"{waiting.token}.{waiting.round}"


def begun(session: Session, ctx: Context) -> Outcome | None:
    """The evaluation that a client of 2026-07-28 comes back to, with its answer."""
    if not ctx.answered:
        return None
    for waiting in session.suspended.values():
        if key_of(waiting) in ctx.answered:
            return Outcome(waiting.running.number, waiting.frame, token=waiting.token)
    raise ToolError(
        "The evaluation that asked is gone: its session was restarted, or it waited too long."
    )


async def settled(
    session: Session, outcome: Outcome, ctx: Context, seconds: float | UnsetType = UNSET
) -> Outcome:
    """Ask, and resume, until the evaluation has come to an end or the client cannot be asked."""
    while outcome.token and can_ask(ctx):
        waiting = session.find_suspended(outcome.token)
        wants_line = waiting.frame.reason == "input"
        ask = _ask_line if wants_line else _ask_restart
        try:
            command = await ask(ctx, key_of(waiting), waiting.frame)
        except asyncio.CancelledError:
            session.forget(outcome.token)
            raise
        except ClientError:
            if not wants_line:
                return outcome  # there are tools to go on with
            command = [Keyword("abandon")]
        outcome = await session.resume(outcome.token, command, seconds)
    return outcome


async def _ask(ctx: Context, key: str, message: str, form: dict[str, Any]) -> Any:
    from dovetail import Elicit  # loaded late: most servers never ask

    return await ctx.ask(key, Elicit(message, form))


async def _ask_line(ctx: Context, key: str, frame: Frame) -> list[Any]:
    form = {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}
    message = frame.prompt or "The Lisp code waits for a line of input."
    answer = await _ask(ctx, key, message, form)
    if not answer.accepted:
        return [Keyword("abandon")]
    return [Keyword("line"), Keyword("text"), str(answer.value["line"])]


async def _ask_restart(ctx: Context, key: str, frame: Frame) -> list[Any]:
    failure = frame.failure
    assert failure is not None
    choices = {f"{restart.number}: {restart.text}": restart.number for restart in failure.restarts}
    restart_field = {"type": "string", "title": "Restart", "enum": [*choices, _ABANDON]}
    value_field = {
        "type": "string",
        "title": "Value",
        "description": "A Lisp form, for restarts that want one",
    }
    form = {
        "type": "object",
        "properties": {"restart": restart_field, "value": value_field},
        "required": ["restart"],
    }
    answer = await _ask(ctx, key, f"{failure.type}: {failure.message}", form)
    if not answer.accepted or answer.value["restart"] not in choices:
        return [Keyword("abandon")]
    number = choices[answer.value["restart"]]
    return [
        *(Keyword("restart"), Keyword("number"), number),
        *(Keyword("value"), answer.value.get("value") or None),
    ]
