"""Fuzz a whole connection: bytes into ``Connection.feed`` of a server with one of everything.

Nothing may escape: no exception from ``feed``, none in a task or callback of the loop, no crash
that was logged and hidden behind -32603. Whatever came in, every byte that goes out is a
well-formed JSON-RPC answer on a line of its own, nothing is left running, and the connection
still answers a ping.

Run it through ``fuzz/run.py``. Given files instead of a corpus, it replays them.
"""

import asyncio
import json
import logging
import sys
from typing import Any

import atheris

with atheris.instrument_imports(include=["dovetail"]):
    from dovetail import Context, Limits, McpError, Server, ToolError
    from dovetail.runtime.connection import Connection

from seeds import REVISIONS, initialize, write_corpus

LIMITS = Limits(max_frame=4096, max_depth=24, max_in_flight=3, max_queued=4, max_queued_bytes=2048)
MODES = (None, *REVISIONS[:4])
HIDDEN: list[Any] = []


class Hidden(logging.Handler):
    """A traceback in the log is a crash that the client was told nothing of."""

    def emit(self, record: logging.LogRecord) -> None:
        HIDDEN.append(record.exc_info[1] if record.exc_info else record.getMessage())


def build(**policy: Any) -> Server:
    server = Server("fuzzed", version="1", limits=LIMITS, page_size=2, **policy)

    @server.tool
    async def add(a: int, b: int = 2) -> int:
        return a + b

    @server.tool
    async def later(texts: list[str], ctx: Context) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"texts": texts, "meta": ctx.meta, "by": str(ctx.client)}

    @server.tool
    async def fail(code: int, text: str | None = None) -> None:
        if text is None:
            raise McpError(code, data={"code": code})
        raise ToolError(text)

    @server.tool(inline=True)
    def half(x: float) -> float:
        return x / 2

    @server.resource("mem://one")
    async def one() -> str:
        return "1"

    @server.resource("mem://item/{name}")
    async def item(name: str) -> bytes:
        return name.encode()

    @server.prompt
    async def review(code: str, style: str = "strict") -> str:
        return f"{style}: {code}"

    @review.complete("style")
    async def styles(prefix: str) -> list[str]:
        return [style for style in ("strict", "kind") if style.startswith(prefix)]

    return server


SERVERS = (build(), build(handshake="strict", errors="minimal", bad_arguments="error"))


class Collector:
    """Both ends of the transport: keeps what is written."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes | bytearray) -> None:
        self.data += data

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


async def converse(data: bytes) -> None:
    mode, step, stream = data[0], data[1] % 64 + 1, data[2:]
    connection = SERVERS[mode & 1].connection()
    out = Collector()
    connection.attach(out, out)
    revision = MODES[(mode >> 1) % len(MODES)]
    if revision is not None:
        connection.feed(initialize(revision) + b"\n")
    chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
    for number, chunk in enumerate(chunks):
        connection.feed(chunk)
        if mode & 64:
            await asyncio.sleep(0)
        if mode & 128 and number % 3 == 0:
            connection.pause_writing()
        elif number % 3 == 2:
            connection.resume_writing()
    connection.resume_writing()
    connection.feed(b"\n")
    await settled(connection)
    check_output(out.data)
    out.data.clear()
    connection.feed(b'{"jsonrpc":"2.0","id":"still-there?","method":"ping"}\n')
    await settled(connection)
    assert json.loads(out.data) == {"jsonrpc": "2.0", "id": "still-there?", "result": {}}
    assert not connection.peer.in_flight
    await connection.close()


async def settled(connection: Connection) -> None:
    for _ in range(1000):
        await asyncio.sleep(0)
        if not connection.busy:
            return
    raise AssertionError("still busy after 1,000 turns of the loop")


def check_output(data: bytearray) -> None:
    assert not data or data.endswith(b"\n")
    for line in data.split(b"\n")[:-1]:
        value = json.loads(line)
        answers = value if isinstance(value, list) else [value]
        assert answers
        for answer in answers:
            assert answer["jsonrpc"] == "2.0"
            assert ("result" in answer) != ("error" in answer)
            if "error" in answer:
                assert type(answer["error"]["code"]) is int
                assert isinstance(answer["error"]["message"], str)


LOOP = asyncio.new_event_loop()


def one(data: bytes) -> None:
    """First byte: server, revision, pauses; second: the size of the chunks."""
    if len(data) < 2:
        return
    HIDDEN.clear()
    LOOP.run_until_complete(converse(data))
    if HIDDEN:
        found = HIDDEN[0]
        raise found if isinstance(found, BaseException) else AssertionError(found)


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "--seed":
        for mode in range(10):
            write_corpus(sys.argv[2], prefix=bytes([mode, 63]))
        return
    logging.getLogger("dovetail").addHandler(Hidden())
    logging.getLogger("dovetail").propagate = False
    LOOP.set_exception_handler(
        lambda _, context: HIDDEN.append(context.get("exception") or context)
    )
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
