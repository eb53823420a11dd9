"""Drives one server over its pipes with raw bytes and measures it.

The driver must never be the bottleneck: requests are built before the clock starts, answers are
only counted while it runs, and checked one by one after it stopped.
"""

import contextlib
import itertools
import os
import select
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from messages import after_opening, calls, check_answers, opening

WINDOW = 128
CHUNK = 1 << 20
PATIENCE_MS = 20_000
GRACE_SECONDS = 5


class ServerFailed(Exception):
    """The server ended or went silent."""


@dataclass
class Sample:
    """What one visit to a fresh server process measured."""

    spawn: float
    p50: float
    p99: float
    rate: float
    rss: int
    pss: int
    driver_load: float


@dataclass(frozen=True)
class Effort:
    """How long each part of a visit takes, in seconds."""

    warm_up: float
    one_at_a_time: float
    pipelined: float


class Placement:
    """On which cores driver and server run; where the system does not let us choose, on any."""

    def __init__(self, wish: str) -> None:
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        if wish == "free" or len(allowed) < 2:
            self.driver = self.server = None
            self.name = "free"
        else:
            self.driver = {allowed[0]}
            self.server = self.driver if wish == "shared" else {allowed[-1]}
            self.name = wish

    @contextlib.contextmanager
    def of_server(self) -> Iterator[None]:
        """A process started inside inherits the server's core."""
        if self.driver is None:
            yield
            return
        os.sched_setaffinity(0, self.server)
        try:
            yield
        finally:
            os.sched_setaffinity(0, self.driver)


class Session:
    """One server process, from its start to its end."""

    def __init__(self, command: Sequence[str], revision: str, placement: Placement) -> None:
        self.revision = revision
        self.ids = itertools.count(1)
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115
        started = time.perf_counter()
        with placement.of_server():
            self.process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.stderr,
            )
        self.input = self.process.stdin.fileno()
        self.output = self.process.stdout.fileno()
        os.set_blocking(self.input, False)
        self.poll = select.poll()
        self.poll.register(self.output, select.POLLIN)
        self.spawn_seconds = self.open() - started

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> float:
        """Say hello; return the moment the answer was there."""
        try:
            self.exchange(opening(self.revision))
            answered = time.perf_counter()
            self.send(after_opening(self.revision))
        except BaseException:
            self.close()
            raise
        return answered

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.stderr.close()

    def send(self, data: bytes) -> None:
        if data and os.write(self.input, data) != len(data):
            raise ServerFailed("the server does not read")

    def receive(self) -> bytes:
        if not self.poll.poll(PATIENCE_MS):
            raise ServerFailed("no answer in time")
        chunk = os.read(self.output, CHUNK)
        if not chunk:
            raise ServerFailed(self.last_words())
        return chunk

    def last_words(self) -> str:
        self.stderr.seek(0)
        lines = self.stderr.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "the server ended without a word"

    def exchange(self, request: bytes) -> bytes:
        self.send(request)
        answer = self.receive()
        while not answer.endswith(b"\n"):
            answer += self.receive()
        return answer

    def one_at_a_time(self, seconds: float) -> list[float]:
        """The seconds each call took, calling for so many seconds."""
        times = []
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            id = next(self.ids)
            [request] = calls(self.revision, [id])
            started = time.perf_counter()
            answer = self.exchange(request)
            times.append(time.perf_counter() - started)
            check_answers(answer, [id])
        return times

    def pipelined(self, count: int) -> tuple[float, float]:
        """Seconds, and the driver's own CPU seconds, for so many calls with a full window."""
        ids = list(itertools.islice(self.ids, count))
        requests = calls(self.revision, ids)
        busy, started = time.thread_time(), time.perf_counter()
        answers = self.pump(requests)
        seconds, busy = time.perf_counter() - started, time.thread_time() - busy
        check_answers(answers, ids)
        return seconds, busy

    def pump(self, requests: list[bytes]) -> bytes:
        """Keep WINDOW requests outstanding until all are answered."""
        ends = [0, *itertools.accumulate(map(len, requests))]
        stream = memoryview(b"".join(requests))
        total, answered, written, answers = len(requests), 0, 0, []
        while answered < total:
            allowed = ends[min(total, answered + WINDOW)]
            if written < allowed:
                written += self.write_some(stream[written:allowed])
            chunk = self.receive()
            answered += chunk.count(b"\n")
            answers.append(chunk)
        return b"".join(answers)

    def write_some(self, data: memoryview) -> int:
        """A full pipe takes nothing: the server has work, so the next read returns."""
        try:
            return os.write(self.input, data)
        except BlockingIOError:
            return 0

    def warm_up(self, seconds: float) -> float:
        """Pipelined calls for at least so long; return the calls per second of the last batch."""
        count = 2 * WINDOW
        deadline = time.perf_counter() + seconds
        while True:
            took, _ = self.pipelined(count)
            if time.perf_counter() > deadline:
                return count / took
            if took < seconds / 8:
                count *= 2

    def memory(self) -> tuple[int, int]:
        """Resident and proportional set size in bytes."""
        process = f"/proc/{self.process.pid}"
        return kilobytes(f"{process}/status", "VmRSS:"), kilobytes(
            f"{process}/smaps_rollup", "Pss:"
        )


def kilobytes(path: str, key: str) -> int:
    with open(path) as file:
        for entry in file:
            if entry.startswith(key):
                return int(entry.split()[1]) * 1024
    raise LookupError(f"{path} has no {key}")


def measure(command: Sequence[str], revision: str, effort: Effort, where: Placement) -> Sample:
    """One visit: start, warm up, single calls, pipelined calls, memory, end."""
    with Session(command, revision, where) as session:
        rate = session.warm_up(effort.warm_up)
        times = session.one_at_a_time(effort.one_at_a_time)
        count = max(2 * WINDOW, int(rate * effort.pipelined))
        seconds, busy = session.pipelined(count)
        rss, pss = session.memory()
        return Sample(
            spawn=session.spawn_seconds,
            p50=statistics.median(times),
            p99=statistics.quantiles(times, n=100)[98],
            rate=count / seconds,
            rss=rss,
            pss=pss,
            driver_load=busy / seconds,
        )


def try_out(command: Sequence[str], revision: str, where: Placement) -> None:
    """An unmeasured visit: does it answer, and is its bytecode cached?"""
    with Session(command, revision, where) as session:
        session.pipelined(2 * WINDOW)
