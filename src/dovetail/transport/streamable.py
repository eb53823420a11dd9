"""The client's side of Streamable HTTP: each message of ours is a POST (digest 10.3, 10.4).

A request's POST is answered with one JSON message or with a stream of events, in which
notifications and, before 2026-07-28, requests of the server come before the answer. Up
to 2025-11-25 there may be a session, a standing GET stream, and a stream that broke off
can be resumed by its last event id.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from dovetail.core.peer import Peer
from dovetail.errors import (
    ConnectionClosed,
    DovetailError,
    HttpError,
    McpError,
    RemoteProtocolError,
    SessionLost,
)
from dovetail.runtime.connection import Connection, Tap
from dovetail.runtime.limits import Limits
from dovetail.transport.http_client import Auth, HttpClient, HttpRequest, HttpResponse
from dovetail.wire.jsonrpc import BROKEN_JSON, Envelope, Id
from dovetail.wire.sse import EventTooLong, Parser

__all__ = ["HttpConnection", "StreamableHttp"]

log = logging.getLogger("dovetail")

# Seconds before a broken stream is resumed when the server named no time. What browsers wait.
RETRY_SECONDS = 1.0
# A server that says `retry: 999999999` would keep us waiting for ever.
MAX_RETRY_SECONDS = 60.0
# Times in a row that a stream may end without a new event before we give it up.
MAX_RESUMES = 5
# Of an error page nobody reads more, and it may be endless.
MAX_ERROR_BODY = 64 * 1024
# Seconds that a stream may go on after its answer. Mostly its end is under way, and a
# connection that was read to the end can be used again.
LINGER_SECONDS = 1.0
# Seconds for the farewell; a server that does not care for it must not hold us.
DELETE_SECONDS = 2.0

_JSON = "application/json"
_EVENTS = "text/event-stream"
_decode_envelope = msgspec.json.Decoder(Envelope).decode


class StreamableHttp:
    """One endpoint. ``open`` sends nothing yet: the first request does."""

    def __init__(
        self,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        auth: Auth | None = None,
        http: HttpClient | None = None,
    ) -> None:
        self.url = url
        self.key: Any = ("http", url)
        self._headers = headers or {}
        self._auth = auth
        self._given = http
        self._connection: HttpConnection | None = None

    async def open(self, make: Callable[..., Connection]) -> Connection:
        await self.close()
        http = self._given or HttpClient(self._auth)
        connection = make(HttpConnection)
        assert isinstance(connection, HttpConnection)
        connection.aim(self.url, self._headers, http, owned=self._given is None)
        self._connection = connection
        return connection

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


class HttpConnection(Connection):
    """A connection without a pipe: what we send becomes POSTs, what comes back is received."""

    def __init__(self, peer: Peer, limits: Limits, *, on_notification: Any, tap: Tap | None):
        super().__init__(peer, limits, on_notification=on_notification, tap=tap)
        self.session_id: str | None = None
        self._exchanges: dict[Id, asyncio.Task[None]] = {}
        self._posts: set[asyncio.Task[None]] = set()
        self._standing: asyncio.Task[None] | None = None
        self._closing = False
        self.attach(_NoPipe(self), _NoPipe(self))

    def aim(self, url: str, headers: dict[str, str], http: HttpClient, *, owned: bool) -> None:
        self._url = url
        self._http = http
        self._owns_http = owned
        self._base = {**headers, "content-type": _JSON, "accept": f"{_JSON}, {_EVENTS}"}

    # -- requests ----------------------------------------------------------------------

    def start(
        self, method: str, params: Any = UNSET, headers: dict[str, str] | None = None
    ) -> tuple[Id, "asyncio.Future[Raw]"]:
        if self._closing:
            raise ConnectionClosed(self.end_reason)
        id, frame, future = self._asking.start(method, params)
        if self._tap is not None:
            self._tap("out", frame)
        sent = self._headers_of(headers)
        task = self._loop.create_task(self._exchange(id, method, frame, sent, future))
        self._exchanges[id] = task
        task.add_done_callback(lambda _: self._exchanges.pop(id, None))
        return id, future

    @property
    def held_until(self) -> float:
        return self._http.held_until

    def abandon(self, id: Id, reason: str | None = None) -> None:
        """From 2026-07-28 on closing the stream is the cancellation (digest 8.13)."""
        if not self.peer.silent:
            super().abandon(id, reason)
        if (task := self._exchanges.get(id)) is not None:
            task.cancel()

    def _headers_of(self, extra: dict[str, str] | None) -> dict[str, str]:
        headers = {**self._base, **(extra or {})}
        revision = self.peer.revision
        if revision is not None and revision.version_header:
            headers["mcp-protocol-version"] = revision.id
        if self.session_id is not None:
            headers["mcp-session-id"] = self.session_id
        return headers

    async def _exchange(
        self,
        id: Id,
        method: str,
        frame: bytes,
        headers: dict[str, str],
        future: "asyncio.Future[Raw]",
    ) -> None:
        try:
            response = await self._http.send(HttpRequest("POST", self._url, headers, frame))
            try:
                await self._answered(response, method, future)
            finally:
                response.close()
        except Exception as error:  # a hook for credentials may raise anything
            if not future.done():
                future.set_exception(error)
                future.exception()
            return
        if not future.done():
            text = f"The server answered {method!r} with another message"
            future.set_exception(RemoteProtocolError.text(text))

    async def _answered(
        self, response: HttpResponse, method: str, future: "asyncio.Future[Raw]"
    ) -> None:
        if response.status >= 400:
            raise await self._refusal(response)
        if method == "initialize":
            self.session_id = _session_id(response)
        if response.content_type == _EVENTS:
            await self._read_stream(response, future)
        elif response.content_type == _JSON:
            self.receive(await response.read(self.limits.max_frame))
        else:
            kind = response.headers.get("content-type", "nothing")
            text = f"HTTP {response.status} with {kind!r} is no answer to {method!r}"
            raise RemoteProtocolError.text(text)

    async def _refusal(self, response: HttpResponse) -> DovetailError:
        """The error in the body, if there is one; else the status itself."""
        if response.status == 404 and self.session_id is not None:
            return SessionLost(404, "the server has forgotten our session")
        body = b""
        with suppress(RemoteProtocolError, ConnectionClosed):
            body = await response.read(MAX_ERROR_BODY)
        if self._tap is not None and body:
            self._tap("in", body)
        with suppress(*BROKEN_JSON):
            error = _decode_envelope(body).error
            if error is not UNSET:
                data = None if error.data is UNSET else error.data
                refusal = McpError(error.code, error.message, data)
                refusal.status = response.status  # type: ignore[attr-defined]
                return refusal
        shown = body[:200].decode(errors="replace").strip()
        return HttpError(response.status, " ".join(shown.split()))

    # -- streams -------------------------------------------------------------------------

    async def _read_stream(self, response: HttpResponse, future: "asyncio.Future[Raw]") -> None:
        """Receive until the answer is there, resuming the stream where that is possible."""
        last_id: str | None = None
        failures, broken = 0, "the stream ended before the answer"
        while True:
            parser = Parser(self.limits.max_frame)
            parser.last_id = last_id
            try:
                async for data in self._events(response, parser):
                    self.receive(data)
                    failures = -1
                    if future.done():
                        self._loop.call_later(LINGER_SECONDS, response.close)
            except ConnectionClosed as error:
                broken = str(error)
            if future.done():
                return
            failures = 0 if parser.last_id != last_id else failures + 1
            last_id = parser.last_id
            if last_id is None or self.peer.silent or failures >= MAX_RESUMES:
                raise ConnectionClosed(broken)
            response.close()
            response = await self._resume(last_id, parser.retry_ms)

    async def _events(self, response: HttpResponse, parser: Parser) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.chunks():
                for event in parser.feed(chunk):
                    if event.event == "message":
                        yield event.data.encode()
        except EventTooLong as error:
            raise RemoteProtocolError.text(str(error)) from None

    async def _resume(self, last_id: str, retry_ms: int | None) -> HttpResponse:
        """Ask for the rest of a stream, after the time the server named (digest C24)."""
        seconds = RETRY_SECONDS if retry_ms is None else retry_ms / 1000
        await asyncio.sleep(min(seconds, MAX_RETRY_SECONDS))
        response = await self._get(last_id)
        if response.status != 200 or response.content_type != _EVENTS:
            response.close()
            raise ConnectionClosed(f"the stream cannot be resumed: HTTP {response.status}")
        return response

    async def _get(self, last_id: str | None) -> HttpResponse:
        headers = self._headers_of({"accept": _EVENTS})
        del headers["content-type"]
        if last_id is not None:
            headers["last-event-id"] = last_id
        return await self._http.send(HttpRequest("GET", self._url, headers))

    def open_stream(self) -> None:
        """Hold a GET stream for what belongs to no request, if the server has one."""
        self._standing = self._loop.create_task(self._stand())

    async def _stand(self) -> None:
        last_id: str | None = None
        failures = 0
        while failures < MAX_RESUMES:
            seconds = RETRY_SECONDS
            try:
                response = await self._get(last_id)
                if response.status != 200 or response.content_type != _EVENTS:
                    response.close()
                    return  # 405: it has none, which it may
                parser = Parser(self.limits.max_frame)
                parser.last_id = last_id
                try:
                    async for data in self._events(response, parser):
                        self.receive(data)
                        failures = -1
                finally:
                    response.close()
                    last_id = parser.last_id
                    if parser.retry_ms is not None:
                        seconds = parser.retry_ms / 1000
            except DovetailError as error:
                log.debug("the standing stream broke: %s", error)
            failures += 1
            await asyncio.sleep(min(seconds, MAX_RETRY_SECONDS))

    # -- what is no request: answers and notifications -----------------------------------

    def write(self, data: bytes | bytearray) -> None:
        """Called with whole lines."""
        if self._closing:
            return
        for line in bytes(data).split(b"\n")[:-1]:
            task = self._loop.create_task(self._post(line))
            self._posts.add(task)
            task.add_done_callback(self._posts.discard)

    async def _post(self, frame: bytes) -> None:
        try:
            request = HttpRequest("POST", self._url, self._headers_of(None), frame)
            response = await self._http.send(request)
            response.close() if response.status >= 400 else await response.read(MAX_ERROR_BODY)
            if response.status >= 400:
                log.warning("the server refused a message of ours: HTTP %d", response.status)
        except Exception as error:
            log.warning("a message of ours was not delivered: %s", error)

    async def delivered(self) -> None:
        """Wait until what was written has arrived."""
        await asyncio.sleep(0)  # it is written in the next turn of the loop
        if self._posts:
            await asyncio.wait(set(self._posts))

    # -- the end ---------------------------------------------------------------------------

    async def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self.end_reason = "the client is closed"
        running = {*self._exchanges.values(), *self._posts}
        if self._standing is not None:
            running.add(self._standing)
        self._asking.fail()
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=self.limits.stop_seconds)
        await self._say_goodbye()
        if self._owns_http:
            await self._http.close()
        await super().close()

    async def _say_goodbye(self) -> None:
        """A session we do not need any more (digest 10.3); nobody minds if that fails."""
        if self.session_id is None:
            return
        headers = self._headers_of(None)
        with suppress(Exception):
            async with asyncio.timeout(DELETE_SECONDS):
                response = await self._http.send(HttpRequest("DELETE", self._url, headers))
                response.close()


class _NoPipe:
    """What ``Connection`` writes to and reads from; back-pressure is the HTTP library's."""

    def __init__(self, connection: HttpConnection) -> None:
        self.write = connection.write

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


def _session_id(response: HttpResponse) -> str | None:
    """Visible ASCII only (digest S56); anything else could not be sent back."""
    value = response.headers.get("mcp-session-id")
    if value is not None and not all("\x21" <= c <= "\x7e" for c in value):
        raise RemoteProtocolError.text("The session id has characters it must not have")
    return value or None
