"""Two processes and an engine serve as one: whatever a client does, any node will do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from nodes_lab import Client, Modern, Node, Stream, eventually

from support import run

Pair = tuple[Node, Node]


@asynccontextmanager
async def connected() -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(timeout=20, limits=limits) as http:
        yield http


@pytest.mark.verifies("N-session")
def test_a_session_is_found_from_any_node(pair: Pair) -> None:
    one, two = pair

    async def main() -> None:
        async with connected() as http:
            client = await Client(http).open(one)
            assert await client.call(one, "where") == one.pid
            assert await client.call(two, "where") == one.pid
            other = await Client(http).open(two)
            assert await other.call(one, "where") == two.pid
            assert await other.request(one, "tools/list", {}) == await other.request(
                two, "tools/list", {}
            )

    run(main())


@pytest.mark.verifies("N-forged-id")
def test_a_session_that_never_was_is_refused_without_the_engine(pair: Pair) -> None:
    one, two = pair

    async def main() -> None:
        async with connected() as http:
            client = await Client(http).open(one)
            modern = Modern(http)
            before = await modern.call(two, "commands")
            real = client.session
            for forged in (real[:-1] + ("A" if real[-1] != "A" else "B"), "x", "x" * len(real)):
                client.headers["mcp-session-id"] = forged
                for node in pair:
                    response = await client.post(node, "tools/list", {})
                    assert response.status_code == 404
            assert await modern.call(two, "commands") == before

    run(main())


@pytest.mark.verifies("N-routed")
def test_a_question_is_answered_through_any_node(pair: Pair) -> None:
    async def main() -> None:
        async with connected() as http:
            for asked_on, answered_on in ((0, 1), (1, 0), (1, 1)):
                client = await Client(http).open(pair[0])
                async with client.calling(pair[asked_on], "greet") as stream:
                    question = await stream.notified("elicitation/create")
                    value = {"action": "accept", "content": {"name": "Ann"}}
                    answer = {"jsonrpc": "2.0", "id": question["id"], "result": value}
                    response = await client.send(pair[answered_on], answer)
                    assert response.status_code == 202
                    (last,) = await stream.rest()
                    assert last["result"]["structuredContent"] == {"result": "Hello Ann"}

    run(main())


@pytest.mark.verifies("N-routed")
def test_a_cancellation_reaches_the_node_that_works(pair: Pair, tmp_path: Path) -> None:
    one, two = pair
    started, stopped = tmp_path / "started", tmp_path / "stopped"

    async def main() -> None:
        async with connected() as http:
            client = await Client(http).open(one)
            arguments = {"started": str(started), "stopped": str(stopped)}
            message = client.body("tools/call", {"name": "wait", "arguments": arguments}, 77)
            calling = asyncio.create_task(client.send(one, message))
            await eventually(started.exists)
            response = await client.notify(two, "notifications/cancelled", {"requestId": 77})
            assert response.status_code == 202
            await eventually(stopped.exists)
            await calling

    run(main())


@pytest.mark.verifies("N-resume")
def test_a_stream_is_resumed_on_any_node(pair: Pair, tmp_path: Path) -> None:
    one, two = pair

    async def main() -> None:
        async with connected() as http:
            for begun, resumed in ((one, two), (two, one)):
                gate = tmp_path / f"gate of {begun.pid}"
                client = await Client(http).open(one)
                async with client.calling(begun, "steps", gate=str(gate)) as stream:
                    assert (await stream.message())["params"]["progress"] == 1
                    last = stream.last_id
                gate.touch()
                async with client.listening(resumed, last) as stream:
                    rest = await stream.rest()
                assert [message.get("method") for message in rest] == [
                    "notifications/progress",
                    None,
                ]
                assert rest[1]["result"]["structuredContent"] == {"result": one.pid}
                async with client.listening(resumed, last) as stream:  # as often as it wants
                    assert await stream.rest() == rest

    run(main())


@pytest.mark.verifies("N-resume")
def test_a_get_stream_on_another_node_hears_the_session(pair: Pair) -> None:
    one, two = pair

    async def main() -> None:
        async with connected() as http:
            client = await Client(http).open(one)
            await client.request(two, "resources/subscribe", {"uri": "note://one"})
            async with client.listening(two) as stream:
                assert await client.call(one, "edit") == "done"
                heard = await stream.notified("notifications/resources/updated")
                assert heard["params"] == {"uri": "note://one"}
                last = stream.last_id
            assert await client.call(two, "rearrange") == "done"
            async with client.listening(one, last) as stream:
                await stream.notified("notifications/tools/list_changed")

    run(main())


@pytest.mark.verifies("N-routed")
def test_a_deleted_session_is_gone_everywhere(pair: Pair) -> None:
    one, two = pair

    async def main() -> None:
        async with connected() as http:
            client = await Client(http).open(one)
            response = await http.delete(f"{two.url}/mcp", headers=client.headers)
            assert response.status_code == 204
            for node in pair:
                assert (await client.post(node, "tools/list", {})).status_code == 404

    run(main())


def test_errors_travel_as_they_are(pair: Pair) -> None:
    one, two = pair

    async def main() -> None:
        async with connected() as http:
            client = await Client(http).open(one)
            for method, params in (
                ("tools/call", {"name": "nonesuch"}),
                ("nonesuch", {}),
                ("tools/call", {"name": "add", "arguments": {"a": "x"}}),
                ("initialize", {}),
            ):
                message = client.body(method, params, 5)
                here, there = await client.send(one, message), await client.send(two, message)
                assert here.status_code == there.status_code
                assert here.json() == there.json()
            client.headers["mcp-protocol-version"] = "1999-01-01"
            for node in pair:
                assert (await client.post(node, "tools/list", {})).status_code == 400

    run(main())


@pytest.mark.verifies("N-fan-out")
def test_changes_reach_the_clients_of_all_nodes(pair: Pair) -> None:
    one, two = pair

    async def main() -> None:
        async with connected() as http:
            hearing, modern = await Client(http).open(one), Modern(http)
            await hearing.request(one, "resources/subscribe", {"uri": "note://one"})
            wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://one"]}
            async with (
                hearing.listening(one) as get_stream,
                modern.listening(one, **wanted) as listen_stream,
            ):
                for name, method in (
                    ("edit", "notifications/resources/updated"),
                    ("rearrange", "notifications/tools/list_changed"),
                ):
                    await modern.call(two, name)
                    assert (await get_stream.message())["method"] == method
                    assert (await listen_stream.message())["method"] == method

    run(main())


@pytest.mark.verifies("N-state")
def test_a_question_of_2026_07_28_is_answered_by_any_node(pair: Pair) -> None:
    """The state of a request is sealed with keys that all nodes have."""
    one, two = pair

    async def main() -> None:
        async with connected() as http:
            client = Modern(http)
            params: dict[str, Any] = {"name": "greet", "arguments": {}}
            asked = await client.request(one, "tools/call", params)
            assert asked["resultType"] == "input_required"
            (key,) = asked["inputRequests"]
            answer = {"action": "accept", "content": {"name": "Ann"}}
            again = {
                **params,
                "inputResponses": {key: answer},
                "requestState": asked["requestState"],
            }
            result = await client.request(two, "tools/call", again)
            assert result["structuredContent"] == "Hello Ann"

    run(main())


@pytest.mark.verifies("N-no-engine")
def test_a_plain_call_of_2026_07_28_asks_the_engine_nothing(pair: Pair) -> None:
    one, _ = pair

    async def main() -> None:
        async with connected() as http:
            client = Modern(http)
            before = await client.call(one, "commands")
            for number in range(200):
                assert await client.call(one, "add", a=number, b=1) == number + 1
            assert await client.call(one, "commands") == before  # the next beat is far away

    run(main())


def test_nor_does_a_json_answer_of_a_session_on_its_own_node(pair: Pair) -> None:
    one, _ = pair

    async def main() -> None:
        async with connected() as http:
            client, modern = await Client(http).open(one), Modern(http)
            before = await modern.call(one, "commands")
            for number in range(50):
                assert await client.call(one, "add", a=number, b=1) == number + 1
            assert await modern.call(one, "commands") == before

    run(main())


# -- tasks ---------------------------------------------------------------------------------


async def begun(client: Modern, node: Node, name: str, **arguments: Any) -> str:
    params = {"name": name, "arguments": arguments}
    task = await client.request(node, "tools/call", params)
    assert task["resultType"] == "task"
    return str(task["taskId"])


@pytest.mark.verifies("N-tasks")
def test_a_task_is_read_on_any_node(pair: Pair, tmp_path: Path) -> None:
    one, two = pair
    gate = tmp_path / "gate"

    async def main() -> None:
        async with connected() as http:
            client = Modern(http, tasks=True)
            task_id = await begun(client, one, "dig", gate=str(gate))
            seen = await client.request(two, "tasks/get", {"taskId": task_id})
            assert seen["status"] == "working"
            async with client.listening(two, taskIds=[task_id]) as stream:
                gate.touch()
                told = await stream.notified("notifications/tasks")
                assert told["params"]["status"] == "completed"
            seen = await client.request(two, "tasks/get", {"taskId": task_id})
            assert seen["result"]["structuredContent"] == "found"

    run(main())


@pytest.mark.verifies("N-tasks")
def test_a_task_is_cancelled_from_any_node(pair: Pair, tmp_path: Path) -> None:
    one, two = pair
    stopped = tmp_path / "stopped"

    async def main() -> None:
        async with connected() as http:
            client = Modern(http, tasks=True)
            task_id = await begun(client, one, "forever", stopped=str(stopped))
            await client.request(two, "tasks/cancel", {"taskId": task_id})
            seen = await client.request(two, "tasks/get", {"taskId": task_id})
            assert seen["status"] == "cancelled"
            await eventually(stopped.exists)

    run(main())


@pytest.mark.verifies("N-tasks")
def test_a_task_is_answered_on_any_node(pair: Pair) -> None:
    one, two = pair

    async def main() -> None:
        async with connected() as http:
            client = Modern(http, tasks=True)
            task_id = await begun(client, one, "quiz")

            async def seen() -> Any:
                return await client.request(two, "tasks/get", {"taskId": task_id})

            await eventually(lambda: _is(seen(), "input_required"))
            bad = {"taskId": task_id, "inputResponses": {"who": {"action": "perhaps"}}}
            response = await client.post(two, "tasks/update", bad)
            assert response.json()["error"]["code"] == -32602
            good = {"who": {"action": "accept", "content": {"name": "Ann"}}}
            await client.request(two, "tasks/update", {"taskId": task_id, "inputResponses": good})
            await eventually(lambda: _is(seen(), "completed"))
            assert (await seen())["result"]["structuredContent"] == "Hello Ann"
            again = {"taskId": task_id, "inputResponses": good}
            await client.request(two, "tasks/update", again)  # settled keys are ignored

    run(main())


async def _is(seeing: Coroutine[Any, Any, Any], status: str) -> bool:
    return bool((await seeing)["status"] == status)


@pytest.mark.verifies("N-tasks")
@pytest.mark.parametrize("refuses", [False, True])
def test_the_questions_of_a_task_are_asked_where_its_result_is_collected(
    pair: Pair, refuses: bool
) -> None:
    """2025-11-25: another session, on another node, waits in tasks/result."""
    one, two = pair

    async def main() -> None:
        async with connected() as http:
            maker, collector = await Client(http).open(one), await Client(http).open(two)
            params = {"name": "quiz", "arguments": {}, "task": {}}
            task_id = (await maker.request(one, "tools/call", params))["task"]["taskId"]
            message = collector.body("tasks/result", {"taskId": task_id}, 9)
            url = f"{two.url}/mcp"
            async with http.stream("POST", url, json=message, headers=collector.headers) as got:
                stream = Stream(got)
                question = await stream.notified("elicitation/create")
                key = "io.modelcontextprotocol/related-task"
                assert question["params"]["_meta"][key] == {"taskId": task_id}
                answer: dict[str, Any] = {"jsonrpc": "2.0", "id": question["id"]}
                if refuses:
                    answer["error"] = {"code": -1, "message": "no"}
                else:
                    value = {"action": "accept", "content": {"name": "Bob"}}
                    answer["result"] = value
                assert (await collector.send(two, answer)).status_code == 202
                (last,) = await stream.rest()
                if refuses:
                    assert last["result"]["isError"] is True
                else:
                    assert last["result"]["structuredContent"] == {"result": "Hello Bob"}

    run(main())
