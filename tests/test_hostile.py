"""What a hostile tester found once, kept: bounds, and an answer to everything."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dovetail import Context, Limits, McpError, ResourceNotFound, Sample, Server, Session
from dovetail.runtime.connection import Connection
from dovetail.server import subscriptions
from dovetail.testing import TestClient, connect

D, E = "2025-11-25", "2026-07-28"


def make(**options: Any) -> Server:
    return Server("hostile", version="1", **options)


def served(server: Server, scenario: Any, revision: str = D, **options: Any) -> Any:
    async def main() -> Any:
        async with connect(server, revision, **options) as client:
            return await asyncio.wait_for(scenario(client), 20)

    return asyncio.run(main())


class Odd(BaseException):
    pass


@pytest.mark.verifies("INV-001", "INV-002")
@pytest.mark.parametrize("raised", [Odd(), KeyboardInterrupt(), GeneratorExit(), SystemExit(1)])
@pytest.mark.parametrize("inline", [True, False])
def test_whatever_a_tool_raises_it_and_what_follows_is_answered(
    raised: BaseException, inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = make()
    if inline:

        @server.tool(inline=True)
        def bad() -> None:
            raise raised
    else:

        @server.tool
        async def bad() -> None:
            raise raised

    async def scenario(client: TestClient) -> list[Any]:
        frames = [
            {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "bad"}},
            {"jsonrpc": "2.0", "id": "b", "method": "ping"},
        ]
        client.send(b"\n".join(msgspec.json.encode(frame) for frame in frames))
        return [await client.receive(), await client.receive()]

    answers = {answer["id"]: answer for answer in served(server, scenario)}
    assert answers["b"]["result"] == {}
    assert answers["a"].get("error", {}).get("code") == -32603 or answers["a"]["result"]["isError"]


BROKEN_ANSWERS = [
    b'{"jsonrpc":"2.0","id":1,"error":{"message":"no code"}}',
    b'{"jsonrpc":"2.0","id":1,"error":"no"}',
    b'{"id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":1,"result":{},"error":null}',
    b'{"jsonrpc":"2.0","id":1,"result":{"x":"' + b"x" * 5_000 + b'"}}',
    b'{"jsonrpc":"2.0","id":1,"result":' + b'{"a":' * 200 + b"1" + b"}" * 201,
]


@pytest.mark.verifies("INV-001", "E-result-and-error")
@pytest.mark.parametrize("broken", BROKEN_ANSWERS, ids=range(len(BROKEN_ANSWERS)))
def test_a_broken_answer_ends_the_wait_it_was_meant_for(broken: bytes) -> None:
    server = make(limits=Limits(max_frame=4_000))

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("?", max_tokens=1)).text

    async def scenario(client: TestClient) -> Any:
        _, answer = client.start("tools/call", {"name": "think"})
        question = await client.receive()
        assert question["method"] == Sample("?", max_tokens=1).method
        client.send(broken)
        return (await answer)["result"]

    result = served(server, scenario, capabilities={"sampling": {}})
    assert result["isError"]
    assert "makes no sense" in result["content"][0]["text"]


@pytest.mark.verifies("X15")
def test_json_written_for_people_stays_on_one_line() -> None:
    server = make()

    @server.tool
    def pretty() -> Any:
        return msgspec.Raw(b'{\n  "a": 1\n}')

    @server.tool
    def nested() -> Any:
        return {"inner": msgspec.Raw(b"[\n1\n]")}

    @server.tool
    def broken() -> Any:
        return msgspec.Raw(b"}{")

    async def scenario(client: TestClient) -> list[Any]:
        return [await client.call(name) for name in ("pretty", "nested", "broken")]

    pretty_result, nested_result, broken_result = served(server, scenario)
    assert pretty_result["structuredContent"] == {"a": 1}
    assert nested_result["structuredContent"] == {"inner": [1]}
    assert broken_result["isError"]


@pytest.mark.verifies("D-batches")
def test_a_batch_has_a_limit() -> None:
    async def scenario(client: TestClient) -> Any:
        client.send(b"[" + b",".join([b"1"] * 1001) + b"]")
        return await client.receive()

    answer = served(make(), scenario, "2025-03-26")
    assert answer["error"]["data"] == "A batch has at most 1000 messages"


@pytest.mark.verifies("X31", "X32")
@pytest.mark.parametrize(("revision", "code"), [(D, -32021), (D, -32022), (E, -32042)])
def test_a_code_of_another_era_is_not_sent(revision: str, code: int) -> None:
    server = make()

    @server.tool
    def fail() -> None:
        raise McpError(code, "from another time")

    async def scenario(client: TestClient) -> Any:
        return await client.answer("tools/call", {"name": "fail"})

    assert served(server, scenario, revision)["error"]["code"] == -32603


@pytest.mark.verifies("X8")
def test_a_code_is_an_integer() -> None:
    for code in ("E1", 1.5, None, True):
        with pytest.raises(TypeError, match="the code of an error is an integer"):
            McpError(code)  # type: ignore[arg-type]


@pytest.mark.verifies("S22", "S23")
def test_a_stream_keeps_its_id_when_an_older_one_ends() -> None:
    server = make()
    tool = server.tool(name="t")(lambda: None)

    async def scenario(client: TestClient) -> Any:
        id, _ = client.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        first = await client.receive()
        last = client.recorder.messages[-2][1]
        client.send(
            msgspec.json.encode(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": id},
                }
            )
            + b"\n"
            + msgspec.json.encode(last)
        )
        second = await client.receive()
        await asyncio.sleep(0)
        tool.disable()
        return first, second, await client.receive()

    first, second, change = served(server, scenario, E)
    assert first == second
    assert change["method"] == "notifications/tools/list_changed"


@pytest.mark.verifies("SH-rate")
def test_subscriptions_and_handlers_of_notifications_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 2)
    server = make(limits=Limits(max_background=2))
    started = []

    @server.resource("x://{name}")
    def read(name: str) -> str:
        return name

    @server.notification("wait")
    async def wait(session: Session) -> None:
        started.append(session)
        await asyncio.Event().wait()

    async def scenario(client: TestClient) -> list[Any]:
        for _ in range(4):
            client.notify("wait")
        return [
            await client.answer("resources/subscribe", {"uri": f"x://{number}"})
            for number in range(3)
        ]

    with caplog.at_level(logging.WARNING, "dovetail"):
        *fine, refused = served(server, scenario)
    assert [answer["result"] for answer in fine] == [{}, {}]
    assert refused["error"]["data"] == "Too many subscriptions: 2 are open"
    assert len(started) == 2
    assert [record.getMessage() for record in caplog.records] == ["wait dropped: 2 are running"] * 2


class Stuck:
    """A client that does not read."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes | bytearray) -> None:
        self.size += len(data)

    def get_write_buffer_size(self) -> int:
        return self.size

    def close(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


@contextlib.contextmanager
def unread(server: Server) -> Iterator[tuple[Connection, Stuck]]:
    connection, writer = server.connection(), Stuck()
    connection.attach(writer, writer)
    connection.pause_writing()
    yield connection, writer


@pytest.mark.verifies("SH-rate")
def test_what_is_told_unasked_does_not_pile_up_for_a_client_that_does_not_read() -> None:
    server = make(limits=Limits(max_buffered_output=10_000))

    async def main() -> int:
        with unread(server) as (connection, writer):
            for _ in range(1_000):
                connection.notify("notifications/message", {"data": "x" * 100})
                await asyncio.sleep(0)
            await connection.close()
            return writer.size

    assert 10_000 < asyncio.run(main()) < 11_000


@pytest.mark.verifies("S37")
def test_a_path_stays_below_the_directory_of_its_template() -> None:
    server = make()

    @server.resource("file:///srv/{+path}")
    def read(path: str) -> str:
        return path

    async def scenario(client: TestClient) -> list[Any]:
        uris = ["a/b", "/etc/passwd", "..%2Fx", "a/../../x", "C:/x", "%2Fetc"]
        return [
            await client.answer("resources/read", {"uri": f"file:///srv/{uri}"}) for uri in uris
        ]

    fine, *refused = served(server, scenario)
    assert fine["result"]["contents"][0]["text"] == "a/b"
    assert [answer["error"]["code"] for answer in refused] == [-32002] * 5


@pytest.mark.verifies("X32")
def test_a_task_of_2026_has_no_code_of_2025() -> None:
    server = make()

    @server.tool(task="required")
    async def find() -> None:
        raise ResourceNotFound("x://none")

    async def scenario(client: TestClient) -> Any:
        made = await client.request("tools/call", {"name": "find"})
        while True:
            task = await client.request("tasks/get", {"taskId": made["taskId"]})
            if task["status"] != "working":
                return task
            await asyncio.sleep(0)

    extensions = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    task = served(server, scenario, E, capabilities=extensions)
    assert json.loads(json.dumps(task["error"]))["code"] == -32602
