"""What a server needs as long as it serves: opened before the first request, closed after."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.server.app import Server

__all__ = ["Lifespan", "LifespanFunction"]

Hook = Callable[[], Awaitable[None]]
LifespanFunction = Callable[[Any], AsyncIterator[Any]]


class Lifespan:
    """Entered by every transport that serves; the first opens it, the last closes it."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._function: LifespanFunction | None = None
        self._inner: list[Lifespan] = []  # of mounted servers
        self._hooks: list[tuple[Hook, Hook]] = []
        self._users = 0
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._state: Any = None

    def add(self, function: LifespanFunction) -> None:
        if self._function is not None:
            raise ValueError("the server has a lifespan already")
        self._function = function

    def include(self, lifespan: "Lifespan") -> None:
        """Hold another server's lifespan open as well."""
        self._inner.append(lifespan)

    def serve(self, opening: Hook, closing: Hook) -> None:
        """Something of the server's own to open and close with it."""
        self._hooks.append((opening, closing))
        if self._users:  # too late to open it with the others, but it ends with them
            self._stack.push_async_callback(closing)

    @property
    def state(self) -> Any:
        if self._function is not None and not self._users:
            raise RuntimeError("the lifespan is not open: `async with server.running():` opens it")
        return self._state

    async def __aenter__(self) -> None:
        async with self._opening:
            if self._users == 0:
                try:
                    await self._open()
                except BaseException:
                    await self._close()  # what was opened before the failure
                    raise
            self._users += 1

    async def _open(self) -> None:
        for lifespan in self._inner:
            await self._stack.enter_async_context(lifespan)
        if self._function is not None:
            opened = asynccontextmanager(self._function)(self._server)
            self._state = await self._stack.enter_async_context(opened)
        for opening, closing in self._hooks:  # last, so that running tasks end before the state
            await opening()
            self._stack.push_async_callback(closing)

    async def _close(self) -> None:
        try:
            await self._stack.aclose()
        finally:
            self._state = None

    async def __aexit__(self, *error: object) -> None:
        async with self._opening:  # nobody opens what is just being closed
            try:
                if self._users == 1:
                    await self._close()
            finally:
                self._users -= 1
