"""What changes, as one iterator of events, in both eras."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clientkit import ALL, MODERN, Line, connected, demo, over, script, sent, stamped

from dovetail import Server
from dovetail.client.listen import MAX_WAITING, ChangeEvent
from dovetail.errors import ConnectionClosed, McpError
from dovetail.spec.meta import SUBSCRIPTION_ID_KEY
from support import run, until


async def next_of(events: Any) -> ChangeEvent:
    return await asyncio.wait_for(anext(events), 5)


@pytest.mark.parametrize("revision", ALL)
def test_lists_and_resources(revision: str) -> None:
    async def main() -> None:
        server = demo()
        async with connected(server, revision=revision) as (client, _):
            wanted = client.listen(tools=True, resources=["demo://text"])
            async with wanted as events:
                assert events.missing == []
                server.tool(later)
                assert await next_of(events) == ChangeEvent("tools")
                server.updated("demo://text")
                server.updated("demo://item/1")  # not asked for
                assert await next_of(events) == ChangeEvent("resource", "demo://text")
                assert "later" in [tool.name async for tool in client.tools()]

    async def later() -> int:
        return 1

    run(main())


@pytest.mark.verifies("C16")
def test_events_of_several_subscriptions_are_told_apart() -> None:
    async def main() -> None:
        server = demo()
        async with connected(server, revision=MODERN) as (client, recorder):
            async with (
                client.listen(resources=["demo://text"]) as first,
                client.listen(resources=["demo://item/1"]) as second,
            ):
                server.updated("demo://item/1")
                assert (await next_of(second)).uri == "demo://item/1"
                server.updated("demo://text")
                assert (await next_of(first)).uri == "demo://text"
                assert not second._waiting
            cancelled = sent(recorder, "notifications/cancelled")
            assert len(cancelled) == 2

    run(main())


@pytest.mark.verifies("SH-acknowledged")
def test_what_is_not_granted_is_said() -> None:
    async def main() -> None:
        server = Server("few", list_changed=False)

        @server.resource("few://one")
        def one() -> str:
            return "1"

        for revision in ("2025-11-25", MODERN):
            async with connected(server, revision=revision) as (client, _):
                wanted = client.listen(tools=True, resources=["few://one"])
                async with wanted as events:
                    assert events.missing == ["toolsListChanged"]

    run(main())


def acked(message: dict[str, Any], line: Line) -> bool:
    if message["method"] != "subscriptions/listen":
        return False
    params = {
        "notifications": message["params"]["notifications"],
        "_meta": {SUBSCRIPTION_ID_KEY: message["id"]},
    }
    line.say(method="notifications/subscriptions/acknowledged", params=params)
    return True


def changed(line: Line, stream: Any) -> None:
    params = {"_meta": {SUBSCRIPTION_ID_KEY: stream}}
    line.say(method="notifications/tools/list_changed", params=params)


@pytest.mark.verifies("C16")
def test_strangers_streams_are_ignored_and_floods_are_merged() -> None:
    async def main() -> None:
        line = script(acked, revision=MODERN)
        async with over(line) as client, client.listen(tools=True) as events:
            for stream in (None, "1", -1, str(events.id), {}, True):
                changed(line, stream)
            assert not events._waiting or list(events._waiting) == [("tools", None, None)]
            events._waiting.clear()
            for _ in range(10_000):
                changed(line, events.id)
            assert len(events._waiting) == 1
            for number in range(MAX_WAITING + 50):
                params = {"uri": f"a://{number}", "_meta": {SUBSCRIPTION_ID_KEY: events.id}}
                line.say(method="notifications/resources/updated", params=params)
            assert len(events._waiting) == MAX_WAITING

    run(main())


@pytest.mark.parametrize("ending", ["result", "cancelled"])
def test_the_server_may_end_it_in_two_ways(ending: str) -> None:
    async def main() -> None:
        line = script(acked, revision=MODERN)
        async with over(line) as client, client.listen(tools=True) as events:
            changed(line, events.id)
            if ending == "result":
                line.say(id=events.id, result={**stamped()})
            else:
                line.say(method="notifications/cancelled", params={"requestId": events.id})
            assert [event.kind async for event in events] == ["tools"]

    run(main())


def test_a_refused_subscription_is_the_callers_exception() -> None:
    async def main() -> None:
        line = script(lambda m, at: at.error(m, -32601, "Method not found"), revision=MODERN)
        async with over(line) as client:
            with pytest.raises(McpError, match="Method not found"):
                async with client.listen(tools=True):
                    pass

    run(main())


def test_a_subscription_nobody_acknowledges_times_out() -> None:
    async def main() -> None:
        line = script(lambda m, at: None, revision=MODERN)
        async with over(line, timeout=0.05) as client:
            with pytest.raises(TimeoutError):
                async with client.listen(tools=True):
                    pass

    run(main())


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
def test_a_dead_server_ends_the_iteration_with_an_exception(revision: str) -> None:
    async def main() -> None:
        line = script(acked, revision=revision)
        async with over(line) as client, client.listen(tools=True) as events:
            asyncio.get_running_loop().call_soon(line.hang_up)
            with pytest.raises(ConnectionClosed):
                await next_of(events)

    run(main())


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
@pytest.mark.verifies("C16", "SH-restart")
def test_listening_goes_on_after_a_reconnection(revision: str) -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        if not acked(message, line) and message["method"] == "resources/subscribe":
            line.result(message, {})

    async def main() -> None:
        offered = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
        line = script(serve, revision=revision, capabilities=offered)
        async with (
            over(line, reconnect=True) as client,
            client.listen(tools=True, resources=["a://b"]) as events,
        ):
            line.hang_up()
            assert (await next_of(events)).kind == "reconnected"
            asked = "subscriptions/listen" if revision == MODERN else "resources/subscribe"
            await until(lambda: [m["method"] for m in line.received].count(asked) == 2)
            await until(lambda: line.opened == 2)
            changed(line, events.id if revision == MODERN else None)
            assert (await next_of(events)).kind == "tools"

    run(main())


def test_other_notifications_go_to_their_own_handler() -> None:
    async def main() -> None:
        heard: list[Any] = []
        line = script(lambda m, at: None)
        async with over(line, on_notification=lambda m, p: heard.append((m, p))):
            line.say(method="notifications/own", params={"x": 1})
            line.say(method="notifications/bare")
        assert heard[0] == ("notifications/own", {"x": 1})
        assert heard[1][0] == "notifications/bare"

    run(main())


def test_the_last_who_listens_ends_the_subscription() -> None:
    async def main() -> None:
        async with connected(demo(), revision="2025-11-25") as (client, recorder):
            async with client.listen(resources=["demo://text"]):
                async with client.listen(resources=["demo://text"]):
                    assert len(sent(recorder, "resources/subscribe")) == 1
                assert not sent(recorder, "resources/unsubscribe")
            await until(lambda: sent(recorder, "resources/unsubscribe"))
            async with client.listen(resources=["demo://text"]):
                assert len(sent(recorder, "resources/subscribe")) == 2

    run(main())
