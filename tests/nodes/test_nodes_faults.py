"""Nodes that are killed, and an engine that stops, forgets or hangs: what clients see of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from nodes_lab import CLIENT, Cable, Client, Modern, Node, Stream, eventually

from dovetail.backplane.redis import RedisBackplane
from redis_server import RedisServer
from support import run

Start = Callable[..., list[Node]]

# Long enough for a machine that is busy, short enough to wait for.
LEASE = 2.0


@asynccontextmanager
async def connected() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=20) as http:
        yield http


async def persistently(client: Client, node: Node, name: str) -> Any:
    """Call as a client does that obeys Retry-After; any other refusal is a failure."""
    while True:
        response = await client.post(node, "tools/call", {"name": name, "arguments": {}})
        if response.status_code == 200:
            return response.json()["result"]["structuredContent"]["result"]
        assert response.status_code == 503, (response.status_code, response.text)
        assert int(response.headers["retry-after"]) >= 1
        await asyncio.sleep(0.05)


# -- kill -9 -------------------------------------------------------------------------------


@pytest.mark.verifies("N-killed")
def test_after_kill_9_a_call_is_resumed_on_the_other_node(
    start: Start, redis_url: str, tmp_path: Path
) -> None:
    """It cannot be finished there, but nobody waits for it in vain; the session goes on."""

    async def main() -> None:
        one, two = start(2, redis_url, lease=LEASE)
        async with connected() as http:
            client = await Client(http).open(one)
            async with client.calling(one, "steps", 5, gate=str(tmp_path / "never")) as stream:
                assert (await stream.message())["params"]["progress"] == 1
                last = stream.last_id
                one.kill()
                assert await stream.rest() == []
            (answer,) = await client.resumed(two, last)
            assert answer["id"] == 5
            assert "has ended" in answer["error"]["data"]
            async with client.listening(two, last) as stream:  # the same again, not once more
                assert await stream.rest() == [answer]
            assert await client.call(two, "where") == two.pid
            response = await client.post(two, "initialize", {})
            assert response.json()["error"]["code"] == -32600  # still the session it was

    run(main())


@pytest.mark.verifies("N-killed")
def test_what_was_answered_before_kill_9_is_delivered_once(
    start: Start, redis_url: str, tmp_path: Path
) -> None:
    async def main() -> None:
        one, two = start(2, redis_url, lease=LEASE)
        gate = tmp_path / "gate"
        async with connected() as http:
            client = await Client(http).open(one)
            async with client.calling(one, "steps", 5, gate=str(gate)) as stream:
                await stream.message()
                last = stream.last_id
            gate.touch()
            async with client.listening(two, last) as stream:  # the engine has it by now
                whole = await stream.rest()
            one.kill()
            assert await client.resumed(two, last) == whole
            assert [message.get("id") for message in whole] == [None, 5]
            assert "result" in whole[1]

    run(main())


def test_a_stream_through_another_node_ends_with_the_node_that_feeds_it(
    start: Start, redis_url: str, tmp_path: Path
) -> None:
    async def main() -> None:
        one, two = start(2, redis_url, lease=LEASE)
        async with connected() as http:
            client = await Client(http).open(one)
            async with client.calling(two, "steps", 5, gate=str(tmp_path / "never")) as stream:
                await stream.message()
                last = stream.last_id
                one.kill()
                assert await stream.rest() == []
            (answer,) = await client.resumed(two, last)
            assert (answer["id"], answer["error"]["code"]) == (5, -32603)

    run(main())


@pytest.mark.verifies("N-killed")
def test_after_kill_9_of_the_node_between_the_call_goes_on(
    start: Start, redis_url: str, tmp_path: Path
) -> None:
    """It was only passing the stream on: its owner still has it."""

    async def main() -> None:
        one, two = start(2, redis_url, lease=LEASE)
        gate = tmp_path / "gate"
        async with connected() as http:
            client = await Client(http).open(one)
            async with client.calling(two, "steps", 5, gate=str(gate)) as stream:
                await stream.message()
                last = stream.last_id
                two.kill()
                assert await stream.rest() == []
            gate.touch()
            rest = await client.resumed(one, last)
            assert [message.get("id") for message in rest] == [None, 5]
            assert rest[1]["result"]["structuredContent"] == {"result": one.pid}

    run(main())


def test_a_plain_answer_from_another_node_that_dies_is_503(
    start: Start, redis_url: str, tmp_path: Path
) -> None:
    async def main() -> None:
        one, two = start(2, redis_url, lease=LEASE)
        started = tmp_path / "started"
        async with connected() as http:
            client = await Client(http).open(one)
            arguments = {"started": str(started), "stopped": str(tmp_path / "x")}
            params = {"name": "wait", "arguments": arguments}
            calling = asyncio.create_task(client.post(two, "tools/call", params))
            await eventually(started.exists)
            one.kill()
            response = await calling
            assert response.status_code == 503
            assert response.headers["retry-after"]

    run(main())


@pytest.mark.verifies("N-killed")
def test_after_kill_9_a_get_stream_is_resumed_and_hears_on(start: Start, redis_url: str) -> None:
    async def main() -> None:
        one, two = start(2, redis_url, lease=LEASE)
        async with connected() as http:
            client, modern = await Client(http).open(one), Modern(http)
            await client.request(one, "resources/subscribe", {"uri": "note://one"})
            async with client.listening(one) as stream:
                await modern.call(two, "edit")
                await stream.notified("notifications/resources/updated")
                last = stream.last_id
                one.kill()
                assert await stream.rest() == []
            assert await persistently(client, two, "where") == two.pid
            async with client.listening(two, last) as stream:
                # What happened while nobody had the session is not known: all may have changed.
                heard = {(await stream.message())["method"] for _ in range(3)}
                assert heard == {
                    "notifications/tools/list_changed",
                    "notifications/resources/list_changed",
                    "notifications/resources/updated",
                }
                await modern.call(two, "edit")  # the subscription lives on
                await stream.notified("notifications/resources/updated")
                name, cursor = stream.last_id.split("-")
                assert name == last.split("-")[0]
                assert int(cursor) == int(last.split("-")[1]) + 4

    run(main())


@pytest.mark.verifies("N-killed")
def test_after_kill_9_a_task_has_failed(start: Start, redis_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        one, two = start(2, redis_url, lease=LEASE)
        async with connected() as http:
            client = Modern(http, tasks=True)
            ids = []
            for gate in (tmp_path / "never", tmp_path):
                params = {"name": "dig", "arguments": {"gate": str(gate)}}
                ids.append((await client.request(one, "tools/call", params))["taskId"])

            async def status(task_id: str) -> str:
                return str((await client.request(two, "tasks/get", {"taskId": task_id}))["status"])

            async def is_done() -> bool:
                return await status(ids[1]) == "completed"

            async def has_failed() -> bool:
                return await status(ids[0]) == "failed"

            await eventually(is_done)
            assert await status(ids[0]) == "working"
            one.kill()
            await eventually(has_failed)
            assert await status(ids[1]) == "completed"
            seen = await client.request(two, "tasks/get", {"taskId": ids[0]})
            assert "has ended" in seen["error"]["data"]

    run(main())


@pytest.mark.verifies("N-principal")
def test_nobody_else_resumes_a_session_of_a_dead_node(
    start: Start, redis_url: str, tmp_path: Path
) -> None:
    async def main() -> None:
        one, two = start(2, redis_url, lease=LEASE, auth=True)
        async with connected() as http:
            ann = await Client(http, "ann").open(one)
            async with ann.calling(one, "steps", 5, gate=str(tmp_path / "never")) as stream:
                await stream.message()
                last = stream.last_id
                bob = Client(http, "bob")
                bob.headers["mcp-session-id"] = ann.session
                for node in (one, two):  # as long as it lives
                    assert (await bob.post(node, "tools/list", {})).status_code == 404
                    async with bob.listening(node, last) as stolen:
                        assert stolen.response.status_code == 404
                one.kill()
            while True:  # 503 until the dead node may be buried, then 404; never 200
                async with bob.listening(two, last) as stolen:
                    if stolen.response.status_code == 404:
                        break
                    assert stolen.response.status_code == 503
                await asyncio.sleep(0.05)
            (answer,) = await ann.resumed(two, last)
            assert answer["id"] == 5
            assert (await bob.post(two, "tools/list", {})).status_code == 404

    run(main())


@pytest.mark.verifies("N-principal")
def test_nobody_else_sees_a_task(start: Start, redis_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        one, two = start(2, redis_url, auth=True)
        async with connected() as http:
            ann, bob = Modern(http, "ann", tasks=True), Modern(http, "bob", tasks=True)
            params = {"name": "dig", "arguments": {"gate": str(tmp_path)}}
            task_id = (await ann.request(one, "tools/call", params))["taskId"]
            for method in ("tasks/get", "tasks/cancel"):
                response = await bob.post(two, method, {"taskId": task_id})
                assert response.json()["error"]["code"] == -32602
            assert await ann.request(two, "tasks/get", {"taskId": task_id})

    run(main())


@pytest.mark.verifies("N-handed-over")
def test_a_node_that_is_stopped_hands_its_sessions_over(start: Start, redis_url: str) -> None:
    """At once, even to a node that has just started: a lease lasts a minute here."""

    async def main() -> None:
        (one,) = start(1, redis_url, lease=60.0)
        async with connected() as http:
            client = await Client(http).open(one)
            (two,) = start(1, redis_url, lease=60.0)
            async with client.listening(one) as stream:
                await asyncio.to_thread(one.stop)
                await stream.rest()
            assert await client.call(two, "where") == two.pid

    run(main())


def test_two_clients_take_a_session_over_at_once(start: Start, redis_url: str) -> None:
    """Only one node may have it: the other two agree on which."""

    async def main() -> None:
        one, two, three = start(3, redis_url, lease=LEASE)
        async with connected() as http:
            client = await Client(http).open(one)
            one.kill()
            nodes = (two, three) * 5
            where = await asyncio.gather(*(persistently(client, n, "where") for n in nodes))
            assert len(set(where)) == 1
            assert where[0] in (two.pid, three.pid)

    run(main())


def test_questions_on_the_next_node_have_ids_of_their_own(start: Start, redis_url: str) -> None:
    """An answer that was meant for the dead node must not settle a question of the other."""

    async def main() -> None:
        one, two = start(2, redis_url, lease=LEASE)
        async with connected() as http:
            client = await Client(http).open(one)
            value = {"action": "accept", "content": {"name": "Late"}}
            async with client.calling(one, "greet") as stream:
                before = await stream.notified("elicitation/create")
                one.kill()
            assert await persistently(client, two, "where") == two.pid
            async with client.calling(two, "greet") as stream:
                question = await stream.notified("elicitation/create")
                assert question["id"] != before["id"]
                for id, name in ((before["id"], "Late"), (question["id"], "Ann")):
                    value = {"action": "accept", "content": {"name": name}}
                    answer = {"jsonrpc": "2.0", "id": id, "result": value}
                    assert (await client.send(two, answer)).status_code == 202
                (last,) = await stream.rest()
                assert last["result"]["structuredContent"] == {"result": "Hello Ann"}

    run(main())


@pytest.mark.verifies("N-principal")
def test_a_record_that_somebody_else_wrote_is_not_believed(
    start: Start, redis_server: RedisServer
) -> None:
    async def main() -> None:
        one, two = start(2, redis_server.url, lease=LEASE, auth=True)
        engine = RedisBackplane(redis_server.url)
        await engine.open()
        async with connected() as http:
            ann = await Client(http, "ann").open(one)
            record = await engine.records.get(ann.session)
            assert record is not None
            assert b"ann" in record
            await engine.records.put(ann.session, record.replace(b"ann", b"bob"), 60)
            one.kill()
            bob = Client(http, "bob")
            bob.headers["mcp-session-id"] = ann.session

            async def is_refused() -> bool:
                response = await bob.post(two, "tools/list", {})
                assert response.status_code in (404, 503)
                return response.status_code == 404

            await eventually(is_refused)
        await engine.close()

    run(main())


# -- the engine ------------------------------------------------------------------------------


async def _without_engine(one: Node, two: Node, client: Client, modern: Modern) -> None:
    """What needs the engine is 503, the rest goes on."""
    assert await modern.call(one, "add", a=1, b=2) == 3
    assert await modern.call(two, "add", a=1, b=2) == 3
    assert await client.call(one, "where") == one.pid  # its own node
    refused = [
        await client.post(two, "tools/list", {}),  # another node
        await Client(client.http).post(
            one,
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT},
        ),
    ]
    refused.append(await client.http.delete(f"{one.url}/mcp", headers=client.headers))
    params = {"name": "dig", "arguments": {"gate": "/"}}
    tasks = Modern(client.http, tasks=True)
    refused.append(await tasks.post(one, "tools/call", params))
    refused.append(await tasks.post(one, "tasks/get", {"taskId": "x"}))
    for response in refused:
        assert response.status_code == 503, response.text
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["error"]["code"] == -32603
    for node in (one, two):
        assert (await client.http.get(f"{node.url}/health")).status_code == 200
        assert (await client.http.get(f"{node.url}/ready")).status_code == 503


async def _is_ready(http: httpx.AsyncClient, *nodes: Node) -> bool:
    answers = [await http.get(f"{node.url}/ready") for node in nodes]
    return all(answer.status_code == 200 for answer in answers)


async def _is_away(http: httpx.AsyncClient, *nodes: Node) -> bool:
    answers = [await http.get(f"{node.url}/ready") for node in nodes]
    return all(answer.status_code == 503 for answer in answers)


@pytest.mark.verifies("N-away", "N-back")
def test_an_engine_that_stops_and_comes_back_empty(
    start: Start, redis_server: RedisServer, tmp_path: Path
) -> None:
    async def main() -> None:
        one, two = start(2, redis_server.url, lease=LEASE)
        gate = tmp_path / "gate"
        async with connected() as http:
            client, modern = await Client(http).open(one), Modern(http)
            await client.request(one, "resources/subscribe", {"uri": "note://one"})
            async with client.calling(one, "steps", 5, gate=str(gate)) as stream:
                await stream.message()
                last = stream.last_id
            redis_server.stop()
            await eventually(lambda: _is_away(http, one, two))
            await _without_engine(one, two, client, modern)
            gate.touch()  # the call ends while nobody can be told
            async with client.listening(one, last) as stream:  # its node knows it, engine or not
                whole = await stream.rest()
            assert [message.get("id") for message in whole] == [None, 5]
            redis_server.start()
            await eventually(lambda: _is_ready(http, one, two))
            assert await client.call(two, "where") == one.pid
            async with client.listening(two) as stream:  # news travel again
                await modern.call(two, "edit")
                await stream.notified("notifications/resources/updated")
            one.kill()  # the empty engine was told of the session and its events again
            assert await client.resumed(two, last) == whole
            assert await client.call(two, "where") == two.pid

    run(main())


@pytest.mark.verifies("N-away", "N-back")
def test_an_engine_that_is_cut_off_for_ten_seconds(
    start: Start, redis_server: RedisServer, tmp_path: Path
) -> None:
    async def main() -> None:
        one, two = start(2, redis_server.url, lease=2.0)
        started = tmp_path / "started"
        async with connected() as http:
            client, modern = await Client(http).open(one), Modern(http)
            arguments = {"started": str(started), "stopped": str(tmp_path / "stopped")}
            params = {"name": "wait", "arguments": arguments}
            calling = asyncio.create_task(client.post(two, "tools/call", params))
            await eventually(started.exists)
            async with (
                client.listening(one) as stream,
                modern.listening(two, toolsListChanged=True) as listening,
            ):
                redis_server.freeze()
                cut = asyncio.get_running_loop().time()
                response = await calling  # on its way through the engine when that was cut off
                assert response.status_code == 503
                await eventually(lambda: _is_away(http, one, two))
                await _without_engine(one, two, client, modern)
                await modern.call(one, "rearrange")  # two cannot hear of it now
                await stream.notified("notifications/tools/list_changed")
                await asyncio.sleep(cut + 10 - asyncio.get_running_loop().time())
                redis_server.thaw()
                await eventually(lambda: _is_ready(http, one, two))
                # Nobody took anything over: every lease had run out, and all came back.
                assert await client.call(one, "where") == one.pid
                assert await client.call(two, "where") == one.pid
                # And what may have been missed is said.
                await listening.notified("notifications/tools/list_changed")

    run(main())


@pytest.mark.verifies("N-back")
def test_a_node_that_alone_is_cut_off_gives_up_what_others_took_over(
    start: Start, redis_server: RedisServer
) -> None:
    async def main() -> None:
        async with connected() as http, Cable(redis_server.port) as cable:
            # In threads: the cable runs on this loop, and must not be held up.
            (one,) = await asyncio.to_thread(start, 1, cable.url, lease=LEASE)
            two, three = await asyncio.to_thread(start, 2, redis_server.url, lease=LEASE)
            client = await Client(http).open(one)
            untouched = await Client(http).open(one)
            cable.cut()
            assert await persistently(client, two, "where") == two.pid
            assert await untouched.call(one, "where") == one.pid
            cable.mend()
            await eventually(lambda: _is_ready(http, one, two))

            async def is_routed() -> bool:
                return await client.call(one, "where") == two.pid

            await eventually(is_routed)
            assert await client.call(two, "where") == two.pid
            assert await client.call(three, "where") == two.pid  # which asks the first, who knows
            assert await untouched.call(two, "where") == one.pid  # nobody had asked for it

    run(main())


@pytest.mark.parametrize("stream", ["post", "get"])
def test_a_stream_on_its_own_node_does_not_notice_an_outage(
    start: Start, redis_server: RedisServer, tmp_path: Path, stream: str
) -> None:
    async def main() -> None:
        (one,) = start(1, redis_server.url, lease=LEASE)
        gate = tmp_path / "gate"
        async with connected() as http:
            client = await Client(http).open(one)
            opening: Any
            if stream == "post":
                opening = client.calling(one, "steps", 5, gate=str(gate))
            else:
                opening = client.listening(one)
            async with opening as shown:
                assert isinstance(shown, Stream)
                if stream == "post":
                    await shown.message()
                redis_server.stop()
                await eventually(lambda: _is_away(http, one))
                if stream == "post":
                    gate.touch()
                    assert [m.get("id") for m in await shown.rest()] == [None, 5]
                else:
                    await client.call(one, "rearrange")
                    await shown.notified("notifications/tools/list_changed")

    run(main())
