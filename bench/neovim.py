"""The Neovim product on a real editor: latency, load, diffs, start, typing.

`scripts/bench neovim` prints a table with our figures, the goals, and what claudecode.nvim took
for the same when it was measured (Neovim 0.11.4, another day: those are not of this run).
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neovim_client import Client

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "servers" / "neovim"))

from nvim_process import Nvim  # noqa: E402 - the driver that the tests use

HAMMER = Path(__file__).with_name("neovim_hammer.py")


@dataclass(frozen=True)
class Row:
    name: str
    unit: str
    goal: float
    peer: str
    more_is_better: bool = False


ROWS = {
    "selection": Row("getCurrentSelection, p50", "ms", 0.35, "0.37"),
    "selection99": Row("getCurrentSelection, p99", "ms", 0.7, "1.1"),
    "editors": Row("getOpenEditors, 200 buffers, p50", "ms", 1.0, "4.9"),
    "diagnostics": Row("getDiagnostics, 1,000, p50", "ms", 3.5, "18.4"),
    "pipelined": Row("64 in flight", "/s", 10_000, "5,000-7,900", True),
    "call_cpu": Row("  the server's CPU time per call", "µs", 100.0, "-"),
    "stall": Row("editor under getOpenEditors(200), p99", "ms", 15.0, "268"),
    "diff": Row("openDiff 1 MB: editor blocked", "ms", 100.0, "145-210"),
    "diff_cpu": Row("  the editor's CPU time, opened and closed", "ms", 100.0, "-"),
    "shown": Row("openDiff 1 MB: until shown", "ms", 200.0, "156-221"),
    "start": Row("setup{} to lock file", "ms", 300.0, "-"),
    "back": Row("kill -9 to answering again", "ms", 1000.0, "never"),
    "key": Row("key to selection_changed, p50", "ms", 30.0, "101"),
    "typing": Row("cost of a key", "µs", 50.0, "84"),
}


class Bench:
    """One editor, driven from a loop that runs only when we ask something of it."""

    def __init__(self, place: Path, quick: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self.nvim = Nvim(place)
        self.count = 200 if quick else 2000
        self.rounds = 3 if quick else 5
        self.found: dict[str, list[float]] = {}

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def lua(self, code: str, *arguments: Any) -> Any:
        return self.do(self.nvim.lua(code, *arguments))

    def note(self, name: str, value: float) -> None:
        self.found.setdefault(name, []).append(value)

    def client(self) -> Client:
        port, lock = self.nvim.lock()
        return Client(port, lock["authToken"])

    # -- the parts -------------------------------------------------------------------------

    def start(self) -> None:
        self.do(self.nvim.start())
        for _ in range(self.rounds + 1):  # the first compiles Python's modules
            started = time.perf_counter()
            self.do(self.nvim.setup(wait=False))
            while not self.nvim.lock_files():
                time.sleep(0.001)
            self.note("start", (time.perf_counter() - started) * 1e3)
            self.do(self.nvim.until("require('dovetail').status().port ~= nil"))
            self.lua("require('dovetail').stop()")
        self.found["start"].pop(0)
        self.do(self.nvim.setup())
        self.do(self.nvim.until("require('dovetail').status().running"))
        while not self.nvim.lock_files():
            time.sleep(0.001)

    def open_files(self, count: int) -> None:
        self.nvim.write("a.txt", "".join(f"line {n} of the file\n" for n in range(5000)))
        self.lua("vim.cmd.edit('a.txt')")
        code = "for i = 2, ... do vim.bo[vim.fn.bufadd('file' .. i .. '.py')].buflisted = true end"
        self.lua(code, count)

    def latency(self, client: Client) -> None:
        for name, tool in (("selection", "getCurrentSelection"), ("editors", "getOpenEditors")):
            times = client.times(tool, self.count)
            self.note(name, statistics.median(times) * 1e3)
            if name == "selection":
                self.note("selection99", statistics.quantiles(times, n=100)[98] * 1e3)
        self.lua(
            """local list = {}
            for i = 1, 1000 do list[i] = {lnum = i, col = 0, end_col = 4, severity = 1 + i % 4,
              message = "message number " .. i, source = "bench", code = "B" .. i} end
            vim.diagnostic.set(vim.api.nvim_create_namespace("bench"), 0, list)"""
        )
        self.note("diagnostics", statistics.median(client.times("getDiagnostics", 200)) * 1e3)
        self.lua("vim.diagnostic.reset()")

    def pipelined(self, client: Client) -> None:
        count, server = self.count * 5, self.lua("return require('dovetail').status().pid")
        before = cpu_seconds(server)
        self.note("pipelined", count / client.pipelined("getCurrentSelection", count, 64))
        self.note("call_cpu", (cpu_seconds(server) - before) / count * 1e6)

    def stall(self) -> None:
        """How long the editor takes to answer its user while a client hammers."""
        port, lock = self.nvim.lock()
        words = [sys.executable, str(HAMMER), str(port), "getOpenEditors"]
        hammer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        hammer.stdin.write(lock["authToken"].encode() + b"\n")
        hammer.stdin.flush()
        hammer.stdout.readline()
        times = self.do(self.probe(lambda: hammer.poll() is not None, seconds=2.0))
        hammer.terminate()
        hammer.communicate()
        self.note("stall", statistics.quantiles(times, n=100)[98] * 1e3)

    async def probe(self, done: Callable[[], bool], seconds: float) -> list[float]:
        """The round trips of a trivial call, one after the other."""
        times, deadline = [], time.perf_counter() + seconds
        while not done() and time.perf_counter() < deadline:
            before = time.perf_counter()
            await self.nvim.link.call("nvim_eval", "1")
            times.append(time.perf_counter() - before)
            await asyncio.sleep(0.001)
        return times

    def diff(self, client: Client) -> None:
        old = "".join(f"line {n}: some words that make it a line\n" for n in range(25_000))
        new = old.replace("00: some", "00: other")
        path = self.nvim.write("big.txt", old)
        before = cpu_seconds(self.nvim.process.pid)
        started = time.perf_counter()
        client.send_call(
            "openDiff",
            {
                "old_file_path": path,
                "new_file_path": path,
                "new_file_contents": new,
                "tab_name": "big",
            },
        )
        shown, longest = self.do(self.until_shown(started))
        self.note("shown", shown * 1e3)
        self.note("diff", longest * 1e3)
        client.call("closeAllDiffTabs")
        client.drain()
        self.do(self.nvim.until("#require('dovetail.diff').list() == 0"))
        self.note("diff_cpu", (cpu_seconds(self.nvim.process.pid) - before) * 1e3)

    async def until_shown(self, started: float) -> tuple[float, float]:
        longest, loaded = 0.0, "return package.loaded['dovetail.diff'] ~= nil"
        await self.nvim.lua(loaded)
        while True:
            before = time.perf_counter()
            count = await self.nvim.lua("return #require('dovetail.diff').list()")
            now = time.perf_counter()
            longest = max(longest, now - before)
            if count:
                return now - started, longest

    def keys(self, client: Client) -> None:
        client.wait_for("selection_changed")
        times = []
        for _ in range(60):
            time.sleep(0.03)
            started = time.perf_counter()
            self.do(self.nvim.keys("j"))
            client.wait_for("selection_changed")
            times.append(time.perf_counter() - started)
        self.note("key", statistics.median(times) * 1e3)

    def typing(self) -> None:
        """The editor's CPU time for a key with a client listening, less that without one."""
        best: dict[bool, float] = {}
        for _ in range(self.rounds):
            for listening in (False, True):
                with contextlib.ExitStack() as stack:
                    if listening:
                        stack.enter_context(self.client())
                        self.do(self.nvim.until("require('dovetail.watch').is_watching()"))
                    cost = self.do(self.key_cost(3000))
                    best[listening] = min(best.get(listening, cost), cost)
                self.do(self.nvim.until("not require('dovetail.watch').is_watching()"))
        self.note("typing", (best[True] - best[False]) * 1e6)

    async def key_cost(self, count: int) -> float:
        await self.nvim.lua("vim.api.nvim_win_set_cursor(0, {1, 0})")
        before = cpu_seconds(self.nvim.process.pid)
        for _ in range(count):
            await self.nvim.link.call("nvim_input", "j")
            await self.nvim.link.call("nvim_eval", "1")
        return (cpu_seconds(self.nvim.process.pid) - before) / count

    def back(self) -> None:
        port, lock = self.nvim.lock()
        killed = time.perf_counter()
        os.kill(self.lua("return require('dovetail').status().pid"), signal.SIGKILL)
        while True:
            with contextlib.suppress(OSError), Client(port, lock["authToken"]):
                break
            self.lua("return 1")
        self.note("back", (time.perf_counter() - killed) * 1e3)

    def close(self) -> None:
        self.do(self.nvim.close())
        self.loop.close()


def cpu_seconds(pid: int) -> float:
    """Unlike the clock, it does not count what others did meanwhile."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(quick: bool) -> Iterator[Bench]:
    place = Path(tempfile.mkdtemp())
    bench = Bench(place, quick)
    try:
        yield bench
    finally:
        bench.close()
        shutil.rmtree(place, ignore_errors=True)


def measure(quick: bool) -> dict[str, float]:
    with running(quick) as bench:
        bench.start()
        bench.open_files(200)
        for _ in range(bench.rounds):
            with bench.client() as client:
                client.times("getCurrentSelection", 200)
                bench.latency(client)
                bench.pipelined(client)
                bench.diff(client)
            bench.stall()
        with bench.client() as client:
            bench.keys(client)
        bench.typing()
        bench.back()
        return {name: statistics.median(values) for name, values in bench.found.items()}


def report(found: dict[str, float]) -> str:
    lines = ["| | ours | goal | | claudecode.nvim, earlier |", "|---|---|---|---|---|"]
    for name, row in ROWS.items():
        ours = found[name]
        met = ours >= row.goal if row.more_is_better else ours <= row.goal
        shown = f"{ours:,.0f}" if ours >= 1000 else f"{ours:.2f}"
        lines.append(
            f"| {row.name} | {shown} {row.unit} | {row.goal:,g} {row.unit} | {'✓' if met else '✗'} "
            f"| {row.peer} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench neovim", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="rough figures")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    found = measure(options.quick)
    print(json.dumps(found) if options.json else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
