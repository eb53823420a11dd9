"""Calls that become tasks, in both forms, as one awaitable handle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clientkit import MODERN, Line, connected, over, script, sent, stamped
from msgspec import Struct

from dovetail import Context, Elicit, McpError, Server
from dovetail.client import tasks as handles
from dovetail.errors import ConnectionClosed, LocalProtocolError, RemoteProtocolError, TaskCancelled
from support import run

WITH_TASKS = ("2025-11-25", MODERN)


class Sure(Struct):
    sure: bool


def working() -> Server:
    server = Server("working")
    server.go = asyncio.Event()  # type: ignore[attr-defined]

    @server.tool(task="required")
    async def must(n: int) -> int:
        return n * 2

    @server.tool(task="optional")
    async def may(n: int) -> int:
        return n * 3

    @server.tool
    async def never(n: int) -> int:
        return n

    @server.tool(task="required")
    async def asks(*, ctx: Context[Any]) -> str:
        answer = await ctx.ask("sure", Elicit("Sure?", Sure))
        return f"{answer.value.sure}"

    @server.tool(task="required")
    async def waits() -> str:
        await server.go.wait()  # type: ignore[attr-defined]
        return "gone"

    @server.tool(task="required")
    async def refuses() -> str:
        raise McpError(-32050 - 1950, "no such thing", {"why": 1})

    @server.tool(task="required")
    async def breaks() -> str:
        raise ValueError("x")

    return server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers ask to be polled every second; the tests need not wait for it."""
    monkeypatch.setattr(handles, "_pause", lambda task, failures: 0.001)


@pytest.mark.parametrize("revision", WITH_TASKS)
@pytest.mark.verifies("C38", "C39")
def test_a_call_is_a_call_whether_it_becomes_a_task_or_not(revision: str) -> None:
    async def main() -> None:
        async with connected(working(), revision=revision) as (client, recorder):
            assert (await client.call("must", {"n": 4})).value == 8
            assert (await client.call("may", {"n": 4})).value == 12
            assert (await client.call("never", {"n": 4})).value == 4
        if revision == "2025-11-25":  # asked for where the tool must, and only there
            asked = [
                c["params"]["name"] for c in sent(recorder, "tools/call") if "task" in c["params"]
            ]
            assert asked == ["must"]
        assert not sent(recorder, "notifications/cancelled")

    run(main())


@pytest.mark.parametrize("revision", WITH_TASKS)
def test_a_handle_can_be_looked_at_and_awaited(revision: str) -> None:
    async def main() -> None:
        server = working()
        async with connected(server, revision=revision) as (client, _):
            handle = await client.submit("waits")
            assert handle.status == "working"
            assert not handle.done
            assert await handle.refresh() == "working"
            server.go.set()  # type: ignore[attr-defined]
            assert (await handle).text == "gone"
            assert handle.done
            again = client.task(handle.id)
            assert (await again).text == "gone"

    run(main())


@pytest.mark.parametrize("revision", WITH_TASKS)
@pytest.mark.verifies("X25")
def test_cancelling(revision: str) -> None:
    async def main() -> None:
        async with connected(working(), revision=revision) as (client, recorder):
            handle = await client.submit("waits")
            await handle.cancel()
            with pytest.raises(TaskCancelled):
                await handle
            assert handle.status == "cancelled"
            await handle.cancel()  # a second time changes nothing
        assert len(sent(recorder, "tasks/cancel")) == 2

    run(main())


@pytest.mark.parametrize("revision", WITH_TASKS)
def test_a_task_that_asks(revision: str) -> None:
    async def main() -> None:
        options = {"revision": revision, "on_elicit": lambda q: {"sure": True}}
        async with connected(working(), **options) as (client, _):
            assert (await client.call("asks")).text == "True"

    run(main())


@pytest.mark.parametrize("revision", WITH_TASKS)
def test_failures(revision: str) -> None:
    async def main() -> None:
        async with connected(working(), revision=revision) as (client, _):
            assert (await client.call("breaks")).is_error
            with pytest.raises(McpError, match="no such thing"):
                await client.call("refuses")

    run(main())


@pytest.mark.verifies("C38")
def test_a_task_is_not_asked_for_where_it_is_not_allowed() -> None:
    async def main() -> None:
        async with connected(working(), revision="2025-11-25") as (client, recorder):
            with pytest.raises(LocalProtocolError, match="cannot run as a task"):
                await client.submit("never", {"n": 1})
            assert not sent(recorder, "tools/call")
        async with connected(working(), revision="2025-06-18") as (client, _):
            with pytest.raises(LocalProtocolError, match="has no tasks"):
                await client.submit("may", {"n": 1})

    run(main())


def test_a_server_of_2026_may_answer_at_once() -> None:
    async def main() -> None:
        async with connected(working(), revision=MODERN) as (client, _):
            handle = await client.submit("never", {"n": 5})
            assert handle.done
            assert (await handle).value == 5

    run(main())


def test_waiting_for_a_task_has_an_end() -> None:
    async def main() -> None:
        for revision in WITH_TASKS:
            async with connected(working(), revision=revision) as (client, _):
                handle = await client.submit("waits", max_total=0.05)
                with pytest.raises(TimeoutError, match="has not ended"):
                    await handle

    run(main())


# -- the extension, from a server that does not behave --------------------------------------------

TASK = {"taskId": "t", "status": "working", "createdAt": "", "lastUpdatedAt": "", "ttlMs": None}


def told(*answers: Any) -> Line:
    """A tool that becomes a task, whose ``tasks/get`` is answered with these, one by one."""
    left = list(answers)

    def serve(message: dict[str, Any], line: Line) -> None:
        if message["method"] == "tools/call":
            line.result(message, {**TASK, "resultType": "task"})
        elif message["method"] == "tasks/get":
            answer = left.pop(0) if len(left) > 1 else left[0]
            line.result(message, {**TASK, **stamped(), **answer})
        else:
            line.result(message, stamped())

    return script(serve, revision=MODERN)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"status": "completed"}, "has no result"),
        ({"status": "failed"}, "does not say why"),
        ({"status": "lost in space"}, "makes no sense"),
        ({"status": "completed", "result": []}, "makes no sense"),
    ],
)
def test_answers_about_a_task_that_make_no_sense(answer: dict[str, Any], fault: str) -> None:
    async def main() -> None:
        async with over(told(answer)) as client:
            with pytest.raises(RemoteProtocolError, match=fault):
                await client.call("add")

    run(main())


def test_a_question_of_a_task_is_answered_once() -> None:
    form = {"type": "object", "properties": {}}
    question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": form}}
    asked = {"status": "input_required", "inputRequests": {"k": question}}
    done = {"status": "completed", "result": {"content": [], "resultType": "complete"}}

    async def main() -> None:
        line = told(asked, asked, asked, done)
        count: list[Any] = []
        async with over(line, on_elicit=lambda q: count.append(q) or {}) as client:
            await client.call("add")
        assert len(count) == 1
        assert sum(m["method"] == "tasks/update" for m in line.received) == 1

    run(main())


@pytest.mark.verifies("X44")
def test_polling_is_spread_and_slows_down() -> None:
    pauses = [_original(Task(poll=1000), failures) for failures in (0, 1, 2, 9) for _ in range(20)]
    first, second, third, last = (pauses[i : i + 20] for i in (0, 20, 40, 60))
    assert len(set(first)) > 1
    assert 0.75 <= min(first) <= max(first) <= 1.25
    assert min(second) >= 1.5
    assert min(third) >= 3
    assert max(last) <= handles.MAX_POLL_SECONDS * 1.25


_original = handles._pause


class Task(Struct):
    poll: int

    @property
    def poll_interval_ms(self) -> int:
        return self.poll


def test_a_task_survives_a_short_silence_and_is_given_up_after_a_long_one() -> None:
    async def main() -> None:
        line = told({})
        async with over(line) as client:
            handle = await client.submit("add")
            line.hang_up()
            with pytest.raises(ConnectionClosed):
                await handle

    run(main())
