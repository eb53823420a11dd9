"""Calls, lists, prompts, completion, progress and deadlines, in every revision."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clientkit import ALL, HANDSHAKE, MODERN, Line, connected, demo, over, script, sent
from msgspec import Struct

from dovetail import Client, McpError, Server
from dovetail.client.results import UnknownContent
from dovetail.errors import (
    ConnectionClosed,
    LocalProtocolError,
    RemoteProtocolError,
    ToolFailed,
)
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, PROTOCOL_VERSION_KEY
from support import run, until


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.verifies("C1", "C2", "R002-9")
def test_everything_once_in_every_revision(revision: str) -> None:
    async def main() -> None:
        async with connected(demo(), revision=revision) as (client, recorder):
            assert client.revision == revision
            assert client.server is not None
            assert client.server.name == "demo"
            assert client.instructions == "Be gentle."
            result = await client.call("add", {"a": 1, "b": 2})
            assert result.value in (3, "3")  # before 2025-06-18 a result is text
            assert result.text == "3"
            assert not result.is_error
            assert [t.name async for t in client.tools()] == ["add", "fail", "steps"]
            assert [r.uri async for r in client.resources()] == ["demo://text"]
            assert [t.uri_template for t in await client.templates.all()] == ["demo://item/{id}"]
            assert [p.name async for p in client.prompts()] == ["greet"]
            assert (await client.read("demo://text"))[0].text == "hello"
            assert (await client.read("demo://item/7"))[0].text == "item 7"
            prompt = await client.prompt("greet", {"name": "Eve"})
            assert prompt.messages[0].content.text == "Hello Eve"
            found = await client.complete("demo://item/{id}", "id", "x", given={"other": "1"})
            assert found.values == ["x1", "x2"]
            await client.ping()
        first = next(m for who, m in recorder.messages if who == "client")["method"]
        assert first == ("server/discover" if revision == MODERN else "initialize")
        if revision != MODERN:
            assert len(sent(recorder, "notifications/initialized")) == 1

    run(main())


@pytest.mark.verifies("C5", "C6", "SH-client-info", "C12")
def test_every_request_of_2026_says_who_asks_and_what_it_can_do() -> None:
    async def main() -> None:
        async with connected(demo(), name="me", version="7", roots=[]) as (client, recorder):
            await client.call("add", {"a": 1, "b": 2})
            await client.tools.all()
        requests = [m for who, m in recorder.messages if who == "client" and "id" in m]
        assert len(requests) == 4
        for request in requests:
            meta = request["params"]["_meta"]
            assert meta[PROTOCOL_VERSION_KEY] == MODERN
            assert meta[CLIENT_CAPABILITIES_KEY]["roots"] == {}
            assert meta[CLIENT_INFO_KEY] == {"name": "me", "version": "7"}

    run(main())


class Point(Struct):
    x: int
    y: int


@pytest.mark.parametrize("revision", ALL)
def test_results_of_a_type(revision: str) -> None:
    server = Server("types")

    @server.tool
    async def point() -> Point:
        return Point(1, 2)

    @server.tool
    async def many() -> list[int]:
        return [1, 2]

    async def main() -> None:
        async with connected(server, revision=revision) as (client, _):
            result = await client.call("point", returns=Point)
            assert result.value == Point(1, 2)
            assert (await client.call("many", returns=list[int])).value == [1, 2]
            with pytest.raises(RemoteProtocolError, match="not of the type"):
                await client.call("many", returns=Point)

    run(main())


def test_a_failed_tool_has_content_but_no_value() -> None:
    async def main() -> None:
        async with connected(demo()) as (client, _):
            result = await client.call("fail", returns=int)
            assert result.is_error
            assert "fail" in result.text
            with pytest.raises(ToolFailed) as caught:
                _ = result.value
            assert caught.value.result is result
            with pytest.raises(ToolFailed):
                await client.call("fail", raise_on_error=True)
            with pytest.raises(McpError):
                await client.call("nobody")

    run(main())


def test_unknown_content_is_kept() -> None:
    blocks = [{"type": "hologram", "z": 1}, {"type": "text", "text": "and text"}]

    async def main() -> None:
        line = script(lambda m, at: at.result(m, {"content": blocks}))
        async with over(line) as client:
            result = await client.call("add")
            assert result.content[0] == UnknownContent("hologram", {"type": "hologram", "z": 1})
            assert result.text == "and text"

    run(main())


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.verifies("X14")
def test_only_what_was_declared_is_used(revision: str) -> None:
    server = Server("empty")

    @server.tool
    async def one() -> int:
        return 1

    async def main() -> None:
        async with connected(server, revision=revision) as (client, recorder):
            before = len(recorder.messages)
            for refused in (client.resources.all(), client.prompts.all(), client.read("a://b")):
                with pytest.raises(LocalProtocolError, match="offers no"):
                    await refused
            assert len(recorder.messages) == before

    run(main())


# -- pages ---------------------------------------------------------------------------------


@pytest.mark.verifies("C18")
def test_lists_are_read_page_by_page() -> None:
    async def main() -> None:
        async with connected(demo(page_size=2)) as (client, _):
            assert [t.name async for t in client.tools()] == ["add", "fail", "steps"]
            page = await client.tools.page()
            assert [t.name for t in page] == ["add", "fail"]
            assert page.next_cursor is not None
            rest = await client.tools.page(page.next_cursor)
            assert [t.name for t in rest] == ["steps"]
            assert rest.next_cursor is None

    run(main())


@pytest.mark.verifies("C18")
def test_an_empty_cursor_is_a_cursor_and_a_circle_ends() -> None:
    def paged(message: dict[str, Any], line: Line) -> None:
        if message["method"] == "resources/list":
            cursor = message.get("params", {}).get("cursor")
            following = {None: "", "": "two", "two": "two"}[cursor]
            line.result(message, {"resources": [], "nextCursor": following})

    async def main() -> None:
        line = script(paged, capabilities={"resources": {}})
        async with over(line) as client:
            with pytest.raises(RemoteProtocolError, match="circles"):
                await client.resources.all()
        cursors = [
            m["params"]["cursor"]
            for m in line.received
            if m.get("params", {}).get("cursor") is not None
        ]
        assert cursors == ["", "two"]

    run(main())


def test_a_list_without_end_ends() -> None:
    def paged(message: dict[str, Any], line: Line) -> None:
        line.result(message, {"resources": [], "nextCursor": str(len(line.received))})

    async def main() -> None:
        line = script(paged, capabilities={"resources": {}})
        async with over(line, max_pages=20) as client:
            with pytest.raises(RemoteProtocolError, match="more than 20 pages"):
                await client.resources.all()

    run(main())


# -- progress and deadlines ------------------------------------------------------------------


@pytest.mark.parametrize("revision", ALL)
def test_progress_is_told(revision: str) -> None:
    async def main() -> None:
        seen: list[Any] = []
        async with connected(demo(), revision=revision) as (client, _):
            result = await client.call("steps", {"n": 3}, on_progress=seen.append)
            assert result.text == "done"
        assert [p.done for p in seen][-1] == 3
        assert seen[-1].total == 3
        assert seen[-1].message == (None if revision == "2024-11-05" else "step 3")

    run(main())


def test_progress_that_does_not_grow_and_strangers_progress_are_ignored() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        if message.get("method") != "tools/call":
            return
        token = message["params"]["_meta"]["progressToken"]
        for value in (1, 1, 0.5, 2):
            params = {"progressToken": token, "progress": value}
            line.say(method="notifications/progress", params=params)
        stranger = {"progressToken": "other", "progress": 9}
        line.say(method="notifications/progress", params=stranger)
        line.say(method="notifications/progress", params={"progress": []})
        line.result(message, {"content": []})

    async def main() -> None:
        seen: list[float] = []
        async with over(script(serve)) as client:
            await client.call("add", on_progress=lambda p: seen.append(p.done))
        assert seen == [1, 2]

    run(main())


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
@pytest.mark.verifies("SH-timeouts", "C14")
def test_silence_ends_and_the_server_is_told(revision: str) -> None:
    async def main() -> None:
        line = script(lambda m, at: None, revision=revision)
        async with over(line) as client:
            with pytest.raises(TimeoutError, match=r"no answer in 0\.01 seconds"):
                await client.call("add", timeout=0.01)
            await until(lambda: line.received[-1]["method"] == "notifications/cancelled")
            call = next(m for m in line.received if m["method"] == "tools/call")
            assert line.received[-1]["params"]["requestId"] == call["id"]

    run(main())


@pytest.mark.verifies("SH-timeouts")
def test_progress_resets_the_deadline_but_not_the_cap() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        if message.get("method") == "tools/call":
            token = message["params"]["_meta"]["progressToken"]
            asyncio.get_running_loop().create_task(keep_on(line, token))

    async def keep_on(line: Line, token: Any) -> None:
        step = 0
        while not line.connection.ended.done():
            step += 1
            line.say(
                method="notifications/progress", params={"progressToken": token, "progress": step}
            )
            await asyncio.sleep(0.01)

    async def main() -> None:
        steps: list[Any] = []
        async with over(script(serve)) as client:
            with pytest.raises(TimeoutError, match="not done in time"):
                await client.call("add", timeout=0.1, max_total=0.4, on_progress=steps.append)
        assert len(steps) > 10  # more than the idle deadline alone would have allowed

    run(main())


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
def test_a_cancelled_caller_cancels_the_request(revision: str) -> None:
    started, ended = asyncio.Event(), asyncio.Event()
    server = Server("slow")

    @server.tool
    async def wait() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async def main() -> None:
        async with connected(server, revision=revision) as (client, _):
            call = asyncio.ensure_future(client.call("wait"))
            await started.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await ended.wait()

    run(main())


@pytest.mark.verifies("C3")
def test_initialize_is_never_cancelled() -> None:
    async def main() -> None:
        line = Line(lambda m, at: None)
        with pytest.raises(TimeoutError):
            async with over(line, revision="2025-06-18", timeout=0.01):
                pass
        assert [m["method"] for m in line.received] == ["initialize"]

    run(main())


# -- closing ---------------------------------------------------------------------------------


def test_closing_from_another_task_fails_what_waits_with_a_plain_exception() -> None:
    async def main() -> None:
        line = script(lambda m, at: None)
        client = over(line)
        await client.__aenter__()
        calls = [asyncio.ensure_future(client.call("add")) for _ in range(3)]
        await until(lambda: sum(m["method"] == "tools/call" for m in line.received) == 3)
        await asyncio.create_task(client.close())
        for call in calls:
            with pytest.raises(ConnectionClosed, match="the client is closed"):
                await call
        await client.close()
        with pytest.raises(ConnectionClosed):
            await client.call("add")

    run(main())


def test_clients_close_in_any_order() -> None:
    async def main() -> None:
        first, second = Client.memory(demo()), Client.memory(demo())
        await first.__aenter__()
        await second.__aenter__()
        await first.close()
        assert (await second.call("add", {"a": 1, "b": 1})).value == 2
        await second.close()

    run(main())


def test_an_unopened_client_says_so() -> None:
    async def main() -> None:
        client = Client.memory(demo())
        with pytest.raises(LocalProtocolError, match="async with"):
            await client.call("add")
        with pytest.raises(LocalProtocolError):
            _ = client.revision
        async with client:
            with pytest.raises(LocalProtocolError, match="declared when"):
                client.on_elicit(lambda q: None)

    run(main())


# -- schemas -----------------------------------------------------------------------------------


OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("structured", "fault"),
    [
        ({"n": 1}, None),
        ({"n": 1.0, "more": True}, None),
        ({"n": "one"}, "does not fit"),
        ({}, "does not fit"),
        (None, "sent none"),
    ],
)
@pytest.mark.verifies("SH-check-output")
def test_structured_results_are_checked(structured: Any, fault: str | None) -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        given = {} if structured is None else {"structuredContent": structured}
        line.result(message, {"content": [], **given})

    async def main() -> None:
        line = script(
            serve, tools=[{"name": "t", "inputSchema": {"type": "object"}, "outputSchema": OUTPUT}]
        )
        async with over(line) as client:
            if fault is None:
                assert (await client.call("t")).structured == structured
            else:
                with pytest.raises(RemoteProtocolError, match=fault):
                    await client.call("t")
        async with over(line, check_output=False) as client:
            assert (await client.call("t")).structured == structured

    run(main())


@pytest.mark.verifies("X27")
def test_trace_context_goes_along() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    async def main() -> None:
        tracer = TracerProvider().get_tracer("test")
        with tracer.start_as_current_span("outer") as span:
            async with connected(demo()) as (client, recorder):
                await client.call("add", {"a": 1, "b": 2})
        meta = sent(recorder, "tools/call")[0]["params"]["_meta"]
        context = span.get_span_context()
        version, trace_id, span_id, _ = meta["traceparent"].split("-")
        assert version == "00"
        assert trace_id == trace.format_trace_id(context.trace_id)
        assert span_id == trace.format_span_id(context.span_id)

    run(main())


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_an_old_error_for_a_missing_resource_is_understood(revision: str) -> None:
    async def main() -> None:
        async with connected(demo(), revision=revision) as (client, _):
            with pytest.raises(McpError) as caught:
                await client.read("demo://nothing")
            assert caught.value.code == -32002

    run(main())


@pytest.mark.verifies("SH-old-not-found")
def test_the_old_code_is_understood_in_2026_too() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        line.error(message, -32002, "Resource not found", {"uri": "a://b"})

    async def main() -> None:
        line = script(serve, revision=MODERN, capabilities={"resources": {}})
        async with over(line) as client:
            with pytest.raises(McpError) as caught:
                await client.read("a://b")
            assert caught.value.code == -32002
            assert caught.value.data == {"uri": "a://b"}

    run(main())


def test_the_first_call_reads_the_list_once_and_again_when_it_has_changed() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        line.result(message, {"content": []})

    async def main() -> None:
        line = script(serve)
        async with over(line) as client:
            await client.call("add")
            await client.call("add")
            assert sum(m["method"] == "tools/list" for m in line.received) == 1
            line.say(method="notifications/tools/list_changed")
            await client.call("add")
            assert sum(m["method"] == "tools/list" for m in line.received) == 2

    run(main())
