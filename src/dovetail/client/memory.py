"""A server in this process, as a transport."""

from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Protocol

from dovetail.runtime.connection import Connection, Tap
from dovetail.transport.memory import join

__all__ = ["Endpoint", "Memory"]


class Endpoint(Protocol):
    """A server in this process."""

    def connection(self, *, tap: Tap | None = None) -> Connection: ...
    def running(self) -> AbstractAsyncContextManager[None]: ...


class Memory:
    """A server in this process, as a transport."""

    def __init__(self, server: Endpoint) -> None:
        self._server = server
        self.key: Hashable = ("memory", id(server))
        self._stack: AsyncExitStack | None = None

    async def open(self, make: Callable[..., Connection]) -> Connection:
        await self.close()
        self._stack = AsyncExitStack()
        await self._stack.enter_async_context(self._server.running())
        ours, theirs = make(), self._server.connection()
        join(ours, theirs)
        self._stack.push_async_callback(theirs.close)
        self._stack.push_async_callback(ours.close)
        return ours

    async def close(self) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()
