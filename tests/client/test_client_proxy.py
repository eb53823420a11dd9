"""One server offered on: any revision on any other, questions and changes included."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clientkit import ALL, MODERN, Line, connected, demo, over, script
from msgspec import Struct

from dovetail import Client, Context, Elicit, McpError, Roots, Sample, Server
from dovetail.client.negotiate import Verdicts
from dovetail.errors import LocalProtocolError
from support import run

ASKING = ("2025-06-18", "2025-11-25", MODERN)


def proxied(server: Server, revision: str, **options: Any) -> Server:
    return Server.proxy(Client.memory(server, revision=revision, known=Verdicts(), **options))


@pytest.mark.parametrize("behind", ALL)
@pytest.mark.parametrize("before", ALL)
def test_everything_once_from_each_revision_to_each(before: str, behind: str) -> None:
    async def main() -> None:
        async with connected(proxied(demo(), behind), revision=before) as (client, _):
            assert client.server is not None
            assert client.server.name == "demo"
            assert client.instructions == "Be gentle."
            assert (await client.call("add", {"a": 1, "b": 2})).text == "3"
            assert (await client.call("fail")).is_error
            seen: list[Any] = []
            assert (await client.call("steps", {"n": 2}, on_progress=seen.append)).text == "done"
            assert seen[-1].done == 2
            assert [t.name async for t in client.tools()] == ["add", "fail", "steps"]
            assert (await client.read("demo://text"))[0].text == "hello"
            assert (await client.read("demo://item/9"))[0].text == "item 9"
            prompt = await client.prompt("greet", {"name": "Eve"})
            assert prompt.messages[0].content.text == "Hello Eve"
            found = await client.complete("demo://item/{id}", "id", "x")
            assert found.values == ["x1", "x2"]
            with pytest.raises(McpError):
                await client.read("demo://nothing")
            with pytest.raises(McpError):
                await client.call("nobody")

    run(main())


class Sure(Struct):
    sure: bool


def asking() -> Server:
    server = Server("asking")
    server.runs = 0  # type: ignore[attr-defined]

    @server.tool
    async def ask(n: int, *, ctx: Context[Any]) -> str:
        server.runs += 1  # type: ignore[attr-defined]
        first = await ctx.ask("one", Elicit(f"First {n}?", Sure))
        second = await ctx.ask("two", Elicit(f"Second {n}?", Sure))
        return f"{n} {first.value.sure} {second.value.sure}"

    @server.tool
    async def model(*, ctx: Context[Any]) -> str:
        return (await ctx.ask("s", Sample("Hi", max_tokens=3))).text

    @server.tool
    async def places(*, ctx: Context[Any]) -> int:
        return len(await ctx.ask("r", Roots()))

    return server


@pytest.mark.parametrize("behind", ASKING)
@pytest.mark.parametrize("before", ASKING)
def test_questions_are_passed_on(before: str, behind: str) -> None:
    async def main() -> None:
        server = asking()
        asked: list[str] = []

        def answer(question: Any) -> Any:
            asked.append(question.message)
            return {"sure": True}

        options = {"on_elicit": answer, "on_sample": lambda p: "ho", "roots": ["/tmp"]}
        async with connected(proxied(server, behind), revision=before, **options) as (client, _):
            assert (await client.call("ask", {"n": 1})).text == "1 True True"
            assert asked == ["First 1?", "Second 1?"]
            if behind != MODERN:  # the request behind went on while the one before came back
                assert server.runs == 1  # type: ignore[attr-defined]
            assert (await client.call("model")).text == "ho"
            assert (await client.call("places")).text == "1"

    run(main())


def test_requests_that_wait_for_an_answer_are_told_apart() -> None:
    async def main() -> None:
        options = {"revision": MODERN, "on_elicit": lambda q: {"sure": q.message.endswith("1?")}}
        async with connected(proxied(asking(), MODERN), **options) as (client, _):
            results = await asyncio.gather(*(client.call("ask", {"n": n}) for n in (1, 2, 1, 2)))
            assert [r.text for r in results] == ["1 True True", "2 False False"] * 2

    run(main())


def test_a_client_that_cannot_be_asked() -> None:
    async def main() -> None:
        for before in ("2024-11-05", "2025-11-25"):
            async with connected(proxied(asking(), "2025-11-25"), revision=before) as (client, _):
                assert (await client.call("ask", {"n": 1})).is_error

    run(main())


@pytest.mark.parametrize("behind", ["2025-11-25", MODERN])
@pytest.mark.parametrize("before", ["2025-11-25", MODERN])
def test_changes_are_passed_on(before: str, behind: str) -> None:
    async def main() -> None:
        server = demo()
        async with connected(proxied(server, behind), revision=before) as (client, _):
            wanted = client.listen(tools=True, resources=["demo://text"])
            async with wanted as events:
                assert events.missing == []

                @server.tool
                async def later() -> int:
                    return 5

                assert (await anext(events)).kind == "tools"
                assert (await client.call("later")).text == "5"
                server.updated("demo://text")
                event = await anext(events)
                assert (event.kind, event.uri) == ("resource", "demo://text")

    run(main())


def test_a_dead_server_behind_is_an_error_and_a_new_one_is_found() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        if line.opened == 1:
            line.hang_up()
        else:
            line.result(message, {"content": [{"type": "text", "text": "back"}]})

    async def main() -> None:
        line = script(serve)
        server = Server.proxy(over(line, reconnect=True))
        async with connected(server) as (client, _):
            with pytest.raises(McpError, match="Internal error"):
                await client.call("add")
            assert (await client.call("add")).text == "back"

    run(main())


def test_cancelling_reaches_the_server_behind() -> None:
    ended = asyncio.Event()
    started = asyncio.Event()
    server = Server("slow")

    @server.tool
    async def wait() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async def main() -> None:
        async with connected(proxied(server, "2025-11-25")) as (client, _):
            call = asyncio.ensure_future(client.call("wait"))
            await started.wait()
            call.cancel()
            await asyncio.wait_for(ended.wait(), 5)

    run(main())


def test_a_proxy_of_a_proxy_under_another_name() -> None:
    async def main() -> None:
        inner = proxied(demo(), "2025-06-18")
        outer = Server.proxy(Client.memory(inner, known=Verdicts()), name="front", version="2")
        async with connected(outer) as (client, _):
            assert client.server is not None
            assert client.server.name == "front"
            assert (await client.call("add", {"a": 2, "b": 2})).text == "4"

    run(main())


def test_an_open_client_cannot_be_proxied() -> None:
    async def main() -> None:
        async with Client.memory(demo()) as client:
            with pytest.raises(LocalProtocolError):
                Server.proxy(client)

    run(main())
