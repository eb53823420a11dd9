"""A hundred thousand requests, many of them gone wrong: nothing is left behind, and it goes on."""

from __future__ import annotations

import asyncio
import gc
import logging
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from dovetail import ClientError, Context, Elicit, Server
from dovetail.core.peer import Request
from dovetail.runtime.connection import Connection
from dovetail.runtime.progress import Progress
from dovetail.server.ask import Answers
from dovetail.testing import connect, envelope
from support import cancel, frame, modern, notification, request, run, until

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}, "roots": {}, "sampling": {}}
TOTAL = 100_000
# Each wave holds one request of every kind, in one chunk, as a busy client sends them.
KINDS = (
    "plain",
    "progress",
    "flood",
    "cancelled",
    "cancelled at once",
    "answered",
    "refused",
    "nonsense",
    "abandoned",
    "crashed",
    "unknown",
    "modern",
    "modern asks",
    "modern bad state",
    "modern cancelled",
    "duplicate",
)
WAVE = 16 * len(KINDS)


class Name(Struct):
    name: str


def make() -> Server:
    server = Server("s", version="1")

    @server.tool
    async def plain(x: int = 0) -> int:
        return x

    @server.tool
    async def progress(ctx: Context, steps: int) -> str:
        for step in range(steps):
            ctx.progress(step, steps)
        return "done"

    @server.tool
    async def wait(ctx: Context) -> None:
        for step in range(25):  # some of it is held back, with a timer
            ctx.progress(step)
        await asyncio.Event().wait()

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.ask("name", Elicit("Who?", Name))).action

    @server.tool
    async def crash() -> None:
        raise ClientError("a crash would fill the log")

    return server


def calls(kind: str, id: int) -> list[bytes]:
    """What a client sends for one request of a kind."""

    def call(tool: str, **params: Any) -> bytes:
        return request(id, "tools/call", {"name": tool, **params})

    def modern_call(tool: str, **params: Any) -> bytes:
        return modern(id, "tools/call", {"name": tool, **params}, capabilities=CAPABILITIES)

    token = {"_meta": {"progressToken": id}}
    frames: dict[str, Callable[[], list[bytes]]] = {
        "plain": lambda: [call("plain", arguments={"x": id})],
        "progress": lambda: [call("progress", arguments={"steps": 3}, **token)],
        "flood": lambda: [call("progress", arguments={"steps": 40}, **token)],
        "cancelled": lambda: [call("wait", **token)],
        "cancelled at once": lambda: [call("wait", **token), cancel(id)],
        "answered": lambda: [call("ask")],
        "refused": lambda: [call("ask")],
        "nonsense": lambda: [call("ask")],
        "abandoned": lambda: [call("ask")],
        "crashed": lambda: [call("crash")],
        "unknown": lambda: [call("nobody")],
        "modern": lambda: [modern_call("plain")],
        "modern asks": lambda: [modern_call("ask")],
        "modern bad state": lambda: [modern_call("ask", requestState="x")],
        "modern cancelled": lambda: [modern_call("wait"), cancel(id)],
        "duplicate": lambda: [call("wait"), call("plain"), cancel(id)],
    }
    return frames[kind]()


class Sink:
    """The other end, without schemas: counts what comes, and remembers the questions."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.answers: Counter[str] = Counter()
        self.notified: Counter[str] = Counter()
        self.questions: list[int] = []
        self.waves = 0
        connection.attach(self, self)

    def write(self, data: bytes | bytearray) -> None:
        for line in bytes(data).splitlines():
            message = msgspec.json.decode(line)
            if "method" not in message:
                self.answers["error" if "error" in message else "result"] += 1
            elif "id" in message:
                self.questions.append(message["id"])
            else:
                self.notified[message["method"]] += 1

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...

    def feed(self, frames: list[bytes]) -> None:
        self.connection.feed(b"".join(one + b"\n" for one in frames))


async def wave(sink: Sink, first: int) -> None:
    """As many requests as WAVE, and all that follows from them."""
    ids = {first + n: KINDS[n % len(KINDS)] for n in range(WAVE)}
    sink.feed([one for id, kind in ids.items() for one in calls(kind, id)])
    asking = sum(kind in ("answered", "refused", "nonsense", "abandoned") for kind in ids.values())
    while len(sink.questions) < asking:  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0)
    replies = []
    for number, id in enumerate(sink.questions):
        if number % 4 == 0:
            replies.append(frame(id=id, result={"action": "decline"}))
        elif number % 4 == 1:
            replies.append(frame(id=id, error={"code": -1, "message": "no"}))
        elif number % 4 == 2:
            replies.append(frame(id=id, result={"action": "?"}))
        replies.append(frame(id=-id, result={}))  # and an answer to nothing
    sink.questions.clear()
    replies += [cancel(id) for id, kind in ids.items() if kind == "cancelled"]
    replies.append(notification("notifications/progress", {"progressToken": 0, "progress": 1}))
    sink.feed(replies)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    # What nobody has answered is given up.
    sink.feed([cancel(id) for id in list(sink.connection.peer.in_flight)])
    while sink.connection.busy:  # noqa: ASYNC110
        await asyncio.sleep(0)
    sink.waves += 1


def leftovers(connection: Connection) -> dict[str, int]:
    """All that a request could leave behind; nothing of it may grow."""
    loop: Any = asyncio.get_running_loop()
    gc.collect()
    kinds = Counter(type(one) for one in gc.get_objects())
    session = connection.session
    return {
        "tasks": len(asyncio.all_tasks()),
        "timers": sum(not handle.cancelled() for handle in loop._scheduled),
        "in flight": len(connection.peer.in_flight),
        "pending": len(connection.peer.pending),
        "waiters": len(connection._asking._waiters),
        "running": len(connection._tasks),
        "background": len(connection._home.background),
        "queue": len(connection._queue),
        "queued bytes": connection._queued_bytes,
        "output": len(connection._out),
        "end callbacks": len(connection._end_callbacks),
        "streams": len(session.streams),
        "subscriptions": len(session.subscriptions),
        "notes": len(session.notes),
        "sessions": len(session.server.sessions),
        "futures": kinds[asyncio.Future],
        "events": kinds[asyncio.Event],
        "Context": kinds[Context],
        "Request": kinds[Request],
        "Progress": kinds[Progress],
        "Answers": kinds[Answers],
    }


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What is more than before. A future may still be in a frame of the test itself."""
    slack = {"futures": 2}
    return {name: n for name, n in after.items() if n > before[name] + slack.get(name, 0)}


@pytest.mark.verifies("INV-001", "INV-002", "S21", "X19", "E-stray-response", "F-cancel")
def test_a_hundred_thousand_requests_leave_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with connect(make(), D, capabilities=CAPABILITIES) as client:
            plain = client.connection._writer
            sink = Sink(client.connection)
            first = 1_000_000
            for _ in range(10):  # caches, pools and method tables fill
                await wave(sink, first)
                first += WAVE
            before = leftovers(client.connection)
            tracemalloc.start()
            await wave(sink, first)
            gc.collect()
            memory, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            done = 0
            while done < TOTAL:
                await wave(sink, first)
                first += WAVE
                done += WAVE
            assert grown(before, leftovers(client.connection)) == {}
            tracemalloc.start()
            await wave(sink, first)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            # What one wave leaves after all the others is what one left before them.
            assert after < memory + 50_000
            check_counts(sink)
            # And a well-behaved client, every message checked, is served as on the first day.
            client.connection._writer = plain
            assert (await client.call("plain", {"x": 5}))["content"][0]["text"] == "5"

    asyncio.run(asyncio.wait_for(main(), 240))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def check_counts(sink: Sink) -> None:
    """Every request had its one answer, or was cancelled and had none."""
    each = sink.waves * WAVE // len(KINDS)
    # plain, progress, flood, crashed, modern, modern asks, and three asks that were answered.
    assert sink.answers["result"] == each * 9
    # unknown, modern bad state, and the second request under an id in use.
    assert sink.answers["error"] == each * 3
    # One question in four was taken back, with its request.
    assert sink.notified["notifications/cancelled"] == each


# --- after each fault the next request is served --------------------------------------------------


def error(id: Any) -> bytes:
    return frame(id=id, error={"code": -1, "message": "no"})


FAULTS: dict[str, list[bytes]] = {
    "an answer to nothing": [frame(id=1, result={}), frame(id="x", result={}), error(7)],
    "an answer with both": [frame(id=1, result={}, error={"code": 1, "message": "m"})],
    "an answer with neither": [frame(id=1)],
    "an answer without an id": [frame(result={}), frame(id=None, result={})],
    "progress of nothing": [
        notification("notifications/progress", {"progressToken": 1, "progress": 1}),
        notification("notifications/progress", {"progressToken": None}),
        notification("notifications/progress"),
    ],
    "a cancellation of nothing": [cancel(1), cancel("1"), notification("notifications/cancelled")],
    "an unknown notification": [notification("notifications/whatever", {"a": 1})],
    "roots that changed": [notification("notifications/roots/list_changed")],
    "initialized again": [notification("notifications/initialized")],
    "a task of nobody": [notification("notifications/tasks/status", {"taskId": "x"})],
    "no JSON": [b"{", b"\xff", b"[1,2", b'"'],
    "no object": [b"1", b"null", b'"x"'],
    "params of all sorts": [
        b'{"jsonrpc":"2.0","id":900,"method":"tools/call","params":[]}',
        b'{"jsonrpc":"2.0","id":901,"method":"logging/setLevel","params":{"level":1}}',
        b'{"jsonrpc":"2.0","id":902,"method":"resources/subscribe","params":1}',
        b'{"jsonrpc":"2.0","id":903,"method":"subscriptions/listen","params":{"notifications":1}}',
    ],
}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.verifies("INV-002", "E-stray-response", "X10", "X19", "E-unknown-notification")
def test_the_next_request_is_served(revision: str, fault: str) -> None:
    async def main() -> None:
        capabilities = CAPABILITIES if revision in (D, E) else {}
        async with connect(make(), revision, capabilities=capabilities) as client:
            before = leftovers(client.connection)
            for bad in FAULTS[fault]:
                client.send(bad)
                assert (await client.call("plain", {"x": 1}))["content"][0]["text"] == "1"
            await client.settle()
            assert grown(before, leftovers(client.connection)) == {}

    run(main())


@pytest.mark.parametrize("revision", [C, D])
def test_the_next_request_is_served_while_a_question_is_open(revision: str) -> None:
    """No fault of another message ends the wait, or is taken for the answer."""

    async def main() -> None:
        async with connect(make(), revision, capabilities={"elicitation": {}}) as client:
            _, future = client.start("tools/call", {"name": "ask"})
            question = await client.receive()
            for fault, frames in FAULTS.items():
                for bad in frames:
                    if bad.startswith(b'{"jsonrpc":"2.0","id":1,'):
                        continue  # the question's own id: those are in test_ask
                    client.send(bad)
                assert not future.done(), fault
                assert (await client.call("plain"))["content"][0]["text"] == "0"
            client._send({"id": question["id"], "result": {"action": "cancel"}})
            assert (await future)["result"]["content"][0]["text"] == "cancel"
            assert not client.connection._asking._waiters

    run(main())


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_client_that_declares_nothing(revision: str) -> None:
    """Each question is refused on our side, clearly, and all else works."""

    async def main() -> None:
        async with connect(make(), revision) as client:
            for _ in range(3):
                answer = await client.answer("tools/call", {"name": "ask"})
                if revision == E:
                    assert answer["error"]["code"] == -32021
                else:
                    text = answer["result"]["content"][0]["text"]
                    assert text == "The client does not support elicitation"
                assert (await client.call("plain"))["content"][0]["text"] == "0"

    run(main())


@pytest.mark.parametrize("end", ["eof", "lost", "close"])
def test_clients_that_vanish_leave_no_session(end: str) -> None:
    """In the middle of questions, waits and streams, one after the other."""
    server = make()
    log = logging.getLogger("dovetail")
    log.disabled = True  # a question to nobody is a failed tool, and says so each time

    async def vanish() -> None:
        async with connect(server, D, capabilities=CAPABILITIES) as client:
            sink = Sink(client.connection)
            listen = {"notifications": {"toolsListChanged": True}}
            sink.feed(
                [
                    request(1, "tools/call", {"name": "ask"}),
                    request(2, "tools/call", {"name": "wait", "_meta": {"progressToken": 1}}),
                    modern(3, "subscriptions/listen", listen),
                    modern(4, "tools/call", {"name": "wait"}),
                ]
            )
            await until(lambda: sink.questions)
            if end == "eof":
                client.connection.end_of_input()
            elif end == "lost":
                client.connection.lost()

    async def main() -> None:
        gc.collect()
        for _ in range(3):
            await vanish()
        gc.collect()
        before = Counter(type(one).__name__ for one in gc.get_objects())
        tasks = len(asyncio.all_tasks())
        for _ in range(20):
            await vanish()
        await asyncio.sleep(0)
        gc.collect()
        after = Counter(type(one).__name__ for one in gc.get_objects())
        assert server.sessions == []
        assert len(asyncio.all_tasks()) == tasks
        for kind in ("Session", "Stream", "Request", "Context", "Progress", "Task", "TestClient"):
            assert after[kind] <= before[kind] + 3, kind

    try:
        run(main())
    finally:
        log.disabled = False


def test_every_client_gets_a_fresh_start() -> None:
    """What one connection went through is not seen on the next."""
    server = make()

    async def main() -> None:
        for number in range(30):
            revision = REVISIONS[number % 5]
            async with connect(server, revision) as client:
                client.send(FAULTS["no JSON"][number % 4])
                result = await client.call("plain", {"x": number})
                assert result["content"][0]["text"] == str(number)
        assert server.sessions == []

    run(main())


def test_the_envelope_alone_opens_no_session() -> None:
    """A client of 2026 that comes and goes on one pipe leaves nothing on it."""

    async def main() -> None:
        async with connect(make(), E, capabilities=CAPABILITIES) as client:
            before = leftovers(client.connection)
            for _ in range(100):
                first = await client.call("ask", {})
                params = {
                    "name": "ask",
                    "arguments": {},
                    "inputResponses": {"name": {"action": "decline"}},
                    "requestState": first["requestState"],
                    "_meta": envelope(**CAPABILITIES),
                }
                result = await client.request("tools/call", params)
                assert result["content"][0]["text"] == "decline"
            assert grown(before, leftovers(client.connection)) == {}

    run(main())
