"""The user's browser: how a question gets there and how the answer comes back.

``LoopbackBrowser`` opens it and listens on this machine for the redirect (RFC 8252 §7.3);
``OwnBrowser`` is for programs that have a page of their own to be called back at.
"""

from __future__ import annotations

import asyncio
import html
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

from dovetail.client.oauth.authorize import parameters
from dovetail.client.oauth.urls import is_loopback
from dovetail.errors import AuthorizationError

# What a browser sends for a redirect, cookies of other local servers included.
MAX_HEAD = 64 * 1024
# Seconds one connection of a browser may take to say what it wants.
HEAD_SECONDS = 10.0
# Seconds a user has. Signing in with a second factor takes minutes, not hours.
USER_SECONDS = 300.0


class Visit(Protocol):
    """One question: where its answer will come, and the way to ask it."""

    redirect_uri: str

    async def ask(self, url: str, state: str) -> str:
        """Show ``url`` to the user; the URL the browser was sent back to."""


class Browser(Protocol):
    def visit(self, registered: Sequence[str]) -> AbstractAsyncContextManager[Visit]:
        """Get ready. ``registered`` are the redirect URIs that are known already, if any."""


class OwnBrowser:
    """A redirect URI somebody else serves: ``ask`` shows the URL and returns the callback."""

    def __init__(self, redirect_uri: str, ask: Callable[[str], Awaitable[str]]) -> None:
        self.redirect_uri = redirect_uri
        self._ask = ask

    @asynccontextmanager
    async def visit(self, registered: Sequence[str]) -> AsyncIterator[Visit]:
        yield self

    async def ask(self, url: str, state: str) -> str:
        return await self._ask(url)


def open_browser(url: str) -> bool:
    """The desktop's browser; no shell sees the URL."""
    return webbrowser.open(url)


class LoopbackBrowser:
    """Opens the browser and waits on this machine. Port 0 takes any free one."""

    def __init__(
        self,
        redirect_uri: str = "http://127.0.0.1:0/callback",
        *,
        opener: Callable[[str], bool] = open_browser,
        seconds: float = USER_SECONDS,
    ) -> None:
        parts = urlsplit(redirect_uri)
        if parts.scheme != "http" or not is_loopback(parts.hostname or ""):
            raise ValueError(f"a loopback redirect URI begins http://127.0.0.1, not {redirect_uri}")
        self._host, self._port, self._path = parts.hostname or "", parts.port or 0, parts.path
        self._opener = opener
        self._seconds = seconds

    @asynccontextmanager
    async def visit(self, registered: Sequence[str]) -> AsyncIterator[Visit]:
        receiver = _Receiver(self._path, self._opener, self._seconds)
        server = await self._listen(receiver, registered)
        port = server.sockets[0].getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        receiver.redirect_uri = f"http://{host}:{port}{self._path}"
        try:
            yield receiver
        finally:
            server.close()
            await receiver.stop()

    async def _listen(self, receiver: _Receiver, registered: Sequence[str]) -> asyncio.Server:
        """The port that is registered already, if it is free; else one we choose."""
        ports = [self._port] if self._port else [*_ports(registered, self._host, self._path), 0]
        # One address, or "any free port" would be two different ones.
        host = "127.0.0.1" if self._host.endswith("localhost") else self._host
        for port in ports:
            try:
                return await asyncio.start_server(receiver.accept, host, port, limit=MAX_HEAD)
            except OSError as error:
                reason = error.strerror or str(error)
        raise AuthorizationError(f"cannot listen on {self._host}:{port} for the browser: {reason}")


def _ports(registered: Sequence[str], host: str, path: str) -> list[int]:
    uris = (urlsplit(uri) for uri in registered)
    return [uri.port for uri in uris if uri.port and uri.hostname == host and uri.path == path]


class _Receiver:
    """A web server for one request. It shows nothing it was sent."""

    redirect_uri = ""

    def __init__(self, path: str, opener: Callable[[str], bool], seconds: float) -> None:
        self._path = path
        self._opener = opener
        self._seconds = seconds
        self._state = ""
        self._answer: asyncio.Future[str] | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def ask(self, url: str, state: str) -> str:
        self._state = state
        self._answer = asyncio.get_running_loop().create_future()
        # In a thread: some openers wait for the browser to start.
        if not await asyncio.to_thread(self._opener, url):
            raise AuthorizationError(
                "no browser could be opened; an `opener` can show the user where to go"
            )
        try:
            return await asyncio.wait_for(self._answer, self._seconds)
        except TimeoutError:
            raise AuthorizationError(f"nobody answered within {self._seconds:g} s") from None

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._reply(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a browser that does not speak, or is gone, is no answer
        finally:
            del self._open[task]
            writer.close()

    async def stop(self) -> None:
        """End connections that a browser only holds open; a page being sent still leaves."""
        tasks = list(self._open)
        for writer in self._open.values():
            writer.close()
        await asyncio.gather(*tasks)

    def _reply(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        method, _, target = lines[0].partition(" ")
        target = target.partition(" ")[0]
        if method != "GET" or target.partition("?")[0] != self._path:
            return _page(404, "There is nothing here.")
        # Another page could have its own name resolve to this machine (DNS rebinding).
        if _header(lines, "host") != urlsplit(self.redirect_uri).netloc:
            return _page(403, "This is not the address that was registered.")
        callback = self.redirect_uri + target[len(self._path) :]
        if not self._expected(callback) or self._answer is None or self._answer.done():
            return _page(400, "This is not the answer to a question that was asked.")
        self._answer.set_result(callback)
        return _page(200, "Thank you. You can close this page and go back to the program.")

    def _expected(self, callback: str) -> bool:
        """Any page may send a browser here; only the answer to our question ends the wait."""
        try:
            return parameters(callback).get("state") == self._state
        except AuthorizationError:
            return False


def _header(lines: list[str], name: str) -> str:
    for line in lines[1:]:
        key, _, value = line.partition(":")
        if key.strip().lower() == name:
            return value.strip()
    return ""


_PHRASES = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}


def _page(status: int, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>MCP</title><p>{html.escape(text)}"
    head = (
        f"HTTP/1.1 {status} {_PHRASES[status]}\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body.encode())}\r\n"
        "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body.encode()
