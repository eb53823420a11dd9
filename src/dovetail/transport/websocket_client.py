"""The client's side of a WebSocket: one message a frame, subprotocol ``mcp``.

On the ``websockets`` library (extra ``ws``), loaded when the first connection is made.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dovetail.errors import ConnectionClosed, HttpError, LocalProtocolError
from dovetail.runtime.connection import Connection

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

__all__ = ["WebSocket"]

SUBPROTOCOL = "mcp"
# Seconds to connect and upgrade, and to say goodbye.
OPEN_SECONDS = 30.0
CLOSE_SECONDS = 2.0
# Unsent bytes above which no more is queued at the library's; the rest waits with us.
HIGH_WATER = 1024 * 1024


class WebSocket:
    """One WebSocket to a server."""

    def __init__(self, url: str, *, headers: dict[str, str] | None = None) -> None:
        self.url = url
        self.key: Any = ("ws", url)
        self._headers = headers or {}
        self._socket: ClientConnection | None = None
        self._connection: Connection | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, make: Callable[..., Connection]) -> Connection:
        await self.close()
        connection = self._connection = make()
        self._socket = await self._connect(connection.limits.max_frame)
        pipe = _Pipe(self._socket)
        connection.attach(pipe, pipe)
        self._reading = asyncio.get_running_loop().create_task(self._read(connection))
        return connection

    async def _connect(self, max_frame: int) -> "ClientConnection":
        try:
            from websockets.asyncio.client import connect
            from websockets.exceptions import InvalidStatus, WebSocketException
        except ImportError:
            text = "WebSockets need the extra `ws`: pip install 'dovetail[ws]'"
            raise LocalProtocolError(text) from None
        try:
            return await connect(
                self.url,
                subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
                additional_headers=self._headers,
                max_size=max_frame,
                open_timeout=OPEN_SECONDS,
                close_timeout=CLOSE_SECONDS,
                write_limit=HIGH_WATER,
            )
        except InvalidStatus as error:
            raise HttpError(error.response.status_code, "the WebSocket was refused") from error
        except (WebSocketException, OSError, TimeoutError, ValueError) as error:
            raise ConnectionClosed(f"no WebSocket to {self.url}: {error}") from error

    async def _read(self, connection: Connection) -> None:
        assert self._socket is not None
        reason = "the WebSocket has ended"
        try:
            async for message in self._socket:
                frame = message.encode() if isinstance(message, str) else message
                connection.feed(frame + b"\n")
        except Exception as error:  # the library's own, and what a broken frame leads to
            reason = f"the WebSocket broke: {error}"
        code = self._socket.close_code
        if code not in (None, 1000, 1001) and str(code) not in reason:
            reason = f"{reason} ({code} {self._socket.close_reason or ''})".replace(" )", ")")
        connection.end_reason = reason
        connection.end_of_input()
        connection.stop()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        socket, self._socket = self._socket, None
        reading, self._reading = self._reading, None
        if socket is not None:
            with suppress(Exception):
                await socket.close()
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])


class _Pipe:
    """What a connection writes to: one frame per line, sent by one task in order."""

    def __init__(self, socket: "ClientConnection") -> None:
        self._socket = socket
        self._held: list[str] = []
        self._size = 0
        self._sending: asyncio.Task[None] | None = None

    def write(self, data: bytes | bytearray) -> None:
        lines = bytes(data).decode().split("\n")[:-1]
        self._held += lines
        self._size += len(data)
        if self._sending is None and self._held:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._held:
                lines, self._held = self._held, []
                for line in lines:
                    await self._socket.send(line)
                    self._size -= len(line) + 1
        except Exception:  # the reader learns the reason
            self._held.clear()
        finally:
            self._size = 0
            self._sending = None

    def get_write_buffer_size(self) -> int:
        return self._size if self._sending is not None else 0

    def close(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
