"""The Lisp product: latency beside a bare loop on the same bridge, start, recovery, memory.

`scripts/bench lisp` runs it; the goals are printed beside the figures, and a missed one shows ✗.
The original is cl-mcp-server, whose figures were measured beside a prototype of this bridge on
another day: 0.58 s from its start to its first result, with its files compiled.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OURS = HERE.parent / ".peers" / "ours" / "bin"
ORIGINAL_START = 0.58


class Peer:
    """A server on pipes, one call at a time."""

    def __init__(self, command: list[str]) -> None:
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._lines = self._process.stdout  # type: ignore[assignment]
        self._reader = open(self._lines.fileno(), "rb", closefd=False)  # noqa: SIM115
        self._id = 0
        info = {"protocolVersion": "2025-11-25", "capabilities": {}}
        self.answer(self.send("initialize", {**info, "clientInfo": {"name": "b", "version": "1"}}))
        self.notify("notifications/initialized")

    def send(self, method: str, params: dict[str, Any]) -> int:
        self._id += 1
        self._write({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        return self._id

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        given = {} if params is None else {"params": params}
        self._write({"jsonrpc": "2.0", "method": method, **given})

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def answer(self, id: int) -> Any:
        """The result; messages before it are dropped."""
        while True:
            line = self._reader.readline()
            if not line:
                raise RuntimeError("the server has ended")
            message = json.loads(line)
            if message.get("id") == id:
                return message["result"]

    def wait_for(self, ids: set[int]) -> None:
        """Until all of these are answered, in any order."""
        while ids:
            ids.discard(json.loads(self._reader.readline()).get("id"))

    def tool(self, name: str, **arguments: Any) -> str:
        result = self.answer(self.send("tools/call", {"name": name, "arguments": arguments}))
        return str(result["content"][0]["text"])

    def evaluate(self, code: str, **arguments: Any) -> str:
        return self.tool("evaluate-lisp", code=code, **arguments)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def peer(command: list[str]) -> Iterator[Peer]:
    it = Peer(command)
    try:
        yield it
    finally:
        it.close()


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Report:
    """Lines of a table: what, how much, the goal, and whether it is met."""

    def __init__(self) -> None:
        self.lines = ["| what | measured | goal | |", "|---|---|---|---|"]

    def add(self, what: str, value: float, shown: str, goal: float, goal_shown: str) -> None:
        mark = "✓" if value <= goal else "✗"
        self.lines.append(f"| {what} | {shown} | ≤ {goal_shown} | {mark} |")
        print(self.lines[-1], flush=True)


def ms(value: float) -> str:
    return f"{value * 1000:.2f} ms" if value < 0.01 else f"{value * 1000:.0f} ms"


def latency(report: Report, ours: list[str], bare: list[str], rounds: int, calls: int) -> None:
    """Taking turns, so that noise hits both alike."""
    samples: dict[str, list[float]] = {"ours": [], "bare": []}
    with peer(ours) as one, peer(bare) as other:
        for name, server in (("ours", one), ("bare", other)) * (rounds + 1):
            times = [seconds(lambda s=server: s.evaluate("(+ 1 2)")) for _ in range(calls)]
            samples[name] += times
        for times in samples.values():
            del times[:calls]  # the first round warms up
    p50 = {name: statistics.median(times) for name, times in samples.items()}
    p95 = statistics.quantiles(samples["ours"], n=20)[-1]
    ratio = p50["ours"] / p50["bare"]
    report.add("(+ 1 2), p50", p50["ours"], f"{ms(p50['ours'])} (p95 {ms(p95)})", 0.0006, "0.6 ms")
    report.add("… beside the bare loop", ratio, f"{ratio:.2f} × {ms(p50['bare'])}", 1.5, "1.5 ×")


def start(report: Report, ours: list[str], rounds: int) -> None:
    times = []
    for _ in range(rounds):
        with peer(ours) as server:
            server.evaluate("(+ 1 2)")
            times.append(time.perf_counter() - server.began)
    value = statistics.median(times)
    goal = ORIGINAL_START / 2
    report.add("start to first result", value, ms(value), goal, f"{ms(goal)}, half the original")


def sessions(report: Report, ours: list[str], rounds: int) -> None:
    with peer(ours) as server:
        server.evaluate("1")
        made = [
            seconds(lambda n=n: server.tool("create-session", session=f"s{n}"))
            for n in range(rounds)
        ]
        for n in range(rounds):
            server.tool("close-session", session=f"s{n}")
        lost = []
        for _ in range(rounds):
            code = "(sb-unix::unix-kill (sb-unix:unix-getpid) 9)"
            lost.append(seconds(lambda c=code: server.evaluate(c)))
            server.tool("restart-session")  # which forgives the losses
    report.add("create-session", median(made), ms(median(made)), 0.04, "40 ms")
    report.add("killed, and a new one started", median(lost), ms(median(lost)), 0.05, "50 ms")


median = statistics.median


def cancelling(report: Report, ours: list[str], rounds: int) -> None:
    times = []
    with peer(ours) as server:
        server.evaluate("1")
        for _ in range(rounds):
            arguments = {"code": '(princ "begun") (finish-output) (loop)'}
            params = {"name": "evaluate-lisp", "arguments": arguments}
            id = server.send("tools/call", params)
            time.sleep(0.02)
            began = time.perf_counter()
            server.notify("notifications/cancelled", {"requestId": id})
            assert server.evaluate("(+ 1 2)") == "=> 3"
            times.append(time.perf_counter() - began)
        stuck = seconds(lambda: server.evaluate("(sb-sys:without-interrupts (loop))", timeout=0.1))
    p95 = statistics.quantiles(times, n=20)[-1]
    report.add("cancel (loop), next answer, p95", p95, ms(p95), 0.05, "50 ms")
    report.add("without-interrupts loop recovered", stuck, f"{stuck:.2f} s", 5.0, "5 s")


def printing(report: Report, ours: list[str]) -> None:
    usage = "(progn (gc :full t) (sb-kernel:dynamic-usage))"
    line = "x" * 99
    with peer(ours) as server:
        before = int(server.evaluate(usage)[3:])
        shown: list[str] = []
        code = f'(dotimes (i 1000000) (write-line "{line}"))'
        took = seconds(lambda: shown.append(server.evaluate(code, timeout=60)))
        grown = int(server.evaluate(usage)[3:]) - before
    assert "of 100000000 characters" in shown[0], shown[0][-300:]
    report.add("100 MB printed", took, f"{took:.2f} s", 2.0, "2 s")
    report.add("… heap afterwards", grown, f"+{grown / 1e6:.1f} MB", 5e6, "5 MB")


def memory(report: Report, ours: list[str], count: int = 10) -> None:
    with peer(ours) as server:
        for n in range(count):
            server.tool("create-session", session=f"s{n}")
            server.evaluate("(+ 1 2)", session=f"s{n}")
        listed = json.loads(server.tool("list-sessions"))["sessions"]
        values = [pss(one["pid"]) for one in listed if one["pid"]]
        value = median(values)
        report.add(
            f"PSS per idle session of {count}", value, f"{value / 1e6:.1f} MB", 15e6, "15 MB"
        )
        alone, together = parallel(server, count)
    cores = alone * count / together
    report.add(
        f"{count} sessions computing at once",
        1 / cores,
        f"{cores:.2f} cores busy",
        1 / 1.5,
        "both cores: 1.5",
    )


def parallel(server: Peer, count: int) -> tuple[float, float]:
    """Seconds of one computation alone, and of ``count`` of them at once."""
    code = "(let ((x 0)) (declare (fixnum x)) (dotimes (i 300000000 x) (setf x (logxor x i))))"
    server.evaluate(code, session="s0")
    alone = seconds(lambda: server.evaluate(code, session="s0"))

    def all_at_once() -> None:
        ids = [
            server.send(
                "tools/call",
                {"name": "evaluate-lisp", "arguments": {"code": code, "session": f"s{n}"}},
            )
            for n in range(count)
        ]
        server.wait_for(set(ids))

    return alone, seconds(all_at_once)


def pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise LookupError("Pss")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench lisp", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, rough figures")
    parser.add_argument("--bin", type=Path, default=OURS, help="where dovetail is installed")
    options = parser.parse_args()
    ours = [str(options.bin / "dovetail"), "serve", "lisp"]
    bare = [str(options.bin / "python"), str(HERE / "servers" / "lisp_bare.py")]
    rounds = 4 if options.quick else 20
    report = Report()
    with peer(ours) as server:
        server.evaluate("1")  # fills the cache
    latency(report, ours, bare, rounds, 200)
    start(report, ours, rounds)
    sessions(report, ours, min(rounds, 14))
    cancelling(report, ours, rounds * 2)
    printing(report, ours)
    memory(report, ours)
    print("\n".join(["", *report.lines]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
