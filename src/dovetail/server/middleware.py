"""Functions around every request, and three that are ready to use.

    @server.middleware
    async def audit(call, next):
        log.info("%s %s", call.method, call.name)
        return await next(call)

The chain is folded into the handlers once, when the method tables are built;
a server without middleware pays nothing for the possibility.
"""

import time
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any

import msgspec
from msgspec import Struct

from dovetail.core.peer import Request
from dovetail.errors import INTERNAL_ERROR, McpError
from dovetail.runtime.link import Handler, Link
from dovetail.server.context import Context
from dovetail.server.session import Session

__all__ = ["Call", "Middleware", "Next", "RateLimit", "ResponseLimit", "fold"]

# Not wrapped: they open and close what the others need, and must be answered at once.
_UNWRAPPED = frozenset({"initialize", "ping", "server/discover", "subscriptions/listen"})


class Call(Struct, frozen=True, eq=False):
    """One request on its way to its handler."""

    request: Request
    connection: Link

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def name(self) -> str | None:
        """The tool or prompt, or the URI, that the request is about."""
        params = self.request.params
        name = getattr(params, "name", None) or getattr(params, "uri", None)
        return name if isinstance(name, str) else None

    @property
    def session(self) -> Session:
        session: Session = self.connection.session
        return session

    @property
    def context(self) -> Context[Any]:
        return Context(self.request, self.connection, self.session.server)


Next = Callable[[Call], Awaitable[Any]]
Middleware = Callable[[Call, Next], Awaitable[Any]]


def fold(handlers: dict[str, Handler], chain: list[Middleware]) -> dict[str, Handler]:
    """The handlers with the chain around them, the first middleware outermost."""
    if not chain:
        return handlers
    return {
        method: handler if method in _UNWRAPPED else _wrapped(handler, chain)
        for method, handler in handlers.items()
    }


def _wrapped(handler: Handler, chain: list[Middleware]) -> Handler:
    inner: Next = _Innermost(handler)
    for middleware in reversed(chain):
        inner = _Around(middleware, inner)
    outermost = inner

    async def run(call: Call) -> Any:
        if not call.request.revision.modern:
            return await outermost(call)
        from dovetail.server.ask import answered_or_asked  # a middleware may ask, too

        return await answered_or_asked(outermost(call), call.request, call.session.server.stamp)

    return Handler(lambda request, connection: run(Call(request, connection)))


class _Innermost:
    def __init__(self, handler: Handler) -> None:
        self._call = handler.call

    async def __call__(self, call: Call) -> Any:
        outcome = self._call(call.request, call.connection)
        return await outcome if isinstance(outcome, CoroutineType) else outcome


class _Around:
    def __init__(self, middleware: Middleware, inner: Next) -> None:
        self._middleware = middleware
        self._inner = inner

    def __call__(self, call: Call) -> Awaitable[Any]:
        return self._middleware(call, self._inner)


class RateLimit:
    """So many requests per second and client, after a burst; more are refused at once."""

    def __init__(
        self, per_second: float, *, burst: int = 10, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if per_second <= 0 or burst < 1:
            raise ValueError("a rate limit must let something through")
        self._rate = per_second
        self._burst = burst
        self._clock = clock

    async def __call__(self, call: Call, next: Next) -> Any:
        wait = self._wait(call.session.notes)
        if wait > 0:
            text = f"Rate limit exceeded: try again in {wait:.1f} seconds"
            raise McpError(INTERNAL_ERROR, data=text)
        return await next(call)

    def _wait(self, notes: dict[Any, Any]) -> float:
        """Take a token of the session's bucket, or say how long until there is one."""
        now = self._clock()
        tokens, since = notes.get(self, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - since) * self._rate)
        if tokens < 1:
            notes[self] = (tokens, now)
            return float((1 - tokens) / self._rate)
        notes[self] = (tokens - 1, now)
        return 0.0


class ResponseLimit:
    """No result longer than so many bytes; a tool's becomes an error the model can read."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    async def __call__(self, call: Call, next: Next) -> Any:
        result = await next(call)
        size = len(msgspec.json.encode(result))
        if size <= self._max_bytes:
            return result
        text = f"The result is too large: {size} bytes, {self._max_bytes} are allowed"
        name = call.name if call.method == "tools/call" else None
        tool = call.session.server.tools.get(name or "")
        if tool is None:  # no tool, or one that was removed while it ran
            raise McpError(INTERNAL_ERROR, data=text)
        return tool.failed(text, call.request.revision)
