"""The application on uvicorn, with what uvicorn leaves open: slow heads, long heads, streams
that would keep a stopped server waiting."""

import gc
import logging
import signal
import socket
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dovetail.transport.http.app import HttpApp

__all__ = ["bind", "configured", "serve"]

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
    # As for stdio: start-up made what stays, and a call leaves no cycles behind.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    configured(app).run([listener])


def configured(app: HttpApp) -> uvicorn.Server:
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    http = app.http
    config = uvicorn.Config(
        app,
        http=type("Protocol", (_Protocol,), {"max_head": http.max_head}),
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
    return _Server(config, app)


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn takes a refused WebSocket for an error of ours, which strangers could repeat."""
    return "without completing handshake" not in record.getMessage()


class _Server(uvicorn.Server):
    """Streams are open for ever: they must hear of the end before uvicorn waits for them."""

    def __init__(self, config: uvicorn.Config, app: HttpApp) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Not uvicorn's: it would raise the signal again at the end, and so fail the process."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self._app.loop.call_soon_threadsafe(self._app.drain)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: a look at all connections is cheaper than a timer for each."""
        limit = self._app.loop.time() - self._app.http.head_seconds
        for connection in list(self.server_state.connections):
            if isinstance(connection, _Protocol) and 0 < connection.head_since < limit:
                connection.refuse(b"408 Request Timeout")
        return await super().on_tick(counter)


class _Protocol(HttpToolsProtocol):
    """uvicorn's, with a limit to the time and the size of a request's head."""

    max_head: int
    head_since = 0.0  # since when a head is awaited; 0 while there is none to come
    _head = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.head_since = self.loop.time()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        if not self.head_since:
            self.head_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        if self.head_since:
            self._head += len(data)
            # A body in the same chunk is no part of the head.
            if self._head > self.max_head and b"\r\n\r\n" not in data[: self.max_head + 4]:
                self.refuse(b"431 Request Header Fields Too Large")
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self.head_since = 0.0
        super().on_headers_complete()

    def refuse(self, status: bytes) -> None:
        self.head_since = 0.0
        if not self.transport.is_closing():
            head = b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(head % status)
            self.transport.close()
