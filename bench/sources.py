"""What the sources server costs: `get_sources` inside the server, and the start.

    python bench/sources.py [--quick]

A speed is given beside the goal and beside a peer of the same run: the bare server of the engine
for the start, a scan that compares the query with every category for the search.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from dovetail.servers.sources.catalog import EMBEDDED
from dovetail.servers.sources.matching import Matcher
from dovetail.servers.sources.model import Category
from dovetail.servers.sources.server import SourcesServer
from dovetail.servers.sources.service import Options, Service
from sources_matching import categories, load
from sources_methods import levenshtein

HERE = Path(__file__).parent
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}
SCALE = 10_000


class Line:
    """A connection in memory: bytes in, bytes out."""

    def __init__(self, connection) -> None:
        self.out = bytearray()
        self.connection = connection
        connection.attach(self, self)

    def write(self, data) -> None:
        self.out += data

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...

    async def ask(self, message: dict) -> bytes:
        self.out.clear()
        self.connection.feed(json.dumps(message).encode() + b"\n")
        while "id" in message and not self.out.endswith(b"\n"):  # noqa: ASYNC110
            await asyncio.sleep(0)
        return bytes(self.out)


async def inside(server, queries: list[str]) -> list[float]:
    """Seconds from the bytes of each call to the bytes of its answer."""
    async with server.running():
        line = Line(server.connection())
        await line.ask(INITIALIZE)
        await line.ask({"jsonrpc": "2.0", "method": "notifications/initialized"})
        times = []
        for number, query in enumerate(queries, 1):
            params = {"name": "get_sources", "arguments": {"query": query}}
            call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            started = time.perf_counter()
            answer = await line.ask(call)
            times.append(time.perf_counter() - started)
            assert b'"sources"' in answer, answer
        await line.connection.close()
    return times


def many(count: int) -> list[Category]:
    """So many categories: ours again and again, each with words of its own."""
    ours, rng, made = categories(), random.Random(1), []
    syllables = [a + b for a in "bcdfghjklmnprstvz" for b in "aeiou"]
    for number in range(count):
        base = ours[number % len(ours)]
        word = "".join(rng.choice(syllables) for _ in range(4))
        made.append(
            msgspec.structs.replace(
                base,
                slug=f"{base.slug}-{number}",
                name=f"{base.name} {word}",
                patterns=tuple(f"{pattern} {word}" for pattern in base.patterns[:3]),
                terms=(word,),
                hints=base.hints[:6],
            )
        )
    return made


def service_of(made: list[Category], folder: Path) -> Service:
    registry = msgspec.json.decode(EMBEDDED.read_bytes())
    path = folder / "large.json"
    path.write_bytes(msgspec.json.encode({**registry, "categories": made}))
    return Service(Options(files=[path]))


def spawn(command: list[str]) -> float:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment)
    process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    took = time.perf_counter() - started
    process.stdin.close()
    process.wait(20)
    process.stdout.close()
    return took


def row(what: str, value: str, goal: str, good: bool) -> None:
    print(f"| {what} | {value} | {goal} | {'✓' if good else '✗'} |")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench sources", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    rounds = 5 if parser.parse_args().quick else 15
    queries = [query for _, query in load(("tuned",))["tuned"]]
    print("| what | measured | goal | |\n|---|---|---|---|")

    embedded = SourcesServer(Service(Options())).server
    asyncio.run(inside(embedded, queries))
    small = statistics.median(asyncio.run(inside(embedded, queries * 3))) * 1e3
    row(
        f"get_sources p50, {len(categories())} categories",
        f"{small:.3f} ms",
        "≤ 0.5 ms",
        small <= 0.5,
    )

    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        service = service_of(many(SCALE), Path(folder))
        loaded = time.perf_counter()
        _ = service.catalog.matcher
        built = time.perf_counter()
        large_server = SourcesServer(service).server
        asyncio.run(inside(large_server, queries))
        times = asyncio.run(inside(large_server, queries))
    large = statistics.median(times) * 1e3
    row(f"get_sources p50, {SCALE:,} categories", f"{large:.2f} ms", "≤ 5 ms", large <= 5)
    row("the slowest of them", f"{max(times) * 1e3:.1f} ms", "", True)
    row(
        "reading, checking / indexing them",
        f"{loaded - started:.1f} s / {built - loaded:.1f} s",
        "",
        True,
    )

    scan, matcher = levenshtein(categories()), Matcher(categories())
    ratio = each(scan, queries) / each(matcher.rank, queries)
    row("faster than the original's scan", f"{ratio:.0f} ×", "", True)

    bare = [sys.executable, str(HERE / "servers" / "dovetail_server.py")]
    ours = [sys.executable, "-m", "dovetail.cli.main", "serve", "sources"]
    pairs = [(spawn(bare), spawn(ours)) for _ in range(rounds + 1)][1:]
    start = statistics.median(b for _, b in pairs) / statistics.median(a for a, _ in pairs)
    spent = statistics.median(b for _, b in pairs) * 1e3
    row("start beside the bare server", f"{start:.2f} × ({spent:.0f} ms)", "≤ 1.5 ×", start <= 1.5)
    return 0


def each(rank, queries: list[str]) -> float:
    started = time.perf_counter()
    for query in queries:
        rank(query)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
