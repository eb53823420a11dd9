"""MCP over WebSocket, the server's side: one JSON-RPC message per text frame.

The WebSocket itself is the sans-I/O core of the ``websockets`` library; this
module moves bytes between it, a socket and a ``Connection``. Nothing of a
client reaches the engine before its upgrade request was judged: Host, Origin,
subprotocol, and whatever the caller's ``judge`` wants to see (a token, mostly).
The binding is written down in ``docs/protocol/websocket.md``.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus

from msgspec import Struct
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from dovetail.runtime.connection import Connection
from dovetail.transport.guard import Guard

__all__ = ["SUBPROTOCOL", "Listener", "Refusal", "SocketLimits", "Upgrade", "listen"]

log = logging.getLogger("dovetail")
# Every refused stranger would be a line in the log; we say ourselves what matters.
_silent = logging.getLogger("dovetail.websockets")
_silent.setLevel(logging.CRITICAL)

SUBPROTOCOL = Subprotocol("mcp")


class SocketLimits(Struct, frozen=True, kw_only=True):
    """What a socket may cost us; the messages on it obey ``Limits``."""

    # From the first byte to the upgrade. A client on the same machine needs
    # milliseconds; one that dribbles its headers holds a place for this long.
    handshake_seconds: float = 5.0
    # The upgrade request, headers and all. Browsers send under 2 KiB.
    max_handshake: int = 16 * 1024
    # Sockets that have not been upgraded yet, so that strangers cannot keep
    # those who hold a token out for long.
    max_handshakes: int = 64
    # Sockets in all. Each holds some 30 KiB while idle.
    max_clients: int = 1024
    # Silence after which a ping is sent, and after as much again the end:
    # a laptop that was closed is noticed within a minute.
    ping_seconds: float = 20.0
    # How long the other side may take to answer our close.
    close_seconds: float = 1.0


class Upgrade(Struct, frozen=True):
    """The request that asks for a WebSocket."""

    path: str
    headers: Headers  # of any case; `get_all` where one may be given twice
    address: str


class Refusal(Struct, frozen=True):
    """Why an upgrade is refused: the HTTP answer."""

    status: int
    text: str
    headers: Mapping[str, str] = {}


Judge = Callable[[Upgrade], Awaitable[Refusal | str | None]]


async def _admit_all(upgrade: Upgrade) -> None:
    return None


class Listener:
    """A listening socket and its clients. ``close`` ends them all."""

    def __init__(
        self,
        connect: Callable[[str | None], Connection],
        judge: Judge,
        guard: Guard,
        path: str | None,
        max_frame: int,
        limits: SocketLimits,
        subprotocol_needed: bool,
    ) -> None:
        self.connect = connect
        self.judge = judge
        self.guard = guard
        self.path = path
        self.max_frame = max_frame
        self.limits = limits
        self.subprotocol_needed = subprotocol_needed
        self.strangers: set[_Client] = set()  # not upgraded yet
        self.clients: set[_Client] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), host, port)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [client.end() for client in self.strangers | self.clients]
        if tasks:
            await asyncio.wait(tasks)


async def listen(
    connect: Callable[[str | None], Connection],
    host: str,
    port: int,
    *,
    judge: Judge = _admit_all,
    guard: Guard | None = None,
    path: str | None = None,
    max_frame: int = 4 * 1024 * 1024,
    limits: SocketLimits | None = None,
    subprotocol_needed: bool = True,
) -> Listener:
    """Listen on ``host`` and ``port`` (0: any free one).

    ``judge`` sees each upgrade request and returns a ``Refusal``, the name of
    the client's principal, or None for a client without one; ``connect`` gets
    that name and makes the engine's side. Without ``subprotocol_needed`` a client
    that offers no subprotocol at all is taken too.
    """
    guard = guard or Guard.of(host)
    limits = limits or SocketLimits()
    listener = Listener(connect, judge, guard, path, max_frame, limits, subprotocol_needed)
    await listener.start(host, port)
    return listener


def _select(protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Ours if it is offered; `_refuse` has seen to it that it is where it must be."""
    return SUBPROTOCOL if SUBPROTOCOL in offered else None


class _Client(asyncio.Protocol):
    """One socket: first a handshake, then the reader and writer of a ``Connection``."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._limits = listener.limits
        self._protocol = ServerProtocol(
            subprotocols=[SUBPROTOCOL],
            select_subprotocol=_select,
            max_size=listener.max_frame,
            logger=_silent,
        )
        self._loop = asyncio.get_running_loop()
        self._request: asyncio.Future[Request] = self._loop.create_future()
        self._received = 0
        self._connection: Connection | None = None
        self._early: list[Frame] = []  # frames sent before we accepted
        self._text = bytearray()  # the fragments of a message so far
        self._alive = True
        self._timer: asyncio.TimerHandle | None = None
        self._gone = self._loop.create_future()

    # -- asyncio's side --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        listener = self._listener
        if (
            len(listener.strangers) >= self._limits.max_handshakes
            or len(listener.clients) >= self._limits.max_clients
        ):
            transport.abort()  # an HTTP answer would cost what we do not have
            return
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.strangers.add(self)
        self._timer = self._loop.call_later(self._limits.handshake_seconds, transport.abort)
        self._task = self._loop.create_task(self._run())

    def data_received(self, data: bytes) -> None:
        self._alive = True
        if self._connection is None:
            self._received += len(data)
            if self._received > self._limits.max_handshake:
                self._transport.abort()
                return
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                if not self._request.done():
                    self._request.set_result(event)
            elif self._connection is None:
                self._early.append(event)  # type: ignore[arg-type]
            else:
                self._frame(event)  # type: ignore[arg-type]
        self._after_input()

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self._after_input()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._request.cancel()
        self._gone.set_result(None)
        if self._connection is not None:
            self._connection.lost(error)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    # -- the life of a socket ----------------------------------------------------------

    async def _run(self) -> None:
        listener = self._listener
        try:
            verdict = await self._handshake()
            if not isinstance(verdict, Refusal):
                listener.strangers.discard(self)
                listener.clients.add(self)
                await self._serve(verdict)
        except asyncio.CancelledError:
            self._transport.abort()
        except Exception:
            log.exception("a WebSocket failed")
            self._transport.abort()
        finally:
            listener.strangers.discard(self)
            listener.clients.discard(self)

    async def _handshake(self) -> Refusal | str | None:
        """Judge the upgrade request and answer it. A refusal is sent and returned."""
        request = await self._request
        upgrade = Upgrade(request.path, request.headers, self._address())
        verdict: Refusal | str | None = self._refuse(upgrade)
        if verdict is None:
            self._transport.pause_reading()  # what it sends now waits in the kernel
            verdict = await self._listener.judge(upgrade)
        if isinstance(verdict, Refusal):
            response = self._protocol.reject(verdict.status, verdict.text + "\n")
            for name, value in verdict.headers.items():
                response.headers[name] = value
        else:
            response = self._protocol.accept(request)
        self._protocol.send_response(response)
        self._send()
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._transport.close()
            return Refusal(response.status_code, "")
        return verdict

    def _refuse(self, upgrade: Upgrade) -> Refusal | None:
        headers = upgrade.headers
        path = upgrade.path.partition("?")[0]
        if self._listener.path is not None and path != self._listener.path:
            return Refusal(404, f"There is nothing at {path}: connect to {self._listener.path}")
        reason = self._listener.guard.refuse(headers.get_all("Host"), headers.get_all("Origin"))
        if reason is not None:
            return Refusal(403, reason)
        offered = ",".join(headers.get_all("Sec-WebSocket-Protocol"))
        names = [name.strip() for name in offered.split(",")]
        if SUBPROTOCOL not in names and (offered or self._listener.subprotocol_needed):
            return Refusal(400, f"Offer the WebSocket subprotocol {SUBPROTOCOL!r}")
        return None

    async def _serve(self, principal: str | None) -> None:
        connection = self._listener.connect(principal)
        connection.attach(_Reader(self._transport), self)
        self._transport.set_write_buffer_limits(high=connection.limits.high_water)
        self._connection = connection
        self._watch()
        try:
            if self._transport.is_closing():
                connection.lost()
            for frame in self._early:
                self._frame(frame)
            self._early.clear()
            self._transport.resume_reading()
            await connection.ended
        finally:
            await connection.close()
            await asyncio.wait([self._gone], timeout=self._limits.close_seconds)
            self._transport.abort()

    def end(self) -> asyncio.Task[None]:
        """End in order: the connection is closed, then the socket."""
        if self._connection is None:
            self._task.cancel()
        else:
            self._connection.stop()
        return self._task

    def _address(self) -> str:
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if name else ""

    # -- messages ------------------------------------------------------------------------

    def _frame(self, frame: Frame) -> None:
        assert self._connection is not None
        if frame.opcode is Opcode.BINARY:
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "messages are text")
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT) and not self._connection.ended.done():
            self._text += frame.data
            if frame.fin:
                message = bytes(self._text)
                self._text.clear()
                self._message(message)

    def _message(self, message: bytes) -> None:
        assert self._connection is not None
        try:
            message.isascii() or message.decode()
        except UnicodeDecodeError:  # RFC 6455 §8.1
            self._protocol.fail(CloseCode.INVALID_DATA, "a text message is UTF-8")
        else:
            self._connection.receive(message)

    def _after_input(self) -> None:
        self._send()
        if self._connection is None:
            if self._protocol.handshake_exc is not None:
                self._transport.close()
        elif self._protocol.state is not OPEN:
            self._connection.lost()  # after a close frame nothing may be sent any more

    def _send(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof():
                self._transport.write_eof()

    def _watch(self) -> None:
        """Ping after a time of silence; after as much again nobody is there."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._alive:
            self._transport.abort()
            return
        self._alive = False
        self._timer = self._loop.call_later(self._limits.ping_seconds, self._ask)

    def _ask(self) -> None:
        if not self._alive and self._protocol.state is OPEN:
            self._protocol.send_ping(b"")
            self._send()
            self._timer = self._loop.call_later(self._limits.ping_seconds, self._watch)
        else:
            self._watch()

    # -- the connection's writer -----------------------------------------------------------

    def write(self, data: bytes | bytearray) -> None:
        """Messages come one per line: none of them has a newline inside (digest X15)."""
        if self._protocol.state is not OPEN:
            return
        for message in data.splitlines():
            self._protocol.send_text(message)
        self._send()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def close(self) -> None:
        if self._protocol.state is OPEN:
            self._protocol.send_close(CloseCode.GOING_AWAY)
            self._send()


class _Reader:
    """The connection's reader: a socket that still listens for pongs and the close frame."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        self.resume_reading()
