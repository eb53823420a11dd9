"""Tasks of 2026-07-28 (``io.modelcontextprotocol/tasks``): the server decides, the client polls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from dovetail import Context, Elicit, McpError, MemoryStore, Server, TaskLimits, ToolError
from dovetail.server.tasks import StoreError, TaskRecord
from dovetail.spec.meta import (
    CLIENT_CAPABILITIES_KEY,
    LOG_LEVEL_KEY,
    SERVER_INFO_KEY,
    SUBSCRIPTION_ID_KEY,
    TASKS_EXTENSION,
)
from dovetail.testing import TestClient, check_message, connect
from support import no_crash, run, until

E = "2026-07-28"
DECLARED = {"extensions": {TASKS_EXTENSION: {}}}
ASKABLE = {**DECLARED, "elicitation": {}}
UNDECLARED = {
    "code": -32021,
    "message": "Missing required client capability",
    "data": {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}},
}
STAMP = {SERVER_INFO_KEY: {"name": "tasks", "version": "1"}}
ACK = {"resultType": "complete", "_meta": STAMP}
START = 1_800_000_000.0
RUNNING = ("working", "input_required")


class Name(msgspec.Struct):
    name: str


class Bakery:
    """A server whose tools wait for the test."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("tasks", version="1", **options)
        self.go = asyncio.Event()
        self.contexts: list[Context] = []
        self.stopped = 0
        self._tools()
        self._asking_tools()

    def _tools(self) -> None:
        @self.server.tool(task="optional")
        async def wait(ctx: Context) -> str:
            self.contexts.append(ctx)
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.stopped += 1
                raise
            return "done"

        @self.server.tool(task="required")
        async def long() -> int:
            return 7

        @self.server.tool
        async def short() -> str:
            return "short"

        @self.server.tool(task="optional")
        async def fail(how: Literal["tool", "error", "crash"]) -> str:
            if how == "tool":
                raise ToolError("no flour")
            if how == "error":
                raise McpError(4001, "Out of order", {"until": "Monday"})
            raise RuntimeError("a secret")

    def _asking_tools(self) -> None:
        @self.server.tool(task="optional")
        async def greet(ctx: Context) -> str:
            answer = await ctx.ask("who", Elicit("Who are you?", Name))
            return f"Hello {answer.value.name}"

        @self.server.tool(task="optional")
        async def pair(ctx: Context) -> str:
            questions = {key: Elicit(f"Who is {key}?", Name) for key in ("a", "b")}
            answers = await ctx.ask_all(questions)
            return " and ".join(answers[key].value.name for key in ("a", "b"))

        @self.server.tool(task="optional")
        async def often(keys: list[str], ctx: Context) -> str:
            names = [(await ctx.ask(key, Elicit("Who?", Name))).value.name for key in keys]
            return ",".join(names)


async def start(
    client: TestClient, name: str, arguments: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments or {}, **more}
    result: dict[str, Any] = await client.request("tools/call", params)
    assert result["resultType"] == "task"
    return result


async def get(client: TestClient, task: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = await client.request("tasks/get", {"taskId": task["taskId"]})
    assert found["resultType"] == "complete"
    assert found["_meta"] == STAMP
    return found


async def finished(client: TestClient, task: dict[str, Any]) -> dict[str, Any]:
    while (found := await get(client, task))["status"] in RUNNING:  # noqa: ASYNC110 - we poll
        await asyncio.sleep(0)
    return found


async def asked(client: TestClient, task: dict[str, Any], count: int = 1) -> dict[str, Any]:
    """The questions of a task, once there are so many."""
    while len((found := await get(client, task)).get("inputRequests", {})) < count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert found["status"] == "input_required"
    questions: dict[str, Any] = found["inputRequests"]
    return questions


async def update(client: TestClient, task: dict[str, Any], **answers: Any) -> dict[str, Any]:
    responses = {key: {"action": "accept", "content": value} for key, value in answers.items()}
    params = {"taskId": task["taskId"], "inputResponses": responses}
    return await client.answer("tasks/update", params)


async def refused(client: TestClient, method: str, params: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = (await client.answer(method, params))["error"]
    return error


def undeclared(**params: Any) -> dict[str, Any]:
    return {**params, "_meta": {CLIENT_CAPABILITIES_KEY: {}}}


def said(client: TestClient, method: str) -> list[dict[str, Any]]:
    sent = [message for sender, message in client.recorder.messages if sender == "server"]
    return [message["params"] for message in sent if message.get("method") == method]


# -- making one ----------------------------------------------------------------------------------


@pytest.mark.verifies("S98", "S103", "X33")
def test_a_task_is_a_flat_result_and_ends() -> None:
    async def main() -> None:
        bakery = Bakery(task_store=MemoryStore(clock=lambda: START))
        async with connect(bakery.server, E, capabilities=DECLARED) as client:
            told = (await client.request("server/discover"))["capabilities"]
            assert told["extensions"] == {TASKS_EXTENSION: {}}
            assert "tasks" not in told
            task = await start(client, "wait")
            stamp = "2027-01-15T08:00:00.000Z"
            assert task == {
                "resultType": "task",
                "taskId": task["taskId"],
                "status": "working",
                "createdAt": stamp,
                "lastUpdatedAt": stamp,
                "ttlMs": 3_600_000,
                "pollIntervalMs": 1000,
                "_meta": STAMP,
            }
            assert len(task["taskId"]) >= 43, "nobody guesses it"
            assert await get(client, task) == {**task, "resultType": "complete"}
            bakery.go.set()
            ended = await finished(client, task)
            plain = await client.request("tools/call", undeclared(name="wait"))
            assert ended == {
                **task,
                "resultType": "complete",
                "status": "completed",
                "result": plain,
            }

    run(main())


@pytest.mark.verifies("S97", "X35")
def test_a_client_that_did_not_declare_tasks_gets_none() -> None:
    async def main() -> None:
        bakery = Bakery()
        bakery.go.set()
        async with connect(bakery.server, E) as client:
            result = await client.call("wait")
            assert (result["resultType"], result["content"][0]["text"]) == ("complete", "done")
            assert await refused(client, "tools/call", {"name": "long"}) == UNDECLARED
            assert (await client.call("short"))["resultType"] == "complete"

    run(main())


@pytest.mark.verifies("S97", "S103", "X35")
def test_the_capability_of_2025_is_no_declaration() -> None:
    async def main() -> None:
        async with connect(Bakery().server, E) as client:
            old = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
            meta = {**client._params({}, True)["params"]["_meta"], CLIENT_CAPABILITIES_KEY: old}
            call = {"name": "long", "_meta": meta}
            frame = {"jsonrpc": "2.0", "id": "old", "method": "tools/call", "params": call}
            client.send(msgspec.json.encode(frame))
            assert (await client.receive())["error"] == UNDECLARED

    run(main())


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.verifies("S103")
def test_the_task_parameter_of_2025_is_ignored(declared: bool) -> None:
    async def main() -> None:
        bakery = Bakery()
        bakery.go.set()
        async with connect(bakery.server, E, capabilities=DECLARED if declared else {}) as client:
            for name in ("short", "wait"):
                call = client._params({"name": name, "task": {"ttl": 5000}}, True)["params"]
                frame = {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": call}
                client.send(msgspec.json.encode(frame))
                result = (await client.receive())["result"]
                is_task = declared and name == "wait"
                assert result["resultType"] == ("task" if is_task else "complete")
                assert result.get("ttlMs", 3_600_000) == 3_600_000, "nor is its ttl a wish"

    run(main())


@pytest.mark.verifies("S98")
def test_a_tool_that_cannot_be_a_task_and_wrong_calls_are_answered_at_once() -> None:
    async def main() -> None:
        async with connect(Bakery().server, E, capabilities=DECLARED) as client:
            assert (await client.call("short"))["resultType"] == "complete"
            assert (await client.call("fail", {"how": "?"}))["resultType"] == "complete"
            assert (await refused(client, "tools/call", {"name": "nobody"}))["code"] == -32602

    run(main())


@pytest.mark.verifies("S99")
def test_a_task_is_kept_before_its_handle_is_out() -> None:
    async def main() -> None:
        class Slow(MemoryStore):
            kept = asyncio.Event()

            async def create(self, record: TaskRecord) -> None:
                await self.kept.wait()
                await super().create(record)

        store = Slow()
        bakery = Bakery(task_store=store)
        async with connect(bakery.server, E, capabilities=DECLARED) as client:
            _, calling = client.start("tools/call", {"name": "wait"})
            await asyncio.sleep(0.01)
            assert not calling.done(), "no handle yet"
            assert bakery.contexts == [], "and nothing runs that nobody could find again"
            store.kept.set()
            task = (await calling)["result"]
            assert (await get(client, task))["status"] == "working"

    run(main())


def test_a_call_cancelled_while_its_task_is_made_leaves_nothing_to_wait_for() -> None:
    """The store may have kept it all the same: then it has failed."""

    async def main() -> None:
        class Slow(MemoryStore):
            kept: asyncio.Event

            async def create(self, record: TaskRecord) -> None:
                await super().create(record)
                self.kept = asyncio.Event()
                await self.kept.wait()

        store = Slow()
        bakery = Bakery(task_store=store)
        async with connect(bakery.server, E, capabilities=DECLARED) as client:
            id, _ = client.start("tools/call", {"name": "wait"})
            await until(lambda: store._records)
            client.notify("notifications/cancelled", {"requestId": id})
            await client.settle()
            (task_id,) = store._records
            assert (await get(client, {"taskId": task_id}))["status"] == "failed"
            assert bakery.contexts == []

    run(main())


# -- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["tool", "error", "crash"])
@pytest.mark.verifies("S100")
def test_failed_is_for_errors_of_the_protocol_only(how: str) -> None:
    async def main() -> None:
        async with connect(Bakery().server, E, capabilities=DECLARED) as client:
            call = undeclared(name="fail", arguments={"how": how})
            plain = await client.answer("tools/call", call)
            task = await start(client, "fail", {"how": how})
            ended = await finished(client, task)
            if how == "error":
                assert (ended["status"], ended["error"]) == ("failed", plain["error"])
                assert "result" not in ended
            else:
                assert (ended["status"], ended["result"]) == ("completed", plain["result"])
                assert ended["result"]["isError"] is True
                assert "error" not in ended

    run(main())


@pytest.mark.verifies("S102")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_an_unknown_task_and_a_client_that_did_not_declare(method: str) -> None:
    async def main() -> None:
        async with connect(Bakery().server, E, capabilities=DECLARED) as client:
            task = await start(client, "wait")
            more = {"inputResponses": {}} if method == "tasks/update" else {}
            error = await refused(client, method, {"taskId": "nobody", **more})
            assert (error["code"], error["data"]) == (-32602, "Unknown task: 'nobody'")
            params = undeclared(taskId=task["taskId"], **more)
            assert await refused(client, method, params) == UNDECLARED
            assert (await get(client, task))["status"] == "working"

    run(main())


@pytest.mark.verifies("S103")
@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
def test_methods_of_2025_are_not_there(method: str) -> None:
    async def main() -> None:
        async with connect(Bakery().server, E, capabilities=DECLARED) as client:
            task = await start(client, "wait")
            params = client._params({"taskId": task["taskId"]}, True)["params"]
            frame = {"jsonrpc": "2.0", "id": "old", "method": method, "params": params}
            client.send(msgspec.json.encode(frame))
            assert (await client.receive())["error"]["code"] == -32601

    run(main())


@pytest.mark.verifies("S103")
def test_tasks_belong_to_a_principal() -> None:
    async def main() -> None:
        bakery = Bakery()
        async with (
            connect(bakery.server, E, capabilities=DECLARED) as ann,
            connect(bakery.server, E, capabilities=DECLARED) as bob,
        ):
            ann.connection.session.principal = "ann"
            bob.connection.session.principal = "bob"
            task = await start(ann, "wait")
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                more = {"inputResponses": {}} if method == "tasks/update" else {}
                error = await refused(bob, method, {"taskId": task["taskId"], **more})
                assert error["code"] == -32602
            listening = bob.start("subscriptions/listen", watching(task["taskId"]))
            (ack,) = await told(bob, 1)
            assert ack["params"]["notifications"] == {"taskIds": []}
            assert (await get(ann, task))["status"] == "working"
            bakery.go.set()
            await finished(ann, task)
            assert said(bob, "notifications/tasks") == []
            assert listening

    run(main())


def test_another_connection_of_the_same_principal_reads_it() -> None:
    async def main() -> None:
        bakery = Bakery()
        async with bakery.server.running():
            async with connect(bakery.server, E, capabilities=DECLARED) as first:
                task = await start(first, "wait")
            async with connect(bakery.server, E, capabilities=DECLARED) as second:
                assert (await get(second, task))["status"] == "working"
                bakery.go.set()
                assert (await finished(second, task))["status"] == "completed"

    run(main())


@pytest.mark.verifies("S102")
def test_an_expired_task_is_unknown() -> None:
    async def main() -> None:
        now = [START]
        store = MemoryStore(TaskLimits(default_ttl_ms=2000), clock=lambda: now[0])
        async with connect(Bakery(task_store=store).server, E, capabilities=DECLARED) as client:
            task = await start(client, "wait")
            assert task["ttlMs"] == 2000
            now[0] += 3
            error = await refused(client, "tasks/get", {"taskId": task["taskId"]})
            assert error["code"] == -32602

    run(main())


# -- input ---------------------------------------------------------------------------------------


@pytest.mark.verifies("S100", "S102")
def test_a_question_is_read_and_answered() -> None:
    async def main() -> None:
        async with connect(Bakery().server, E, capabilities=ASKABLE) as client:
            task = await start(client, "greet")
            questions = await asked(client, task)
            assert questions["who"]["method"] == "elicitation/create"
            assert questions["who"]["params"]["message"] == "Who are you?"
            assert (await update(client, task, who={"name": "Ann"}))["result"] == ACK
            ended = await finished(client, task)
            assert ended["result"]["content"][0]["text"] == "Hello Ann"
            assert "inputRequests" not in ended

    run(main())


@pytest.mark.verifies("S100", "S102")
def test_questions_can_be_answered_one_by_one() -> None:
    async def main() -> None:
        async with connect(Bakery().server, E, capabilities=ASKABLE) as client:
            task = await start(client, "pair")
            assert (await asked(client, task, 2)).keys() == {"a", "b"}
            await update(client, task, b={"name": "Bob"}, nobody={"name": "?"})
            left = await asked(client, task)
            assert left.keys() == {"a"}
            # Answered already: the first answer counts.
            assert (await update(client, task, b={"name": "Carl"}))["result"] == ACK
            await update(client, task, a={"name": "Ann"})
            ended = await finished(client, task)
            assert ended["result"]["content"][0]["text"] == "Ann and Bob"

    run(main())


@pytest.mark.verifies("S102")
def test_an_answer_that_does_not_fit_is_refused_and_can_be_given_again() -> None:
    async def main() -> None:
        async with connect(Bakery().server, E, capabilities=ASKABLE) as client:
            task = await start(client, "pair")
            await asked(client, task, 2)
            error = (await update(client, task, a={"name": 7}, b={"name": "Bob"}))["error"]
            assert error["code"] == -32602
            assert error["data"].startswith("inputResponses.a: ")
            assert (await asked(client, task, 2)).keys() == {"a", "b"}, "all or nothing"
            await update(client, task, a={"name": "Ann"}, b={"name": "Bob"})
            assert (await finished(client, task))["result"]["isError"] is False

    run(main())


@pytest.mark.parametrize("responses", [[], "x", 7, None, {"who": 7}, {"who": {"action": "?"}}])
def test_answers_that_are_none(responses: Any) -> None:
    async def main() -> None:
        with no_crash():
            async with connect(Bakery().server, E, capabilities=ASKABLE) as client:
                task = await start(client, "greet")
                await asked(client, task)
                given = {"taskId": task["taskId"], "inputResponses": responses}
                params = client._params(given, True)["params"]
                frame = {"jsonrpc": "2.0", "id": "bad", "method": "tasks/update", "params": params}
                client.send(msgspec.json.encode(frame))
                assert (await client.receive())["error"]["code"] == -32602
                assert (await asked(client, task)).keys() == {"who"}

    run(main())


@pytest.mark.verifies("S102")
def test_answers_to_nobody_are_acknowledged() -> None:
    async def main() -> None:
        bakery = Bakery()
        async with connect(bakery.server, E, capabilities=ASKABLE) as client:
            task = await start(client, "wait")
            assert (await update(client, task, who={"name": "Ann"}))["result"] == ACK
            assert (await get(client, task))["status"] == "working"
            bakery.go.set()
            ended = await finished(client, task)
            assert (await update(client, task, who={"name": "Ann"}))["result"] == ACK
            assert await get(client, task) == ended

    run(main())


def test_two_answers_at_once() -> None:
    """A store that takes its time must not let both of them through."""

    async def main() -> None:
        class Slow(MemoryStore):
            async def update(self, task_id: str, change: Callable[..., Any]) -> TaskRecord | None:
                await asyncio.sleep(0.005)
                return await super().update(task_id, change)

        with no_crash():
            bakery = Bakery(task_store=Slow())
            async with connect(bakery.server, E, capabilities=ASKABLE) as client:
                task = await start(client, "greet")
                await asked(client, task)
                both = [update(client, task, who={"name": name}) for name in ("Ann", "Bob")]
                answers = await asyncio.gather(*both)
                assert [answer["result"] for answer in answers] == [ACK, ACK]
                ended = await finished(client, task)
                assert ended["result"]["content"][0]["text"] == "Hello Ann"

    run(main())


@pytest.mark.verifies("S101")
@pytest.mark.parametrize(
    "keys", [["who", "who", "who"], ["a-2", "a", "a"], ["a", "a-2", "a"], ["a", "a", "a-2"]]
)
def test_a_key_is_never_used_again(keys: list[str]) -> None:
    async def main() -> None:
        async with connect(Bakery().server, E, capabilities=ASKABLE) as client:
            task = await start(client, "often", {"keys": keys})
            used: list[str] = []
            for n in range(3):
                (key,) = await asked(client, task)
                assert key not in used
                used.append(key)
                await update(client, task, **{key: {"name": str(n)}})
            assert used[0] == keys[0], "a key that is free is used as it is"
            ended = await finished(client, task)
            assert ended["result"]["content"][0]["text"] == "0,1,2"

    run(main())


@pytest.mark.verifies("S97")
def test_a_client_that_cannot_be_asked_fails_the_task() -> None:
    async def main() -> None:
        async with connect(Bakery().server, E, capabilities=DECLARED) as client:
            ended = await finished(client, await start(client, "greet"))
            assert ended["status"] == "failed"
            assert ended["error"]["code"] == -32021
            assert ended["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}

    run(main())


# -- cancelling ----------------------------------------------------------------------------------


@pytest.mark.verifies("S102")
@pytest.mark.parametrize("waits_for", ["work", "input"])
def test_cancelling_is_acknowledged_as_often_as_one_likes(waits_for: str) -> None:
    async def main() -> None:
        bakery = Bakery()
        async with connect(bakery.server, E, capabilities=ASKABLE) as client:
            task = await start(client, "wait" if waits_for == "work" else "greet")
            if waits_for == "input":
                await asked(client, task)
            for _ in range(2):
                assert await client.request("tasks/cancel", {"taskId": task["taskId"]}) == ACK
                found = await get(client, task)
                assert found["status"] == "cancelled"
                assert not found.keys() & {"inputRequests", "result", "error"}
            await until(lambda: bakery.stopped == (waits_for == "work"))

    run(main())


@pytest.mark.verifies("S102")
def test_cancelling_what_has_ended_changes_nothing() -> None:
    async def main() -> None:
        async with connect(Bakery().server, E, capabilities=DECLARED) as client:
            task = await start(client, "long")
            ended = await finished(client, task)
            assert await client.request("tasks/cancel", {"taskId": task["taskId"]}) == ACK
            assert await get(client, task) == ended

    run(main())


@pytest.mark.verifies("S103")
def test_the_cancelled_notification_does_not_cancel_a_task() -> None:
    async def main() -> None:
        bakery = Bakery()
        async with connect(bakery.server, E, capabilities=DECLARED) as client:
            id, calling = client.start("tools/call", {"name": "wait"})
            task = (await calling)["result"]
            client.notify("notifications/cancelled", {"requestId": id})
            await client.settle()
            assert (await get(client, task))["status"] == "working"
            assert bakery.stopped == 0

    run(main())


# -- listening -----------------------------------------------------------------------------------


def watching(*ids: str) -> dict[str, Any]:
    return {"notifications": {"taskIds": list(ids)}}


async def told(client: TestClient, count: int) -> list[Any]:
    return [await client.receive() for _ in range(count)]


@pytest.mark.verifies("S100", "S103")
def test_a_stream_tells_how_a_task_goes_on() -> None:
    async def main() -> None:
        bakery = Bakery()
        async with connect(bakery.server, E, capabilities=ASKABLE) as client:
            meta = {"progressToken": "t", LOG_LEVEL_KEY: "debug"}
            other = await start(client, "wait", _meta=meta)

            @bakery.server.tool(task="optional")
            async def patient(ctx: Context) -> str:
                await bakery.go.wait()
                ctx.progress(1)
                ctx.log("error", "on nobody's stream")
                return (await ctx.ask("who", Elicit("Who are you?", Name))).value.name

            task = await start(client, "patient", _meta=meta)
            id, _ = client.start("subscriptions/listen", watching(task["taskId"], "nobody"))
            (ack,) = await told(client, 1)
            assert ack["method"] == "notifications/subscriptions/acknowledged"
            assert ack["params"]["notifications"] == {"taskIds": [task["taskId"]]}
            bakery.go.set()
            await asked(client, task)
            await update(client, task, who={"name": "Ann"})
            ended = await finished(client, task)
            await finished(client, other)
            heard = said(client, "notifications/tasks")
            assert [params["status"] for params in heard] == [
                "input_required",
                "working",
                "completed",
            ]
            assert {params["taskId"] for params in heard} == {task["taskId"]}
            assert all(params["_meta"] == {SUBSCRIPTION_ID_KEY: id} for params in heard)
            assert heard[0]["inputRequests"].keys() == {"who"}
            assert heard[-1]["result"] == ended["result"]
            assert said(client, "notifications/progress") == []
            assert said(client, "notifications/message") == []

    run(main())


@pytest.mark.verifies("S102")
def test_watching_tasks_needs_the_declaration() -> None:
    async def main() -> None:
        async with connect(Bakery().server, E, capabilities=DECLARED) as client:
            task = await start(client, "wait")
            params = undeclared(**watching(task["taskId"]))
            assert await refused(client, "subscriptions/listen", params) == UNDECLARED

    run(main())


def test_a_server_without_tasks_watches_none() -> None:
    server = Server("plain", version="1")

    @server.tool
    def short() -> str:
        return "short"

    async def main() -> None:
        async with connect(server, E, capabilities=DECLARED) as client:
            client.start("subscriptions/listen", watching("x"))
            (ack,) = await told(client, 1)
            assert ack["params"]["notifications"] == {}
            told_now = (await client.request("server/discover"))["capabilities"]
            assert "extensions" not in told_now
            assert (await client.answer("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601

    run(main())


def test_a_failed_stream_leaves_no_trace() -> None:
    async def main() -> None:
        class Unreadable(MemoryStore):
            broken = False

            async def get(self, task_id: str, principal: str | None) -> TaskRecord | None:
                if self.broken:
                    raise StoreError("a secret")
                return await super().get(task_id, principal)

        store = Unreadable()
        async with connect(Bakery(task_store=store).server, E, capabilities=DECLARED) as client:
            task = await start(client, "wait")
            store.broken = True
            error = await refused(client, "subscriptions/listen", watching(task["taskId"]))
            assert (error["code"], error["data"]) == (-32603, "The tasks cannot be read now")
            assert client.connection.session.streams == {}
            store.broken = False
            assert (await get(client, task))["status"] == "working"

    run(main())


# -- a store that fails --------------------------------------------------------------------------


def test_a_store_that_fails_in_the_middle() -> None:
    """While a question is put, while an answer is taken, while the end is kept."""

    async def main() -> None:
        class Broken(MemoryStore):
            broken = False

            async def update(self, task_id: str, change: Callable[..., Any]) -> TaskRecord | None:
                if self.broken:
                    raise StoreError("a secret")
                return await super().update(task_id, change)

        store = Broken()
        bakery = Bakery(task_store=store)
        async with connect(bakery.server, E, capabilities=ASKABLE) as client:
            task = await start(client, "greet")
            await asked(client, task)
            store.broken = True
            error = (await update(client, task, who={"name": "Ann"}))["error"]
            assert (error["code"], error["data"]) == (-32603, "The tasks cannot be read now")
            store.broken = False
            assert (await update(client, task, who={"name": "Ann"}))["result"] == ACK
            assert (await finished(client, task))["status"] == "completed"

            task = await start(client, "wait")
            store.broken = True
            bakery.go.set()
            await asyncio.sleep(0.01)
            error = await refused(client, "tasks/get", {"taskId": task["taskId"]})
            assert error["code"] == -32603, "not `working`: nobody works on it"
            store.broken = False
            assert (await get(client, task))["status"] == "failed"

            store.broken = True
            task = await start(client, "greet")
            await asyncio.sleep(0.01)
            store.broken = False
            assert (await finished(client, task))["status"] == "failed"
            assert (await client.call("short"))["isError"] is False
            assert "secret" not in str(client.recorder.messages)

    run(main())


def test_the_recorder_knows_the_extension() -> None:
    """So that the tests above mean something: a task where none may be is noticed."""
    task = {
        "resultType": "task",
        "taskId": "x",
        "status": "working",
        "createdAt": "2027-01-15T08:00:00.000Z",
        "lastUpdatedAt": "2027-01-15T08:00:00.000Z",
        "ttlMs": None,
    }
    check_message({"jsonrpc": "2.0", "id": 1, "result": task}, E, "server", "tools/call")
    for method in ("prompts/get", "tasks/get"):
        with pytest.raises(AssertionError):
            check_message({"jsonrpc": "2.0", "id": 1, "result": task}, E, "server", method)
