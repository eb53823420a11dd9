"""Changes while serving: lists that change, resources that change, and who hears of it."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dovetail import Context, Server
from dovetail.server.changes import BURST_SECONDS
from dovetail.server.subscriptions import MAX_STREAMS
from dovetail.testing import TestClient, connect, envelope
from support import request, run, until

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
handshake = pytest.mark.parametrize("revision", [A, B, C, D])
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
}


def add_tool(server: Server, name: str) -> Any:
    return server.tool(name=name)(lambda: None)


def add_prompt(server: Server, name: str) -> Any:
    return server.prompt(name=name)(lambda: "")


def add_resource(server: Server, name: str) -> Any:
    return server.resource(f"x://{name}", name=name)(lambda: "")


def add_template(server: Server, name: str) -> Any:
    return server.resource(f"x://{name}/{{y}}", name=name)(lambda y: y)


Adder = Callable[[Server, str], Any]
# The list, its member, the kind in `notifications/KIND/list_changed`, and how to add to it.
KINDS: list[tuple[str, str, str, Adder]] = [
    ("tools/list", "tools", "tools", add_tool),
    ("prompts/list", "prompts", "prompts", add_prompt),
    ("resources/list", "resources", "resources", add_resource),
    ("resources/templates/list", "resourceTemplates", "resources", add_template),
]
every_kind = pytest.mark.parametrize(("method", "member", "kind", "add"), KINDS)


def use(kind: str, method: str, name: str) -> tuple[str, dict[str, Any]]:
    """The request that uses what a list names."""
    if kind == "tools":
        return "tools/call", {"name": name}
    if kind == "prompts":
        return "prompts/get", {"name": name}
    return "resources/read", {"uri": f"x://{name}" + ("/1" if "templates" in method else "")}


def changed(kind: str) -> str:
    return f"notifications/{kind}/list_changed"


def full(**options: Any) -> Server:
    server = Server("s", version="1", **options)
    for _, _, _, add in KINDS:
        add(server, "first")
    return server


async def quiet(client: TestClient) -> list[Any]:
    """What comes unasked until a burst is surely over."""
    await asyncio.sleep(BURST_SECONDS * 3)
    client.recorder.check()
    return [client._inbox.get_nowait() for _ in range(client._inbox.qsize())]


async def hears(client: TestClient) -> list[str]:
    return [message["method"] for message in await quiet(client)]


async def names(client: TestClient, method: str, member: str) -> list[str]:
    return [item["name"] for item in (await client.request(method))[member]]


class Listener:
    """A `subscriptions/listen` that is open."""

    def __init__(self, client: TestClient, **wanted: Any) -> None:
        self.client = client
        self.id, self.end = client.start("subscriptions/listen", {"notifications": wanted})
        self.end.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def acknowledged(self) -> Any:
        message = await self.client.receive()
        assert message["method"] == ACKNOWLEDGED
        assert message["params"]["_meta"] == {SUBSCRIPTION: self.id}
        return message["params"]["notifications"]


async def listening(client: TestClient, **wanted: Any) -> Listener:
    stream = Listener(client, **wanted)
    await stream.acknowledged()
    return stream


async def entitled(client: TestClient) -> Any:
    """Make sure that changes are announced to this client."""
    if client.revision == E:
        return await listening(client, **EVERYTHING)
    return None


# --- lists that change ----------------------------------------------------------------------------


@every_revision
@every_kind
@pytest.mark.verifies("R002-17", "F-listing-cache", "S13")
def test_what_comes_and_goes_while_serving(
    revision: str, method: str, member: str, kind: str, add: Adder
) -> None:
    server = full()

    async def main() -> None:
        async with connect(server, revision) as client:
            await entitled(client)

            async def now(*wanted: str) -> None:
                (told,) = await hears(client)
                assert told == changed(kind)
                assert await names(client, method, member) == list(wanted)
                for name in ("first", "second", "third"):
                    answer = await client.answer(*use(kind, method, name))
                    assert ("error" in answer) == (name not in wanted), name

            second = add(server, "second")
            await now("first", "second")
            third = add(server, "third")
            await now("first", "second", "third")
            second.disable()
            assert not second.enabled
            await now("first", "third")
            second.enable()
            assert second.enabled
            await now("first", "second", "third")  # in its old place
            second.remove()
            assert not second.enabled
            await now("first", "third")
            add(server, "second")
            await now("first", "third", "second")
            third.disable()
            third.remove()
            await now("first", "second")

    run(main())


@every_revision
@every_kind
@pytest.mark.verifies("R002-17")
def test_a_burst_is_announced_once(
    revision: str, method: str, member: str, kind: str, add: Adder
) -> None:
    server = full()

    async def main() -> None:
        async with connect(server, revision) as client:
            await entitled(client)
            for number in range(50):
                add(server, f"n{number}").disable()
            assert await hears(client) == [changed(kind)]
            add(server, "more")
            assert await hears(client) == [changed(kind)]

    run(main())


@every_revision
@pytest.mark.verifies("R002-17")
def test_each_kind_has_its_own_announcement(revision: str) -> None:
    server = full()

    async def main() -> None:
        async with connect(server, revision) as client:
            await entitled(client)
            for _, _, _, add in KINDS:
                add(server, "second")
            wanted = [changed(kind) for kind in ("prompts", "resources", "tools")]
            assert sorted(await hears(client)) == wanted

    run(main())


@every_revision
@every_kind
def test_what_changes_nothing_is_not_announced(
    revision: str, method: str, member: str, kind: str, add: Adder
) -> None:
    server = full()
    second = add(server, "second")
    third = add(server, "third")
    third.disable()

    async def main() -> None:
        async with connect(server, revision) as client:
            await entitled(client)
            second.enable()
            third.disable()
            with pytest.raises(ValueError, match="already registered"):
                add(server, "second")
            with pytest.raises(ValueError, match="already registered"):
                add(server, "third")
            assert await hears(client) == []

    run(main())


@every_kind
def test_what_is_gone_stays_gone(method: str, member: str, kind: str, add: Adder) -> None:
    server = full()
    second = add(server, "second")
    second.remove()
    for again in (second.remove, second.enable, second.disable):
        with pytest.raises(ValueError, match="is not registered"):
            again()
    other = add(server, "second")
    assert other.enabled
    assert not second.enabled


@every_revision
@every_kind
@pytest.mark.verifies("S13", "R002-17", "S12")
def test_a_list_that_was_declared_can_become_empty(
    revision: str, method: str, member: str, kind: str, add: Adder
) -> None:
    """The client was told that it is there; it is, with nothing in it."""
    server = Server("s")
    only = add(server, "only")

    async def main() -> None:
        async with connect(server, revision) as client:
            if revision == E:
                capabilities = (await client.request("server/discover"))["capabilities"]
                assert kind in capabilities
            await entitled(client)
            for go, come in ((only.disable, only.enable), (only.remove, None)):
                go()
                assert await hears(client) == [changed(kind)]
                assert await names(client, method, member) == []
                answer = await client.answer(*use(kind, method, "only"))
                missing = -32002 if kind == "resources" and revision != E else -32602
                assert answer["error"]["code"] == missing
                if come is not None:
                    come()
                    assert await hears(client) == [changed(kind)]
                    assert await names(client, method, member) == ["only"]

    run(main())


@handshake
@pytest.mark.verifies("R002-17", "R000-5", "X14", "S12")
def test_who_was_promised_nothing_hears_nothing(revision: str) -> None:
    """By policy, or because there was no such list at the handshake."""

    async def main() -> None:
        static = full(list_changed=False)
        async with connect(static, revision) as client:
            for _, _, _, add in KINDS:
                add(static, "second")
            assert await hears(client) == []
            assert await names(client, "tools/list", "tools") == ["first", "second"]
        server = Server("s")
        add_tool(server, "first")
        async with connect(server, revision) as client:
            add_prompt(server, "p")
            add_resource(server, "r")
            assert await hears(client) == []
            add_tool(server, "second")
            assert await hears(client) == [changed("tools")]

    run(main())


@handshake
@pytest.mark.verifies("D-quiet-start", "R002-10")
def test_nobody_is_told_before_the_handshake_is_done(revision: str) -> None:
    server = full()

    async def main() -> None:
        async with connect(server, revision, handshake=False) as client:
            add_tool(server, "a")
            assert await hears(client) == []
            params = {
                "protocolVersion": revision,
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            }
            await client.request("initialize", params)
            add_tool(server, "b")
            server.updated("x://first")
            assert await hears(client) == []
            client.notify("notifications/initialized")
            add_tool(server, "c")
            assert await hears(client) == [changed("tools")]

    run(main())


@pytest.mark.verifies("S23", "S7")
def test_in_2026_nobody_is_told_who_does_not_listen() -> None:
    server = full()

    async def main() -> None:
        async with connect(server, E) as client:
            await client.request("tools/list")
            for _, _, _, add in KINDS:
                add(server, "second")
            server.updated("x://first")
            assert await hears(client) == []

    run(main())


@every_revision
def test_every_client_is_told(revision: str) -> None:
    server = full()

    async def main() -> None:
        async with connect(server, revision) as one, connect(server, revision) as two:
            await entitled(one)
            await entitled(two)
            add_tool(server, "second")
            assert await hears(one) == [changed("tools")]
            assert await hears(two) == [changed("tools")]

    run(main())


@every_revision
@every_kind
def test_a_handler_may_change_the_lists(
    revision: str, method: str, member: str, kind: str, add: Adder
) -> None:
    """Also the one it runs in; and from the thread of a sync tool."""
    server = full()
    handles: list[Any] = []

    @server.tool
    async def load() -> None:
        handles.append(add(server, "loaded"))

    @server.tool
    def unload() -> None:
        handles.pop().remove()

    async def main() -> None:
        async with connect(server, revision) as client:
            await entitled(client)
            await client.call("load")
            assert await hears(client) == [changed(kind)]
            assert "loaded" in await names(client, method, member)
            await client.call("unload")
            assert await hears(client) == [changed(kind)]
            assert "loaded" not in await names(client, method, member)

    run(main())


@every_revision
@pytest.mark.verifies("R002-17", "SH-tool-order")
def test_changes_from_many_threads(revision: str) -> None:
    """Meanwhile all that does not change is there in every answer."""
    server = full()
    fixed = [add_tool(server, f"fixed{n}").name for n in range(20)]
    switched = add_tool(server, "switched")
    stop = threading.Event()

    def fiddle(number: int) -> None:
        while not stop.is_set():
            add_prompt(server, f"p{number}").remove()
            add_tool(server, f"t{number}").remove()
            if number == 0:
                switched.disable()
                switched.enable()
            stop.wait(0.002)

    async def main() -> None:
        threads = [threading.Thread(target=fiddle, args=(n,)) for n in range(3)]
        async with connect(server, revision) as client:
            await entitled(client)
            for thread in threads:
                thread.start()
            try:
                for _ in range(100):
                    listed = await names(client, "tools/list", "tools")
                    assert [n for n in listed if n.startswith("fixed")] == fixed
                    answer = await client.answer("tools/call", {"name": "fixed7"})
                    assert "result" in answer
                    assert "result" in await client.answer("prompts/get", {"name": "first"})
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            heard = await hears(client)
            assert set(heard) <= {changed("tools"), changed("prompts")}
            assert {changed("tools"), changed("prompts")} <= set(heard)
            switched.disable()
            assert await hears(client) == [changed("tools")]
            assert (await names(client, "tools/list", "tools"))[1:] == fixed

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        run(main())
    finally:
        sys.setswitchinterval(before)


@every_revision
def test_a_change_just_before_the_end_does_not_silence_the_next(revision: str) -> None:
    """A server may serve again, on another loop, after its last client has gone."""
    server = full()

    async def main(name: str, wait: bool) -> list[str]:
        async with connect(server, revision) as client:
            await entitled(client)
            add_tool(server, name)
            return await hears(client) if wait else []

    run(main("second", False), collect=False)
    assert run(main("third", True)) == [changed("tools")]


# --- resources that change ------------------------------------------------------------------------


@handshake
@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.verifies("R002-17")
def test_subscribe_and_unsubscribe(revision: str, in_thread: bool) -> None:
    server = full()

    async def update(uri: str) -> None:
        if in_thread:
            await asyncio.to_thread(server.updated, uri)
        else:
            server.updated(uri)

    async def main() -> None:
        async with connect(server, revision) as client, connect(server, revision) as other:
            await update("x://first")
            assert await quiet(client) == []
            for uri in ("x://first", "x://first", "x://first/7"):
                assert await client.request("resources/subscribe", {"uri": uri}) == {}
            await update("x://first")
            (told,) = await quiet(client)
            assert told == {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "x://first"}}
            await update("x://first/7")
            assert (await quiet(client))[0]["params"] == {"uri": "x://first/7"}
            await update("x://first/8")
            assert await client.request("resources/unsubscribe", {"uri": "x://first"}) == {}
            assert await client.request("resources/unsubscribe", {"uri": "x://first"}) == {}
            assert await client.request("resources/unsubscribe", {"uri": "never://"}) == {}
            await update("x://first")
            assert await quiet(client) == []
            assert await quiet(other) == [], "it asked for nothing"

    run(main())


@handshake
@pytest.mark.verifies("S38")
def test_what_is_not_there_cannot_be_watched(revision: str) -> None:
    async def main() -> None:
        async with connect(full(), revision) as client:
            answer = await client.answer("resources/subscribe", {"uri": "x://nothing"})
            assert answer["error"]["code"] == -32002
            assert answer["error"]["data"] == {"uri": "x://nothing"}
            client.send(request(90, "resources/subscribe", {}))
            assert (await client.receive())["error"]["code"] == -32602
            assert not client.connection.session.subscriptions

    run(main())


@handshake
def test_a_handler_may_say_what_it_changed(revision: str) -> None:
    server = full()

    @server.tool
    async def change(ctx: Context) -> None:
        ctx.updated("x://first")

    async def main() -> None:
        async with connect(server, revision) as client:
            await client.request("resources/subscribe", {"uri": "x://first"})
            await client.call("change")
            assert await hears(client) == [UPDATED]

    run(main())


@pytest.mark.verifies("E-removed-method")
def test_2026_has_no_subscribe() -> None:
    async def main() -> None:
        async with connect(full(), E) as client:
            for method in ("resources/subscribe", "resources/unsubscribe"):
                params = {"uri": "x://first", "_meta": envelope()}
                client.send(request(90, method, params))
                assert (await client.receive())["error"]["code"] == -32601

    run(main())


@every_revision
@pytest.mark.verifies("R002-17", "S12")
def test_what_is_declared(revision: str) -> None:
    async def main() -> None:
        for list_changed in (True, False):
            async with connect(full(list_changed=list_changed), revision) as client:
                if revision == E:
                    capabilities = (await client.request("server/discover"))["capabilities"]
                else:
                    capabilities = client.recorder.messages[1][1]["result"]["capabilities"]
                announced = {"listChanged": True} if list_changed else {}
                assert capabilities["tools"] == announced
                assert capabilities["prompts"] == announced
                assert capabilities["resources"] == {"subscribe": True, **announced}

    run(main())


# --- subscriptions/listen of 2026-07-28 -----------------------------------------------------------


@pytest.mark.verifies("S22", "S23", "S24")
def test_the_acknowledgement_comes_first() -> None:
    """Although there is something to tell in the same breath."""
    server = full()

    async def main() -> None:
        async with connect(server, E) as client:
            wanted = {**EVERYTHING, "resourceSubscriptions": ["x://first"]}
            stream = Listener(client, **wanted)
            add_tool(server, "second")
            server.updated("x://first")
            assert await stream.acknowledged() == wanted
            server.updated("x://first")
            heard = await quiet(client)
            assert {message["method"] for message in heard} == {changed("tools"), UPDATED}
            for message in heard:
                assert message["params"]["_meta"] == {SUBSCRIPTION: stream.id}

    run(main())


FILTERS: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({}, {}, []),
    ({"toolsListChanged": True}, {"toolsListChanged": True}, [changed("tools")]),
    ({"toolsListChanged": False}, {}, []),
    (
        {"promptsListChanged": True, "toolsListChanged": False},
        {"promptsListChanged": True},
        [changed("prompts")],
    ),
    ({"resourcesListChanged": True}, {"resourcesListChanged": True}, [changed("resources")]),
    ({"resourceSubscriptions": []}, {}, []),
    (
        {"resourceSubscriptions": ["x://other", "x://first"]},
        {"resourceSubscriptions": ["x://other", "x://first"]},
        [UPDATED],
    ),
    (EVERYTHING, EVERYTHING, [changed("prompts"), changed("resources"), changed("tools")]),
]


@pytest.mark.parametrize(("wanted", "accepted", "told"), FILTERS)
@pytest.mark.verifies("S22", "S23")
def test_only_what_was_asked_for(wanted: Any, accepted: Any, told: list[str]) -> None:
    server = full()

    async def main() -> None:
        async with connect(server, E) as client:
            stream = Listener(client, **wanted)
            assert await stream.acknowledged() == accepted
            for _, _, _, add in KINDS:
                add(server, "second")
            server.updated("x://first")
            server.updated("x://second")
            assert sorted(await hears(client)) == sorted(told)

    run(main())


@pytest.mark.verifies("S22", "S23")
def test_only_what_can_happen_is_accepted() -> None:
    wanted = {**EVERYTHING, "resourceSubscriptions": ["x://first"]}

    async def accepted(server: Server) -> Any:
        async with connect(server, E) as client:
            return await Listener(client, **wanted).acknowledged()

    tools = Server("s")
    add_tool(tools, "t")
    resources = Server("s")
    add_resource(resources, "first")
    assert run(accepted(tools)) == {"toolsListChanged": True}
    assert run(accepted(resources)) == {
        "resourcesListChanged": True,
        "resourceSubscriptions": ["x://first"],
    }
    assert run(accepted(full(list_changed=False))) == {"resourceSubscriptions": ["x://first"]}


@pytest.mark.parametrize("id", [7, "7", "", -1, 0])
@pytest.mark.verifies("S24", "S25", "X5")
def test_the_tag_has_the_type_of_the_id(id: Any) -> None:
    server = full()

    async def main() -> None:
        async with connect(server, E) as client:
            params = {"notifications": {"toolsListChanged": True}, "_meta": envelope()}
            client.send(request(id, "subscriptions/listen", params))
            acknowledged = await client.receive()
            add_tool(server, "second")
            told = await client.receive()
            await client.connection.close()
            end = await client.receive()
            for meta in (
                acknowledged["params"]["_meta"],
                told["params"]["_meta"],
                end["result"]["_meta"],
            ):
                assert meta[SUBSCRIPTION] == id
                assert type(meta[SUBSCRIPTION]) is type(id)
            assert end["id"] == id

    run(main())


@pytest.mark.verifies("S23", "S24")
def test_several_streams_each_hear_their_own() -> None:
    server = full()

    async def main() -> None:
        async with connect(server, E) as client:
            one = await listening(client, toolsListChanged=True)
            two = await listening(client, toolsListChanged=True, promptsListChanged=True)
            three = await listening(client, resourceSubscriptions=["x://first"])
            add_tool(server, "t")
            add_prompt(server, "p")
            server.updated("x://first")
            heard = sorted(
                (message["params"]["_meta"][SUBSCRIPTION], message["method"])
                for message in await quiet(client)
            )
            assert heard == [
                (one.id, changed("tools")),
                (two.id, changed("prompts")),
                (two.id, changed("tools")),
                (three.id, UPDATED),
            ]

    run(main())


@pytest.mark.verifies("S29", "S30", "F-cancel")
def test_a_cancelled_stream_ends_in_silence() -> None:
    server = full()

    async def main() -> None:
        async with connect(server, E) as client:
            one = await listening(client, toolsListChanged=True)
            two = await listening(client, toolsListChanged=True)
            client.notify("notifications/cancelled", {"requestId": one.id})
            add_tool(server, "second")
            (told,) = await quiet(client)
            assert told["params"]["_meta"] == {SUBSCRIPTION: two.id}
            assert list(client.connection.session.streams) == [two.id]
            client.notify("notifications/cancelled", {"requestId": two.id})
            add_tool(server, "third")
            assert await quiet(client) == []
            assert not client.connection.busy
            assert not one.end.done()
            for stream in (one, two):
                stream.end.cancel()

    run(main())


@pytest.mark.parametrize("how", ["eof", "close"])
@pytest.mark.verifies("S25", "S30", "SH-listen-end")
def test_the_end_is_a_result(how: str) -> None:
    """And no cancellation of ours: the pages disagree, but all clients know results."""
    server = full()

    async def main() -> None:
        async with connect(server, E) as client:
            streams = [await listening(client, **EVERYTHING) for _ in range(3)]
            if how == "eof":
                client.connection.end_of_input()
            else:
                await client.connection.close()
            for stream in streams:
                end = await stream.end
                assert end["result"]["resultType"] == "complete"
                assert end["result"]["_meta"][SUBSCRIPTION] == stream.id
            assert await quiet(client) == []
            if how == "eof":
                await asyncio.wait_for(asyncio.shield(client.connection.ended), 1)

    run(main())


@pytest.mark.verifies("S25", "SH-listen-end")
def test_a_stream_opened_with_the_last_bytes_ends_at_once() -> None:
    """`echo ... | server` does not wait for a drain of ten seconds."""

    async def main() -> None:
        async with connect(full(), E) as client:
            stream = Listener(client, **EVERYTHING)
            client.connection.end_of_input()
            end = await asyncio.wait_for(stream.end, 2)
            assert end["result"]["_meta"][SUBSCRIPTION] == stream.id
            first, *_ = await quiet(client)
            assert first["method"] == ACKNOWLEDGED

    run(main())


@pytest.mark.verifies("S21")
def test_a_client_that_is_lost_leaves_no_stream() -> None:
    server = full()

    async def main() -> None:
        async with connect(server, E) as client:
            await listening(client, **EVERYTHING)
            session = client.connection.session
            client.connection.lost()
            await until(lambda: not session.streams)
            add_tool(server, "second")
            assert await quiet(client) == []
            assert session not in server.sessions

    run(main())


@pytest.mark.parametrize("one_chunk", [False, True])
def test_there_is_a_limit_to_streams(one_chunk: bool) -> None:
    server = full()

    async def main() -> None:
        async with connect(server, E) as client:
            params = {"notifications": {"toolsListChanged": True}, "_meta": envelope()}
            frames = [
                request(f"s{n}", "subscriptions/listen", params) for n in range(MAX_STREAMS + 2)
            ]
            for frame in frames:
                client.recorder.sent("client", frame, check=False)
            if one_chunk:
                client.connection.feed(b"".join(frame + b"\n" for frame in frames))
            else:
                for frame in frames:
                    client.connection.feed(frame + b"\n")
                    await asyncio.sleep(0)
            heard = await quiet(client)
            refused = [message for message in heard if "error" in message]
            assert [one["id"] for one in refused] == [f"s{MAX_STREAMS}", f"s{MAX_STREAMS + 1}"]
            for one in refused:
                assert one["error"]["code"] == -32603
                assert one["error"]["data"] == f"Too many subscriptions: {MAX_STREAMS} are open"
            assert len(client.connection.session.streams) == MAX_STREAMS
            # A place that becomes free can be used, and other requests were never in the way.
            assert await names(client, "tools/list", "tools") == ["first"]
            client.notify("notifications/cancelled", {"requestId": "s0"})
            await until(lambda: len(client.connection.session.streams) == MAX_STREAMS - 1)
            await listening(client, toolsListChanged=True)

    run(main())


def test_streams_that_come_and_go_leave_nothing() -> None:
    async def main() -> None:
        async with connect(full(), E) as client:
            before = len(client.connection._end_callbacks)
            for _ in range(20):
                stream = await listening(client, **EVERYTHING)
                client.notify("notifications/cancelled", {"requestId": stream.id})
                await until(lambda: not client.connection.busy)
                stream.end.cancel()
            assert len(client.connection._end_callbacks) == before
            assert not client.connection.session.streams
            assert not client.connection.peer.in_flight

    run(main())


@pytest.mark.verifies("S5", "S12")
def test_listen_without_the_envelope() -> None:
    async def main() -> None:
        params = {"notifications": EVERYTHING}
        async with connect(full(), E) as client:
            client.send(request(90, "subscriptions/listen", params))
            answer = await client.receive()
            assert answer["error"]["code"] == -32602
            assert "io.modelcontextprotocol/protocolVersion" in answer["error"]["data"]
        for revision in (A, B, C, D):
            async with connect(full(), revision) as client:
                client.send(request(90, "subscriptions/listen", params))
                assert (await client.receive())["error"]["code"] == -32601

    run(main())


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"notifications": None},
        {"notifications": []},
        {"notifications": {"toolsListChanged": "yes"}},
        {"notifications": {"resourceSubscriptions": "x://first"}},
        {"notifications": {"resourceSubscriptions": [1]}},
    ],
)
def test_a_filter_that_is_none(params: Any) -> None:
    async def main() -> None:
        async with connect(full(), E) as client:
            client.send(request(90, "subscriptions/listen", {**params, "_meta": envelope()}))
            assert (await client.receive())["error"]["code"] == -32602
            assert not client.connection.session.streams
            await listening(client, toolsListChanged=True)

    run(main())


@pytest.mark.verifies("S12")
def test_nothing_to_listen_to() -> None:
    async def main() -> None:
        async with connect(Server("s"), E) as client:
            stream = Listener(client, **EVERYTHING)
            assert (await stream.end)["error"]["code"] == -32601

    run(main())


def test_a_tool_server_that_never_changes_has_nothing_to_listen_to() -> None:
    """Digest 8.9: no listChanged and no subscribe, so there is no listen either."""
    server = Server("s", list_changed=False)
    add_tool(server, "t")

    async def main() -> None:
        async with connect(server, E) as client:
            stream = Listener(client, **EVERYTHING)
            assert (await stream.end)["error"]["code"] == -32601

    run(main())


@pytest.mark.verifies("F-one-pipe", "S7")
def test_both_eras_on_one_pipe() -> None:
    """The handshake's subscriptions and a stream are told apart."""
    server = full()

    async def main() -> None:
        async with connect(server, D) as client:
            await client.request("resources/subscribe", {"uri": "x://first"})
            params = {"notifications": {"promptsListChanged": True}, "_meta": envelope()}
            client.send(request("s", "subscriptions/listen", params))
            assert (await client.receive())["method"] == ACKNOWLEDGED
            add_tool(server, "t")
            add_prompt(server, "p")
            server.updated("x://first")
            heard = [
                (message["method"], message.get("params", {}).get("_meta"))
                for message in await quiet(client)
            ]
            assert sorted(heard, key=str) == [
                (changed("prompts"), None),
                (changed("prompts"), {SUBSCRIPTION: "s"}),
                (UPDATED, None),
                (changed("tools"), None),
            ]

    run(main())
