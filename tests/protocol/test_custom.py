"""What MCP does not know: methods and notifications of one's own, extensions, `_meta`, traces."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dovetail import Context, McpError, Server, Session, ToolError
from dovetail.spec.meta import SERVER_INFO_KEY
from dovetail.testing import TestClient, connect, envelope
from support import no_crash, run

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
handshake_only = pytest.mark.parametrize("revision", REVISIONS[:4])
STAMP = {"resultType": "complete", "_meta": {SERVER_INFO_KEY: {"name": "own", "version": "1"}}}


class Selection(msgspec.Struct, rename="camel"):
    file_path: str
    lines: list[int] = []


def stamped(result: dict[str, Any], revision: str) -> dict[str, Any]:
    return {**result, **STAMP} if revision == E else result


def make() -> Server:
    server = Server("own", version="1")

    @server.method("editor/open")
    async def open_file(path: str, line: int = 1) -> dict[str, Any]:
        return {"path": path, "line": line}

    @server.method("editor/selection")
    def selection(selection: Selection) -> Selection:
        return Selection(selection.file_path.upper(), selection.lines)

    @server.method("editor/save")
    async def save() -> None: ...

    return server


# -- methods -------------------------------------------------------------------------------------


@every_revision
def test_a_method_of_ones_own(revision: str) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            opened = await client.request("editor/open", {"path": "a.py", "line": 3})
            assert opened == stamped({"path": "a.py", "line": 3}, revision)
            given = {"selection": {"filePath": "a.py", "lines": [1, 2]}}
            read = await client.request("editor/selection", given)
            assert read == stamped({"filePath": "A.PY", "lines": [1, 2]}, revision)
            for params in (None, {}, {"_meta": {"example.org/x": 1}}):
                assert await client.request("editor/save", params) == stamped({}, revision)

    run(main())


@every_revision
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "Missing required argument 'path'"),
        ({"path": 7}, "path"),
        ({"path": "a", "other": 1}, "other"),
    ],
)
def test_params_that_do_not_fit(revision: str, params: dict[str, Any], text: str) -> None:
    async def main() -> None:
        with no_crash():
            async with connect(make(), revision) as client:
                error = (await client.answer("editor/open", params))["error"]
                assert error["code"] == -32602
                assert text in error["data"]
                assert await client.request("editor/open", {"path": "b"})

    run(main())


@handshake_only
@pytest.mark.parametrize(
    "params", [b"[]", b"7", b"null", b'{"path":"\\ud800"}', b'{"path":"\xff"}']
)
def test_params_that_are_none(revision: str, params: bytes) -> None:
    async def main() -> None:
        with no_crash():
            async with connect(make(), revision) as client:
                head = b'{"jsonrpc":"2.0","id":"bad","method":"editor/open","params":'
                client.send(head + params + b"}")
                error = (await client.receive())["error"]
                assert error["code"] in (-32602, -32600, -32700)
                assert await client.request("editor/open", {"path": "b"})

    run(main())


def test_a_method_keeps_the_meta_it_returns() -> None:
    server = Server("own", version="1")

    @server.method("own/tagged")
    def tagged() -> dict[str, Any]:
        return {"x": 1, "_meta": {"example.org/k": 2}}

    async def main() -> None:
        async with connect(server, D) as client:
            result = await client.request("own/tagged")
            assert result == {"x": 1, "_meta": {"example.org/k": 2}}
        async with connect(server, E) as client:
            result = await client.request("own/tagged")
            assert result["_meta"] == {**STAMP["_meta"], "example.org/k": 2}  # type: ignore[dict-item]
            assert result["resultType"] == "complete"

    run(main())


@every_revision
def test_methods_that_fail(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    server = make()

    @server.method("own/error")
    def error() -> None:
        raise McpError(4001, "Out of order", {"until": "Monday"})

    @server.method("own/refuse")
    def refuse() -> None:
        raise ToolError("not today")

    @server.method("own/require")
    def require(ctx: Context) -> None:
        ctx.require("sampling")

    @server.method("own/crash")
    async def crash() -> None:
        raise RuntimeError("a secret")

    @server.method("own/number")
    def number() -> Any:
        return 7

    async def main() -> None:
        async with connect(server, revision) as client:

            async def failure(method: str) -> Any:
                return (await client.answer(method))["error"]

            with no_crash():
                said = {"code": 4001, "message": "Out of order", "data": {"until": "Monday"}}
                assert await failure("own/error") == said
                refused = await failure("own/refuse")
                assert (refused["code"], refused["data"]) == (-32603, "not today")
                assert (await failure("own/require"))["code"] == (
                    -32021 if revision == E else -32603
                )
            for method in ("own/crash", "own/number"):
                assert await failure(method) == {"code": -32603, "message": "Internal error"}
            assert await client.request("editor/save") == stamped({}, revision)

    run(main())
    texts = [str(record.exc_info and record.exc_info[1]) for record in caplog.records]
    assert texts == ["a secret", "own/number must return an object, not int"]


@every_revision
def test_a_method_has_a_context(revision: str) -> None:
    server = Server("own", version="1")

    @server.method("own/look")
    async def look(ctx: Context, session: Session) -> dict[str, Any]:
        ctx.progress(1, 2)
        assert ctx.session is session
        return {"method": ctx.method, "revision": ctx.revision, "mine": ctx.meta["example.org/x"]}

    async def main() -> None:
        async with connect(server, revision) as client:
            meta = {"progressToken": "t", "example.org/x": [1]}
            result = await client.request("own/look", {"_meta": meta})
            assert result == stamped(
                {"method": "own/look", "revision": revision, "mine": [1]}, revision
            )
            (progress,) = await client.settle()
            assert progress["params"] == {"progressToken": "t", "progress": 1, "total": 2}

    run(main())


def test_a_method_can_be_cancelled() -> None:
    server = make()
    stopped: list[str] = []

    @server.method("own/wait")
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append("wait")
            raise

    async def main() -> None:
        async with connect(server, D) as client:
            id, future = client.start("own/wait")
            await asyncio.sleep(0)
            client.notify("notifications/cancelled", {"requestId": id})
            await client.settle()
            assert (stopped, future.done()) == (["wait"], False)

    run(main())


@pytest.mark.parametrize(
    "name", ["tools/call", "ping", "initialize", "server/discover", "tasks/get", "tasks/list"]
)
def test_a_name_of_the_protocol_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"method '{name}' is already there"):
        make().method(name)(lambda: None)


def test_a_name_of_the_tasks_extension_is_refused() -> None:
    """It would be overwritten silently by the first tool that can be a task."""
    with pytest.raises(ValueError, match="is already there"):
        make().method("tasks/update")(lambda: None)


def test_a_name_can_be_used_once() -> None:
    server = make()
    with pytest.raises(ValueError, match="method 'editor/open' is already there"):
        server.method("editor/open")(lambda: None)
    server.notification("own/x")(lambda: None)
    with pytest.raises(ValueError, match="notification 'own/x' is already handled"):
        server.notification("own/x")(lambda: None)


@every_revision
def test_an_unknown_method_is_still_unknown(revision: str) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            assert (await client.answer("editor/close"))["error"]["code"] == -32601

    run(main())


# -- notifications from the client ---------------------------------------------------------------


@handshake_only
def test_notifications_of_ones_own(revision: str) -> None:
    server = make()
    heard: list[Any] = []
    threads: list[int] = []

    @server.notification("selection_changed")
    async def changed(path: str, session: Session, lines: list[int] | None = None) -> None:
        heard.append((path, lines, session))

    done = asyncio.Event()
    loop: asyncio.AbstractEventLoop

    @server.notification("saved")
    def saved() -> None:
        threads.append(threading.get_ident())
        loop.call_soon_threadsafe(done.set)

    async def main() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        with no_crash():
            async with connect(server, revision) as client:
                client.notify("selection_changed", {"path": "a.py", "lines": [1]})
                client.notify("selection_changed", {"path": "b.py", "_meta": {"example.org/x": 1}})
                client.notify("saved")
                client.notify("nobody_knows", {"this": "one"})
                await done.wait()
                await client.settle()
                session = client.connection.session
                assert heard == [("a.py", [1], session), ("b.py", None, session)]
                assert threads
                assert threads[0] != threading.get_ident(), "a sync function may block"
                assert await client.settle() == [], "a notification is never answered"

    run(main())


def test_a_client_of_2026_sends_a_notification() -> None:
    """2026-07-28 has no phases, so nothing has to happen before it."""
    server = make()
    heard: list[str] = []

    @server.notification("selection_changed")
    async def changed(path: str) -> None:
        heard.append(path)

    async def main() -> None:
        async with connect(server, E) as client:
            await client.request("editor/save")
            client.notify("selection_changed", {"path": "a.py"})
            await client.settle()
            assert heard == ["a.py"]

    run(main())


@pytest.mark.verifies("X10")
@handshake_only
def test_notifications_that_cannot_be_read_or_crash(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = make()

    @server.notification("own/number")
    async def number(n: int) -> None:
        raise RuntimeError(f"crash {n}")

    async def main() -> None:
        async with connect(server, revision) as client:
            for params in (b'{"n":"x"}', b"{}", b"[1]", b"7", b"null", b'"x"', b'{"n":"\xff"}'):
                client.send(b'{"jsonrpc":"2.0","method":"own/number","params":' + params + b"}")
            client.notify("own/number", {"n": 5})
            await asyncio.sleep(0.01)
            answers = [m for m in await client.settle() if "error" not in m]
            assert answers == []
            assert await client.request("editor/save") == stamped({}, revision)

    run(main())
    crashes = [record for record in caplog.records if record.exc_info]
    assert [str(record.exc_info[1]) for record in crashes if record.exc_info] == ["crash 5"]
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert all(record.getMessage().startswith("own/number ignored: ") for record in warned)
    assert len(warned) >= 2


# -- notifications to the client -----------------------------------------------------------------


@handshake_only
def test_the_server_notifies_one_client_or_all(revision: str) -> None:
    server = make()

    @server.tool
    async def poke(ctx: Context) -> None:
        ctx.session.notify("poked", {"by": "tool"})

    @server.tool
    def poke_from_a_thread(ctx: Context) -> None:
        ctx.session.notify("poked", {"by": "thread"})

    async def main() -> None:
        async with (
            connect(server, revision) as one,
            connect(server, revision) as two,
            connect(server, revision, handshake=False) as early,
        ):
            await one.call("poke")
            await two.call("poke_from_a_thread")
            server.notify("news", {"n": 1})
            server.notify("more_news")
            all_of_them = [await client.settle() for client in (one, two, early)]
            news = [
                {"jsonrpc": "2.0", "method": "news", "params": {"n": 1}},
                {"jsonrpc": "2.0", "method": "more_news"},
            ]
            assert all_of_them == [
                [{"jsonrpc": "2.0", "method": "poked", "params": {"by": "tool"}}, *news],
                [{"jsonrpc": "2.0", "method": "poked", "params": {"by": "thread"}}, *news],
                [],  # nothing before the handshake
            ]
        server.notify("to nobody")

    run(main())


def test_a_client_of_2026_is_told_nothing_outside_a_request() -> None:
    server = make()

    async def main() -> None:
        async with connect(server, E) as client:
            await client.request("editor/save")
            server.notify("news")
            assert await client.settle() == []

    run(main())


# -- what is declared ----------------------------------------------------------------------------


async def declared(client: TestClient) -> dict[str, Any]:
    if client.revision == E:
        told = await client.request("server/discover")
    else:
        told = await client.initialize()
    capabilities: dict[str, Any] = told["capabilities"]
    return capabilities


@every_revision
@pytest.mark.verifies("X35")
def test_extensions_and_experiments_are_declared_where_the_revision_has_them(
    revision: str,
) -> None:
    server = Server(
        "own",
        version="1",
        extensions={"com.example/a": {"x": 1}},
        experimental={"lamp": {"bright": True}},
    )
    server.extend("com.example/b")
    server.extend("com.example/c", {"y": [2]})

    async def main() -> None:
        async with connect(server, revision, handshake=False) as client:
            told = await declared(client)
            assert told["experimental"] == {"lamp": {"bright": True}}
            assert told.get("extensions") == (
                {"com.example/a": {"x": 1}, "com.example/b": {}, "com.example/c": {"y": [2]}}
                if revision == E
                else None
            )

    run(main())


@pytest.mark.verifies("X34")
@pytest.mark.parametrize("name", ["", "name", "/name", "com.example/", "/", "//"])
def test_an_extension_needs_a_prefix(name: str) -> None:
    with pytest.raises(ValueError, match="needs a prefix"):
        Server("own").extend(name)


def test_an_extension_given_at_once_needs_a_prefix_too() -> None:
    with pytest.raises(ValueError, match="needs a prefix"):
        Server("own", extensions={"name": {}})


@pytest.mark.parametrize(
    "name", ["a b/c", "1com.example/x", "com.example-/x", "com.example/x-", "é/x"]
)
def test_an_extension_keeps_the_grammar_of_keys(name: str) -> None:
    with pytest.raises(ValueError, match="extension"):
        Server("own").extend(name)


@every_revision
@pytest.mark.verifies("X35")
def test_what_the_client_declared_can_be_seen(revision: str) -> None:
    server = Server("own", version="1")

    @server.tool
    def look(ctx: Context) -> str:
        extensions = ctx.capabilities.extensions or {}
        experimental = ctx.capabilities.experimental or {}
        return f"{extensions.get('com.example/a')} {experimental.get('lamp')}"

    async def main() -> None:
        given: dict[str, Any] = {"experimental": {"lamp": {"on": True}}}
        if revision == E:
            given["extensions"] = {"com.example/a": {"x": 1}}
        async with connect(server, revision, capabilities=given) as client:
            text = (await client.call("look"))["content"][0]["text"]
            extension = "{'x': 1}" if revision == E else "None"
            assert text == extension + " {'on': True}"

    run(main())


# -- _meta and traces ----------------------------------------------------------------------------

TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=value",
    "baggage": "user=ann",
}


@every_revision
@pytest.mark.verifies("X26")
def test_meta_is_passed_on_with_all_its_keys(revision: str) -> None:
    server = Server("own", version="1")
    seen: list[dict[str, Any]] = []

    @server.tool
    def look(ctx: Context) -> None:
        seen.append(ctx.meta)

    @server.resource("own://x")
    def read(ctx: Context) -> str:
        seen.append(ctx.meta)
        return ""

    @server.prompt
    def say(ctx: Context) -> str:
        seen.append(ctx.meta)
        return ""

    mine = {
        **TRACE,
        "progressToken": 1,
        "example.org/any": {"deep": [None, 1.5, "x"]},
        "unprefixed": True,
        "io.modelcontextprotocol/unheard-of": 7,
    }

    async def main() -> None:
        async with connect(server, revision) as client:
            await client.request("tools/call", {"name": "look", "_meta": mine})
            await client.request("resources/read", {"uri": "own://x", "_meta": mine})
            await client.request("prompts/get", {"name": "say", "_meta": mine})

    run(main())
    wanted = {**envelope(), **mine} if revision == E else mine
    assert seen == [wanted] * 3


def unload_otel() -> None:
    """As if it had never been loaded, by us or by a library that looks whether it is there."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        del sys.modules[name]


@pytest.fixture
def otel() -> Iterator[Any]:
    """The real SDK, with spans kept in memory; afterwards as if it had never been loaded."""
    unload_otel()
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()
    unload_otel()


def traced() -> Server:
    server = make()

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def inner() -> str:
        from opentelemetry import trace

        with trace.get_tracer("mine").start_as_current_span("inside"):
            return "x"

    @server.tool
    async def inner_async() -> str:
        return inner()

    @server.tool
    async def refuse() -> str:
        raise McpError(4001, "Out of order")

    return server


@every_revision
def test_a_span_for_each_request(revision: str, otel: Any) -> None:
    async def main() -> None:
        async with connect(traced(), revision) as client:
            await client.call("add", {"a": 1, "b": 2})
            await client.request("tools/list")
            await client.request("editor/save")
            await client.answer("tools/call", {"name": "refuse"})

    run(main())
    spans = otel.get_finished_spans()
    names = ["tools/call add", "tools/list", "editor/save", "tools/call refuse"]
    assert [span.name for span in spans] == names
    first, *_, last = spans
    assert first.kind.name == "SERVER"
    assert first.parent is None
    assert first.attributes["mcp.method.name"] == "tools/call"
    assert first.attributes["mcp.protocol.version"] == revision
    assert first.attributes["rpc.system"] == "jsonrpc"
    assert first.status.status_code.name == "UNSET"
    assert last.status.status_code.name == "ERROR"
    assert "Out of order" in last.status.description


@every_revision
@pytest.mark.parametrize("name", ["inner", "inner_async"])
def test_a_span_is_a_child_of_the_clients_and_a_parent_of_the_tools(
    revision: str, name: str, otel: Any
) -> None:
    async def main() -> None:
        async with connect(traced(), revision) as client:
            await client.request("tools/call", {"name": name, "_meta": TRACE})

    run(main())
    inside, around = otel.get_finished_spans()
    assert (inside.name, around.name) == ("inside", f"tools/call {name}")
    assert format(around.context.trace_id, "032x") == "0af7651916cd43dd8448eb211c80319c"
    assert format(around.parent.span_id, "016x") == "b7ad6b7169203331"
    assert around.context.trace_state.get("vendor") == "value"
    assert inside.context.trace_id == around.context.trace_id
    assert inside.parent.span_id == around.context.span_id


@pytest.mark.parametrize("bad", ["", "nonsense", "00-0-0-00", "ff-" + "0" * 32, 7, None, {"a": 1}])
def test_a_trace_that_makes_no_sense_starts_a_new_one(bad: Any, otel: Any) -> None:
    async def main() -> None:
        with no_crash():
            async with connect(traced(), D) as client:
                meta = {"traceparent": bad, "tracestate": bad, "baggage": bad}
                call = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}
                frame = {"jsonrpc": "2.0", "id": "t", "method": "tools/call", "params": call}
                client.send(msgspec.json.encode(frame))
                assert (await client.receive())["result"]["isError"] is False

    run(main())
    (span,) = otel.get_finished_spans()
    assert span.parent is None


@pytest.mark.parametrize("is_loaded", [False, True])
def test_without_opentelemetry_nothing_is_folded_around_a_handler(is_loaded: bool) -> None:
    """No cost: the tables hold the very handlers, and no module was looked for.

    Redis' library loads it wherever it is installed; that is nobody's wish for traces.
    """
    unload_otel()
    if is_loaded:
        importlib.import_module("opentelemetry.trace")

    async def main() -> None:
        server = traced()
        async with connect(server, D):
            call = server._dispatch._call_tool
            tables = server._dispatch.tables.values()
            assert all(table["tools/call"].call == call for table in tables)
            assert all(table["tools/list"].inline for table in tables)

    run(main())
    if not is_loaded:
        assert not any(name.partition(".")[0] == "opentelemetry" for name in sys.modules)
    unload_otel()
