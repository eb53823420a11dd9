"""Streamable HTTP: headers, streams, sessions, resumption, errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clientkit import MODERN, TEXT, TOOLS, stamped
from httpkit import Asked, Reply, answer, event, legacy, modern, refusal, site, stream

from dovetail import Client, McpError
from dovetail.client.negotiate import Verdicts
from dovetail.errors import ConnectionClosed, HttpError, RemoteProtocolError
from dovetail.transport import streamable
from dovetail.transport.http_client import MAX_AUTH_RETRIES, HttpRequest, HttpResponse
from support import run, until

DONE = {**TEXT, "resultType": "complete"}


def http(url: str, **options: Any) -> Client:
    options.setdefault("known", Verdicts())
    return Client.http(url, **options)


# -- headers -----------------------------------------------------------------------------------


@pytest.mark.verifies("C20", "C21", "C23", "C25")
def test_headers_of_2026() -> None:
    def serve(asked: Asked) -> Reply:
        if asked.message["method"] == "resources/read":
            return answer(asked, {**stamped(), "contents": []})
        return answer(asked, DONE)

    async def main() -> None:
        async with (
            site(modern(serve, capabilities={**TOOLS, "resources": {}})) as at,
            http(at.url, headers={"x-mine": "1"}) as client,
        ):
            await client.call("add")
            await client.read("file:///ä b")
        for asked in at.asked:
            assert asked.method == "POST"
            assert asked.headers["mcp-protocol-version"] == MODERN
            assert asked.headers["mcp-method"] == asked.message["method"]
            assert asked.headers["content-type"] == "application/json"
            assert {"application/json", "text/event-stream"} <= set(
                asked.headers["accept"].split(", ")
            )
            assert asked.headers["x-mine"] == "1"
            assert "mcp-session-id" not in asked.headers
        by_method = {asked.message["method"]: asked.headers for asked in at.asked}
        assert by_method["tools/call"]["mcp-name"] == "add"
        assert by_method["resources/read"]["mcp-name"] == "=?base64?ZmlsZTovLy/DpCBi?="
        assert "mcp-name" not in by_method["tools/list"]

    run(main())


MARKED = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "on": {"type": "boolean", "x-mcp-header": "On"},
        "plain": {"type": "string"},
        "deep": {"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "X"}}},
    },
}


@pytest.mark.verifies("C26")
def test_marked_arguments_are_mirrored() -> None:
    async def main() -> None:
        tools = [{"name": "t", "inputSchema": MARKED}]
        async with (
            site(modern(lambda a: answer(a, DONE), tools=tools)) as at,
            http(at.url) as client,
        ):
            given = {"region": "eu west", "count": 42, "on": True, "plain": "p"}
            await client.call("t", {**given, "deep": {"x": "ü"}})
            await client.call("t", {"region": None, "count": 0, "on": False})
            await client.call("t", {"region": "", "deep": {}})
            await client.call("t", {"region": "=?base64?eA==?="})
        calls = [a.headers for a in at.asked if a.message["method"] == "tools/call"]
        marks = [{k: v for k, v in h.items() if k.startswith("mcp-param-")} for h in calls]
        assert marks[0] == {
            "mcp-param-region": "eu west",
            "mcp-param-count": "42",
            "mcp-param-on": "true",
            "mcp-param-x": "=?base64?w7w=?=",
        }
        assert marks[1] == {"mcp-param-count": "0", "mcp-param-on": "false"}
        assert marks[2] == {"mcp-param-region": ""}
        assert marks[3]["mcp-param-region"].startswith("=?base64?")
        assert marks[3]["mcp-param-region"] != "=?base64?eA==?="

    run(main())


@pytest.mark.verifies("C27")
def test_a_tool_with_an_invalid_mark_is_left_out() -> None:
    def tool(name: str, **schema: Any) -> dict[str, Any]:
        return {"name": name, "inputSchema": {"type": "object", "properties": {"a": schema}}}

    tools = [
        tool("good", type="string", **{"x-mcp-header": "A"}),
        tool("empty", type="string", **{"x-mcp-header": ""}),
        tool("number", type="number", **{"x-mcp-header": "A"}),
        tool("blank", type="string", **{"x-mcp-header": "a b"}),
    ]

    async def main() -> None:
        async with (
            site(modern(lambda a: answer(a, DONE), tools=tools)) as at,
            http(at.url) as client,
        ):
            assert [t.name async for t in client.tools()] == ["good"]

    run(main())


@pytest.mark.verifies("SH-refresh-headers")
def test_after_a_header_mismatch_the_tools_are_listed_anew() -> None:
    calls: list[Asked] = []

    def serve(asked: Asked) -> Reply:
        calls.append(asked)
        return refusal(asked, 400, -32020) if len(calls) == 1 else answer(asked, DONE)

    async def main() -> None:
        tools = [{"name": "t", "inputSchema": MARKED}]
        async with site(modern(serve, tools=tools)) as at:
            async with http(at.url) as client:
                assert (await client.call("t", {"region": "x"})).text == "ok"
            assert at.methods().count("tools/list") == 2

    run(main())


@pytest.mark.parametrize(("revision", "named"), [("2025-03-26", False), ("2025-06-18", True)])
@pytest.mark.verifies("C22", "C23")
def test_headers_and_session_of_the_handshake(revision: str, named: bool) -> None:
    def serve(asked: Asked) -> Reply:
        return answer(asked, TEXT)

    def with_session(asked: Asked) -> Reply:
        reply = legacy(serve, revision)(asked)
        if asked.message and asked.message.get("method") == "initialize":
            reply.headers["Mcp-Session-Id"] = "s-1"
        return reply

    async def main() -> None:
        async with site(with_session) as at, http(at.url, revision=revision) as client:
            await client.call("add")
            await until(lambda: "GET" in at.methods())
        first, *others = at.asked
        assert first.message["method"] == "initialize"
        assert "mcp-session-id" not in first.headers
        assert "mcp-protocol-version" not in first.headers
        for asked in others:
            assert asked.headers["mcp-session-id"] == "s-1"
            assert asked.headers.get("mcp-protocol-version") == (revision if named else None)
        assert at.asked[-1].method == "DELETE"
        get = next(a for a in at.asked if a.method == "GET")
        assert get.headers["accept"] == "text/event-stream"

    run(main())


@pytest.mark.verifies("C22")
def test_a_lost_session_is_begun_again() -> None:
    sessions = ["one", "two"]
    alive = ["one"]

    def serve(asked: Asked) -> Reply:
        if asked.message and asked.message.get("method") == "initialize":
            reply = legacy(lambda a: answer(a, TEXT))(asked)
            reply.headers["mcp-session-id"] = sessions.pop(0)
            return reply
        if asked.headers.get("mcp-session-id") not in alive:
            return Reply(404, b"no such session", "text/plain")
        return legacy(lambda a: answer(a, TEXT))(asked)

    async def main() -> None:
        async with site(serve) as at, http(at.url, revision="2025-11-25") as client:
            await client.call("add")
            alive[:] = ["two"]
            assert (await client.call("add")).text == "ok"
            again = [a for a in at.asked if (a.message or {}).get("method") == "initialize"]
            assert len(again) == 2
            assert "mcp-session-id" not in again[1].headers
        sessions[:], alive[:] = ["one"], ["one"]
        async with (
            site(serve) as at,
            http(at.url, revision="2025-11-25", reconnect=False) as client,
        ):
            alive.clear()
            with pytest.raises(HttpError, match="404"):
                await client.call("add")

    run(main())


# -- streams -----------------------------------------------------------------------------------


def said(asked: Asked, result: Any = DONE) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked.message["id"], "result": result}


@pytest.mark.verifies("C21")
def test_notifications_come_before_the_answer() -> None:
    def serve(asked: Asked) -> Reply:
        token = asked.message["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": 1}
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        return stream(b": keep-alive\n\n", event(note), event(said(asked)))

    async def main() -> None:
        seen: list[Any] = []
        async with site(modern(serve)) as at:
            async with http(at.url) as client:
                assert (await client.call("add", on_progress=seen.append)).text == "ok"
                assert (await client.call("add", on_progress=seen.append)).text == "ok"
            assert len(seen) == 2
            assert at.connections == 1  # a stream read to its end leaves the connection usable

    run(main())


def test_a_server_of_the_handshake_asks_on_the_stream() -> None:
    answers: list[Any] = []

    def serve(asked: Asked) -> Reply:
        if "method" not in asked.message:
            answers.append(asked.message)
            return Reply(202, kind=None)
        question = {"jsonrpc": "2.0", "id": "q", "method": "roots/list"}
        return stream(event(question), event(said(asked, TEXT)))

    async def main() -> None:
        async with (
            site(legacy(serve)) as at,
            http(at.url, revision="2025-11-25", roots=["/tmp"]) as client,
        ):
            await client.call("add")
            await until(lambda: answers)
        assert answers[0]["result"] == {"roots": [{"uri": "file:///tmp"}]}

    run(main())


@pytest.mark.verifies("C24")
def test_a_broken_stream_is_resumed_after_the_time_the_server_names() -> None:
    calls: list[Asked] = []

    def serve(asked: Asked) -> Reply:
        if asked.method == "GET" and "last-event-id" in asked.headers:
            assert asked.headers["last-event-id"] == "e-1"
            assert asked.headers["mcp-protocol-version"] == "2025-11-25"
            return stream(event(said(calls[0], TEXT), id="e-2"))
        reply = legacy(lambda a: stream(event(None, id="e-1", retry=120)))(asked)
        if asked.message and asked.message.get("method") == "tools/call":
            calls.append(asked)
        return reply

    async def main() -> None:
        async with site(serve) as at, http(at.url, revision="2025-11-25") as client:
            assert (await client.call("add")).text == "ok"
        get = next(a for a in at.asked if "last-event-id" in a.headers)
        assert get.at - calls[0].at >= 0.12

    run(main())


def test_a_stream_that_never_gets_on_is_given_up() -> None:
    def serve(asked: Asked) -> Reply:
        if asked.method == "GET" and "last-event-id" in asked.headers:
            return stream()
        return legacy(lambda a: stream(event(None, id="e-1", retry=0)))(asked)

    async def main() -> None:
        async with site(serve) as at, http(at.url, revision="2025-11-25") as client:
            with pytest.raises(ConnectionClosed, match="ended before the answer"):
                await client.call("add")
        resumed = sum("last-event-id" in a.headers for a in at.asked)
        assert resumed == streamable.MAX_RESUMES

    run(main())


def test_events_of_the_standing_stream() -> None:
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

    def serve(asked: Asked) -> Reply:
        if asked.method == "GET":
            return stream(event(changed, id="1"), hold=asyncio.Event())
        return legacy(lambda a: answer(a, TEXT))(asked)

    async def main() -> None:
        async with site(serve) as at:
            client = http(at.url, revision="2025-11-25")
            async with client, client.listen(tools=True) as events:
                assert (await asyncio.wait_for(anext(events), 5)).kind == "tools"

    run(main())


@pytest.mark.verifies("C14", "C15")
def test_in_2026_cancelling_is_closing_the_stream() -> None:
    async def main() -> None:
        async with (
            site(modern(lambda a: stream(hold=asyncio.Event()))) as at,
            http(at.url) as client,
        ):
            with pytest.raises(TimeoutError):
                await client.call("add", timeout=0.05)
            await asyncio.wait_for(at.gone.wait(), 5)
        assert "notifications/cancelled" not in at.methods()

    run(main())


def test_in_the_handshake_cancelling_is_a_message() -> None:
    def serve(asked: Asked) -> Reply:
        if asked.message["method"] == "notifications/cancelled":
            return Reply(202, kind=None)
        return stream(hold=asyncio.Event())

    async def main() -> None:
        async with site(legacy(serve)) as at, http(at.url, revision="2025-11-25") as client:
            with pytest.raises(TimeoutError):
                await client.call("add", timeout=0.05)
            await until(lambda: "notifications/cancelled" in at.methods())

    run(main())


@pytest.mark.verifies("C15")
def test_a_lost_request_that_changes_nothing_is_sent_anew_under_a_new_id() -> None:
    lists: list[Asked] = []

    def serve(asked: Asked) -> Reply:
        lists.append(asked)
        if len(lists) == 1:
            return stream(b": hello\n\n", cut=True)
        return answer(asked, {**stamped(), "resources": []})

    async def main() -> None:
        async with (
            site(modern(serve, capabilities={**TOOLS, "resources": {}})) as at,
            http(at.url) as client,
        ):
            assert await client.resources.all() == []
            lists.clear()
            with pytest.raises(ConnectionClosed):  # a tool may not be called twice
                await client.call("add")
            assert len(lists) == 1
        ids = [a.message["id"] for a in at.asked]
        assert len(set(ids)) == len(ids)

    run(main())


# -- what servers answer instead ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        (Reply(500, b"<h1>Oops</h1>", "text/html"), HttpError, "HTTP 500: <h1>Oops</h1>"),
        (Reply(503, b"", None), HttpError, "HTTP 503"),
        (Reply(401, b"who?", "text/plain"), HttpError, "HTTP 401"),
        (Reply(200, b"<html>", "text/html"), RemoteProtocolError, "text/html"),
        (Reply(200, b"", None), RemoteProtocolError, "no answer"),
        (Reply(202, b"", None), RemoteProtocolError, "no answer"),
        (Reply(200, b"not json"), RemoteProtocolError, "another message"),
        (Reply(200, b""), RemoteProtocolError, "another message"),
        (Reply(200, b"[]"), RemoteProtocolError, "another message"),
        (Reply(200, b'{"jsonrpc":"2.0","id":99,"result":{}}'), RemoteProtocolError, "another"),
        (Reply(200, b"{" * 5000), RemoteProtocolError, "another"),
        (stream(), ConnectionClosed, "ended before the answer"),
        (stream(b"data: nonsense\n\n"), ConnectionClosed, "ended before the answer"),
        (stream(b"event: other\ndata: {}\n\n"), ConnectionClosed, "ended before"),
        (stream(b"data: {", cut=True), ConnectionClosed, "broke off"),
        (
            Reply(307, b"", None, {"location": "https://evil.example/"}),
            RemoteProtocolError,
            "origin",
        ),
        (Reply(302, b"", None, {"location": "/other"}), RemoteProtocolError, "loses it"),
        (Reply(307, b"", None), RemoteProtocolError, "nowhere"),
        (Reply(307, b"", None, {"location": "/mcp"}), RemoteProtocolError, "redirects"),
    ],
)
def test_one_clear_exception(reply: Reply, error: type[Exception], text: str) -> None:
    async def main() -> None:
        good = [False]

        def serve(asked: Asked) -> Reply:
            return answer(asked, DONE) if good[0] else reply

        async with site(modern(serve)) as at, http(at.url, timeout=5, reconnect=False) as client:
            with pytest.raises(error, match=text):
                await client.call("add")
            good[0] = True  # and the next call is none the worse for it
            assert (await client.call("add")).text == "ok"

    run(main())


def test_errors_in_bodies_of_any_status() -> None:
    def serve(asked: Asked) -> Reply:
        status = asked.message["params"]["arguments"]["status"]
        return refusal(asked, status, -32602, {"uri": "x"})

    async def main() -> None:
        async with site(modern(serve)) as at, http(at.url) as client:
            for status in (200, 400, 404, 500):
                with pytest.raises(McpError) as caught:
                    await client.call("add", {"status": status})
                assert (caught.value.code, caught.value.data) == (-32602, {"uri": "x"})

    run(main())


def test_a_redirect_within_the_origin_is_followed() -> None:
    def serve(asked: Asked) -> Reply:
        if asked.target == "/mcp":
            return Reply(308, b"", None, {"location": "/moved"})
        return modern(lambda a: answer(a, DONE))(asked)

    async def main() -> None:
        async with site(serve) as at, http(at.url) as client:
            assert (await client.call("add")).text == "ok"

    run(main())


def test_an_answer_that_is_too_long_is_refused_while_it_comes() -> None:
    from dovetail import Limits

    def serve(asked: Asked) -> Reply:
        if asked.message["params"]["arguments"]["how"] == "stream":
            return stream(*[b"data: " + b"x" * 60_000] * 100)
        return Reply(parts=[b"x" * 60_000] * 100)

    async def main() -> None:
        async with (
            site(modern(serve)) as at,
            http(at.url, limits=Limits(max_frame=1_000_000)) as client,
        ):
            for how in ("stream", "json"):
                with pytest.raises(RemoteProtocolError, match="longer than 1000000 bytes"):
                    await client.call("add", {"how": how})

    run(main())


def test_a_stream_cut_at_every_byte_ends_in_the_answer_or_one_exception() -> None:
    whole = b"id: 1\r\nevent: message\r\ndata: "

    async def main() -> None:
        position = [0]
        sizes: list[int] = []

        def serve(asked: Asked) -> Reply:
            full = whole + event(said(asked))[6:] + b": bye\n\n"
            sizes.append(len(full))
            return stream(full[: position[0]], full[position[0] : 0], cut=True)

        ends = {"answer": 0, "exception": 0}
        async with site(modern(serve)) as at, http(at.url, timeout=5, reconnect=False) as client:
            while position[0] <= (sizes[0] if sizes else 1):
                try:
                    assert (await client.call("add")).text == "ok"
                    ends["answer"] += 1
                except ConnectionClosed:
                    ends["exception"] += 1
                position[0] += 1
        assert ends["exception"] > 50
        assert ends["answer"] > 4  # once the blank line is there

    run(main())


def test_a_stream_split_at_every_byte_is_the_same_stream() -> None:
    async def main() -> None:
        position = [1]

        def serve(asked: Asked) -> Reply:
            full = b"\xef\xbb\xbf: x\r\n\r\n" + event(said(asked)).replace(b"\n", b"\r\n")
            return stream(full[: position[0]], full[position[0] :])

        async with site(modern(serve)) as at, http(at.url, timeout=5) as client:
            for position[0] in range(1, 120):
                assert (await client.call("add")).text == "ok"

    run(main())


# -- credentials ---------------------------------------------------------------------------------


def test_a_bearer_token_is_in_the_header() -> None:
    async def main() -> None:
        async with (
            site(modern(lambda a: answer(a, DONE))) as at,
            http(at.url, auth="secret") as client,
        ):
            await client.call("add")
        assert {a.headers["authorization"] for a in at.asked} == {"Bearer secret"}
        assert all("secret" not in a.target for a in at.asked)

    run(main())


class Hook:
    def __init__(self, willing: int) -> None:
        self.tokens = 0
        self.challenges: list[int] = []
        self._willing = willing

    async def authorize(self, request: HttpRequest) -> None:
        request.headers["authorization"] = f"Bearer {self.tokens}"

    async def challenged(self, request: HttpRequest, response: HttpResponse) -> bool:
        self.challenges.append(response.status)
        self.tokens += 1
        return len(self.challenges) <= self._willing


def test_the_hook_is_asked_for_new_credentials_within_bounds() -> None:
    def serve(asked: Asked) -> Reply:
        if asked.headers["authorization"] != "Bearer 2":
            return Reply(401, b"", None, {"www-authenticate": "Bearer"})
        return modern(lambda a: answer(a, DONE))(asked)

    async def main() -> None:
        async with site(serve) as at:
            hook = Hook(willing=9)
            async with http(at.url, auth=hook) as client:
                assert (await client.call("add")).text == "ok"
            assert hook.challenges == [401, 401]
        async with site(lambda a: Reply(403, b"", None)) as at:
            hook = Hook(willing=99)
            with pytest.raises(HttpError, match="403"):
                async with http(at.url, auth=hook):
                    pass
            assert 1 < len(hook.challenges) <= MAX_AUTH_RETRIES

    run(main())


def test_nobody_there() -> None:
    async def main() -> None:
        with pytest.raises(ConnectionClosed, match=r"no answer from http://127\.0\.0\.1:1"):
            async with http("http://127.0.0.1:1/mcp"):
                pass
        for url in ("http://", "http://[", "nonsense"):
            with pytest.raises((ConnectionClosed, ValueError)):
                async with http(url):
                    pass

    run(main())


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with site(modern(lambda a: answer(a, DONE))) as at:
            monkeypatch.setenv("http_proxy", at.url.removesuffix("/mcp"))
            monkeypatch.setenv("no_proxy", "")
            async with http("http://mcp.invalid/far") as client:
                assert (await client.call("add")).text == "ok"
        assert {a.target for a in at.asked} == {"http://mcp.invalid/far"}

    run(main())
