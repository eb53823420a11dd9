"""What the client's tests share: a recorder on the line, and servers that misbehave on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dovetail import Client, Context, Server
from dovetail.client.negotiate import Verdicts
from dovetail.runtime.connection import Connection
from dovetail.testing import Recorder

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
ALL = (*HANDSHAKE, MODERN)


def demo(**options: Any) -> Server:
    """A server with something of everything."""
    server = Server("demo", version="1.2.3", instructions="Be gentle.", **options)

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def fail() -> str:
        raise ValueError("secret")

    @server.tool
    async def steps(n: int, *, ctx: Context[Any]) -> str:
        for i in range(n):
            ctx.progress(i + 1, n, f"step {i + 1}")
            await asyncio.sleep(0)
        return "done"

    @server.resource("demo://text")
    def text() -> str:
        return "hello"

    @server.resource("demo://item/{id}")
    def item(id: str) -> str:
        return f"item {id}"

    @item.complete("id")
    def ids(prefix: str) -> list[str]:
        return [prefix + "1", prefix + "2"]

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    return server


def taped(recorder: Recorder) -> Callable[[str, bytes], None]:
    """The client's tap as a recorder: what goes out is the client's."""

    def tap(direction: str, frame: bytes) -> None:
        recorder.sent("client" if direction == "out" else "server", frame)

    return tap


@asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncIterator[tuple[Client, Recorder]]:
    """A client in memory; at the end every message of both sides must have been legal."""
    recorder = Recorder()
    options.setdefault("known", Verdicts())
    async with Client.memory(server, tap=taped(recorder), **options) as client:
        yield client, recorder
    recorder.check()


def sent(recorder: Recorder, method: str) -> list[dict[str, Any]]:
    """What the client sent under this method."""
    return [m for who, m in recorder.messages if who == "client" and m.get("method") == method]


class Line:
    """A transport whose other end is a function: it gets each message, and writes bytes."""

    def __init__(self, serve: Callable[[dict[str, Any], Line], Any]) -> None:
        self.key = object()
        self._serve = serve
        self.received: list[dict[str, Any]] = []
        self.opened = 0
        self.connection: Connection

    async def open(self, make: Callable[..., Connection]) -> Connection:
        self.opened += 1
        self.connection = make()
        pipe = _Pipe(self)
        self.connection.attach(pipe, pipe)
        return self.connection

    async def close(self) -> None:
        if self.opened:
            await self.connection.close()

    def write(self, data: bytes | bytearray) -> None:
        loop = asyncio.get_running_loop()
        for line in bytes(data).splitlines():
            message = msgspec.json.decode(line)
            self.received.append(message)
            loop.call_soon(self._serve, message, self)

    # -- what a misbehaving server does ----------------------------------------------------

    def say(self, **message: Any) -> None:
        self.raw(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")

    def raw(self, data: bytes) -> None:
        self.connection.feed(data)

    def result(self, request: dict[str, Any], result: Any) -> None:
        self.say(id=request["id"], result=result)

    def error(self, request: dict[str, Any], code: int, text: str, data: Any = None) -> None:
        more = {} if data is None else {"data": data}
        self.say(id=request["id"], error={"code": code, "message": text, **more})

    def hang_up(self) -> None:
        self.connection.end_of_input()
        self.connection.stop()


class _Pipe:
    def __init__(self, line: Line) -> None:
        self.write = line.write

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


TOOLS = {"tools": {"listChanged": True}}
ADD = {"name": "add", "inputSchema": {"type": "object"}}
TEXT = {"content": [{"type": "text", "text": "ok"}]}


def shake(
    message: dict[str, Any],
    line: Line,
    *,
    revision: str = "2025-11-25",
    capabilities: dict[str, Any] | None = None,
    tools: list[dict[str, Any]] | None = None,
) -> bool:
    """Answer what opens a connection of this revision, and the list of tools. True if it was."""
    method = message.get("method")
    offered = TOOLS if capabilities is None else capabilities
    if method == "server/discover" and revision != MODERN:
        line.error(message, -32601, "Method not found")
    elif method == "server/discover":
        line.result(message, {**stamped(), "supportedVersions": [MODERN], "capabilities": offered})
    elif method == "initialize":
        info = {"name": "line", "version": "1"}
        answer = {"protocolVersion": revision, "capabilities": offered, "serverInfo": info}
        line.result(message, answer)
    elif method == "tools/list":
        listed = {"tools": [ADD] if tools is None else tools}
        line.result(message, {**(stamped() if revision == MODERN else {}), **listed})
    else:
        return method == "notifications/initialized"
    return True


def stamped(ttl: int = 0) -> dict[str, Any]:
    return {"resultType": "complete", "ttlMs": ttl, "cacheScope": "private"}


def script(
    answer: Callable[[dict[str, Any], Line], Any], revision: str = "2025-11-25", **options: Any
) -> Line:
    """A line that opens as it should; the rest is up to ``answer``."""

    def serve(message: dict[str, Any], line: Line) -> None:
        if not shake(message, line, revision=revision, **options):
            answer(message, line)

    return Line(serve)


def over(line: Line, **options: Any) -> Client:
    options.setdefault("known", Verdicts())
    return Client(line, **options)
