"""What one call costs, counted and not timed, so that it stays.

Counted is all that Python does between the bytes that come in and the bytes that go out, the
event loop's own work included: every call of a Python function, in every thread.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from types import CodeType, FrameType
from typing import Any

import pytest

from dovetail import Server
from dovetail.runtime.connection import Connection
from dovetail.server.listing import Listing
from support import ALL, HANDSHAKE, INITIALIZED, MODERN, asked, initialize

MAX_CALLS = 60
MAX_CALL_SOON = 3


def build(tools: int = 1) -> Server:
    server = Server("budget")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def other(number: int) -> None:
        @server.tool(name=f"tool-{number}")
        async def tool(x: str) -> str:
            return x

    for number in range(tools - 1):
        other(number)
    return server


class Bench:
    """A connection on a loop of its own, and a writer that stops it when an answer came."""

    def __init__(self, server: Server, revision: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.revision = revision
        self.written = b""
        self.connection = self.loop.run_until_complete(self.open(server))
        if revision != MODERN:
            self.say(initialize(revision))
            self.connection.feed(INITIALIZED + b"\n")
        self.call_add()  # what is done once per connection or server is done now

    async def open(self, server: Server) -> Connection:
        connection = server.connection()
        connection.attach(self, self)
        return connection

    def write(self, data: bytes | bytearray) -> None:
        if b'"id":' not in data:
            return  # a notification; the answer will come
        sys.setprofile(None)
        threading.setprofile(None)
        self.written = bytes(data)
        self.loop.stop()

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def say(self, frame: bytes) -> bytes:
        self.loop.call_soon(self.connection.feed, frame + b"\n")
        self.loop.run_forever()
        return self.written

    def call_add(self) -> bytes:
        params = {"name": "add", "arguments": {"a": 1, "b": 2}}
        answer = self.say(asked(self.revision, 7, "tools/call", params))
        assert b'"id":7,"result":' in answer
        assert b'"text":"3"' in answer
        return answer

    def counted(self, frame: bytes) -> Counter[CodeType]:
        """The Python functions called, by code, from ``feed`` to ``write``."""
        calls: Counter[CodeType] = Counter()

        def look(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                calls[frame.f_code] += 1

        def start() -> None:
            threading.setprofile(look)
            sys.setprofile(look)
            self.connection.feed(frame)

        frame += b"\n"
        self.loop.call_soon(start)
        self.loop.run_forever()
        del calls[Bench.write.__code__]  # ours
        return calls

    def end(self) -> None:
        self.loop.run_until_complete(self.connection.close())
        self.loop.close()


def add_call(revision: str) -> bytes:
    return asked(revision, 7, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})


def cost(server: Server, revision: str, frame: bytes) -> Counter[CodeType]:
    bench = Bench(server, revision)
    try:
        bench.say(frame)
        calls = bench.counted(frame)
        assert b'"result":' in bench.written
        assert calls == bench.counted(frame)  # no chance in it
        return calls
    finally:
        bench.end()


def listing(calls: Counter[CodeType]) -> str:
    return "\n".join(f"{count} {code.co_qualname}" for code, count in calls.most_common())


@pytest.mark.verifies("F-budget-calls", "F-budget-tasks")
@pytest.mark.parametrize("revision", ALL)
def test_one_call(revision: str) -> None:
    calls = cost(build(), revision, add_call(revision))
    assert calls.total() <= MAX_CALLS, listing(calls)
    assert calls[asyncio.BaseEventLoop.call_soon.__code__] <= MAX_CALL_SOON, listing(calls)
    assert calls[Connection._serve.__code__] == 1
    assert calls[Connection._flush.__code__] <= 2


@pytest.mark.verifies("F-many-tools")
@pytest.mark.parametrize("revision", ALL)
def test_one_call_among_a_thousand_tools(revision: str) -> None:
    one = cost(build(), revision, add_call(revision)).total()
    many = cost(build(1000), revision, add_call(revision)).total()
    assert many == one


@pytest.mark.verifies("F-budget-tasks")
@pytest.mark.parametrize("revision", ALL)
def test_one_task_and_no_thread(revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class CountedTask(asyncio.Task):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            made.append("task")
            super().__init__(*args, **options)

    class CountedThread(threading.Thread):
        def start(self) -> None:
            made.append("thread")
            super().start()

    bench = Bench(build(), revision)
    threads = threading.active_count()
    monkeypatch.setattr(asyncio, "Task", CountedTask)
    monkeypatch.setattr(threading, "Thread", CountedThread)
    bench.call_add()
    assert made == ["task"]
    assert threading.active_count() == threads
    monkeypatch.undo()
    bench.end()


@pytest.mark.verifies("F-sync-thread")
def test_the_counters_see_tasks_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync tool shows that a thread would have been counted."""
    server = build()

    @server.tool
    def sync_add(a: int, b: int) -> int:
        return a + b

    bench = Bench(server, MODERN)
    params = {"name": "sync_add", "arguments": {"a": 1, "b": 2}}
    calls = bench.counted(asked(MODERN, 1, "tools/call", params))
    assert calls[threading.Thread.start.__code__] == 1
    assert calls[server.tools["sync_add"].function.fn.__code__] == 1  # seen in its thread
    bench.end()


@pytest.mark.verifies("F-listing-cache", "F-many-tools")
@pytest.mark.parametrize("revision", ALL)
def test_a_list_is_encoded_once(revision: str) -> None:
    frame = asked(revision, 7, "tools/list")
    few, many = build(1), build(1000)
    first = Bench(many, revision)
    before = first.counted(frame)
    assert before[Listing._build.__code__] == 1
    assert before.total() > 1000
    again = first.counted(frame)
    assert again[Listing._build.__code__] == 0
    assert again.total() <= MAX_CALLS // 2, listing(again)
    assert len(first.written) > 50_000
    # Another connection finds it, and it costs what the list of one tool costs.
    other = Bench(many, revision)
    small = Bench(few, revision)
    small.say(frame)
    assert other.counted(frame) == again
    assert small.counted(frame) == again
    for bench in (first, other, small):
        bench.end()


@pytest.mark.verifies("F-listing-cache")
def test_a_list_is_encoded_anew_after_a_change() -> None:
    server = build(3)
    benches = {revision: Bench(server, revision) for revision in ALL}

    async def change() -> None:
        @server.tool
        async def another() -> str:
            return ""

    for changed in (False, True):
        if changed:
            benches[MODERN].loop.run_until_complete(change())
        for revision, bench in benches.items():
            frame = asked(revision, 7, "tools/list")
            assert bench.counted(frame)[Listing._build.__code__] == 1
            assert bench.counted(frame)[Listing._build.__code__] == 0
            assert (b'"another"' in bench.written) is changed
    for bench in benches.values():
        bench.end()


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_a_ping_costs_no_task(revision: str) -> None:
    calls = cost(build(), revision, asked(revision, 7, "ping"))
    assert calls.total() <= MAX_CALLS // 3, listing(calls)
    assert calls[Connection._serve.__code__] == 0
