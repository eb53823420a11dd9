"""Tasks of 2025-11-25: a call that the client collects later."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from dovetail import Context, Elicit, McpError, MemoryStore, Server, TaskLimits, ToolError
from dovetail.server.tasks import StoreError, TaskRecord
from dovetail.spec.meta import RELATED_TASK_KEY, TASKS_EXTENSION
from dovetail.testing import TestClient, connect
from support import no_crash, run, until

D = "2025-11-25"
OTHERS = ("2024-11-05", "2025-03-26", "2025-06-18", "2026-07-28")
HOUR = 3_600_000
DAY = 24 * HOUR
START = 1_800_000_000.0
ELICITS = {"elicitation": {}}


class Name(msgspec.Struct):
    name: str


class Kitchen:
    """A server whose tools do what the test tells them, when it tells them."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("tasks", version="1", **options)
        self.go = asyncio.Event()
        self.stopped: list[str] = []
        self.contexts: list[Context] = []
        self._plain_tools()
        self._tools_with_a_context()

    def _plain_tools(self) -> None:
        @self.server.tool(task="optional")
        async def add(a: int, b: int) -> int:
            return a + b

        @self.server.tool(task="required")
        async def long() -> str:
            return "long"

        @self.server.tool
        async def short() -> str:
            return "short"

        @self.server.tool(task="optional")
        async def fail(how: Literal["tool", "error", "crash", "huge"]) -> str:
            if how == "tool":
                raise ToolError("no flour")
            if how == "error":
                raise McpError(4001, "Out of order", {"until": "Monday"})
            if how == "huge":
                raise McpError(4002, "Huge", "x" * (5 << 20))
            raise RuntimeError("a secret")

    def _tools_with_a_context(self) -> None:
        kitchen = self

        @self.server.tool(task="optional")
        async def wait(ctx: Context, text: str = "done") -> str:
            kitchen.contexts.append(ctx)
            try:
                await kitchen.go.wait()
            except asyncio.CancelledError:
                kitchen.stopped.append(text)
                raise
            return text

        @self.server.tool(task="optional")
        async def greet(ctx: Context) -> str:
            kitchen.contexts.append(ctx)
            answer = await ctx.ask("who", Elicit("Who are you?", Name))
            return f"Hello {answer.value.name}"


async def start(
    client: TestClient, name: str, arguments: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Call a tool as a task, and return the task."""
    params = {"name": name, "arguments": arguments or {}, "task": {}, **more}
    result = await client.request("tools/call", params)
    assert result.keys() == {"task"}
    task: dict[str, Any] = result["task"]
    return task


async def get(client: TestClient, task: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = await client.request("tasks/get", {"taskId": task["taskId"]})
    return found


async def status(client: TestClient, task: dict[str, Any]) -> str:
    return str((await get(client, task))["status"])


async def collect(client: TestClient, task: dict[str, Any]) -> dict[str, Any]:
    """The whole answer to tasks/result."""
    return await client.answer("tasks/result", {"taskId": task["taskId"]})


async def refused(client: TestClient, method: str, params: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = (await client.answer(method, params))["error"]
    return error


def tagged(task: dict[str, Any]) -> dict[str, Any]:
    return {RELATED_TASK_KEY: {"taskId": task["taskId"]}}


def said(client: TestClient, method: str) -> list[dict[str, Any]]:
    """The params of every notification of one kind so far."""
    sent = [message for sender, message in client.recorder.messages if sender == "server"]
    return [message["params"] for message in sent if message.get("method") == method]


# -- what is declared ----------------------------------------------------------------------------


@pytest.mark.verifies("R002-18", "S88")
def test_the_capability_and_the_tools_say_what_can_be_a_task() -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D, handshake=False) as client:
            told = (await client.initialize())["capabilities"]
            assert told["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
            tools = (await client.request("tools/list"))["tools"]
            support = {tool["name"]: tool.get("execution") for tool in tools}
            assert support["wait"] == {"taskSupport": "optional"}
            assert support["long"] == {"taskSupport": "required"}
            assert support["short"] is None, "forbidden is what no entry means"

    run(main())


@pytest.mark.parametrize("revision", OTHERS)
@pytest.mark.verifies("S88", "S103")
def test_no_other_revision_hears_of_core_tasks(revision: str) -> None:
    async def main() -> None:
        async with connect(Kitchen().server, revision, handshake=False) as client:
            if revision == "2026-07-28":
                told = await client.request("server/discover")
            else:
                told = await client.initialize()
            assert "tasks" not in told["capabilities"]
            tools = (await client.request("tools/list"))["tools"]
            assert all("execution" not in tool for tool in tools)
            for method in ("tasks/result", "tasks/list"):
                given = {"taskId": "x"} if method == "tasks/result" else {}
                frame = {"jsonrpc": "2.0", "id": method, "method": method}
                params = {**given, **client._params({}, True).get("params", {})}
                client.send(msgspec.json.encode({**frame, "params": params}))
                assert (await client.receive())["error"]["code"] == -32601

    run(main())


@pytest.mark.parametrize("revision", OTHERS[:3])
def test_before_tasks_even_a_tool_that_needs_one_just_runs(revision: str) -> None:
    async def main() -> None:
        async with connect(Kitchen().server, revision) as client:
            assert (await client.call("long"))["content"] == [{"type": "text", "text": "long"}]

    run(main())


@pytest.mark.verifies("S88")
def test_without_a_tool_for_tasks_the_member_is_ignored() -> None:
    server = Server("plain", version="1")

    @server.tool
    async def short() -> str:
        return "short"

    async def main() -> None:
        async with connect(server, D, handshake=False) as client:
            assert "tasks" not in (await client.initialize())["capabilities"]
            call = {"name": "short", "task": {"ttl": 5}}
            assert (await client.request("tools/call", call))["content"][0]["text"] == "short"
            assert (await refused(client, "tasks/list", {}))["code"] == -32601

    run(main())


# -- making one ----------------------------------------------------------------------------------


@pytest.mark.verifies("S89", "S90", "S96")
def test_a_task_and_its_end() -> None:
    async def main() -> None:
        kitchen = Kitchen(task_store=MemoryStore(clock=lambda: START))
        async with connect(kitchen.server, D) as client:
            task = await start(client, "wait", {"text": "bread"})
            stamp = "2027-01-15T08:00:00.000Z"
            assert task == {
                "taskId": task["taskId"],
                "status": "working",
                "createdAt": stamp,
                "lastUpdatedAt": stamp,
                "ttl": HOUR,
                "pollInterval": 1000,
            }
            assert len(task["taskId"]) >= 43, "256 bits, so nobody guesses it"
            assert await get(client, task) == task
            kitchen.go.set()
            assert (await collect(client, task))["result"] == {
                "content": [{"type": "text", "text": "bread"}],
                "structuredContent": {"result": "bread"},
                "isError": False,
                "_meta": tagged(task),
            }
            assert await get(client, task) == {**task, "status": "completed"}
            again = await start(client, "add", {"a": 1, "b": 2})
            assert again["taskId"] != task["taskId"]

    run(main())


@pytest.mark.verifies("S91")
def test_the_result_is_what_the_call_would_have_given() -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D) as client:
            task = await start(client, "add", {"a": 1, "b": 2})
            plain = await client.call("add", {"a": 1, "b": 2})
            collected = (await collect(client, task))["result"]
            assert collected == {**plain, "_meta": tagged(task)}
            assert (await collect(client, task))["result"] == collected, "as often as one likes"

    run(main())


@pytest.mark.verifies("S91", "S100")
@pytest.mark.parametrize("how", ["tool", "error", "crash"])
def test_failures_are_kept_as_they_were(how: str) -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D) as client:
            plain = await client.answer("tools/call", {"name": "fail", "arguments": {"how": how}})
            task = await start(client, "fail", {"how": how})
            collected = await collect(client, task)
            assert await status(client, task) == "failed"
            if how == "error":
                assert collected["error"] == plain["error"]
                assert collected["error"]["data"] == {"until": "Monday"}
            else:
                assert collected["result"] == {**plain["result"], "_meta": tagged(task)}
                assert collected["result"]["isError"] is True

    run(main())


def test_an_error_too_large_to_keep_still_ends_the_task() -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D) as client:
            task = await start(client, "fail", {"how": "huge"})
            assert (await collect(client, task))["error"]["code"] == -32603
            assert await status(client, task) == "failed"
            assert (await client.call("short"))["isError"] is False

    run(main())


def test_a_result_too_large_to_keep_still_ends_the_task() -> None:
    async def main() -> None:
        kitchen = Kitchen(task_store=MemoryStore(TaskLimits(max_result_bytes=5000)))
        kitchen.go.set()
        async with connect(kitchen.server, D) as client:
            task = await start(client, "wait", {"text": "x" * 6000})
            error = (await collect(client, task))["error"]
            assert (error["code"], error["data"]) == (-32603, "The result could not be kept")
            assert await status(client, task) == "failed"

    run(main())


@pytest.mark.verifies("S90")
def test_bad_arguments_make_no_task() -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D) as client:
            params = {"name": "add", "arguments": {"a": "x", "b": 2}, "task": {}}
            assert (await client.request("tools/call", params))["isError"] is True
            unknown = {"name": "nobody", "task": {}}
            assert (await refused(client, "tools/call", unknown))["code"] == -32602
            assert (await client.request("tasks/list"))["tasks"] == []

    run(main())


def test_the_result_keeps_the_meta_of_the_tool() -> None:
    from dovetail.content import CallToolResult, TextContent

    server = Server("s", version="1")

    @server.tool(task="optional")
    def made() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="x")], meta={"example.org/k": 1})

    async def main() -> None:
        async with connect(server, D) as client:
            task = await start(client, "made")
            result = (await collect(client, task))["result"]
            assert result["_meta"] == {"example.org/k": 1, **tagged(task)}

    run(main())


@pytest.mark.verifies("S93")
def test_tools_that_need_a_task_and_tools_that_cannot_be_one() -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D) as client:
            without = await refused(client, "tools/call", {"name": "long"})
            assert (without["code"], without["data"]) == (-32601, "Tool 'long' runs only as a task")
            forbidden = await refused(client, "tools/call", {"name": "short", "task": {}})
            assert forbidden["code"] == -32601
            assert forbidden["data"] == "Tool 'short' cannot run as a task"
            assert (await client.call("short"))["isError"] is False
            task = await start(client, "long")
            assert (await collect(client, task))["result"]["content"][0]["text"] == "long"

    run(main())


@pytest.mark.parametrize("wish", [{"ttl": "long"}, {"ttl": None}, {"ttl": 1.5}, [], "yes", None])
def test_a_wish_that_makes_no_sense_is_refused(wish: Any) -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D) as client:
            call = {"name": "add", "arguments": {"a": 1, "b": 2}, "task": wish}
            frame = {"jsonrpc": "2.0", "id": "bad", "method": "tools/call", "params": call}
            client.send(msgspec.json.encode(frame))
            assert (await client.receive())["error"]["code"] == -32602
            assert (await client.request("tasks/list"))["tasks"] == []

    run(main())


# -- how long it is kept -------------------------------------------------------------------------

UNLIMITED = TaskLimits(max_ttl_ms=None, default_ttl_ms=None)


@pytest.mark.parametrize(
    ("limits", "wish", "granted"),
    [
        (TaskLimits(), {}, HOUR),
        (TaskLimits(), {"ttl": 60_000}, 60_000),
        (TaskLimits(), {"ttl": 1}, 1_000),
        (TaskLimits(), {"ttl": -5}, 1_000),
        (TaskLimits(), {"ttl": 10**15}, DAY),
        (TaskLimits(max_ttl_ms=5_000, default_ttl_ms=2_000), {"ttl": 60_000}, 5_000),
        (UNLIMITED, {}, None),
        (UNLIMITED, {"ttl": 60_000}, 60_000),
    ],
)
@pytest.mark.verifies("S90")
def test_the_ttl_is_the_one_that_holds(
    limits: TaskLimits, wish: dict[str, Any], granted: int | None
) -> None:
    async def main() -> None:
        kitchen = Kitchen(task_store=MemoryStore(limits))
        async with connect(kitchen.server, D) as client:
            task = await start(client, "add", {"a": 1, "b": 2}, task=wish)
            assert task["ttl"] == granted
            assert (await get(client, task))["ttl"] == granted

    run(main())


@pytest.mark.verifies("S93")
def test_an_expired_task_is_unknown_and_nobody_waits_for_it() -> None:
    async def main() -> None:
        now = [START]
        kitchen = Kitchen(task_store=MemoryStore(clock=lambda: now[0]))
        async with connect(kitchen.server, D) as client:
            task = await start(client, "wait", task={"ttl": 5_000})
            _, collecting = client.start("tasks/result", {"taskId": task["taskId"]})
            now[0] += 4.9
            assert await status(client, task) == "working"
            now[0] += 0.2
            unknown = await refused(client, "tasks/get", {"taskId": task["taskId"]})
            assert (unknown["code"], unknown["data"]) == (
                -32602,
                f"Unknown task: '{task['taskId']}'",
            )
            assert (await client.request("tasks/list"))["tasks"] == []
            kitchen.go.set()
            assert (await collecting)["error"]["code"] == -32602

    run(main())


# -- reading, listing ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
@pytest.mark.parametrize("id", ["", "nobody", "é", "🦆", "x" * 10_000])
@pytest.mark.verifies("S93")
def test_an_unknown_task(method: str, id: str) -> None:
    async def main() -> None:
        with no_crash():
            async with connect(Kitchen().server, D) as client:
                assert (await refused(client, method, {"taskId": id}))["code"] == -32602

    run(main())


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
@pytest.mark.parametrize("params", [{}, {"taskId": 7}, {"taskId": None}, {"taskId": ["x"]}])
def test_a_task_that_is_not_named(method: str, params: dict[str, Any]) -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D) as client:
            frame = {"jsonrpc": "2.0", "id": "bad", "method": method, "params": params}
            client.send(msgspec.json.encode(frame))
            assert (await client.receive())["error"]["code"] == -32602

    run(main())


@pytest.mark.verifies("S95")
def test_every_task_is_listed_page_by_page() -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D) as client:
            made = [(await start(client, "add", {"a": n, "b": 0}))["taskId"] for n in range(230)]
            found: list[str] = []
            sizes: list[int] = []
            cursor: dict[str, Any] = {}
            while True:
                page = await client.request("tasks/list", cursor)
                sizes.append(len(page["tasks"]))
                found += [task["taskId"] for task in page["tasks"]]
                if "nextCursor" not in page:
                    break
                cursor = {"cursor": page["nextCursor"]}
            assert found == made
            assert sizes == [100, 100, 30]
            for id in made[::50]:
                assert await get(client, {"taskId": id})

    run(main())


@pytest.mark.parametrize(
    "cursor", ["", "x", "!!", "é", "LTE=", "MS41", "OTk5OTk5OTk5OTk5OTk5OTk5OTk="]
)
@pytest.mark.verifies("S93")
def test_a_cursor_that_is_none_of_ours(cursor: str) -> None:
    async def main() -> None:
        with no_crash():
            async with connect(Kitchen().server, D) as client:
                error = await refused(client, "tasks/list", {"cursor": cursor})
                assert (error["code"], error["data"]) == (-32602, "Invalid cursor")
                assert (await client.request("tasks/list"))["tasks"] == []

    run(main())


@pytest.mark.verifies("S96")
def test_tasks_are_seen_by_their_principal_only() -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as ann, connect(kitchen.server, D) as bob:
            ann.connection.session.principal = "ann"
            bob.connection.session.principal = "bob"
            task = await start(ann, "wait")
            for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                error = await refused(bob, method, {"taskId": task["taskId"]})
                unknown = await refused(bob, method, {"taskId": "x" * 43})
                assert error["code"] == unknown["code"] == -32602
                assert error["data"].replace(task["taskId"], "x" * 43) == unknown["data"]
            assert (await bob.request("tasks/list"))["tasks"] == []
            assert [t["taskId"] for t in (await ann.request("tasks/list"))["tasks"]] == [
                task["taskId"]
            ]
            assert await status(ann, task) == "working", "nobody else has cancelled it"
            assert said(bob, "notifications/tasks/status") == []

    run(main())


# -- collecting ----------------------------------------------------------------------------------


@pytest.mark.verifies("S91")
def test_two_requests_wait_for_one_result() -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as client:
            task = await start(client, "wait")
            waiting = [client.start("tasks/result", {"taskId": task["taskId"]})[1] for _ in "ab"]
            await asyncio.sleep(0.01)
            assert not any(future.done() for future in waiting), "it blocks"
            assert (await client.call("short"))["isError"] is False, "but nothing else"
            kitchen.go.set()
            first, second = await asyncio.gather(*waiting)
            assert first["result"] == second["result"]
            assert first["result"]["content"][0]["text"] == "done"

    run(main())


def test_a_request_for_the_result_can_be_given_up() -> None:
    """Cancelling the wait is not cancelling the task."""

    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as client:
            task = await start(client, "wait")
            id, future = client.start("tasks/result", {"taskId": task["taskId"]})
            await asyncio.sleep(0)
            client.notify("notifications/cancelled", {"requestId": id})
            await client.settle()
            assert not future.done(), "a cancelled request is not answered"
            assert await status(client, task) == "working"
            kitchen.go.set()
            assert (await collect(client, task))["result"]["content"][0]["text"] == "done"

    run(main())


def test_a_client_goes_and_another_collects() -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with kitchen.server.running():
            async with connect(kitchen.server, D) as first:
                task = await start(first, "wait", _meta={"progressToken": "t"})
                first.start("tasks/result", {"taskId": task["taskId"]})
                await asyncio.sleep(0)
            (ctx,) = kitchen.contexts
            with no_crash():
                ctx.progress(1)  # nobody hears it, and nothing breaks
                ctx.log("error", "is anybody there?")
                async with connect(kitchen.server, D) as second:
                    assert await status(second, task) == "working"
                    kitchen.go.set()
                    result = (await collect(second, task))["result"]
                    assert result["content"][0]["text"] == "done"

    run(main())


# -- cancelling ----------------------------------------------------------------------------------


@pytest.mark.verifies("S94", "S89", "X25")
def test_cancelling_stops_the_tool_at_once_and_for_good() -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as client:
            task = await start(client, "wait")
            _, collecting = client.start("tasks/result", {"taskId": task["taskId"]})
            cancelled = await client.request("tasks/cancel", {"taskId": task["taskId"]})
            assert cancelled["taskId"] == task["taskId"]
            assert cancelled["status"] == "cancelled"
            await until(lambda: kitchen.stopped)
            kitchen.go.set()
            answer = await collecting
            assert (answer["error"]["code"], answer["error"]["message"]) == (
                -32603,
                "Task cancelled",
            )
            assert await status(client, task) == "cancelled"
            assert (await collect(client, task))["error"] == answer["error"]

    run(main())


@pytest.mark.verifies("S93", "S89")
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_what_has_ended_cannot_be_cancelled(end: str) -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as client:
            if end == "completed":
                task = await start(client, "add", {"a": 1, "b": 2})
                await collect(client, task)
            elif end == "failed":
                task = await start(client, "fail", {"how": "error"})
                await collect(client, task)
            else:
                task = await start(client, "wait")
                await client.request("tasks/cancel", {"taskId": task["taskId"]})
            error = await refused(client, "tasks/cancel", {"taskId": task["taskId"]})
            assert (error["code"], error["data"]) == (-32602, f"The task is {end} already")
            assert await status(client, task) == end

    run(main())


@pytest.mark.verifies("X25")
def test_the_cancelled_notification_does_not_stop_a_task() -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as client:
            id, future = client.start("tools/call", {"name": "wait", "task": {}})
            task = (await future)["result"]["task"]
            client.notify("notifications/cancelled", {"requestId": id})
            await client.settle()
            assert await status(client, task) == "working"
            kitchen.go.set()
            assert (await collect(client, task))["result"]["content"][0]["text"] == "done"

    run(main())


# -- sync tools ----------------------------------------------------------------------------------


def test_a_sync_tool_runs_as_a_task_and_stops_at_its_next_word() -> None:
    server = Server("s", version="1")
    go, began, ended = threading.Event(), threading.Event(), threading.Event()
    reached: list[str] = []

    @server.tool(task="optional")
    def work(ctx: Context) -> str:
        try:
            began.set()
            go.wait(10)
            ctx.progress(1)
            reached.append("the end")
            return "worked"
        finally:
            ended.set()

    @server.tool(task="optional", inline=True)
    def quick(n: int) -> int:
        return n + 1

    async def main() -> None:
        async with connect(server, D) as client:
            task = await start(client, "quick", {"n": 1})
            assert (await collect(client, task))["result"]["structuredContent"] == {"result": 2}
            task = await start(client, "work")
            await until(began.is_set)
            assert await status(client, task) == "working"
            gone = await client.request("tasks/cancel", {"taskId": task["taskId"]})
            assert gone["status"] == "cancelled"
            assert not ended.is_set()
            go.set()
            await until(ended.is_set)
            assert reached == []
            task = await start(client, "work")
            result = (await collect(client, task))["result"]
            assert result["content"][0]["text"] == "worked"

    run(main())


def test_a_tool_with_a_timeout_ends_as_failed() -> None:
    server = Server("s", version="1")

    @server.tool(task="optional", timeout=0.01)
    async def forever() -> str:
        await asyncio.Event().wait()
        return ""

    async def main() -> None:
        async with connect(server, D) as client:
            task = await start(client, "forever")
            result = (await collect(client, task))["result"]
            said = "Tool 'forever' timed out after 0.01 seconds"
            assert (result["isError"], result["content"][0]["text"]) == (True, said)
            assert await status(client, task) == "failed"

    run(main())


# -- what is said meanwhile ----------------------------------------------------------------------


@pytest.mark.verifies("X24", "S92")
def test_progress_goes_on_with_the_token_until_the_end() -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as client:
            task = await start(client, "wait", _meta={"progressToken": "t"})
            (ctx,) = kitchen.contexts
            ctx.progress(1, 3, "kneading")
            ctx.progress(2, 3)
            await client.settle()
            kitchen.go.set()
            await collect(client, task)
            ctx.progress(3, 3)
            await client.settle()
            assert said(client, "notifications/progress") == [
                {"progressToken": "t", "progress": 1, "total": 3, "message": "kneading"},
                {"progressToken": "t", "progress": 2, "total": 3},
            ]

    run(main())


@pytest.mark.verifies("X24")
def test_the_last_progress_comes_before_the_last_status() -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as client:
            task = await start(client, "wait", _meta={"progressToken": 7})
            (ctx,) = kitchen.contexts
            for n in range(1, 101):
                ctx.progress(n, 100)
            kitchen.go.set()
            await collect(client, task)
            methods = [m.get("method") for s, m in client.recorder.messages if s == "server"]
            assert said(client, "notifications/progress")[-1]["progress"] == 100
            last = len(methods) - 1 - methods[::-1].index("notifications/progress")
            assert last < methods.index("notifications/tasks/status")

    run(main())


@pytest.mark.verifies("X24")
def test_a_cancelled_task_says_no_more() -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as client:
            task = await start(client, "wait", _meta={"progressToken": "t"})
            (ctx,) = kitchen.contexts
            for n in range(1, 31):  # more than the burst: the last are held back
                ctx.progress(n)
            await client.request("tasks/cancel", {"taskId": task["taskId"]})
            await until(lambda: kitchen.stopped)
            await asyncio.sleep(0.12)  # longer than anything is held back
            methods = [m.get("method") for s, m in client.recorder.messages if s == "server"]
            after = methods[methods.index("notifications/tasks/status") :]
            assert "notifications/progress" not in after

    run(main())


@pytest.mark.verifies("S92")
def test_logs_of_a_task_name_it() -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as client:
            task = await start(client, "wait")
            (ctx,) = kitchen.contexts
            ctx.log("debug", "too little")
            ctx.log("warning", {"oven": "hot"}, "kitchen")
            await client.settle()
            (message,) = said(client, "notifications/message")
            assert message == {
                "level": "warning",
                "data": {"oven": "hot"},
                "logger": "kitchen",
                "_meta": tagged(task),
            }

    run(main())


@pytest.mark.verifies("S92")
def test_every_step_is_announced_to_who_made_the_task() -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as client, connect(kitchen.server, D) as other:
            task = await start(client, "add", {"a": 1, "b": 2})
            await collect(client, task)
            (told,) = said(client, "notifications/tasks/status")
            assert told == await get(client, task)
            assert told["status"] == "completed"
            assert said(other, "notifications/tasks/status") == []

    run(main())


# -- asking --------------------------------------------------------------------------------------


async def answer_question(client: TestClient, task: dict[str, Any], content: Any) -> None:
    """Take the server's question off the line and answer it."""
    while (question := await client.receive()).get("method") != "elicitation/create":
        pass
    assert question["params"]["_meta"] == tagged(task)
    assert question["params"]["message"] == "Who are you?"
    result = {"action": "accept", "content": content}
    client._send({"id": question["id"], "result": result})


@pytest.mark.verifies("S91", "S92", "S89")
def test_a_question_waits_for_somebody_who_collects() -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D, capabilities=ELICITS) as client:
            task = await start(client, "greet")
            await until(lambda: said(client, "notifications/tasks/status"))
            assert await status(client, task) == "input_required"
            messages = await client.settle()
            assert all("id" not in message for message in messages), "not asked yet"
            _, collecting = client.start("tasks/result", {"taskId": task["taskId"]})
            await answer_question(client, task, {"name": "Ann"})
            result = (await collecting)["result"]
            assert result["content"][0]["text"] == "Hello Ann"
            steps = [params["status"] for params in said(client, "notifications/tasks/status")]
            assert steps == ["input_required", "working", "completed"]

    run(main())


@pytest.mark.verifies("S91")
def test_who_collects_early_is_asked_at_once() -> None:
    async def main() -> None:
        kitchen = Kitchen()

        @kitchen.server.tool(task="optional")
        async def later(ctx: Context) -> str:
            await kitchen.go.wait()
            first = await ctx.ask("who", Elicit("Who are you?", Name))
            second = await ctx.ask("who", Elicit("Who are you?", Name))
            return f"{first.value.name} {second.value.name}"

        async with connect(kitchen.server, D, capabilities=ELICITS) as client:
            task = await start(client, "later")
            _, collecting = client.start("tasks/result", {"taskId": task["taskId"]})
            await asyncio.sleep(0)
            kitchen.go.set()
            await answer_question(client, task, {"name": "Ann"})
            await answer_question(client, task, {"name": "Bob"})
            assert (await collecting)["result"]["content"][0]["text"] == "Ann Bob"

    run(main())


@pytest.mark.parametrize("how", ["gone", "given up"])
def test_a_question_goes_to_who_collects_now(how: str) -> None:
    """The first collector leaves, before or while it is asked; the next is asked instead."""

    async def main() -> None:
        kitchen = Kitchen()
        async with kitchen.server.running():
            async with connect(kitchen.server, D, capabilities=ELICITS) as first:
                task = await start(first, "greet")
                id, collecting = first.start("tasks/result", {"taskId": task["taskId"]})
                while (await first.receive()).get("method") != "elicitation/create":
                    pass
                if how == "given up":
                    first.notify("notifications/cancelled", {"requestId": id})
                    await first.settle()
                    assert not collecting.done()
                    assert await status(first, task) == "input_required"
            with no_crash():
                async with connect(kitchen.server, D, capabilities=ELICITS) as second:
                    assert await status(second, task) == "input_required"
                    _, collecting = second.start("tasks/result", {"taskId": task["taskId"]})
                    await answer_question(second, task, {"name": "Bob"})
                    result = (await collecting)["result"]
                    assert result["content"][0]["text"] == "Hello Bob"

    run(main())


def test_a_question_that_was_given_up_before_it_was_asked() -> None:
    async def main() -> None:
        kitchen = Kitchen()

        @kitchen.server.tool(task="optional")
        async def later(ctx: Context) -> str:
            await kitchen.go.wait()
            return (await ctx.ask("who", Elicit("Who are you?", Name))).value.name

        async with kitchen.server.running():
            async with connect(kitchen.server, D, capabilities=ELICITS) as first:
                task = await start(first, "later")
                first.start("tasks/result", {"taskId": task["taskId"]})
                await asyncio.sleep(0)
            kitchen.go.set()
            async with connect(kitchen.server, D, capabilities=ELICITS) as second:
                _, collecting = second.start("tasks/result", {"taskId": task["taskId"]})
                await answer_question(second, task, {"name": "Bob"})
                assert (await collecting)["result"]["content"][0]["text"] == "Bob"

    run(main())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"result": {"action": "decline"}}, "The user declined the request for input"),
        ({"error": {"code": -32603, "message": "No"}}, "The client refused: No"),
    ],
)
def test_a_question_that_is_refused(answer: dict[str, Any], text: str) -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D, capabilities=ELICITS) as client:
            task = await start(client, "greet")
            _, collecting = client.start("tasks/result", {"taskId": task["taskId"]})
            while (question := await client.receive()).get("method") != "elicitation/create":
                pass
            client._send({"id": question["id"], **answer})
            result = (await collecting)["result"]
            assert (result["isError"], result["content"][0]["text"]) == (True, text)
            assert await status(client, task) == "failed"

    run(main())


@pytest.mark.verifies("S89")
def test_a_tool_that_goes_on_after_a_refusal_works_again() -> None:
    async def main() -> None:
        kitchen = Kitchen()

        @kitchen.server.tool(task="optional")
        async def tolerant(ctx: Context) -> str:
            try:
                await ctx.ask("who", Elicit("Who are you?", Name))
            except ToolError:
                await kitchen.go.wait()
            return "anonymous"

        async with connect(kitchen.server, D, capabilities=ELICITS) as client:
            task = await start(client, "tolerant")
            _, collecting = client.start("tasks/result", {"taskId": task["taskId"]})
            while (question := await client.receive()).get("method") != "elicitation/create":
                pass
            client._send({"id": question["id"], "error": {"code": -32603, "message": "No"}})
            await asyncio.sleep(0.01)
            assert await status(client, task) == "working"
            kitchen.go.set()
            assert (await collecting)["result"]["content"][0]["text"] == "anonymous"

    run(main())


def test_a_client_that_cannot_be_asked() -> None:
    async def main() -> None:
        async with connect(Kitchen().server, D) as client:
            task = await start(client, "greet")
            result = (await collect(client, task))["result"]
            assert result["content"][0]["text"] == "The client does not support elicitation"

    run(main())


def test_a_task_that_waits_for_input_can_be_cancelled() -> None:
    async def main() -> None:
        with no_crash():
            async with connect(Kitchen().server, D, capabilities=ELICITS) as client:
                task = await start(client, "greet")
                _, collecting = client.start("tasks/result", {"taskId": task["taskId"]})
                while (question := await client.receive()).get("method") != "elicitation/create":
                    pass
                await client.request("tasks/cancel", {"taskId": task["taskId"]})
                assert (await collecting)["error"]["message"] == "Task cancelled"
                # Too late, and nobody minds.
                client._send({"id": question["id"], "result": {"action": "cancel"}})
                messages = await client.settle()
                gone = [m for m in messages if m["method"] == "notifications/cancelled"]
                assert [m["params"]["requestId"] for m in gone] == [question["id"]]
                assert await status(client, task) == "cancelled"

    run(main())


# -- a store that fails --------------------------------------------------------------------------


class Broken(MemoryStore):
    """A store whose methods fail when the test wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()

    def _check(self, name: str) -> None:
        if name in self.broken:
            raise StoreError("the disk is full of secrets")

    async def create(self, record: TaskRecord) -> None:
        self._check("create")
        await super().create(record)

    async def get(self, task_id: str, principal: str | None) -> TaskRecord | None:
        self._check("get")
        return await super().get(task_id, principal)

    async def update(self, task_id: str, change: Callable[..., Any]) -> TaskRecord | None:
        self._check("update")
        return await super().update(task_id, change)

    async def page(
        self, principal: str | None, after: str | None, limit: int
    ) -> tuple[list[TaskRecord], str | None]:
        self._check("page")
        return await super().page(principal, after, limit)


def no_secret(client: TestClient) -> bool:
    return all("secret" not in str(message) for _, message in client.recorder.messages)


@pytest.mark.verifies("S93")
def test_a_store_that_cannot_create() -> None:
    async def main() -> None:
        store = Broken()
        kitchen = Kitchen(task_store=store)
        async with connect(kitchen.server, D) as client:
            store.broken.add("create")
            error = await refused(client, "tools/call", {"name": "wait", "task": {}})
            assert (error["code"], error["data"]) == (-32603, "The task could not be kept")
            assert kitchen.contexts == [], "the tool did not start"
            store.broken.clear()
            assert await start(client, "add", {"a": 1, "b": 2})
            assert no_secret(client)

    run(main())


@pytest.mark.verifies("S93")
def test_a_store_that_is_full() -> None:
    async def main() -> None:
        kitchen = Kitchen(task_store=MemoryStore(TaskLimits(max_tasks=1)))
        async with connect(kitchen.server, D) as client:
            await start(client, "wait")
            error = await refused(client, "tools/call", {"name": "long", "task": {}})
            assert error["code"] == -32603
            assert error["data"] == "Too many tasks: There are 1 tasks"
            assert (await client.call("short"))["isError"] is False

    run(main())


@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "afterwards"])
def test_a_store_that_cannot_keep_the_end(waits: bool) -> None:
    """Whoever waits is told, and when the store works again so is everybody else."""

    async def main() -> None:
        store = Broken()
        kitchen = Kitchen(task_store=store)
        async with connect(kitchen.server, D) as client:
            task = await start(client, "wait")
            collecting = client.start("tasks/result", {"taskId": task["taskId"]})[1]
            await asyncio.sleep(0)
            if not waits:
                collecting = None
            store.broken.add("update")
            kitchen.go.set()
            if collecting is not None:
                error = (await asyncio.wait_for(collecting, 5))["error"]
                assert error["code"] == -32603
            await asyncio.sleep(0.01)
            later = await asyncio.wait_for(collect(client, task), 5)
            assert later["error"]["code"] == -32603
            assert (await client.call("short"))["isError"] is False
            store.broken.clear()
            later = await asyncio.wait_for(collect(client, task), 5)
            assert later["error"]["code"] == -32603
            assert await status(client, task) == "failed"
            assert no_secret(client)

    run(main())


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"])
@pytest.mark.parametrize("broken", ["get", "update", "page"])
@pytest.mark.verifies("S93")
def test_a_store_that_cannot_be_read(method: str, broken: str) -> None:
    async def main() -> None:
        store = Broken()
        kitchen = Kitchen(task_store=store)
        with no_crash():
            async with connect(kitchen.server, D) as client:
                task = await start(client, "wait")
                store.broken.add(broken)
                params = {} if method == "tasks/list" else {"taskId": task["taskId"]}
                needed = {"tasks/list": "page", "tasks/cancel": broken}.get(method, "get")
                if broken == needed and (method != "tasks/cancel" or broken != "page"):
                    error = await refused(client, method, params)
                    assert error["code"] == -32603
                    assert error["data"] == "The tasks cannot be read now"
                store.broken.clear()
                assert await status(client, task) == "working"
                assert no_secret(client)

    run(main())


def test_a_server_with_a_store_of_its_own_can_be_served_twice() -> None:
    """As one without can be, and as every test of such a server wants to."""

    async def main() -> None:
        kitchen = Kitchen(task_store=MemoryStore())
        for _ in range(2):
            async with connect(kitchen.server, D) as client:
                assert await start(client, "add", {"a": 1, "b": 2})

    run(main())


# -- the other era ------------------------------------------------------------------------------


@pytest.mark.verifies("S91", "S95")
def test_a_task_made_in_2026_reads_like_one_of_2025() -> None:
    """Both forms share a store, so both may meet a task of the other."""

    async def main() -> None:
        declared = {"extensions": {TASKS_EXTENSION: {}}}
        kitchen = Kitchen()
        async with (
            connect(kitchen.server, "2026-07-28", capabilities=declared) as new,
            connect(kitchen.server, D) as old,
        ):
            call = {"name": "add", "arguments": {"a": 1, "b": 2}}
            made = await new.request("tools/call", call)
            (listed,) = (await old.request("tasks/list"))["tasks"]
            assert listed["taskId"] == made["taskId"]
            collected = (await collect(old, made))["result"]
            assert collected["structuredContent"] == {"result": 3}
            assert collected["content"][0]["text"] == "3"
            assert collected["_meta"] == tagged(made)
            assert "resultType" not in collected
            other = await start(old, "fail", {"how": "tool"})
            await collect(old, other)
            found = await new.request("tasks/get", {"taskId": other["taskId"]})
            # There only a JSON-RPC error is a failure (S100); the tool's own text is a result.
            assert (found["status"], found["result"]["isError"]) == ("completed", True)

    run(main())


# -- the end of the server -----------------------------------------------------------------------


def test_a_server_that_stops_fails_what_runs_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        kitchen = Kitchen()
        async with connect(kitchen.server, D) as client:
            await start(client, "wait", {"text": "one"})
            await start(client, "wait", {"text": "two"})
        assert sorted(kitchen.stopped) == ["one", "two"]
        assert kitchen.server.tasks is not None
        assert kitchen.server.tasks._jobs == {}

    run(main())


def test_a_thousand_tasks_leave_no_jobs_behind() -> None:
    async def main() -> None:
        now = itertools.count(START, 10.0)
        store = MemoryStore(TaskLimits(max_tasks=50), clock=lambda: next(now))
        kitchen = Kitchen(task_store=store)
        async with connect(kitchen.server, D) as client:
            for n in range(1_000):
                await start(client, "add", {"a": n, "b": 0}, task={"ttl": 1_000})
            await client.settle()
            service = kitchen.server.tasks
            assert service is not None
            assert service._jobs == {}
            assert len(store._records) <= 1

    run(main())
