"""A hostile server: each fault is one clear exception for one call, or is ignored."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from clientkit import MODERN, TEXT, Line, connected, demo, over, script, stamped

from dovetail import Client, Limits, McpError
from dovetail.errors import ConnectionClosed, RemoteProtocolError
from support import run, until

Fault = Callable[[dict[str, Any], Line], None]


def complete(line: Line, message: dict[str, Any]) -> None:
    line.result(message, {**TEXT, "resultType": "complete"})


async def bad_then_good(fault: Fault, error: Any, text: str, revision: str) -> None:
    """One call meets the fault, another one beside it and one after it do not."""

    def serve(message: dict[str, Any], line: Line) -> None:
        if message.get("method") != "tools/call":
            return
        if message["params"]["arguments"]["bad"]:
            fault(message, line)
        else:
            complete(line, message)

    async with over(script(serve, revision=revision), timeout=5) as client:
        beside = asyncio.ensure_future(client.call("add", {"bad": False}))
        if error is None:
            assert (await client.call("add", {"bad": True})).text == "ok"
        else:
            with pytest.raises(error, match=text):
                await client.call("add", {"bad": True})
        assert (await beside).text == "ok"
        assert (await client.call("add", {"bad": False})).text == "ok"


def both(message: dict[str, Any], line: Line) -> None:
    line.say(id=message["id"], result={}, error={"code": 1, "message": "x"})


def neither(message: dict[str, Any], line: Line) -> None:
    line.say(id=message["id"])
    complete(line, message)


def twice(message: dict[str, Any], line: Line) -> None:
    complete(line, message)
    line.error(message, -1, "too late")
    complete(line, message)


def wrong_ids(message: dict[str, Any], line: Line) -> None:
    for id in (message["id"] + 1000, str(message["id"]), -1, "x", None, 1.5, [], {}, True):
        line.raw(msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": {}}) + b"\n")
    complete(line, message)


def garbage(message: dict[str, Any], line: Line) -> None:
    line.raw(b'\x00\xff\n{\n[\n]\nnull\n1\n"x"\n[1,[2]]\n{}\n' + b"{" * 3000 + b"\n")
    line.raw(b'{"jsonrpc":"1.0","id":1}\n{"jsonrpc":"2.0","method":5}\n')
    complete(line, message)


def bad_error(message: dict[str, Any], line: Line) -> None:
    line.say(id=message["id"], error="something")


def coded(message: dict[str, Any], line: Line) -> None:
    line.error(message, -32000, "whatever", {"deep": [1]})


def huge(message: dict[str, Any], line: Line) -> None:
    """A hundred megabytes, in pieces, the id first as Python servers write it."""
    line.raw(
        b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % message["id"]
    )
    for _ in range(100):
        line.raw(b"x" * 1_000_000)
    line.raw(b'"}]}}\n')


def huge_id_last(message: dict[str, Any], line: Line) -> None:
    """The same as TypeScript servers write it: the id comes last."""
    line.raw(b'{"result":{"content":[{"type":"text","text":"')
    for _ in range(100):
        line.raw(b"x" * 1_000_000)
    line.raw(b'"}]},"jsonrpc":"2.0","id":%d}\n' % message["id"])


def deep(message: dict[str, Any], line: Line) -> None:
    nested = b"[" * 5000 + b"]" * 5000
    line.raw(b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (message["id"], nested))


def too_deep(message: dict[str, Any], line: Line) -> None:
    nested = b"[" * 500 + b"]" * 500
    line.raw(b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (message["id"], nested))


def floods(message: dict[str, Any], line: Line) -> None:
    note = msgspec.json.encode({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
    line.raw((note + b"\n") * 50_000)
    complete(line, message)


def no_object(message: dict[str, Any], line: Line) -> None:
    line.result(message, [1, 2])


def no_content(message: dict[str, Any], line: Line) -> None:
    line.result(message, {"resultType": "complete"})


def wrong_content(message: dict[str, Any], line: Line) -> None:
    line.result(message, {"content": "text"})


def not_utf8(message: dict[str, Any], line: Line) -> None:
    line.raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":"\xff"}}\n' % message["id"])


def surrogate(message: dict[str, Any], line: Line) -> None:
    line.raw(
        b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\\ud800"}]}}\n'
        % message["id"]
    )


FAULTS: list[tuple[Fault, Any, str]] = [
    (both, RemoteProtocolError, "either 'result' or 'error'"),
    (neither, None, ""),
    (twice, None, ""),
    (wrong_ids, None, ""),
    (garbage, None, ""),
    (bad_error, RemoteProtocolError, "'error' must be an object"),
    (coded, McpError, "whatever"),
    (huge, RemoteProtocolError, "longer than"),
    (huge_id_last, RemoteProtocolError, "longer than"),
    (deep, RemoteProtocolError, "Nesting too deep"),
    (too_deep, RemoteProtocolError, "Nesting deeper"),
    (floods, None, ""),
    (no_object, RemoteProtocolError, "makes no sense"),
    (no_content, RemoteProtocolError, "no content"),
    (wrong_content, RemoteProtocolError, "makes no sense"),
    (not_utf8, RemoteProtocolError, "Invalid UTF-8"),
    (surrogate, RemoteProtocolError, "Invalid JSON"),
]


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("fault", "error", "text"), FAULTS, ids=[fault.__name__ for fault, _, _ in FAULTS]
)
def test_a_fault_hurts_one_call_at_most(fault: Fault, error: Any, text: str, revision: str) -> None:
    run(bad_then_good(fault, error, text, revision))


def test_batches_are_taken_apart_where_they_are_allowed() -> None:
    held: list[dict[str, Any]] = []

    def serve(message: dict[str, Any], line: Line) -> None:
        held.append(message)
        if len(held) == 2:
            answers = [{"jsonrpc": "2.0", "id": m["id"], "result": TEXT} for m in reversed(held)]
            line.raw(msgspec.json.encode(answers) + b"\n")

    async def main() -> None:
        line = script(serve, revision="2025-03-26")
        async with over(line, revision="2025-03-26") as client:
            results = await asyncio.gather(client.call("add"), client.call("add"))
            assert [result.text for result in results] == ["ok", "ok"]

    run(main())


@pytest.mark.parametrize("phase", ["server/discover", "initialize", "tools/list", "tools/call"])
def test_death_in_every_phase(phase: str) -> None:
    async def main() -> None:
        def serve(message: dict[str, Any], line: Line) -> None:
            if message.get("method") == phase:
                line.hang_up()
            else:
                opening(message, line)

        opening = script(lambda m, at: None)._serve
        with pytest.raises(ConnectionClosed):
            async with over(Line(serve), timeout=5) as client:
                await client.call("add")

    run(main())


def test_death_fails_everyone_who_waits_and_nobody_hangs() -> None:
    async def main() -> None:
        line = script(lambda m, at: None)
        async with over(line, timeout=None, max_total=None) as client:
            calls = [asyncio.ensure_future(client.call("add")) for _ in range(200)]
            await until(lambda: sum(m["method"] == "tools/call" for m in line.received) == 200)
            line.connection.end_reason = "struck by lightning"
            line.hang_up()
            done, waiting = await asyncio.wait(calls, timeout=5)
            assert not waiting
            assert {str(call.exception()) for call in done} == {"struck by lightning"}

    run(main())


def test_callbacks_that_break_do_no_harm() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        token = message["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": 1}
        line.say(method="notifications/progress", params=params)
        line.say(method="notifications/message", params={"level": "info", "data": 1})
        complete(line, message)

    def boom(_: Any) -> None:
        raise ValueError

    async def main() -> None:
        async with over(script(serve), on_log=boom) as client:
            assert (await client.call("add", on_progress=boom)).text == "ok"

    run(main())


def test_a_hundred_megabytes_do_not_stay_in_memory() -> None:
    async def main() -> None:
        async with over(script(huge), limits=Limits(max_frame=1_000_000)) as client:
            tracemalloc.start()
            with pytest.raises(RemoteProtocolError):
                await client.call("add")
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 10_000_000

    run(main())


def test_ten_thousand_connections_leave_nothing_behind() -> None:
    """Opened, used and closed, or dead in the middle: neither tasks nor objects pile up."""

    async def main() -> None:
        server = demo()
        line = script(lambda m, at: at.hang_up())

        async def good() -> None:
            async with Client.memory(server) as client:
                await client.ping()

        async def dead() -> None:
            with pytest.raises(ConnectionClosed):
                async with over(line, check_output=False, revision="2025-06-18") as client:
                    await client.call("add")
            line.received.clear()

        for _ in range(200):
            await good()
            await dead()
        gc.collect()
        tasks, objects = len(asyncio.all_tasks()), len(gc.get_objects())
        for _ in range(4900):
            await good()
            await dead()
        gc.collect()
        assert len(asyncio.all_tasks()) == tasks
        assert len(gc.get_objects()) < objects + 1000
        assert not server.sessions

    asyncio.run(main())


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
@pytest.mark.verifies("SH-schema-bounds")
def test_monstrous_output_schemas_are_refused(revision: str) -> None:
    deep_schema: dict[str, Any] = {"type": "object"}
    for _ in range(100):
        deep_schema = {"type": "object", "properties": {"x": deep_schema}}
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(30_000)}}
    schemas = {
        "deep": deep_schema,
        "wide": wide,
        "broken": {"type": "object", "properties": {"a": {"type": 5}}},
        "remote": {"type": "object", "properties": {"a": {"$ref": "http://evil.example/x"}}},
        "pattern": {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
    }
    tools = [
        {"name": name, "inputSchema": {"type": "object"}, "outputSchema": schema}
        for name, schema in schemas.items()
    ]

    def serve(message: dict[str, Any], line: Line) -> None:
        result = {"content": [], "structuredContent": {"a": "x"}}
        line.result(message, {**result, **(stamped() if revision == MODERN else {})})

    async def main() -> None:
        limits = Limits(max_depth=1000)
        line = script(serve, revision=revision, tools=tools)
        async with over(line, limits=limits) as client:
            for name in schemas:
                with pytest.raises(RemoteProtocolError, match=r"schema"):
                    await client.call(name)

    run(main())


def test_nothing_is_sent_that_is_not_legal() -> None:
    """All that a client says in a busy life, checked against the official schemas."""

    async def main() -> None:
        async with connected(demo(), on_elicit=lambda q: {}, roots=["/tmp"]) as (client, recorder):
            await asyncio.gather(*(client.call("steps", {"n": 2}) for _ in range(20)))
        assert len(recorder.messages) > 40

    run(main())
