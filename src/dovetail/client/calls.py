"""Requests of a client: sent on a live session, repeated with answers, their results read."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from dovetail.client.answer import Answerer
from dovetail.client.capabilities import offered_by
from dovetail.client.options import Options
from dovetail.client.results import CallResult, RawCall, decode_call
from dovetail.client.schema import Check, check_of, is_wrapped
from dovetail.client.session import OnProgress, Session, Waits
from dovetail.errors import (
    HEADER_MISMATCH,
    ConnectionClosed,
    LocalProtocolError,
    McpError,
    RemoteProtocolError,
    SessionLost,
)
from dovetail.spec.headers import BadHeader, Mirror, encode_argument, encode_value, mirrors
from dovetail.spec.types import InputRequiredResult, Tool, Wire
from dovetail.wire.jsonrpc import BROKEN_JSON

__all__ = ["Asked", "Calls", "KnownTool", "known_tool"]

log = logging.getLogger("dovetail")

# Which member of the params `Mcp-Name` repeats (digest 8.11).
_NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
# Seconds before a request is repeated that asked for nothing but to be repeated, doubled
# each time: the server is shedding load.
SHED_SECONDS = 0.05

_result_type = msgspec.json.Decoder(
    msgspec.defstruct("ResultType", [("resultType", str | UnsetType, UNSET)])
).decode


class KnownTool(Struct):
    """What has to be known of a tool before it can be called."""

    tool: Tool | None
    check: Check | None = None
    wrapped: bool = False
    mirrors: tuple[Mirror, ...] = ()
    needs_task: bool = False
    has_output: bool = False

    @property
    def takes_task(self) -> bool:
        execution = UNSET if self.tool is None else self.tool.execution
        return execution is not UNSET and execution.task_support in ("required", "optional")


UNKNOWN_TOOL = KnownTool(None)


def known_tool(tool: Tool, *, http: bool) -> KnownTool | None:
    """None for a tool that must not be used: its header marks are invalid (digest C27)."""
    marks: tuple[Mirror, ...] = ()
    if http:
        try:
            marks = mirrors(tool.input_schema)
        except BadHeader as error:
            log.warning("tool %r is left out: %s", tool.name, error)
            return None
    execution = tool.execution
    return KnownTool(
        tool,
        wrapped=is_wrapped(tool.output_schema),
        mirrors=marks,
        needs_task=execution is not UNSET and execution.task_support == "required",
        has_output=tool.output_schema is not UNSET,
    )


class CallParams(Wire, kw_only=True):
    """The params of ``tools/call``; a Struct because that is encoded fastest."""

    name: str
    arguments: Any = UNSET
    task: Any = UNSET
    input_responses: Any = UNSET
    request_state: Any = UNSET
    meta: Any = field(default=UNSET, name="_meta")


class Asked(Struct):
    """How one request is to be made."""

    waits: Waits
    on_progress: OnProgress | None = None
    meta: dict[str, Any] | None = None
    # Whether it may be sent twice: it changes nothing.
    safe: bool = False


class Calls:
    """Sends requests on whatever session is alive."""

    def __init__(
        self, answerer: Answerer, live: Callable[[], Awaitable[Session]], options: Options
    ) -> None:
        self._answerer = answerer
        self._live = live
        self._max_rounds = options.max_rounds
        self._reconnect = options.reconnect

    async def plain(self, method: str, params: dict[str, Any], asked: Asked) -> Raw:
        """One request, one result. One that changes nothing is sent again if it was lost."""
        try:
            return await self._once(method, params, asked)
        except SessionLost:
            if not self._reconnect:
                raise
        except ConnectionClosed:
            if not asked.safe or not self._reconnect:
                raise
        return await self._once(method, params, asked)  # under a new id (digest C15)

    async def _once(self, method: str, params: dict[str, Any], asked: Asked) -> Raw:
        session = await self._live()
        require(session, method)
        token = session.token() if asked.on_progress is not None else None
        meta = session.meta(token, asked.meta)
        given = params if meta is UNSET else {**params, "_meta": meta}
        raw = await session.request(
            method,
            given or UNSET,
            asked.waits,
            token=token,
            on_progress=asked.on_progress,
            headers=headers_of(session, method, params),
        )
        if session.revision.modern:
            check_type(raw, session)
        return raw

    async def with_input(
        self, method: str, params: dict[str, Any], asked: Asked
    ) -> tuple[Raw, bool]:
        """A request that the server may answer with questions; they are answered (8.8).

        The second value tells whether there were any.
        """
        given = params
        for number in range(self._max_rounds + 1):
            raw = await self.plain(method, given, asked)
            session = await self._live()
            if not session.revision.modern or type_of(raw) != "input_required":
                return raw, number > 0
            answers = await self.answers(raw, session, number)
            given = {**params, **answers}
        raise self.too_many(method)

    async def answers(self, raw: Raw, session: Session, number: int) -> dict[str, Any]:
        """What the repeated request has more than the first: answers, state, or both."""
        try:
            result = msgspec.json.decode(raw, type=InputRequiredResult)
        except BROKEN_JSON as error:
            raise RemoteProtocolError.text(
                f"The server's question makes no sense: {error}"
            ) from None
        more: dict[str, Any] = {}
        if result.input_requests is not UNSET:
            more["inputResponses"] = await self.respond(raw, session)
        else:
            await asyncio.sleep(SHED_SECONDS * 2 ** min(number, 6) * (0.5 + random.random()))
        if result.request_state is not UNSET:
            more["requestState"] = result.request_state
        return more

    async def respond(self, raw: Raw, session: Session) -> dict[str, Any]:
        """The answers to ``inputRequests``: all of them, one after the other (digest C10)."""
        questions = msgspec.json.decode(raw, type=_Questions).input_requests
        answers = {}
        for key, question in questions.items():
            try:
                answers[key] = await self._answerer.answer(
                    question.method, question.params, session.revision
                )
            except McpError as error:
                text = f"The server asks for what was not declared: {error.data or error.message}"
                raise RemoteProtocolError.text(text) from error
        return answers

    def too_many(self, method: str) -> RemoteProtocolError:
        text = f"{method}: the server still asks after {self._max_rounds} rounds"
        return RemoteProtocolError.text(text)

    # -- tools -------------------------------------------------------------------------------

    async def tool(
        self, known: KnownTool, params: CallParams, asked: Asked, refresh: Any, first: Any = None
    ) -> tuple[Raw, RawCall]:
        """A result of ``tools/call``; that of a task has no content but the task.

        ``first`` is the result of the first round, if it is there already.
        """
        original = params
        for number in range(self._max_rounds + 1):
            raw, call = first or await self._round(known, params, asked, refresh, number == 0)
            first = None
            session = await self._live()
            if not session.revision.modern or call.result_type != "input_required":
                return raw, call
            answers = await self.answers(raw, session, number)
            params = CallParams(
                name=original.name,
                arguments=original.arguments,
                input_responses=answers.get("inputResponses", UNSET),
                request_state=answers.get("requestState", UNSET),
            )
        raise self.too_many("tools/call")

    async def _round(
        self, known: KnownTool, params: CallParams, asked: Asked, refresh: Any, again: bool
    ) -> tuple[Raw, RawCall]:
        """One request; ``again``: it may be sent once more if the server did nothing with it."""
        session = await self._live()
        require(session, "tools/call")
        token = session.token() if asked.on_progress is not None else None
        params.meta = session.meta(token, asked.meta)
        try:
            raw = await session.request(
                "tools/call",
                params,
                asked.waits,
                token=token,
                on_progress=asked.on_progress,
                headers=_call_headers(session, known, params),
            )
        except McpError as error:
            if error.code != HEADER_MISMATCH or not known.mirrors or not again:
                raise
            known = await refresh(params.name)  # digest 8.12: the marks may be others now
        except SessionLost:
            if not self._reconnect or not again:
                raise
        else:
            return raw, decode_call(raw)
        return await self._round(known, params, asked, refresh, False)

    def read(
        self, call: RawCall, known: KnownTool, session: Session, returns: Any
    ) -> CallResult[Any]:
        """The result for the caller, checked as far as its tool says what to expect."""
        kind = call.result_type
        if kind is not UNSET and kind != "complete" and session.revision.modern:
            raise RemoteProtocolError.text(f"The result is of an unknown type: {kind!r}")
        if call.content is UNSET and call.structured_content is UNSET:
            raise RemoteProtocolError.text("The result of the tool has no content")
        if known.has_output and not call.is_error and session.options.check_output:
            _check(call, known)
        return CallResult(call, returns, known.wrapped)


def _check(call: RawCall, known: KnownTool) -> None:
    if known.check is None:
        tool: Any = known.tool
        known.check = check_of(tool.name, tool.output_schema)
    if call.structured_content is UNSET:
        text = "The tool promises structured content and sent none"
        raise RemoteProtocolError.text(text)
    known.check(call.structured_content)


class _Asking(Struct):
    method: str
    params: Raw | UnsetType = UNSET


class _Questions(Struct, rename="camel"):
    input_requests: dict[str, _Asking]


def require(session: Session, method: str) -> None:
    """Only what the server declared is used (digest X14)."""
    if not offered_by(session.capabilities, method, session.revision):
        name = "the server" if session.server is None else repr(session.server.name)
        area = method.partition("/")[0]
        raise LocalProtocolError(f"{name} offers no {area}: {method!r} would be refused")


def type_of(raw: Raw) -> str:
    """``resultType``; absent means complete (digest C7)."""
    try:
        kind: Any = _result_type(raw).resultType  # type: ignore[attr-defined]
    except BROKEN_JSON:
        raise RemoteProtocolError.text("The result is no object with a proper type") from None
    return "complete" if kind is UNSET else kind


def check_type(raw: Raw, session: Session) -> None:
    if (kind := type_of(raw)) not in ("complete", "input_required", "task"):
        raise RemoteProtocolError.text(f"The result is of an unknown type: {kind!r}")


def headers_of(session: Session, method: str, params: dict[str, Any]) -> dict[str, str] | None:
    """What HTTP repeats of a request of 2026-07-28 (digest C25)."""
    if not session.http or not session.revision.modern:
        return None
    headers = {"mcp-method": method}
    if (member := _NAMED_BY.get(method)) is not None:
        headers["mcp-name"] = encode_value(params[member])
    return headers


def _call_headers(session: Session, known: KnownTool, params: CallParams) -> dict[str, str] | None:
    if not session.http or not session.revision.modern:
        return None
    headers = {"mcp-method": "tools/call", "mcp-name": encode_value(params.name)}
    for mirror in known.mirrors:
        value: Any = params.arguments
        for key in mirror.path:
            value = value.get(key) if isinstance(value, dict) else None
        encoded = encode_argument(value)
        if encoded is not None:
            headers[mirror.header] = encoded
    return headers
