"""How fast a server answers: start-up, one call at a time, many at once, memory.

Figures of one machine and one moment. The reference, in the same run, is a loop
of asyncio that only decodes and answers, so that they can be compared.
"""

import asyncio
import statistics
import sys
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from dovetail.check.channel import StdioChannel
from dovetail.check.conversation import Conversation, StreamConversation, written
from dovetail.check.target import StdioTarget, Target
from dovetail.spec.revisions import Revision

__all__ = ["Speed", "measure", "reference"]

_SPAWNS = 5
_SINGLE = 500
_MANY = 2000

_REFERENCE = """
import asyncio, json, sys
async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out, _ = await loop.connect_write_pipe(asyncio.Protocol, sys.stdout)
    while line := await reader.readline():
        message = json.loads(line)
        if "id" in message:
            info = {"protocolVersion": "2025-11-25", "capabilities": {},
                    "supportedVersions": ["2026-07-28"], "serverInfo": {"name": "bare"}}
            result = info if message["method"] in ("initialize", "server/discover") else {}
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            out.write(json.dumps(answer).encode() + b"\\n")
asyncio.run(main())
"""


class Speed(Struct, frozen=True):
    """Seconds, requests a second, and bytes; None where a transport does not show it."""

    start: float | None
    p50: float
    p99: float
    rate: float
    memory: int | None


async def measure(target: Target, revision: Revision) -> Speed:
    start = None
    if target.transport == "stdio":
        start = min([await _start(target, revision) for _ in range(_SPAWNS)])
    talk = await target.open(revision)
    try:
        await talk.greet()
        single = sorted([await _one(talk) for _ in range(_SINGLE)])
        rate = await _many(talk)
        p99 = single[int(len(single) * 0.99)]
        return Speed(start, statistics.median(single), p99, rate, _memory(talk))
    finally:
        await talk.close()


async def reference(revision: Revision) -> Speed:
    return await measure(StdioTarget([sys.executable, "-c", _REFERENCE]), revision)


async def _start(target: Target, revision: Revision) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    talk = await target.open(revision)
    try:
        await talk.greet()
        return clock() - began
    finally:
        await talk.close()


async def _one(talk: Conversation) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await talk.request("server/discover" if talk.revision.modern else "ping")
    return clock() - began


async def _many(talk: Conversation) -> float:
    """Requests a second with many under way: all at once on a stream, sixteen at a time on HTTP."""
    clock = asyncio.get_running_loop().time
    began = clock()
    if isinstance(talk, StreamConversation):
        sent = [talk.write.harmless() for _ in range(_MANY)]
        for message in sent:
            await talk.channel.send(written(message))
        for message in sent:
            await talk.answer_to(message["id"])
    else:
        places = asyncio.Semaphore(16)

        async def one() -> None:
            async with places:
                await _one(talk)

        await asyncio.gather(*(one() for _ in range(_MANY // 4)))
        return _MANY // 4 / (clock() - began)
    return _MANY / (clock() - began)


def _memory(talk: Conversation) -> int | None:
    """What the process holds for itself, where it is ours and the system tells."""
    if not isinstance(talk, StreamConversation) or not isinstance(talk.channel, StdioChannel):
        return None
    with suppress(OSError):
        status = Path(f"/proc/{talk.channel.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024
    return None
