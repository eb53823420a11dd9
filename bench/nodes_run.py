"""The benchmark of two nodes on Redis: `scripts/bench nodes`.

The price of the backplane for a call that does not need it, in CPU time of the server's
processes; and that of a call which lands on the wrong node, in time.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from http_driver import MODERN, Load, call, load, open_session, post, running

HERE = Path(__file__).resolve().parent
CONNECTIONS = 16
MOST_CPU = 1.1  # times that of one node
MOST_EXTRA = 1e-3  # seconds


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """A server of our own, with nothing on disk."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis.sock"
        options = ["--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            while not Path(path).exists():
                time.sleep(0.01)
            yield f"unix://{path}"
        finally:
            process.kill()
            process.wait()


def modern(port: int, pid: int, seconds: float) -> Load:
    requests = [post(port, call(id, True), MODERN) for id in range(CONNECTIONS)]
    return load(port, pid, requests, seconds)


def session(owner: int, port: int, pid: int, connections: int, seconds: float) -> Load:
    """Calls of sessions that ``owner`` has, sent to ``port``."""
    sessions = [open_session(owner) for _ in range(connections)]
    requests = [post(port, call(1, False), headers) for headers in sessions]
    return load(port, pid, requests, seconds)


def one_round(ours: str, url: str, seconds: float) -> dict[str, float]:
    alone = (ours, str(HERE / "servers" / "http_dovetail.py"))
    node = (ours, str(HERE / "servers" / "http_node.py"), url)
    with running(alone, None) as (port, pid):
        found = {"one node": modern(port, pid, seconds).cpu}
    with running(node, None) as (first, pid_1), running(node, None) as (second, pid_2):
        loads = [modern(first, pid_1, seconds), modern(second, pid_2, seconds)]
        found["two nodes"] = statistics.mean(found.cpu for found in loads)
        for connections in (1, CONNECTIONS):
            here = session(first, first, pid_1, connections, seconds)
            there = session(first, second, pid_2, connections, seconds)
            found[f"owner {connections}"] = here.p50
            found[f"other {connections}"] = there.p50
    return found


def report(figures: dict[str, float], rounds: int) -> list[str]:
    ratio = figures["two nodes"] / figures["one node"]
    lines = [
        f"2026-07-28 calls, {CONNECTIONS} connections, medians of {rounds} rounds:",
        f"  one node    {figures['one node'] * 1e6:8.1f} µs of CPU per call",
        f"  two nodes   {figures['two nodes'] * 1e6:8.1f} µs of CPU per call and node",
        f"  ratio       {ratio:8.2f}    goal: at most {MOST_CPU}    {verdict(ratio <= MOST_CPU)}",
        "",
        "2025-11-25 calls, p50, on the node of the session and on the other one:",
    ]
    for connections in (1, CONNECTIONS):
        here, there = figures[f"owner {connections}"], figures[f"other {connections}"]
        extra = there - here
        goal = f"goal: at most {MOST_EXTRA * 1e3:.0f} ms    {verdict(extra <= MOST_EXTRA)}"
        lines.append(
            f"  {connections:2} connections {here * 1e3:8.3f} ms {there * 1e3:8.3f} ms, "
            f"{extra * 1e3:.3f} ms more    {goal if connections == 1 else '(both nodes busy)'}"
        )
    return lines


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench nodes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="rough figures")
    parser.add_argument("--python", default=str(HERE.parent / ".peers/ours/bin/python"))
    options = parser.parse_args()
    rounds, seconds = (2, 1.0) if options.quick else (5, 3.0)
    seen: list[dict[str, float]] = []
    with redis() as url:
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            seen.append(one_round(options.python, url, seconds))
    figures = {name: statistics.median(found[name] for found in seen) for name in seen[0]}
    print("\n".join(report(figures, rounds)))


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    main()
