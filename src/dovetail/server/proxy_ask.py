"""Questions that a proxy passes on, and the requests they interrupt."""

import asyncio
import secrets
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from dovetail.errors import INTERNAL_ERROR, McpError
from dovetail.server.context import Context
from dovetail.server.forms import BadAnswer
from dovetail.spec._surface import FIELDS
from dovetail.spec.revisions import MODERN, Revision
from dovetail.spec.types import ClientCapabilities

__all__ = ["Forwarded", "ForwardedQuestion"]

_TABLES = {
    "elicitation/create": FIELDS["ElicitRequestParams"],
    "sampling/createMessage": FIELDS["CreateMessageRequestParams"],
    "roots/list": {},
}


class ForwardedQuestion:
    """A question of another server, asked in the revision of our client."""

    def __init__(self, method: str, params: dict[str, Any]) -> None:
        self.method = method
        self._params = params
        self._area = method.partition("/")[0]
        # Names the question in 2026-07-28, and the request that waits for its answer.
        self.key = secrets.token_urlsafe(16)
        self._id = secrets.token_urlsafe(16)
        self._answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def needs(self) -> dict[str, Any]:
        if self._params.get("mode") == "url":
            return {"elicitation": {"url": {}}}
        if "tools" in self._params:
            return {"sampling": {"tools": {}}}
        return {self._area: {}}

    def declared_by(self, capabilities: ClientCapabilities, revision: Revision = MODERN) -> bool:
        declared = getattr(capabilities, self._area)
        if declared is UNSET:
            return False
        settings = self.needs()[self._area]
        return all(getattr(declared, name) is not UNSET for name in settings)

    def supported_in(self, revision: Revision) -> bool:
        table = _TABLES[self.method]
        return self._area != "elicitation" or revision.letter in table["message"]

    def params(self, revision: Revision) -> dict[str, Any]:
        table = _TABLES[self.method]
        given = dict(self._params)
        if given.get("mode") == "url" and revision.letter in table["elicitationId"]:
            given["elicitationId"] = self._id
        return {k: v for k, v in given.items() if revision.letter in table.get(k, "")}

    def parse(self, raw: bytes | Raw) -> dict[str, Any]:
        try:
            return msgspec.json.decode(raw, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadAnswer(str(error)) from None

    def answered(self, answer: Any) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)

    def refused(self, why: str) -> None:
        if not self._answer.done():
            self._answer.set_exception(McpError(INTERNAL_ERROR, data=why))

    async def wait(self) -> Any:
        return await self._answer


class Forwarded:
    """One request that runs at the other server, whoever asked for it just now."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] = None  # type: ignore[assignment]  # set when it begins
        self.ctx: Context[Any] | None = None
        self.question: ForwardedQuestion | None = None
        self.expiry: asyncio.TimerHandle | None = None
        self._asked = asyncio.Event()
        self._binding: Any = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def modern(self) -> bool:
        return self.ctx is not None and self.ctx.revision == MODERN.id

    def can_ask(self, question: ForwardedQuestion) -> bool:
        return self.ctx is not None and question.declared_by(self.ctx.capabilities)

    def fits(self, ctx: Context[Any]) -> bool:
        """Whether ``ctx`` repeats the request that was interrupted, for the same client."""
        return bool(self._binding == _binding(ctx))

    async def ask(self, question: ForwardedQuestion) -> Any:
        """Called by whoever speaks with the other server; waits for our client's answer."""
        async with self._one_at_a_time:
            self.question = question
            if self.ctx is not None:
                self._binding = _binding(self.ctx)
            self._asked.set()
            try:
                return await question.wait()
            finally:
                self.question = None

    async def next_question(self) -> ForwardedQuestion | None:
        """The question to be asked now, or None when the request has ended."""
        if self.question is not None and not self.question._answer.done():
            return self.question
        self._asked.clear()
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait([self.task, asked], return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        return None if self.task.done() else self.question


def _binding(ctx: Context[Any]) -> tuple[Any, ...]:
    request = ctx._request
    params = msgspec.json.decode(b"{}" if request.raw is UNSET else request.raw)
    shown = {key: params.get(key) for key in ("name", "uri", "arguments")}
    return request.method, msgspec.json.encode(shown), ctx.session.principal
