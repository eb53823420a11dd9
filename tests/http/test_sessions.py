"""2025-03-26 to 2025-11-25 over HTTP: sessions, streams, resumption."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_lab import BOTH, CLIENT, A, B, C, Client, D, E, lab, result, text
from msgspec import Struct

from dovetail import Context, Elicit, Limits, Server
from dovetail.transport.http.auth import HttpAnswer, Principal, Rejection
from dovetail.transport.http.limits import HttpLimits
from dovetail.transport.http.sessions import event_place
from support import run, until

handshake = pytest.mark.parametrize("revision", [A, B, C, D])
streamable = pytest.mark.parametrize("revision", [B, C, D])


class Name(Struct):
    name: str


def make(gate: asyncio.Event | None = None) -> Server:
    server = Server("sessions", version="1.0.0")

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
    async def wait(ctx: Context) -> str:
        ctx.progress(1)
        assert gate is not None
        await gate.wait()
        ctx.progress(2)
        return "waited"

    @server.tool
    async def later(ctx: Context) -> str:
        ctx.hang_up(retry_ms=10)
        assert gate is not None
        await gate.wait()
        return "later"

    @server.tool
    async def who(ctx: Context) -> str:
        answer: Any = await ctx.ask("name", Elicit("Your name?", Name))
        return str(answer.value.name)

    @server.resource("test://text")
    def read() -> str:
        return "hello"

    return server


@pytest.mark.verifies("S47", "S50", "S56", "S1", "S2", "R002-22", "R002-24", "D-oldest-not-on-http")
@handshake
def test_a_session(revision: str) -> None:
    async def main() -> None:
        async with lab(make()) as http:
            client = await http.session(revision)
            assert client.id is not None
            assert all(0x21 <= ord(c) <= 0x7E for c in client.id)
            assert len(client.id) >= 32
            agreed = D if revision == A else revision  # it had another transport, which we lack
            assert result(client.initialized)["protocolVersion"] == agreed
            answer = await client.call("add", {"a": 1, "b": 2}).whole()
            assert answer.headers["content-type"] == "application/json"
            assert text(answer) == "3"
            assert (await client.request("ping").whole()).json["result"] == {}
            assert len(http.app.sessions) == 1

    run(main())


@pytest.mark.verifies("S57", "S74")
def test_the_end_of_a_session() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            client = await http.session()
            assert (await client.delete().whole()).status == 204
            for answer in (client.request("ping"), client.get(), client.delete()):
                assert (await answer.whole()).status == 404
            client.headers["mcp-session-id"] = "invented"
            assert (await client.request("ping").whole()).status == 404
            del client.headers["mcp-session-id"]
            answer = await client.request("ping").whole()
            assert (answer.status, answer.error) == (400, -32600)
            assert (await client.get().whole()).status == 400
            assert not http.app.sessions

    run(main())


@pytest.mark.verifies("S58", "S61", "R002-23")
def test_the_version_header() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            client = await http.session(C)
            for version, status in (
                (C, 200),
                (D, 200),  # another one we serve: the session's counts
                (f"  {C} ", 200),
                ("1999-01-01", 400),
                (A, 400),
                ("", 400),
                ("nonsense", 400),
            ):
                client.headers["mcp-protocol-version"] = version
                assert (await client.request("tools/list").whole()).status == status, version
            del client.headers["mcp-protocol-version"]
            assert (await client.request("tools/list").whole()).status == 200

    run(main())


def test_a_failed_initialize_makes_no_session() -> None:
    async def main() -> None:
        server = make()
        async with lab(server) as http:
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"x": 1}}
            answer = await http.post(message).whole()
            assert answer.error == -32602
            assert "mcp-session-id" not in answer.headers
            assert len(http.app.sessions) == 0
            assert not server.sessions
            client = await http.session()
            again = await client.request(
                "initialize", {"protocolVersion": D, "capabilities": {}, "clientInfo": CLIENT}
            ).whole()
            assert (again.status, again.error) == (400, -32600)

    run(main())


@pytest.mark.verifies("R002-25")
@streamable
def test_progress_makes_a_stream(revision: str) -> None:
    async def main() -> None:
        async with lab(make()) as http:
            client = await http.session(revision)
            answer = await client.call("steps", {"n": 2}, progressToken=1).whole()
            assert answer.is_stream
            assert [m.get("method") for m in answer.messages] == [
                "notifications/progress",
                "notifications/progress",
                None,
            ]
            assert text(answer) == "done"
            ids = [event.id for event in answer.events]
            assert len(set(ids)) == 3
            assert answer.body.count(b"event: message\n") == 3
            # Only 2025-11-25 clients know an event without data, which primes the stream.
            assert answer.body.startswith(b"id: ") == (revision == D)
            assert (answer.parser.retry_ms is not None) == (revision == D)

    run(main())


@pytest.mark.verifies("S54", "S55", "S52", "R002-26", "R002-27")
@streamable
def test_a_lost_stream_is_resumed(revision: str) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with lab(make(gate)) as http:
            client = await http.session(revision)
            other = client.call("steps", {"n": 1}, progressToken=2)
            answer = client.call("wait", progressToken=1)
            await answer.event(1)
            await other.whole()
            last = answer.events[0].id
            answer.disconnect()  # no cancellation
            gate.set()
            await answer.task
            again = await client.get(last).whole()
            assert again.status == 200
            assert [m.get("method") for m in again.messages] == ["notifications/progress", None]
            assert text(again) == "waited"
            # and once more: it is kept
            assert text(await client.get(again.events[0].id).whole()) == "waited"

    run(main())


def test_a_stream_is_resumed_while_its_call_runs() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with lab(make(gate)) as http:
            client = await http.session()
            answer = client.call("wait", progressToken=1)
            await answer.event(1)
            again = client.get(answer.events[0].id)
            await again.until(lambda: again.status)
            gate.set()
            await again.whole()
            assert text(again) == "waited"
            await answer.whole()  # the older response ends without the answer
            assert len(answer.messages) == 1

    run(main())


def test_a_tool_lets_its_client_go() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with lab(make(gate)) as http:
            client = await http.session(D)
            answer = client.call("later")
            await answer.until(lambda: answer.ended)
            assert not answer.messages
            assert answer.parser.last_id is not None
            assert answer.parser.retry_ms == 10
            again = client.get(answer.parser.last_id)
            await again.until(lambda: again.status)
            gate.set()
            assert text(await again.whole()) == "later"
            older = await http.session(C)
            assert text(await older.call("later").whole()) == "later"  # it would not come back

    run(main())


@pytest.mark.parametrize(
    "last", ["", "p", "p-1", "q1-1", "p1", "p1-", "p1-x", "p99-1", "p0-1", "p1-1" * 20, "é1-1"]
)
def test_an_event_id_that_is_none(last: str) -> None:
    async def main() -> None:
        async with lab(make()) as http:
            client = await http.session()
            answer = await client.get(last).whole()
            assert (answer.status, answer.error) == (400, -32600)

    run(main())


def test_places_of_event_ids() -> None:
    assert event_place("p12-7") == ("p12", 7)
    assert event_place("g1-0") == ("g1", 0)
    assert event_place("p1-٣") is None
    assert event_place("p" + "1" * 30 + "-1") is None


@pytest.mark.verifies("S53", "S51")
def test_news_go_on_one_get_stream() -> None:
    async def main() -> None:
        server = make()
        async with lab(server) as http:
            client = await http.session()
            server.tool(name="one")(lambda: None)
            await asyncio.sleep(0.03)  # longer than a burst of changes
            first = client.get()
            assert (await first.event(1))["method"] == "notifications/tools/list_changed"
            second = client.get()
            await second.until(lambda: second.status)
            await until(lambda: len(http.app.streams) == 2)
            server.tool(name="two")(lambda: None)
            assert (await second.event(1))["method"] == "notifications/tools/list_changed"
            assert len(first.events) == 1
            second.disconnect()
            await second.task
            server.tool(name="three")(lambda: None)
            await first.event(2)
            first.disconnect()
            await first.task
            server.tool(name="four")(lambda: None)
            await asyncio.sleep(0.03)
            # what nobody could be told waits for the stream that is resumed
            again = client.get(first.events[1].id)
            assert (await again.event(1))["method"] == "notifications/tools/list_changed"
            again.disconnect()
            await again.task

    run(main())


@streamable
def test_a_question_goes_on_the_stream_of_its_call(revision: str) -> None:
    if revision == B:
        return  # it has no elicitation

    async def main() -> None:
        async with lab(make()) as http:
            client = await http.session(revision, {"elicitation": {}})
            standing = client.get()
            await standing.until(lambda: standing.status)
            answer = client.call("who")
            asked = await answer.event(1)
            assert asked["method"] == "elicitation/create"
            reply = {"action": "accept", "content": {"name": "Ada"}}
            said = await client.post({"id": asked["id"], "result": reply}).whole()
            assert (said.status, said.body) == (202, b"")
            assert text(await answer.whole()) == "Ada"
            assert not standing.events
            standing.disconnect()
            await standing.task

    run(main())


def test_a_disconnect_cancels_nothing_but_a_cancellation_does() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with lab(make(gate)) as http:
            client = await http.session()
            answer = client.request("tools/call", {"name": "wait"}, id="c")
            await until(lambda: http.app.active == 1)
            note = {"method": "notifications/cancelled", "params": {"requestId": "c"}}
            assert (await client.post(note).whole()).status == 202
            await answer.whole()
            assert answer.status == 200
            assert not answer.messages  # nothing more is said about it

    run(main())


@pytest.mark.verifies("X11")
def test_batches_are_of_one_revision() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            client = await http.session(B)
            batch = [
                {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "tools/call",
                    "params": {"name": "add", "arguments": {"a": 1, "b": 1}},
                },
                {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
                {"jsonrpc": "2.0", "id": 2, "method": "ping"},
                {"jsonrpc": "2.0", "id": 3, "method": "no/such"},
            ]
            answer = await client.post(batch).whole()
            assert answer.status == 200
            assert sorted(m["id"] for m in answer.json) == [1, 2, 3]
            notes = [{"jsonrpc": "2.0", "method": "notifications/x"}]
            assert (await client.post(notes).whole()).status == 202
            call = {"name": "steps", "arguments": {"n": 1}, "_meta": {"progressToken": 1}}
            streamed = await client.post(
                [{"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": call}]
            ).whole()
            assert streamed.is_stream
            assert text(streamed) == "done"
            assert (await client.post([]).whole()).status == 400
            for revision in (C, D):
                newer = await http.session(revision)
                answer = await newer.post(batch).whole()
                assert (answer.status, answer.error) == (400, -32600)
            answer = await http.post(batch).whole()
            assert answer.status == 400
            modern = await http.post(batch, {"mcp-protocol-version": E}).whole()
            assert (modern.status, modern.error) == (400, -32600)

    run(main())


def test_stateless() -> None:
    async def main() -> None:
        server = make()
        async with lab(server, stateless=True) as http:
            client = await http.session(C)
            assert client.id is None
            assert text(await client.call("add", {"a": 1, "b": 2}).whole()) == "3"
            answer = await client.call("steps", {"n": 1}, progressToken=1).whole()
            assert text(answer) == "done"
            asked = await client.call("who").whole()
            assert result(asked)["isError"] is True  # nobody declared that it can be asked
            assert (await client.get().whole()).status == 405
            assert (await client.delete().whole()).status == 405
            assert not server.sessions
            assert len(http.app.sessions) == 0

    run(main())


def test_answers_as_streams_if_wanted() -> None:
    async def main() -> None:
        async with lab(make(), answers="sse") as http:
            client = await http.session()
            answer = await client.call("add", {"a": 1, "b": 2}).whole()
            assert answer.is_stream
            assert text(answer) == "3"
            again = await client.get(answer.parser.last_id).whole()
            assert not again.messages

    run(main())


def test_idle_sessions_end() -> None:
    async def main() -> None:
        server = make()
        async with lab(server, limits=HttpLimits(idle_seconds=10)) as http:
            idle, listening = await http.session(), await http.session()
            stream = listening.get()
            await stream.until(lambda: stream.status)
            now = http.app.loop.time()
            http.app.sessions.expire(now + 9)
            assert len(http.app.sessions) == 2
            http.app.sessions.expire(now + 11)
            assert [s.id for s in http.app.sessions] == [listening.id]
            assert len(server.sessions) == 1
            assert (await idle.request("ping").whole()).status == 404
            stream.disconnect()
            await stream.task

    run(main())


def test_limits_of_sessions_and_streams() -> None:
    async def main() -> None:
        limits = HttpLimits(max_sessions=2, max_streams=2, max_in_flight=1)
        gate = asyncio.Event()
        async with lab(make(gate), limits=limits) as http:
            client = await http.session()
            await http.session()
            params = {"protocolVersion": D, "capabilities": {}, "clientInfo": CLIENT}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            full = await http.post(message).whole()
            assert full.status == 503
            assert full.headers["retry-after"] == "1"
            streams = [client.get() for _ in range(2)]
            for stream in streams:
                await stream.until(lambda s=stream: s.status)  # type: ignore[misc]
            assert (await client.get().whole()).status == 503
            running = client.call("wait")
            await until(lambda: http.app.active == 1)
            assert (await client.call("add", {"a": 1, "b": 1}).whole()).status == 503
            gate.set()
            await running.whole()
            for stream in streams:
                stream.disconnect()
                await stream.task

    run(main())


def test_a_client_that_does_not_read_is_cut_off_and_comes_back() -> None:
    server = Server("talks")

    @server.tool
    async def talk(ctx: Context) -> str:
        for _ in range(200):
            ctx.log("info", "x" * 1000)
            await asyncio.sleep(0)
        return "said"

    async def main() -> None:
        limits = HttpLimits(max_unsent=10_000)
        async with lab(server, limits=limits) as http:
            client = await http.session()
            answer = client.call("talk")
            await answer.event(1)
            last = answer.events[0].id
            answer.stop_reading()
            await answer.task
            assert not answer.ended
            again = await client.get(last).whole()
            assert text(again) == "said"
            assert len(again.messages) == 200  # 199 messages it missed and the answer

    run(main())


class Tokens:
    """Who has a token is the one it names."""

    async def authenticate(self, scope: Any) -> Principal | Rejection:
        given = dict(scope["headers"]).get(b"authorization", b"").decode()
        if not given:
            return Rejection(401, ((b"www-authenticate", b"Bearer"),))
        return Principal(given.removeprefix("Bearer "))

    def metadata(self, scope: Any) -> HttpAnswer | None:
        return HttpAnswer(200, body=b"{}") if "/.well-known/" in scope["path"] else None

    def allows(self, principal: Principal, method: str, name: str | None) -> Rejection | None:
        return Rejection(403) if name == "steps" and principal.id != "root" else None


@pytest.mark.verifies("S74")
def test_a_session_belongs_to_one_principal() -> None:
    server = make()
    seen: list[Any] = []

    @server.tool
    async def me(ctx: Context) -> str:
        seen.append(ctx.session.principal)
        return "ok"

    async def main() -> None:
        async with lab(server, auth=Tokens()) as http:
            assert (await http.modern("tools/list").whole()).status == 401
            assert (await http.send("GET", path="/.well-known/x").whole()).status == 200
            ada = await http.session(authorization="Bearer ada")
            assert (await ada.call("me").whole()).status == 200
            thief = Client(http, D, ada.id, {"authorization": "Bearer eve"})
            for answer in (thief.call("me"), thief.get(), thief.delete()):
                assert (await answer.whole()).status == 404
            modern = {"authorization": "Bearer bob"}
            assert (await http.modern("tools/call", {"name": "me"}, modern).whole()).status == 200  # type: ignore[arg-type]
            assert seen == ["ada", "bob"]
            assert (await ada.call("steps", {"n": 1}).whole()).status == 403
            old = await http.session(B, authorization="Bearer ada")
            call = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "steps", "arguments": {"n": 1}},
            }
            assert (await old.post([call]).whole()).status == 403
            assert (await old.post([call]).whole()).status == 403  # its id is free again
            assert (
                await http.modern(
                    "tools/call", {"name": "steps", "arguments": {"n": 1}}, modern
                ).whole()
            ).status == 403  # type: ignore[arg-type]

    run(main())


def test_what_a_session_costs_is_given_back() -> None:
    async def main() -> None:
        server = make()
        async with lab(server) as http:
            client = await http.session()
            stream = client.get()
            await stream.until(lambda: stream.status)
            session = next(iter(http.app.sessions))
            assert session.running == 1
            await client.delete().whole()
            await stream.whole()  # it is ended with its session
            assert stream.ended
            assert not http.app.streams
            assert not server.sessions

    run(main())


def test_requests_at_once_in_one_session() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        server = Server("many", limits=Limits(max_in_flight=3))

        @server.tool
        async def wait() -> str:
            await gate.wait()
            return "ok"

        async with lab(server) as http:
            client = await http.session()
            answers = [client.call("wait") for _ in range(3)]
            await until(lambda: http.app.active == 3)
            refused = await client.call("wait").whole()
            assert refused.status == 503
            same = await client.request("tools/call", {"name": "wait"}, id=1).whole()
            assert same.status in (400, 503)
            gate.set()
            for answer in answers:
                assert text(await answer.whole()) == "ok"

    run(main())


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "text/html", ""])
def test_accept_of_a_post(accept: str) -> None:
    async def main() -> None:
        async with lab(make()) as http:
            answer = await http.post(b"{}", {"accept": accept}).whole()
            assert answer.status == 406
            ok = await http.modern("tools/list", headers={"accept": "*/*"}).whole()
            assert ok.status == 200
            for good in (
                BOTH,
                "text/event-stream;q=0.5 , application/json ; q=1",
                "application/*, text/*",
            ):
                assert (
                    await http.modern("tools/list", headers={"accept": good}).whole()
                ).status == 200

    run(main())


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/xml", "application/json; charset=latin-1"]
)
def test_content_type_of_a_post(kind: str) -> None:
    async def main() -> None:
        async with lab(make()) as http:
            answer = await http.post(b"{}", {"content-type": kind}).whole()
            assert answer.status == 415
            good = {"content-type": 'Application/JSON; charset="UTF-8"'}
            assert (await http.modern("tools/list", headers=good).whole()).status == 200  # type: ignore[arg-type]

    run(main())


def test_accept_of_a_get() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            client = await http.session()
            assert (await client.get(accept="application/json").whole()).status == 406

    run(main())


@pytest.mark.verifies("S46")
def test_the_transport_of_2024_is_refused() -> None:
    """Its client waits on a GET for an `endpoint` event, and learns that there is none."""

    async def main() -> None:
        async with lab(make()) as http:
            answer = await http.send("GET", {"accept": "text/event-stream"}).whole()
            assert answer.status == 400
            assert b"Mcp-Session-Id" in answer.body
            for path in ("/sse", "/messages"):
                assert (await http.send("GET", path=path).whole()).status == 404

    run(main())


def test_a_server_of_few_revisions() -> None:
    async def main() -> None:
        for stateless in (False, True):
            server = Server("few", revisions=[D, E])
            async with lab(server, stateless=stateless) as http:
                client = await http.session(C)
                assert result(client.initialized)["protocolVersion"] == D
                client.headers["mcp-protocol-version"] = C  # known to us, not served here
                answer = await client.request("ping", id="p").whole()
                assert (answer.status, answer.error, answer.json["id"]) == (400, -32600, "p")
                client.headers.pop("mcp-protocol-version")
                assert (await client.request("ping").whole()).status == 200
        modern = Server("modern only", revisions=[E])
        async with lab(modern) as http:
            params = {"protocolVersion": D, "capabilities": {}, "clientInfo": CLIENT}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            answer = await http.post(message).whole()
            assert (answer.status, answer.error) == (400, -32022)
            assert answer.json["error"]["data"]["supported"] == [E]
            assert (await http.send("GET", {"accept": "text/event-stream"}).whole()).status == 405

    run(main())
