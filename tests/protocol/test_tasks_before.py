"""Questions that are asked before a call becomes a task, in both forms of tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail import Context, Elicit, Server, ToolError
from dovetail.spec.meta import TASKS_EXTENSION
from dovetail.testing import TestClient, connect
from support import run

D, E = "2025-11-25", "2026-07-28"
ABLE: dict[str, Any] = {"elicitation": {}, "extensions": {TASKS_EXTENSION: {}}}


class Sure(msgspec.Struct):
    sure: bool


def eraser() -> Server:
    server = Server("eraser")

    @server.tool(task="optional")
    async def erase(path: str, ctx: Context) -> str:
        answer = await ctx.ask("sure", Elicit("Are you sure?", Sure))
        return f"erased {path}" if answer.value.sure else f"kept {path}"

    @erase.before_task
    async def confirm(ctx: Context, arguments: dict[str, Any]) -> None:
        if arguments["path"] == "/":
            raise ToolError("Not all of it")
        await ctx.ask("sure", Elicit("Are you sure?", Sure))

    return server


def accepted(sure: bool) -> dict[str, Any]:
    return {"action": "accept", "content": {"sure": sure}}


async def ended(client: TestClient, task_id: str) -> dict[str, Any]:
    while True:
        found: dict[str, Any] = await client.request("tasks/get", {"taskId": task_id})
        if found["status"] not in ("working", "input_required"):
            return found
        assert found["status"] == "working", "it was asked before"
        await asyncio.sleep(0)


@pytest.mark.parametrize("prefix", ["", "disk_"])
def test_2026_asks_by_the_result_and_makes_the_task_once_answered(prefix: str) -> None:
    server = eraser()
    if prefix:
        server, guest = Server("host"), server
        server.mount(guest, "disk")

    async def main() -> None:
        async with connect(server, E, capabilities=ABLE) as client:
            call = {"name": f"{prefix}erase", "arguments": {"path": "/tmp/x"}}
            asked = await client.request("tools/call", call)
            assert asked["resultType"] == "input_required"
            assert asked["inputRequests"].keys() == {"sure"}
            assert "taskId" not in asked
            retry = {
                **call,
                "inputResponses": {"sure": accepted(True)},
                "requestState": asked["requestState"],
            }
            task = await client.request("tools/call", retry)
            assert task["resultType"] == "task"
            assert task.keys().isdisjoint({"requestState", "inputRequests"})
            done = await ended(client, task["taskId"])
            assert done["result"]["content"][0]["text"] == "erased /tmp/x"

    run(main())


def test_2025_asks_by_a_request_before_it_answers() -> None:
    async def main() -> None:
        async with connect(eraser(), D, capabilities={"elicitation": {}}) as client:
            params = {"name": "erase", "arguments": {"path": "/tmp/x"}, "task": {}}
            _, calling = client.start("tools/call", params)
            question = await client.receive()
            assert question["method"] == "elicitation/create"
            assert not calling.done()
            client._send({"id": question["id"], "result": accepted(False)})
            task = (await calling)["result"]["task"]
            result = await client.request("tasks/result", {"taskId": task["taskId"]})
            assert result["content"][0]["text"] == "kept /tmp/x"

    run(main())


def test_what_it_raises_is_the_answer_and_there_is_no_task() -> None:
    async def main() -> None:
        async with connect(eraser(), E, capabilities=ABLE) as client:
            result = await client.call("erase", {"path": "/"})
            assert result["isError"] is True
            assert result["content"][0]["text"] == "Not all of it"

    run(main())


def test_2025_is_refused_with_an_error_because_it_waits_for_a_task() -> None:
    async def main() -> None:
        async with connect(eraser(), D, capabilities={"elicitation": {}}) as client:
            params = {"name": "erase", "arguments": {"path": "/"}, "task": {}}
            error = (await client.answer("tools/call", params))["error"]
            assert error == {"code": -32603, "message": "Internal error", "data": "Not all of it"}
            assert (await client.request("tasks/list"))["tasks"] == []

    run(main())


def test_a_call_that_becomes_no_task_asks_for_itself() -> None:
    async def main() -> None:
        async with connect(eraser(), E, capabilities={"elicitation": {}}) as client:
            call = {"name": "erase", "arguments": {"path": "/"}}
            asked = await client.request("tools/call", call)
            assert asked["resultType"] == "input_required"

    run(main())
