"""The WebSocket side of the ASGI application: one JSON-RPC message per text frame.

The binding is that of docs/protocol/websocket.md. Nothing of a client reaches the engine
before Host, Origin, subprotocol and token of its upgrade request were judged. Fragments,
pings and the closing handshake are the ASGI server's.
"""

import asyncio
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from dovetail.runtime.connection import Connection
from dovetail.transport.http.body import REFUSALS, Refused
from dovetail.transport.http.replies import Receive, Reply, Scope, Send, send_reply

if TYPE_CHECKING:
    from dovetail.transport.http.app import HttpApp

__all__ = ["SUBPROTOCOL", "serve_websocket"]

SUBPROTOCOL = "mcp"
_GOING_AWAY, _UNSUPPORTED, _EXPIRED, _TOO_BIG = 1001, 1003, 1008, 1009


async def serve_websocket(app: "HttpApp", scope: Scope, receive: Receive, send: Send) -> None:
    await receive()  # "websocket.connect"
    try:
        principal = await app.upgrade(scope)
        if len(app.sockets) >= app.http.max_sessions:
            raise Refused(app.busy(f"{len(app.sockets)} WebSockets are open"))
    except REFUSALS as error:
        await _reject(scope, send, app.answer_to(error))
        return
    await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
    connection = app.host.connection(tap=app.tap, judge=partial(app.judged, principal))
    connection.session.principal = None if principal is None else principal.id
    socket = _Socket(app, connection, receive, send)
    app.sockets.add(connection)
    try:
        await socket.serve(None if principal is None else principal.expires_at)
    finally:
        app.sockets.discard(connection)


async def _reject(scope: Scope, send: Send, reply: Reply) -> None:
    """With a status of our own where the server can send one, else its 403."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return

    async def renamed(message: Any) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    await send_reply(renamed, reply)


class _Socket:
    """The reader and the writer of a `Connection`."""

    def __init__(
        self, app: "HttpApp", connection: Connection, receive: Receive, send: Send
    ) -> None:
        self._app = app
        self._connection = connection
        self._receive = receive
        self._send = send
        self._unsent: deque[bytes] = deque()
        self._size = 0
        self._writer: asyncio.Task[None] | None = None
        self._may_read = asyncio.Event()
        self._may_read.set()
        connection.attach(self, self)

    async def serve(self, expires_at: float | None) -> None:
        """Until one side ends it, or the token that opened it has expired."""
        connection = self._connection
        reading = self._app.loop.create_task(self._read())
        left = None if expires_at is None else max(0.0, expires_at - time.time())
        try:
            ends: list[asyncio.Future[Any]] = [reading, connection.ended]
            done, _ = await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            over = _GOING_AWAY if done else _EXPIRED
            code = reading.result() if reading.done() else over
        finally:
            reading.cancel()
            await connection.close()
        if code is not None:
            await self._send({"type": "websocket.close", "code": code})

    async def _read(self) -> int | None:
        """The close code that the client has earned; None if it closed by itself."""
        limit = self._app.limits.max_frame
        while True:
            await self._may_read.wait()
            message = await self._receive()
            if message["type"] != "websocket.receive":
                self._connection.lost()
                return None
            text = message.get("text")
            if text is None:
                return _UNSUPPORTED
            frame = text.encode()
            if len(frame) > limit:
                return _TOO_BIG
            self._connection.receive(frame)

    # -- the connection's reader and writer ------------------------------------------------

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def write(self, data: bytes | bytearray) -> None:
        """Messages come one per line: none of them has a newline inside (digest X15)."""
        frames = bytes(data).splitlines()
        self._unsent.extend(frames)
        self._size += len(data)
        if self._size > self._connection.limits.high_water:
            self._connection.pause_writing()
        if self._writer is None:
            self._writer = self._app.loop.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._unsent:
                frame = self._unsent.popleft()
                await self._send({"type": "websocket.send", "text": frame.decode()})
                self._size -= len(frame) + 1
            self._connection.resume_writing()
        except (OSError, RuntimeError):  # closed meanwhile; servers differ in how they say it
            self._unsent.clear()
            self._size = 0
            self._connection.lost()
        finally:
            self._writer = None

    def get_write_buffer_size(self) -> int:
        return self._size

    def close(self) -> None:
        self._may_read.set()
