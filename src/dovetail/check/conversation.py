"""A conversation with the server under test, in one revision, by raw frames.

It does what a client of the revision does to get a word in: the handshake, or
the envelope of 2026-07-28. Whatever else is sent, a probe writes itself.
"""

import asyncio
import json
from typing import Any, Protocol

from dovetail.check.channel import Channel, Closed, Entry
from dovetail.check.rules import Broken
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, PROTOCOL_VERSION_KEY
from dovetail.spec.revisions import Revision

__all__ = [
    "CLIENT_INFO",
    "Conversation",
    "Message",
    "StreamConversation",
    "code_of",
    "is_answer",
    "messages",
    "written",
]

Message = dict[str, Any]
CLIENT_INFO = {"name": "dovetail-check", "version": "1"}


def written(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def code_of(answer: Message) -> int | None:
    """The code of an error answer, None of any other."""
    error = answer.get("error")
    return error.get("code") if isinstance(error, dict) else None


class Conversation(Protocol):
    """What probes use, over any transport."""

    revision: Revision
    patience: float
    write: "Writer"
    greeting: Message  # the result of initialize or server/discover

    @property
    def log(self) -> list[Entry]: ...

    @property
    def capabilities(self) -> Message:
        """What the server declared."""
        ...

    async def greet(self) -> Message:
        """The handshake, or discovery; its answer."""
        ...

    def frame(self, method: str, params: Message | None = None, **members: Any) -> bytes:
        """A request with an id of its own, as bytes; members replace or add, None leaves out."""
        ...

    async def request(self, method: str, params: Message | None = None, **members: Any) -> Message:
        """Send a request and wait for its answer."""
        ...

    async def provoke(self, frame: bytes) -> list[Message]:
        """Send any bytes; what came back before an ordinary request was answered."""
        ...

    def take_events(self) -> list[Message]:
        """Notifications and requests of the server since the last time."""
        ...

    def last_words(self) -> str:
        """What the server said for people before it went."""
        ...

    async def close(self) -> None: ...


def envelope(revision: Revision) -> Message:
    return {
        PROTOCOL_VERSION_KEY: revision.id,
        CLIENT_CAPABILITIES_KEY: {},
        CLIENT_INFO_KEY: CLIENT_INFO,
    }


class Writer:
    """Numbers requests and writes them as the revision wants them."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self._last_id = 0

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def message(self, method: str, params: Message | None = None, **members: Any) -> Message:
        if self.revision.modern and method != "initialize":
            params = dict(params or {})
            params["_meta"] = envelope(self.revision) | params.get("_meta", {})
        message: Message = {"jsonrpc": "2.0", "id": self.next_id(), "method": method}
        if params is not None:
            message["params"] = params
        message |= members
        return message

    def harmless(self) -> Message:
        """A request that every server answers and that changes nothing."""
        return self.message("server/discover" if self.revision.modern else "ping")

    def greeting(self, version: str | None = None) -> Message:
        """The first request of a conversation."""
        if self.revision.modern:
            return self.message("server/discover")
        params = {
            "protocolVersion": version or self.revision.id,
            "capabilities": {},
            "clientInfo": CLIENT_INFO,
        }
        return self.message("initialize", params)


class StreamConversation:
    """Over stdio or WebSocket: answers come when they come, so silence is found by asking
    something harmless afterwards and seeing its answer arrive alone."""

    def __init__(self, channel: Channel, revision: Revision, patience: float) -> None:
        self.channel = channel
        self.revision = revision
        self.patience = patience
        self.greeting: Message = {}
        self.write = Writer(revision)
        self._events: list[Message] = []
        self._stray: list[Message] = []  # answers nobody waited for
        self._answered: set[Any] = set()

    @property
    def log(self) -> list[Entry]:
        return self.channel.log

    @property
    def capabilities(self) -> Message:
        found = self.greeting.get("capabilities")
        return found if isinstance(found, dict) else {}

    async def greet(self) -> Message:
        """The handshake, or discovery; its answer."""
        answer = await self.ask(self.write.greeting())
        result = answer.get("result")
        self.greeting = result if isinstance(result, dict) else {}
        if not self.revision.modern:
            await self.channel.send(
                written({"jsonrpc": "2.0", "method": "notifications/initialized"})
            )
        return answer

    def frame(self, method: str, params: Message | None = None, **members: Any) -> bytes:
        return written(self.write.message(method, params, **members))

    async def request(self, method: str, params: Message | None = None, **members: Any) -> Message:
        return await self.ask(self.write.message(method, params, **members))

    async def ask(self, message: Message) -> Message:
        await self.channel.send(written(message))
        return await self.answer_to(message["id"])

    async def answer_to(self, id: Any) -> Message:
        """The answer under this id; other answers are kept apart."""
        async with _deadline(self.patience, f"no answer to request {id!r}"):
            while True:
                for message in await self._next():
                    if is_answer(message, id):
                        self._answered.add(id)
                        return message
                    self._sort(message)

    async def provoke(self, frame: bytes) -> list[Message]:
        self._stray.clear()
        await self.channel.send(frame)
        return await self.settle()

    async def settle(self) -> list[Message]:
        """Answers that came before two harmless requests, one after the other, had theirs."""
        for _ in range(2):
            await self.ask(self.harmless())
        found, self._stray = self._stray, []
        return found

    async def linger(self, seconds: float) -> list[Message]:
        """For a server that answers late: what comes within this time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not self._stray and (left := end - loop.time()) > 0:
            if (frame := await self.channel.receive(left)) is not None:
                for message in messages(frame):
                    self._sort(message)
        found, self._stray = self._stray, []
        return found

    def harmless(self) -> Message:
        return self.write.harmless()

    async def _next(self) -> list[Message]:
        frame = await self.channel.receive(self.patience)
        return [] if frame is None else messages(frame)

    def _sort(self, message: Message) -> None:
        if "method" in message:
            self._events.append(message)
        elif not _hashable(message.get("id")) or message.get("id") not in self._answered:
            self._stray.append(message)  # a second answer is no answer to what comes now

    def take_events(self) -> list[Message]:
        events, self._events = self._events, []
        return events

    def last_words(self) -> str:
        return self.channel.last_words()

    async def close(self) -> None:
        await self.channel.close()


def messages(frame: bytes) -> list[Message]:
    """The messages of a frame; what is none is left to the rule that reads the log."""
    try:
        value = json.loads(frame)
    except (ValueError, RecursionError):
        return []
    return [
        item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)
    ]


def is_answer(message: Message, id: Any) -> bool:
    found = message.get("id")
    return "method" not in message and found == id and type(found) is type(id)


def _hashable(id: Any) -> bool:
    return isinstance(id, int | str)


class _deadline:
    """A hang of the server is a breach of whatever was being tried."""

    def __init__(self, seconds: float, what: str) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._what = what
        self._seconds = seconds

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise Broken(f"{self._what} within {self._seconds:g} s") from None
        if isinstance(error, Closed):
            raise Broken(f"{self._what}: {error}") from None
