"""Streamable HTTP by hand: every header is the probe's own, and the status is what it reads."""

import asyncio
import base64
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import h11
from msgspec import Struct

from dovetail.check.channel import Closed, Entry
from dovetail.check.conversation import Message, Writer, is_answer, messages, written
from dovetail.check.rules import Broken
from dovetail.spec.revisions import Revision
from dovetail.wire.sse import Parser

__all__ = ["HttpConversation", "HttpTarget", "Reply"]

_CHUNK = 65536
_BOTH = "application/json, text/event-stream"
# What names the thing a request is about, and so is repeated in a header (2026-07-28).
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

Headers = Mapping[str, str | None]  # None: leave it out
Until = Callable[[Message], bool]


class Reply(Struct):
    """One HTTP answer. ``messages`` are those of its body, JSON or events."""

    status: int = 0
    headers: dict[str, str] = {}
    messages: list[Message] = []
    event_ids: list[str] = []


class HttpTarget:
    transport = "http"

    def __init__(
        self, url: str, calls: dict[str, Message], patience: float, headers: Mapping[str, str]
    ) -> None:
        self.url = url
        self.calls = calls
        self.patience = patience
        self.headers = dict(headers)  # of the user's: a token, mostly

    async def open(self, revision: Revision) -> "HttpConversation":
        return HttpConversation(self, revision)

    def __str__(self) -> str:
        return self.url


class HttpConversation:
    """A session of the handshake era, or requests of 2026-07-28 that need none."""

    def __init__(self, target: HttpTarget, revision: Revision) -> None:
        self.target = target
        self.revision = revision
        self.patience = target.patience
        self.greeting: Message = {}
        self.session: str | None = None
        self.write = Writer(revision)
        self.log: list[Entry] = []
        self.last_status = 0
        self._events: list[Message] = []

    @property
    def capabilities(self) -> Message:
        found = self.greeting.get("capabilities")
        return found if isinstance(found, dict) else {}

    async def greet(self) -> Message:
        message = self.write.greeting()
        reply = await self.post(message)
        self.session = reply.headers.get("mcp-session-id")
        answer = next((m for m in reply.messages if is_answer(m, message["id"])), None)
        if answer is None:
            raise Broken(f"the first request got status {reply.status} and no answer")
        result = answer.get("result")
        self.greeting = result if isinstance(result, dict) else {}
        if not self.revision.modern and "result" in answer:
            await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def frame(self, method: str, params: Message | None = None, **members: Any) -> bytes:
        return written(self.write.message(method, params, **members))

    async def request(self, method: str, params: Message | None = None, **members: Any) -> Message:
        message = self.write.message(method, params, **members)
        reply = await self.post(message)
        for found in reply.messages:
            if is_answer(found, message["id"]):
                return found
        raise Broken(f"no answer to {method}: status {reply.status}, {str(reply.messages)[:200]}")

    async def provoke(self, frame: bytes) -> list[Message]:
        found = messages(frame)
        headers = self.headers_for(found[0] if len(found) == 1 else {})
        reply = await self.exchange("POST", headers, frame)
        return [message for message in reply.messages if "method" not in message]

    async def post(self, message: Message, headers: Headers | None = None) -> Reply:
        """A message with the headers it should have; those given replace them."""
        merged = self.headers_for(message) | dict(headers or {})
        return await self.exchange("POST", merged, written(message), message.get("id"))

    def headers_for(self, message: Message) -> dict[str, str | None]:
        headers: dict[str, str | None] = {"accept": _BOTH, "content-type": "application/json"}
        if self.session is not None:
            headers["mcp-session-id"] = self.session
        if self.revision.modern:
            headers |= _modern_headers(self.revision.id, message)
        elif message.get("method") != "initialize" and self.revision.letter >= "C":
            headers["mcp-protocol-version"] = self.revision.id
        return headers

    async def exchange(
        self,
        method: str,
        headers: Headers,
        body: bytes = b"",
        id: Any = None,
        until: Until | None = None,
    ) -> Reply:
        """One HTTP exchange. A stream is read until the answer to ``id`` or ``until`` holds."""
        if body:
            self.log.append(Entry("sent", body))
        done = until or (lambda message: id is not None and is_answer(message, id))
        try:
            async with asyncio.timeout(self.patience):
                reply = await _Exchange(self._received, done).run(
                    self.target.url, method, {**self.target.headers, **headers}, body
                )
        except TimeoutError:
            raise Broken(f"no answer within {self.patience:g} s") from None
        except (OSError, EOFError, h11.RemoteProtocolError) as error:
            raise Closed(f"the server hung up: {error!r}") from None
        self.last_status = reply.status
        return reply

    async def open_stream(self, headers: Headers) -> Reply:
        """GET, and only what comes before the first event."""
        run = _Exchange(self._received, lambda message: False, head_only=True)
        try:
            async with asyncio.timeout(self.patience):
                return await run.run(
                    self.target.url, "GET", {**self.target.headers, **headers}, b""
                )
        except TimeoutError:
            raise Broken(f"no answer to GET within {self.patience:g} s") from None

    def _received(self, frame: bytes) -> list[Message]:
        self.log.append(Entry("received", frame))
        found = messages(frame)
        self._events += [message for message in found if "method" in message]
        return found

    def take_events(self) -> list[Message]:
        events, self._events = self._events, []
        return events

    def last_words(self) -> str:
        return ""

    async def close(self) -> None:
        if self.session is not None:
            with suppress(Broken, Closed):
                await self.exchange("DELETE", self.headers_for({}))


def _modern_headers(revision: str, message: Message) -> dict[str, str | None]:
    """The headers that repeat what a request of 2026-07-28 is about."""
    headers: dict[str, str | None] = {"mcp-protocol-version": revision}
    method, params = message.get("method"), message.get("params")
    if isinstance(method, str):
        headers["mcp-method"] = method
    name = params.get(_NAMED.get(str(method), "")) if isinstance(params, dict) else None
    if isinstance(name, str):
        headers["mcp-name"] = header_value(name)
    return headers


def header_value(value: str) -> str:
    """Text that no header can hold is sent as base64 (2026-07-28, Streamable HTTP)."""
    plain = value.isascii() and value.isprintable() and value.strip() == value
    if plain and not value.startswith("=?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


class _Exchange:
    """One connection, one request, one answer."""

    def __init__(
        self, received: Callable[[bytes], list[Message]], done: Until, *, head_only: bool = False
    ) -> None:
        self._received = received
        self._head_only = head_only
        self._done = done
        self._reply = Reply()
        self._parser = h11.Connection(our_role=h11.CLIENT)
        self._events: Parser | None = None
        self._body = bytearray()

    async def run(self, url: str, method: str, headers: Headers, body: bytes) -> Reply:
        place = urlsplit(url)
        secure = ssl.create_default_context() if place.scheme == "https" else None
        port = place.port or (443 if secure else 80)
        reader, writer = await asyncio.open_connection(place.hostname, port, ssl=secure)
        try:
            path = (place.path or "/") + (f"?{place.query}" if place.query else "")
            lines = {"host": place.netloc, "connection": "close", **headers}
            writer.write(self._request(method, path, lines, body))
            await writer.drain()
            while not self._read_one():
                self._parser.receive_data(await reader.read(_CHUNK))
            return self._reply
        finally:
            writer.close()
            with suppress(OSError, ssl.SSLError):
                await writer.wait_closed()

    def _request(self, method: str, path: str, headers: Headers, body: bytes) -> bytes:
        fields = [(name, value) for name, value in headers.items() if value is not None]
        if body:
            fields.append(("content-length", str(len(body))))
        head = h11.Request(method=method, target=path, headers=fields)
        parts = [head, h11.Data(data=body), h11.EndOfMessage()]
        return b"".join(self._parser.send(part) or b"" for part in parts)

    def _read_one(self) -> bool:
        """Take what the parser has; whether the answer is complete."""
        while (event := self._parser.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Response):
                self._begin(event)
                if self._head_only:
                    return True
            elif isinstance(event, h11.Data) and self._events is not None:
                if self._take(bytes(event.data)):
                    return True
            elif isinstance(event, h11.Data):
                self._body += event.data
            else:
                if self._body.strip():
                    self._reply.messages += self._received(bytes(self._body))
                return True
        return False

    def _begin(self, response: h11.Response) -> None:
        self._reply.status = response.status_code
        for name, value in response.headers:
            self._reply.headers[name.decode().lower()] = value.decode("latin-1")
        if self._reply.headers.get("content-type", "").startswith("text/event-stream"):
            self._events = Parser()

    def _take(self, data: bytes) -> bool:
        """Events of a stream; whether what is waited for is among them."""
        assert self._events is not None
        for event in self._events.feed(data):
            if event.id is not None:
                self._reply.event_ids.append(event.id)
            if not event.data:
                continue
            found = self._received(event.data.encode())
            self._reply.messages += found
            if any(self._done(message) for message in found):
                return True
        if not self._reply.event_ids and self._events.last_id is not None:
            self._reply.event_ids.append(self._events.last_id)  # of the event that primes a stream
        return False
