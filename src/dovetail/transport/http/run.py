"""The application on uvicorn, with what uvicorn leaves open: slow heads, long heads, streams
that would keep a stopped server waiting."""

import asyncio
import logging
import socket
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dovetail.transport.http.app import HttpApp

__all__ = ["bind", "serve"]

log = logging.getLogger("dovetail")


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; OSError says why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except BaseException:
        listener.close()
        raise
    listener.set_inheritable(True)
    return listener


def serve(app: HttpApp, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then let what is running end."""
    http = app.http
    limits = {"seconds": http.head_seconds, "max_head": http.max_head}
    config = uvicorn.Config(
        app,
        http=type("Protocol", (_Protocol,), limits),
        interface="asgi3",
        proxy_headers=False,
        loop="uvloop",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=http.max_connections,
        timeout_keep_alive=int(http.keep_open_seconds),
        timeout_graceful_shutdown=int(http.drain_seconds) + 1,
        ws_max_size=app.limits.max_frame,
        ws_ping_interval=http.keep_alive_seconds,
        ws_ping_timeout=http.write_seconds,
    )
    _Server(config, app).run([listener])


class _Server(uvicorn.Server):
    """Streams are open for ever: they must hear of the end before uvicorn waits for them."""

    def __init__(self, config: uvicorn.Config, app: HttpApp) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._app.loop.call_soon_threadsafe(self._app.drain)


class _Protocol(HttpToolsProtocol):
    """uvicorn's, with a limit to the time and the size of a request's head."""

    seconds: float
    max_head: int
    _deadline: asyncio.TimerHandle | None = None
    _head = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_head()

    def _expect_head(self) -> None:
        self._head = 0
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self._too_slow)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._deadline is not None:
            self._head += len(data)
            if self._head > self.max_head and self._still_in_head(data):
                return
        super().data_received(data)

    def _still_in_head(self, data: bytes) -> bool:
        """Refuse a head that does not end; a body in the same chunk is no part of it."""
        if b"\r\n\r\n" in data[: self.max_head + 4]:
            return False
        self._refuse(b"431 Request Header Fields Too Large")
        return True

    def on_headers_complete(self) -> None:
        self._forget_deadline()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        super().connection_lost(exc)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        if not self.transport.is_closing():
            head = b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(head % status)
            self.transport.close()
