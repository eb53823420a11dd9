"""A client side for tests: in memory, through bytes, with a recorder on the line.

    async with connect(server, "2025-06-18") as client:
        result = await client.request("tools/call", {"name": "add", "arguments": {"a": 1}})

It is deliberately thinner than a real client: it can send anything, well
formed or not, and shows exactly what came back.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import msgspec

from dovetail.errors import ConnectionClosed, McpError
from dovetail.runtime.connection import Connection, Tap
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, PROTOCOL_VERSION_KEY
from dovetail.spec.revisions import LATEST_HANDSHAKE, MODERN
from dovetail.testing.recorder import Recorder

__all__ = ["CLIENT_INFO", "Endpoint", "TestClient", "connect", "envelope"]

CLIENT_INFO = {"name": "dovetail-testing", "version": "1.0.0"}


class Endpoint(Protocol):
    """Anything that opens connections: a ``Server``."""

    def connection(self, *, tap: Tap | None = None) -> Connection: ...
    def running(self) -> AbstractAsyncContextManager[None]: ...


def envelope(**capabilities: Any) -> dict[str, Any]:
    """The ``_meta`` that every request of 2026-07-28 carries."""
    return {
        PROTOCOL_VERSION_KEY: MODERN.id,
        CLIENT_CAPABILITIES_KEY: capabilities,
        CLIENT_INFO_KEY: CLIENT_INFO,
    }


class TestClient:
    """One connection to a server. ``recorder`` holds all that went over it."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    def __init__(self, connection: Connection, revision: str, capabilities: dict[str, Any]) -> None:
        self.revision = revision
        self.capabilities = capabilities
        self.recorder = Recorder()
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._answers: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self._last_id = 0
        connection.attach(_NoReader(), self)

    # -- what the server's connection calls --------------------------------------------

    def write(self, data: bytes | bytearray) -> None:
        for line in bytes(data).splitlines():
            self.recorder.sent("server", line)
            self._deliver(msgspec.json.decode(line))

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        for future in self._answers.values():
            if not future.done():
                future.set_exception(ConnectionClosed("the server closed the connection"))
                future.exception()  # a test may not care

    def _deliver(self, message: Any) -> None:
        id = message.get("id") if isinstance(message, dict) and "method" not in message else None
        future = self._answers.pop(id, None) if isinstance(id, int | str) else None
        if future is not None and not future.done():
            future.set_result(message)
        else:
            self._inbox.put_nowait(message)

    # -- sending -----------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Send a frame as it is, unchecked, a newline added."""
        self.recorder.sent("client", frame, check=False)
        self.connection.feed(frame + b"\n")

    def start(self, method: str, params: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Send a request and return its id and a future of the whole answer."""
        self._last_id += 1
        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._answers[self._last_id] = future
        self._send({"id": self._last_id, "method": method, **self._params(params, True)})
        return self._last_id, future

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self._send({"method": method, **self._params(params, False)})

    def _send(self, message: dict[str, Any]) -> None:
        frame = msgspec.json.encode({"jsonrpc": "2.0", **message})
        self.recorder.sent("client", frame)
        self.connection.feed(frame + b"\n")

    def _params(self, params: dict[str, Any] | None, is_request: bool) -> dict[str, Any]:
        if is_request and self.revision == MODERN.id:
            given = params or {}
            meta = {**envelope(**self.capabilities), **given.get("_meta", {})}
            return {"params": {**given, "_meta": meta}}
        return {} if params is None else {"params": params}

    # -- receiving ---------------------------------------------------------------------

    async def answer(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the whole answer, result or error."""
        _, future = self.start(method, params)
        message: dict[str, Any] = await future
        self.recorder.check()
        return message

    async def request(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Send a request and return its result; McpError if the answer is an error."""
        message = await self.answer(method, params)
        if "error" in message:
            error = message["error"]
            raise McpError(error["code"], error["message"], error.get("data"))
        return message["result"]

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool and return the result, ``isError`` or not."""
        given = {} if arguments is None else {"arguments": arguments}
        return await self.request("tools/call", {"name": name, **given})

    async def receive(self) -> Any:
        """The next message that answers no request of ours."""
        message = await self._inbox.get()
        self.recorder.check()
        return message

    async def settle(self) -> list[Any]:
        """Let the server do all it can now, and return what came unasked for."""
        await asyncio.sleep(0)
        while self.connection.busy:  # noqa: ASYNC110 - it is other tasks we let run
            await asyncio.sleep(0)
        self.recorder.check()
        return [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]

    async def initialize(self) -> Any:
        """The handshake, up to and with ``notifications/initialized``."""
        result = await self.request(
            "initialize",
            {
                "protocolVersion": self.revision,
                "capabilities": self.capabilities,
                "clientInfo": CLIENT_INFO,
            },
        )
        self.notify("notifications/initialized")
        return result


class _NoReader:
    """Memory needs no back-pressure from the reading side."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


@asynccontextmanager
async def connect(
    server: Endpoint,
    revision: str = LATEST_HANDSHAKE.id,
    *,
    capabilities: dict[str, Any] | None = None,
    handshake: bool = True,
) -> AsyncIterator[TestClient]:
    """A test client of ``server``. At the end every message must have been legal."""
    async with server.running():
        client = TestClient(server.connection(), revision, capabilities or {})
        if handshake and revision != MODERN.id:
            await client.initialize()
        try:
            yield client
        finally:
            await client.connection.close()
    client.recorder.check()
