"""2026-07-28 over HTTP: one POST, one request, one answer."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from http_lab import BOTH, D, E, Lab, lab, result, text
from msgspec import Meta, Struct

from dovetail import Context, Elicit, RateLimit, Server, Session, ToolError
from dovetail.spec.headers import encode_value
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from dovetail.testing.schema import check_message
from dovetail.transport.http.limits import HttpLimits
from support import run, until


class Name(Struct):
    name: str


def make() -> Server:
    server = Server("modern", version="1.0.0")
    server.log_of_calls = []  # type: ignore[attr-defined]

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def steps(n: int, ctx: Context) -> str:
        for i in range(n):
            ctx.progress(i + 1, n)
            await asyncio.sleep(0)
        return "done"

    @server.tool
    async def hang(ctx: Context) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            server.log_of_calls.append("hang ended")  # type: ignore[attr-defined]
        return "never"

    @server.tool
    async def region(
        where: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})] = "",
        count: Annotated[int | None, Meta()] = None,
    ) -> str:
        return where

    @server.tool
    async def fail() -> str:
        raise ToolError("no")

    @server.tool
    async def needs_sampling(ctx: Context) -> str:
        ctx.require("sampling")
        return "ok"

    @server.resource("test://text")
    def read() -> str:
        return "hello"

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    return server


def test_a_call_is_answered_by_json() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            answer = await http.modern(
                "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}
            ).whole()
            assert answer.status == 200
            assert answer.headers["content-type"] == "application/json"
            assert "mcp-session-id" not in answer.headers
            assert result(answer)["structuredContent"] == 3
            check_message(answer.json, E, "server", "tools/call")

    run(main())


def test_what_is_said_before_the_answer_makes_it_a_stream() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            answer = http.modern(
                "tools/call", {"name": "steps", "arguments": {"n": 3}}, meta={"progressToken": "t"}
            )
            await answer.whole()
            assert answer.status == 200
            assert answer.headers["content-type"] == "text/event-stream"
            assert answer.headers["x-accel-buffering"] == "no"
            *reports, last = answer.messages
            assert [m["params"]["progress"] for m in reports] == [1, 2, 3]
            assert {m["params"]["progressToken"] for m in reports} == {"t"}
            assert last["result"]["content"][0]["text"] == "done"
            assert not any(event.id for event in answer.events)  # no resumption any more

    run(main())


@pytest.mark.verifies("SH-no-sessions")
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"])
def test_only_post(method: str) -> None:
    async def main() -> None:
        async with lab(make()) as http:
            answer = await http.send(method, {"mcp-protocol-version": E, "accept": BOTH}).whole()
            assert answer.status == 405
            assert "POST" in answer.headers["allow"]

    run(main())


@pytest.mark.verifies("SH-no-sessions")
def test_session_headers_mean_nothing() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            headers: Any = {"mcp-session-id": "nonsense", "last-event-id": "p1-1"}
            answer = await http.modern("tools/list", headers=headers).whole()
            assert answer.status == 200
            assert "mcp-session-id" not in answer.headers

    run(main())


# Every row: what is changed, the status and the code (digest 8.6, 9, 10.4).
META_V = {PROTOCOL_VERSION_KEY: "v999.0.0"}
REFUSED: dict[str, tuple[dict[str, Any], int, int]] = {
    "version header missing": ({"headers": {"mcp-protocol-version": None}}, 400, -32020),
    "version header differs": ({"headers": {"mcp-protocol-version": D}}, 400, -32020),
    "version of the body differs": ({"meta": META_V}, 400, -32020),
    "unknown version in both": (
        {"headers": {"mcp-protocol-version": "v999.0.0"}, "meta": META_V},
        400,
        -32022,
    ),
    "older version in both": (
        {"headers": {"mcp-protocol-version": D}, "meta": {PROTOCOL_VERSION_KEY: D}},
        400,
        -32022,
    ),
    "method header missing": ({"headers": {"mcp-method": None}}, 400, -32020),
    "method header differs": ({"headers": {"mcp-method": "tools/list"}}, 400, -32020),
    "method header in capitals": ({"headers": {"mcp-method": "TOOLS/CALL"}}, 400, -32020),
    "name header missing": ({"headers": {"mcp-name": None}}, 400, -32020),
    "name header differs": ({"headers": {"mcp-name": "sub"}}, 400, -32020),
    "name header in bad base64": ({"headers": {"mcp-name": "=?base64?YWRk!?="}}, 400, -32020),
    "capabilities missing": ({"meta": {CLIENT_CAPABILITIES_KEY: None}}, 400, -32602),
    "log level unknown": (
        {"meta": {"io.modelcontextprotocol/logLevel": "loud"}},
        400,
        -32602,
    ),
    "params of a wrong type": ({"params": {"name": "add", "arguments": 5}}, 200, -32602),
}


@pytest.mark.verifies("S59", "S62", "H-status")
@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    change, status, code = REFUSED[case]

    async def main() -> None:
        async with lab(make()) as http:
            given: dict[str, Any] = {
                "params": {"name": "add", "arguments": {"a": 1, "b": 2}},
                "id": "x",
            }
            answer = await http.modern("tools/call", **{**given, **change}).whole()
            assert (answer.status, answer.error) == (status, code), answer.body
            assert answer.json["id"] == "x"

    run(main())


@pytest.mark.verifies("S60", "S4", "S5")
@pytest.mark.parametrize(
    "method",
    [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "x/y",
    ],
)
def test_methods_of_other_revisions_are_unknown(method: str) -> None:
    async def main() -> None:
        async with lab(make()) as http:
            answer = await http.modern(method).whole()
            assert (answer.status, answer.error) == (404, -32601)

    run(main())


def test_a_header_of_2026_without_its_envelope() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            message = {"jsonrpc": "2.0", "id": 1, "method": "server/discover"}
            headers = {"mcp-protocol-version": E, "mcp-method": "server/discover"}
            answer = await http.post(message, headers).whole()
            assert (answer.status, answer.error) == (400, -32602)
            assert PROTOCOL_VERSION_KEY in answer.json["error"]["data"]

    run(main())


@pytest.mark.verifies("X41")
def test_headers_are_compared_as_http_says() -> None:
    """Names in any case (ASGI lowers them), white space around values, base64 where needed."""

    async def main() -> None:
        async with lab(make()) as http:
            params = {"name": "add", "arguments": {"a": 1, "b": 2}}
            for name in ("  add  ", "\tadd", "=?base64?YWRk?="):
                answer = await http.modern("tools/call", params, {"mcp-name": name}).whole()
                assert answer.status == 200, answer.body
            for name in ("=?BASE64?YWRk?=", "=?base64?YWRk", "=?base64?YWR?=", "=?base64?YWRkAA?="):
                answer = await http.modern("tools/call", params, {"mcp-name": name}).whole()
                assert (answer.status, answer.error) == (400, -32020), name

    run(main())


@pytest.mark.verifies("S63", "SH-integer-headers")
def test_arguments_that_travel_as_headers() -> None:
    async def main() -> None:
        async with lab(make()) as http:

            async def ask(where: Any, header: str | None) -> int:
                params: dict[str, Any] = {"name": "region", "arguments": {}}
                if where is not ...:
                    params["arguments"]["where"] = where
                headers = {"mcp-param-region": header}
                answer = await http.modern("tools/call", params, headers).whole()
                if answer.status == 400:
                    assert answer.error == -32020
                return answer.status

            assert await ask("Hello", "Hello") == 200
            assert await ask("Hello", "=?base64?SGVsbG8=?=") == 200
            assert await ask("", "") == 200
            assert await ask("Grüße", encode_value("Grüße")) == 200
            assert await ask(..., None) == 200
            assert await ask("Hello", None) == 400
            assert await ask("Hello", "hello") == 400
            assert await ask("Hello", "=?base64?SGVsbG8?=") == 400
            assert await ask("Hello", "=?base64?SGVs!!!bG8=?=") == 400
            assert await ask("=?base64?x?=", "=?base64?x?=") == 400  # must itself be wrapped
            assert await ask("Grüße", "Grüße") == 400
            assert await ask(..., "Hello") == 400

    run(main())


@pytest.mark.verifies("S35")
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "A B"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "Ä"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": 5}}},
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "object", "x-mcp-header": "A"}}},
        {"properties": {"a": {"x-mcp-header": "A"}}},
        {
            "properties": {
                "a": {"type": "string", "x-mcp-header": "A"},
                "b": {"type": "string", "x-mcp-header": "a"},
            }
        },
        {"properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
        {"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]},
    ],
)
def test_marks_are_checked_at_registration(schema: dict[str, Any]) -> None:
    server = Server("marks")
    with pytest.raises(ValueError, match=r"x-mcp-header|marked"):
        server.tool(name="t", input_schema={"type": "object", **schema})(lambda arguments: None)


def test_marks_of_nested_properties() -> None:
    server = Server("marks")
    nested = {"type": "object", "properties": {"b": {"type": "integer", "x-mcp-header": "B"}}}

    @server.tool(input_schema={"type": "object", "properties": {"a": nested}})
    def t(arguments: dict[str, Any]) -> str:
        return "ok"

    async def main() -> None:
        async with lab(server) as http:
            params = {"name": "t", "arguments": {"a": {"b": 42}}}
            for header, status in (
                ("42", 200),
                ("42.0", 200),
                ("43", 400),
                ("4_2", 400),
                ("x", 400),
            ):
                answer = await http.modern("tools/call", params, {"mcp-param-b": header}).whole()
                assert answer.status == status, header

    run(main())


@pytest.mark.verifies("S6")
def test_a_missing_capability_is_400() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            answer = await http.modern("tools/call", {"name": "needs_sampling"}).whole()
            assert (answer.status, answer.error) == (400, -32021)
            assert answer.json["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}

    run(main())


def test_an_error_of_a_handler_is_an_answer() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            answer = await http.modern("tools/call", {"name": "nobody"}).whole()
            assert (answer.status, answer.error) == (200, -32602)
            answer = await http.modern("tools/call", {"name": "fail"}).whole()
            assert result(answer)["isError"] is True
            answer = await http.modern("resources/read", {"uri": "test://nothing"}).whole()
            assert (answer.status, answer.error) == (200, -32602)

    run(main())


@pytest.mark.verifies("S28", "S29", "S31")
def test_who_hangs_up_has_cancelled() -> None:
    async def main() -> None:
        server = make()
        async with lab(server) as http:
            answer = http.modern("tools/call", {"name": "hang"})
            await until(lambda: http.app.active == 1)
            answer.disconnect()
            await answer.task
            assert server.log_of_calls == ["hang ended"]  # type: ignore[attr-defined]
            assert http.app.active == 0
            assert not answer.body

    run(main())


@pytest.mark.verifies("S22", "S24", "S25", "SH-sse")
def test_listening() -> None:
    async def main() -> None:
        server = make()
        async with lab(server, limits=HttpLimits(keep_alive_seconds=0.001)) as http:
            wanted = {"notifications": {"toolsListChanged": True}}
            answer = http.modern("subscriptions/listen", wanted, id="me")
            first = await answer.event(1)
            assert first["method"] == "notifications/subscriptions/acknowledged"
            server.tool(name="new")(lambda: None)
            second = await answer.event(2)
            assert second["method"] == "notifications/tools/list_changed"
            for message in (first, second):
                assert message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "me"
            http.app._tick()
            await answer.until(lambda: answer.body.endswith(b":\n\n"))  # a comment keeps it alive
            answer.disconnect()
            await answer.task
            assert not server.sessions
            assert not http.app.streams

    run(main())


def test_a_stopped_server_ends_its_streams_in_order() -> None:
    async def main() -> None:
        server = make()
        async with lab(server) as http:
            wanted = {"notifications": {"toolsListChanged": True}}
            answer = http.modern("subscriptions/listen", wanted, id=7)
            await answer.event(1)
            http.app.drain()
            await answer.whole()
            assert answer.messages[-1]["id"] == 7
            assert answer.messages[-1]["result"]["resultType"] == "complete"
            ready = await http.send("GET", path="/ready").whole()
            assert ready.status == 503

    run(main())


def test_questions_are_answered_by_a_second_request() -> None:
    server = Server("asks")

    @server.tool
    async def who(ctx: Context) -> str:
        answer: Any = await ctx.ask("name", Elicit("Your name?", Name))
        return str(answer.value.name)

    async def main() -> None:
        async with lab(server) as http:
            params: dict[str, Any] = {"name": "who"}
            capabilities: dict[str, Any] = {"elicitation": {}}
            first = await http.modern("tools/call", params, capabilities=capabilities).whole()
            asked = result(first)
            assert asked["resultType"] == "input_required"
            reply = {"action": "accept", "content": {"name": "Ada"}}
            again = {
                **params,
                "inputResponses": {"name": reply},
                "requestState": asked["requestState"],
            }
            second = await http.modern("tools/call", again, capabilities=capabilities).whole()
            assert text(second) == "Ada"

    run(main())


@pytest.mark.verifies("S49")
def test_notifications_and_responses() -> None:
    server = Server("notified")
    heard: list[str] = []

    @server.notification("notifications/mine")
    async def mine(word: str, session: Session) -> None:
        session.notify("notifications/nobody/hears")
        heard.append(word)

    async def main() -> None:
        async with lab(server) as http:
            headers = {"mcp-protocol-version": E}
            note = {"jsonrpc": "2.0", "method": "notifications/mine", "params": {"word": "hi"}}
            answer = await http.post(note, headers).whole()
            assert (answer.status, answer.body) == (202, b"")
            await until(lambda: heard)
            assert heard == ["hi"]
            assert not server.sessions
            cancel = {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": 1},
            }
            assert (await http.post(cancel, headers).whole()).status == 202
            response = {"jsonrpc": "2.0", "id": 1, "result": {}}
            answer = await http.post(response, headers).whole()
            assert (answer.status, answer.error) == (400, -32600)

    run(main())


def test_a_call_that_takes_long_becomes_a_stream() -> None:
    async def main() -> None:
        limits = HttpLimits(watch_after_seconds=0.001, stream_after_seconds=0.001)
        async with lab(make(), limits=limits) as http:
            answer = http.modern("tools/call", {"name": "hang"})
            await answer.until(lambda: answer.status)
            assert answer.is_stream
            answer.disconnect()
            await answer.task

    run(main())


def test_a_plain_call_makes_no_task_and_no_timer() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            params = {"name": "add", "arguments": {"a": 1, "b": 2}}
            await http.modern("tools/call", params).whole()
            loop = asyncio.get_running_loop()
            made: list[str] = []
            loop.set_task_factory(
                lambda loop, coro, **given: (
                    made.append(repr(coro)) or asyncio.Task(coro, loop=loop, **given)
                )  # type: ignore[func-returns-value]
            )
            real = loop.call_later
            loop.call_later = lambda *a, **k: made.append("timer") or real(*a, **k)  # type: ignore[method-assign, func-returns-value]
            answer = http.modern("tools/call", params)
            made.clear()  # that of the ASGI server
            await answer.task
            assert [what for what in made if "_wake" not in what] == []  # the lab's own

    run(main())


def test_the_first_request_starts_it_and_no_lifespan_is_needed() -> None:
    server = make()
    seen: list[str] = []

    @server.lifespan
    async def life(_: Server) -> Any:
        seen.append("open")
        yield "state"
        seen.append("closed")

    async def main() -> None:
        async with lab(server) as http:
            assert not seen
            answers = [http.modern("tools/list") for _ in range(5)]
            for answer in answers:
                assert (await answer.whole()).status == 200
            assert seen == ["open"]
        assert seen == ["open", "closed"]

    run(main())


def test_two_loops_one_after_the_other() -> None:
    server = make()
    app = server.asgi(path="/mcp")

    async def main() -> None:
        answer = await Lab(app).modern("tools/list").whole()
        assert answer.status == 200

    asyncio.run(main())
    asyncio.run(main())


def test_a_rate_is_limited_per_client_and_not_per_request() -> None:
    server = make()
    server.middleware(RateLimit(0.001, burst=2))

    async def main() -> None:
        async with lab(server) as http:
            codes = []
            for _ in range(4):
                answer = await http.modern("tools/call", {"name": "fail"}).whole()
                codes.append(answer.messages[-1].get("error", {}).get("code"))
            assert codes == [None, None, -32603, -32603]
            other = http.send("POST", client=("10.0.0.9", 1))
            await other.whole()
            assert len(http.app._notes) == 1

    run(main())
