"""The benchmark over HTTP: `scripts/bench http`. Rates, sessions, memory; all on uvicorn."""

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from http_driver import (
    MODERN,
    HttpFailed,
    Load,
    blocks,
    call,
    load,
    open_session,
    open_stream,
    post,
    rss,
    running,
)

HERE = Path(__file__).resolve().parent
CONNECTIONS = 16
IDLE = 1_000
ABANDONED = 10_000
EXPIRY = 5.0


@dataclass(frozen=True)
class Case:
    name: str
    era: str  # "modern" or "session"
    command: tuple[str, ...]


@dataclass(frozen=True)
class Goal:
    """The rate of one case is so many times that of another."""

    text: str
    ours: str
    theirs: str
    least: float


GOALS = (
    Goal("2026-07-28 call / bare ASGI application", "dovetail-2026", "bare", 0.7),
    Goal("2026-07-28 call / mcp", "dovetail-2026", "mcp-2026", 8),
    Goal("session, JSON answer / mcp with JSON answers", "dovetail-json", "mcp-json", 20),
    Goal("session, JSON answer / mcp as it comes, with SSE", "dovetail-json", "mcp-sse", 20),
    Goal("session, SSE answer / mcp", "dovetail-sse", "mcp-sse", 15),
    Goal("session, JSON answer / chuk-mcp-server", "dovetail-json", "chuk", 4),
)


def cases(ours: str, peers: str) -> list[Case]:
    def server(python: str, file: str, *options: str) -> tuple[str, ...]:
        return (python, str(HERE / "servers" / file), *options)

    return [
        Case("bare", "modern", server(ours, "http_bare.py")),
        Case("dovetail-2026", "modern", server(ours, "http_dovetail.py")),
        Case("mcp-2026", "modern", server(peers, "http_mcp.py")),
        Case("dovetail-json", "session", server(ours, "http_dovetail.py")),
        Case("mcp-json", "session", server(peers, "http_mcp.py", "--json")),
        Case("chuk", "session", server(peers, "http_chuk.py")),
        Case("dovetail-sse", "session", server(ours, "http_dovetail.py", "--sse")),
        Case("mcp-sse", "session", server(peers, "http_mcp.py")),
    ]


def visit(case: Case, seconds: float, cores: list[int]) -> Load:
    """A fresh server, pinned to a core of its own if there is one."""
    with running(case.command, set(cores[1:2])) as (port, pid):
        if case.era == "modern":
            requests = [post(port, call(id, True), MODERN) for id in range(CONNECTIONS)]
        else:
            sessions = [open_session(port) for _ in range(CONNECTIONS)]
            requests = [post(port, call(1, False), session) for session in sessions]
        return load(port, pid, requests, seconds)


def measure(chosen: list[Case], rounds: int, seconds: float, cores: list[int]) -> dict[str, Load]:
    """Round-robin; medians."""
    seen: dict[str, list[Load]] = {case.name: [] for case in chosen}
    for _ in range(rounds):
        for case in chosen:
            sample = visit(case, seconds, cores)
            seen[case.name].append(sample)
            say(f"{case.name:16}{sample.rate:10,.0f} calls/s {sample.cpu * 1e6:8.1f} µs of CPU")
    median: Callable[[list[float]], float] = statistics.median
    return {
        name: Load(
            median([s.rate for s in samples]),
            median([s.cpu for s in samples]),
            median([s.p50 for s in samples]),
        )
        for name, samples in seen.items()
    }


def idle_memory(ours: str) -> tuple[float, float]:
    """Bytes per open stream: that of a bare application, and ours with its session."""
    found = []
    for file in ("http_bare.py", "http_dovetail.py"):
        with running((ours, str(HERE / "servers" / file)), None) as (port, pid):
            is_ours = file == "http_dovetail.py"
            held = [
                stream(port, is_ours) for _ in range(20)
            ]  # what the first ones cost is not theirs
            before = rss(pid)
            held += [stream(port, is_ours) for _ in range(IDLE)]
            found.append((rss(pid) - before) / IDLE)
            for connection in held:
                connection.close()
    return found[0], found[1]


def stream(port: int, with_session: bool):
    return open_stream(port, open_session(port) if with_session else "")


def abandoned(ours: str) -> tuple[list[int], list[int]]:
    """RSS and blocks in use: before, with 10,000 sessions, and after their expiry."""
    command = (ours, str(HERE / "servers" / "http_dovetail.py"), "--idle", str(EXPIRY))
    with running(command, None) as (port, pid):
        for _ in range(100):
            open_session(port)
        time.sleep(EXPIRY + 2)
        found = [(rss(pid), blocks(port))]
        for _ in range(ABANDONED):
            open_session(port)
        found.append((rss(pid), blocks(port)))
        time.sleep(EXPIRY + 3)
        found.append((rss(pid), blocks(port)))
        return [r for r, _ in found], [b for _, b in found]


def report(figures: dict[str, Load], rounds: int) -> list[str]:
    lines = [
        f"uvicorn, uvloop, httptools; {CONNECTIONS} connections; medians of {rounds} rounds.",
        "",
        "| server | calls/s | CPU per call | p50 |",
        "|---|---:|---:|---:|",
    ]
    for name, found in figures.items():
        lines.append(
            f"| {name} | {found.rate:,.0f} | {found.cpu * 1e6:,.0f} µs | {found.p50 * 1e3:.2f} ms |"
        )
    lines += ["", "| ratio | of calls/s | of CPU per call | goal | |", "|---|---:|---:|---:|---|"]
    for goal in GOALS:
        if goal.ours in figures and goal.theirs in figures:
            ours, theirs = figures[goal.ours], figures[goal.theirs]
            ratio, cpu = ours.rate / theirs.rate, theirs.cpu / ours.cpu
            mark = "✓" if cpu >= goal.least else "✗"  # of the two, what others do disturbs it less
            lines.append(f"| {goal.text} | {ratio:.2f} | {cpu:.2f} | ≥ {goal.least:g} | {mark} |")
    return lines


def memory_report(ours: str) -> list[str]:
    bare, mine = idle_memory(ours)
    resident, used = abandoned(ours)
    more = (mine - bare) / 1024
    left = used[2] / used[0] - 1
    shown = ", ".join(f"{value >> 20} MB" for value in resident)
    return [
        "",
        "| memory | measured | goal | |",
        "|---|---|---|---|",
        f"| idle session with an open GET stream, above a bare stream | {more:.1f} KB "
        f"({mine / 1024:.1f} − {bare / 1024:.1f}) | ≤ 10 KB | {'✓' if more <= 10 else '✗'} |",
        f"| {ABANDONED:,} sessions abandoned: blocks in use before, at most, after expiry | "
        f"{used[0]:,}, {used[1]:,}, {used[2]:,} ({left:+.1%}) | within 5 % | "
        f"{'✓' if left <= 0.05 else '✗'} |",
        f"| the same as RSS, which counts what the allocator keeps | {shown} | | |",
    ]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench http", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="rough figures")
    parser.add_argument("--only", metavar="NAME,...", help="some of the servers, or `memory`")
    parser.add_argument("--ours", default=str(HERE.parent / ".peers/ours/bin/python"))
    parser.add_argument("--peers", default=str(HERE.parent / ".peers/venv/bin/python"))
    parser.add_argument("--output", type=Path, help="where to write the tables")
    options = parser.parse_args()
    gc.disable()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, {cores[0]})
    wanted = set(options.only.split(",")) if options.only else None
    chosen = [c for c in cases(options.ours, options.peers) if wanted is None or c.name in wanted]
    rounds, seconds = (2, 1.0) if options.quick else (5, 2.0)
    try:
        lines = report(measure(chosen, rounds, seconds, cores), rounds) if chosen else []
        if wanted is None or "memory" in wanted:
            lines += memory_report(options.ours)
    except HttpFailed as error:
        say(f"failed: {error}")
        return 1
    text = "\n".join(lines)
    print(text)
    if options.output:
        options.output.write_text(f"# Results of the benchmark over HTTP\n\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
