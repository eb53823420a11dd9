"""Asking the client something in the middle of a request.

In the handshake era a question is a request to the client, and the handler
waits for the answer. 2026-07-28 has no such requests: the handler stops, its
result says what is needed, and the client sends the whole request again with
the answers. So the handler runs again from the top, and finds the answers it
has already been given; do side effects after the last question.

What was answered in earlier rounds travels in the sealed ``requestState``.
"""

from collections.abc import Awaitable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from dovetail.core.peer import Request
from dovetail.errors import INVALID_PARAMS, LocalProtocolError, McpError
from dovetail.server.questions import BadAnswer, Question
from dovetail.server.request_state import Seal, binding

__all__ = ["Answers", "InputRequired", "answered_or_asked"]

# The requests that may be answered with a question (digest S15).
_MAY_ASK = frozenset({"tools/call", "resources/read", "prompts/get"})


class InputRequired(BaseException):
    """Stops a handler of 2026-07-28. Not an Exception: `except Exception` must not eat it."""

    def __init__(self, questions: Mapping[str, Question[Any]], answers: "Answers") -> None:
        self.questions = questions
        self.answers = answers
        super().__init__(", ".join(questions))


class Answers:
    """What the client has answered so far, in this round and, sealed, in earlier ones."""

    def __init__(self, request: Request, seal: Seal, principal: str | None) -> None:
        if request.method not in _MAY_ASK:
            raise LocalProtocolError(f"{request.method} cannot ask the client anything")
        self._seal = seal
        self._binding = binding(request.method, request.raw, principal)  # type: ignore[arg-type]
        params = request.params
        self._kept: dict[str, bytes] = {}  # asked and answered: what the next round needs
        if params.request_state is not UNSET:
            self._kept = seal.open(params.request_state, binding=self._binding)
        self._given: dict[str, bytes] = {}
        if params.input_responses is not UNSET:
            self._given = _responses(params.input_responses)

    def take(self, questions: Mapping[str, Question[Any]]) -> dict[str, Any]:
        """The answers to ``questions``; those missing or unusable are asked (again)."""
        taken: dict[str, Any] = {}
        missing: dict[str, Question[Any]] = {}
        for key, question in questions.items():
            kept = self._kept.pop(key, b"")
            raw = self._given.get(key, kept)  # a newer answer replaces the older, fit or not
            try:
                taken[key] = question.parse(raw)
                self._kept[key] = raw
            except BadAnswer:
                missing[key] = question
        if missing:
            raise InputRequired(missing, self)
        return taken

    def keys(self) -> frozenset[str]:
        return frozenset(self._kept) | frozenset(self._given)

    def sealed(self) -> str:
        try:
            return self._seal.seal(self._kept, binding=self._binding)
        except ValueError as error:
            raise McpError(INVALID_PARAMS, data=str(error)) from None


def _responses(raw: Raw) -> dict[str, bytes]:
    try:
        responses = msgspec.json.decode(raw, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise McpError(INVALID_PARAMS, data="inputResponses must be an object") from None
    return {key: bytes(value) for key, value in responses.items()}


async def answered_or_asked(handling: Awaitable[Any], request: Request, stamp: Raw) -> Any:
    """The handler's result, or the questions it stopped at."""
    try:
        return await handling
    except InputRequired as needed:
        return _input_required(needed, request, stamp)
    except BaseExceptionGroup as group:  # raised inside a TaskGroup of the handler's
        found = list(_find(group))
        if not found:
            raise
        questions = {key: one for needed in found for key, one in needed.questions.items()}
        return _input_required(InputRequired(questions, found[0].answers), request, stamp)


def _find(group: BaseExceptionGroup[Any]) -> Iterator[InputRequired]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _find(error)
        elif isinstance(error, InputRequired):
            yield error


def _input_required(needed: InputRequired, request: Request, stamp: Raw) -> dict[str, Any]:
    return {
        "resultType": "input_required",
        "inputRequests": {
            key: {"method": question.method, "params": question.params(request.revision)}
            for key, question in needed.questions.items()
        },
        "requestState": needed.answers.sealed(),
        "_meta": stamp,
    }
