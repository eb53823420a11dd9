"""What the tests of the lower layers share: a loop, a line to a server, frames."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from dovetail import Server
from dovetail.runtime.connection import Connection
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, PROTOCOL_VERSION_KEY
from dovetail.testing import Recorder

T = TypeVar("T")

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
ALL = (*HANDSHAKE, MODERN)
CLIENT = {"name": "support", "version": "1"}
PING = b'{"jsonrpc":"2.0","id":"still there?","method":"ping"}'
PONG = {"jsonrpc": "2.0", "id": "still there?", "result": {}}
# Longer than any test may take; only a test that hangs meets it.
PATIENCE = 20.0


def run(main: Coroutine[Any, Any, T], *, collect: bool = True) -> T:
    """Run a test on a loop of its own; an exception that nobody took fails it.

    Without ``collect`` such an exception may fail a later test, but a run costs little.
    """
    lost: list[dict[str, Any]] = []

    async def watched() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
        result = await asyncio.wait_for(main, PATIENCE)
        if collect:
            gc.collect()  # an exception that nobody looked at is reported when its future dies
        return result

    result = asyncio.run(watched())
    assert not lost, lost
    return result


async def until(done: Callable[[], Any]) -> None:
    """Give the loop turns until something is so; ``run`` ends a wait in vain."""
    while not done():  # noqa: ASYNC110 - what we wait for has no event to tell us
        await asyncio.sleep(0)


@contextmanager
def no_crash() -> Iterator[None]:
    """Fails if a traceback was logged: a crash of ours behind an error that says nothing."""
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]
    log = logging.getLogger("dovetail")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
    crashes = [record.exc_info for record in seen if record.exc_info]
    assert not crashes, crashes


# -- frames --------------------------------------------------------------------------


def frame(**members: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **members})


def request(id: Any, method: str, params: Any = None) -> bytes:
    given = {} if params is None else {"params": params}
    return frame(id=id, method=method, **given)


def notification(method: str, params: Any = None) -> bytes:
    return frame(method=method, **({} if params is None else {"params": params}))


def cancel(id: Any, reason: str = "changed my mind") -> bytes:
    return notification("notifications/cancelled", {"requestId": id, "reason": reason})


def initialize(revision: str = "2025-11-25", id: Any = "init") -> bytes:
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": CLIENT}
    return request(id, "initialize", params)


INITIALIZED = notification("notifications/initialized")


def meta(version: Any = MODERN, capabilities: Any = None) -> dict[str, Any]:
    """The envelope of 2026-07-28."""
    return {
        PROTOCOL_VERSION_KEY: version,
        CLIENT_CAPABILITIES_KEY: capabilities or {},
        CLIENT_INFO_KEY: CLIENT,
    }


def modern(id: Any, method: str, params: Any = None, **given: Any) -> bytes:
    return request(id, method, {**(params or {}), "_meta": meta(**given)})


def asked(revision: str, id: Any, method: str, params: Any = None) -> bytes:
    """A request as a client of ``revision`` writes it."""
    make = modern if revision == MODERN else request
    return make(id, method, params)


def error(id: Any, code: int, message: str, data: Any = None) -> dict[str, Any]:
    """An error answer; ``id=...`` (an ellipsis) for one without an id."""
    said = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0"} | ({} if id is ... else {"id": id}) | {"error": said}


# -- a line to a server --------------------------------------------------------------


class Line:
    """A server's connection with both ends in the test's hands, and a recorder on it.

    ``out`` holds the messages the server wrote, ``writes`` the pieces they came in.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.recorder = Recorder()
        self.writes: list[bytes] = []
        self.out: list[Any] = []
        self.calls: list[str] = []
        self.unsent = 0
        connection.attach(self, self)

    # What the connection sees: a reader and a writer.

    def write(self, data: bytes | bytearray) -> None:
        self.writes.append(bytes(data))
        assert data.endswith(b"\n")
        for line in bytes(data).split(b"\n")[:-1]:
            self.recorder.sent("server", line)
            self.out.append(msgspec.json.decode(line))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")

    # What the test does.

    def feed(self, *frames: bytes) -> None:
        """Frames in one chunk, followed but not judged: a test may send anything."""
        for one in frames:
            self.recorder.sent("client", one, check=False)
        self.connection.feed(b"".join(one + b"\n" for one in frames))

    async def settle(self) -> list[Any]:
        """All the server does by itself, and what it wrote since the last time."""
        await asyncio.sleep(0)
        await until(lambda: not self.connection.busy)
        return self.take()

    async def turns(self, count: int = 5) -> list[Any]:
        """A few turns of the loop, for servers that stay busy."""
        for _ in range(count):
            await asyncio.sleep(0)
        return self.take()

    def take(self) -> list[Any]:
        self.recorder.check()
        taken, self.out = self.out, []
        return taken

    async def say(self, *frames: bytes) -> list[Any]:
        self.feed(*frames)
        return await self.settle()

    async def open(self, revision: str) -> None:
        """Get the line ready for requests of ``revision``."""
        if revision != MODERN:
            (answer,) = await self.say(initialize(revision), INITIALIZED)
            assert answer["result"]["protocolVersion"] == revision


def line(server: Server) -> Line:
    return Line(server.connection())


def by_id(answers: Iterable[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    found = {answer["id"]: answer for answer in answers}
    return found
