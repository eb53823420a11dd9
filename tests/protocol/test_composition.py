"""What is put around, under and beside a server: middleware, lifespan, mounts, apps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from dovetail import (
    Call,
    Context,
    Elicit,
    McpError,
    Next,
    RateLimit,
    ResponseLimit,
    Server,
)
from dovetail.ext import apps
from dovetail.spec.meta import SERVER_INFO_KEY, TASKS_EXTENSION, UI_EXTENSION
from dovetail.testing import TestClient, connect
from support import no_crash, run

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
both_eras = pytest.mark.parametrize("revision", [D, E])


class Name(msgspec.Struct):
    name: str


def plain(name: str = "s") -> Server:
    server = Server(name, version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


async def text(client: TestClient, name: str, arguments: dict[str, Any] | None = None) -> str:
    return str((await client.call(name, arguments))["content"][0]["text"])


async def names(client: TestClient, kind: str) -> list[str]:
    method, member, key = {
        "tools": ("tools/list", "tools", "name"),
        "prompts": ("prompts/list", "prompts", "name"),
        "resources": ("resources/list", "resources", "uri"),
        "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    }[kind]
    return [item[key] for item in (await client.request(method))[member]]


# -- middleware ----------------------------------------------------------------------------------


@every_revision
def test_the_first_middleware_is_outermost_and_sees_everything(revision: str) -> None:
    server = plain()
    seen: list[Any] = []

    def watch(label: str) -> None:
        @server.middleware
        async def middleware(call: Call, next: Next) -> Any:
            seen.append((label, call.method, call.name))
            result = await next(call)
            seen.append((label, "done"))
            return result

    watch("outer")
    watch("inner")

    @server.resource("x://y")
    def read() -> str:
        return "text"

    @server.prompt
    def say() -> str:
        return "hello"

    @server.method("own/thing")
    def thing() -> None: ...

    async def main() -> None:
        async with connect(server, revision) as client:
            seen.clear()
            for method, params, name in (
                ("tools/list", {}, None),
                ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "add"),
                ("resources/read", {"uri": "x://y"}, "x://y"),
                ("prompts/get", {"name": "say"}, "say"),
                ("own/thing", {}, None),
            ):
                await client.request(method, params)
                assert seen == [
                    ("outer", method, name),
                    ("inner", method, name),
                    ("inner", "done"),
                    ("outer", "done"),
                ]
                seen.clear()
            if revision == E:
                await client.request("server/discover")
            else:
                await client.request("ping")
            assert seen == [], "the lifecycle is not theirs"

    run(main())


@every_revision
def test_a_middleware_sees_the_context_and_the_session(revision: str) -> None:
    server = plain()
    seen: list[Any] = []

    @server.middleware
    async def look(call: Call, next: Next) -> Any:
        seen.append((call.context.revision, call.context.meta.get("example.org/x")))
        call.session.notes["calls"] = call.session.notes.get("calls", 0) + 1
        result = await next(call)
        seen.append((call.session.notes["calls"], result.is_error, result.content[0].text))
        return result

    async def main() -> None:
        async with connect(server, revision) as client:
            call = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {"example.org/x": 7}}
            await client.request("tools/call", call)

    run(main())
    assert seen == [(revision, 7), (1, False, "3")]


@both_eras
def test_a_middleware_can_answer_itself(revision: str) -> None:
    server = plain()
    ran: list[int] = []

    @server.tool
    async def counted() -> str:
        ran.append(1)
        return "ran"

    @server.middleware
    async def gate(call: Call, next: Next) -> Any:
        if call.name == "counted":
            return call.session.server.tools["counted"].failed("closed", call.request.revision)
        if call.name == "secret":
            raise McpError(4001, "Forbidden", {"who": "you"})
        return await next(call)

    async def main() -> None:
        async with connect(server, revision) as client:
            result = await client.call("counted")
            assert (result["isError"], result["content"][0]["text"]) == (True, "closed")
            error = (await client.answer("tools/call", {"name": "secret"}))["error"]
            assert error == {"code": 4001, "message": "Forbidden", "data": {"who": "you"}}
            assert await text(client, "add", {"a": 1, "b": 2}) == "3"
            assert ran == []

    run(main())


@both_eras
def test_a_middleware_that_crashes_is_logged_and_says_nothing(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = plain()

    @server.middleware
    async def crash(call: Call, next: Next) -> Any:
        if call.name == "add":
            raise RuntimeError("a secret")
        return await next(call)

    async def main() -> None:
        async with connect(server, revision) as client:
            error = (await client.answer("tools/call", {"name": "add"}))["error"]
            assert error == {"code": -32603, "message": "Internal error"}
            assert await names(client, "tools") == ["add"]

    run(main())
    assert "a secret" in caplog.text


@both_eras
def test_a_middleware_sees_the_errors_of_the_protocol(revision: str) -> None:
    server = plain()
    seen: list[int] = []

    @server.middleware
    async def watch(call: Call, next: Next) -> Any:
        try:
            return await next(call)
        except McpError as error:
            seen.append(error.code)
            raise McpError(error.code, "in other words") from error

    async def main() -> None:
        async with connect(server, revision) as client:
            error = (await client.answer("tools/call", {"name": "nobody"}))["error"]
            assert (error["code"], error["message"]) == (-32602, "in other words")

    run(main())
    assert seen == [-32602]


def test_input_required_is_a_result_like_any_other() -> None:
    server = Server("s", version="1")
    kinds: list[str] = []

    @server.tool
    async def greet(ctx: Context) -> str:
        return (await ctx.ask("who", Elicit("Who?", Name))).value.name

    @server.middleware
    async def watch(call: Call, next: Next) -> Any:
        result = await next(call)
        kind = result["resultType"] if isinstance(result, dict) else result.result_type
        kinds.append(kind)
        return result

    async def main() -> None:
        async with connect(server, E, capabilities={"elicitation": {}}) as client:
            asked = await client.call("greet")
            assert asked["resultType"] == "input_required"
            retry = {
                "name": "greet",
                "inputResponses": {"who": {"action": "accept", "content": {"name": "Ann"}}},
                "requestState": asked["requestState"],
            }
            assert (await client.request("tools/call", retry))["content"][0]["text"] == "Ann"

    run(main())
    assert kinds == ["input_required", "complete"]


@both_eras
def test_a_cancellation_goes_through_the_middleware(revision: str) -> None:
    server = plain()
    seen: list[str] = []

    @server.tool
    async def forever() -> None:
        await asyncio.Event().wait()

    @server.middleware
    async def watch(call: Call, next: Next) -> Any:
        try:
            return await next(call)
        finally:
            seen.append(f"{call.name} left")

    async def main() -> None:
        async with connect(server, revision) as client:
            id, future = client.start("tools/call", {"name": "forever"})
            await asyncio.sleep(0.01)
            client.notify("notifications/cancelled", {"requestId": id})
            await client.settle()
            assert (seen, future.done()) == (["forever left"], False)
            assert await text(client, "add", {"a": 1, "b": 2}) == "3"

    run(main())


def test_a_middleware_sees_the_making_of_a_task_not_its_end() -> None:
    server = Server("s", version="1")
    seen: list[Any] = []

    @server.tool(task="optional")
    async def long() -> str:
        return "long"

    @server.middleware
    async def watch(call: Call, next: Next) -> Any:
        result = await next(call)
        seen.append((call.method, sorted(result)[:1]))
        return result

    async def main() -> None:
        async with connect(server, D) as client:
            made = await client.request("tools/call", {"name": "long", "task": {}})
            await client.request("tasks/result", {"taskId": made["task"]["taskId"]})

    run(main())
    assert seen == [("tools/call", ["task"]), ("tasks/result", ["_meta"])]


# -- the ready ones ------------------------------------------------------------------------------


@both_eras
def test_a_rate_limit_lets_a_burst_through_and_then_so_many_per_second(revision: str) -> None:
    server = plain()
    now = [100.0]
    server.middleware(RateLimit(2, burst=3, clock=lambda: now[0]))

    async def main() -> None:
        async with connect(server, revision) as client, connect(server, revision) as other:

            async def error() -> Any:
                call = {"name": "add", "arguments": {"a": 1, "b": 2}}
                return (await client.answer("tools/call", call)).get("error")

            assert [await error() for _ in range(3)] == [None] * 3
            assert await error() == {
                "code": -32603,
                "message": "Internal error",
                "data": "Rate limit exceeded: try again in 0.5 seconds",
            }
            assert await text(other, "add", {"a": 1, "b": 2}) == "3", "each client has its own"
            now[0] += 0.25
            assert (await error())["data"].endswith("0.2 seconds")
            now[0] += 0.25
            assert [bool(await error()) for _ in range(2)] == [False, True]
            now[0] += 1000
            assert [bool(await error()) for _ in range(4)] == [False, False, False, True]
            if revision == D:
                assert await client.request("ping") == {}, "the lifecycle is not limited"

    run(main())


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_rate_limit_that_lets_nothing_through(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="must let something through"):
        RateLimit(rate, burst=burst)


@every_revision
def test_a_limit_on_the_size_of_results(revision: str) -> None:
    server = Server("s", version="1")
    server.middleware(ResponseLimit(2_000))

    @server.tool
    async def big(size: int) -> str:
        return "x" * size

    @server.resource("big://{size}")
    def read(size: int) -> str:
        return "x" * size

    async def main() -> None:
        with no_crash():
            async with connect(server, revision) as client:
                assert (await client.call("big", {"size": 10}))["isError"] is False
                result = await client.call("big", {"size": 5_000})
                assert result["isError"] is True
                said = result["content"][0]["text"]
                assert said.startswith("The result is too large: ")
                assert said.endswith(" bytes, 2000 are allowed")
                assert "structuredContent" not in result
                assert (await client.request("resources/read", {"uri": "big://5"}))["contents"]
                error = (await client.answer("resources/read", {"uri": "big://5000"}))["error"]
                assert error["code"] == -32603
                assert error["data"].startswith("The result is too large: ")

    run(main())


def test_a_tool_that_removes_itself_is_limited_too() -> None:
    server = Server("s", version="1")
    server.middleware(ResponseLimit(100))

    @server.tool
    async def last() -> str:
        last.remove()
        return "x" * 500

    server.tool(name="other")(lambda: None)

    async def main() -> None:
        with no_crash():
            async with connect(server, D) as client:
                error = (await client.answer("tools/call", {"name": "last"}))["error"]
                assert error["data"].startswith("The result is too large: ")

    run(main())


# -- lifespan ------------------------------------------------------------------------------------


class Db(msgspec.Struct):
    name: str
    open: bool = True


def with_lifespan() -> tuple[Server, list[str]]:
    server = Server("s", version="1")
    events: list[str] = []

    @server.lifespan
    async def lifespan(server: Server) -> AsyncIterator[Db]:
        events.append(f"open {server.name}")
        db = Db("notes")
        try:
            yield db
        finally:
            await asyncio.sleep(0.002)  # long enough for others to come meanwhile
            db.open = False
            events.append("close")

    @server.tool
    def look(ctx: Context[Db]) -> str:
        return f"{ctx.state.name} {ctx.state.open}"

    return server, events


def test_the_state_is_on_the_context_and_shared_by_all_connections() -> None:
    server, events = with_lifespan()

    async def main() -> None:
        async with connect(server, D) as one:
            async with connect(server, E) as two:
                assert await text(one, "look") == await text(two, "look") == "notes True"
            assert events == ["open s"]
            assert await text(one, "look") == "notes True"
        assert events == ["open s", "close"]
        async with connect(server, D) as three:
            assert await text(three, "look") == "notes True"
        assert events == ["open s", "close"] * 2

    run(main())


def test_who_comes_while_it_is_being_closed_gets_a_new_one() -> None:
    server, events = with_lifespan()

    async def main() -> None:
        lifespan = server.running()
        await lifespan.__aenter__()
        closing = asyncio.create_task(lifespan.__aexit__(None, None, None))
        await asyncio.sleep(0)
        async with connect(server, D) as client:
            await closing
            assert await text(client, "look") == "notes True"
        assert events == ["open s", "close"] * 2

    run(main())


def test_a_lifespan_that_cannot_open_says_why_and_can_try_again() -> None:
    server = Server("s", version="1")
    events: list[str] = []
    works = [False]

    guest = Server("guest", version="1")

    @guest.lifespan
    async def guests(server: Server) -> AsyncIterator[str]:
        events.append("guest open")
        yield "guest"
        events.append("guest close")

    @server.lifespan
    async def lifespan(server: Server) -> AsyncIterator[str]:
        if not works[0]:
            raise OSError("no database at db://notes")
        yield "state"

    @server.tool(task="optional")
    def look(ctx: Context[str]) -> str:
        return ctx.state

    server.mount(guest, "guest")

    async def main() -> None:
        with pytest.raises(OSError, match="no database at db://notes"):
            async with connect(server, D):
                pass
        assert events == ["guest open", "guest close"], "what was open is closed again"
        works[0] = True
        async with connect(server, D) as client:
            assert await text(client, "look") == "state"
        assert events == ["guest open", "guest close"] * 2

    run(main())


def test_running_tasks_end_before_the_state_they_use() -> None:
    server = Server("s", version="1")
    events: list[str] = []

    @server.lifespan
    async def lifespan(server: Server) -> AsyncIterator[Db]:
        db = Db("notes")
        yield db
        db.open = False

    @server.tool(task="required")
    async def work(ctx: Context[Db]) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            events.append(f"open: {ctx.state.open}")
        return ""

    async def main() -> None:
        async with connect(server, D) as client:
            await client.request("tools/call", {"name": "work", "task": {}})
            await asyncio.sleep(0)

    run(main())
    assert events == ["open: True"]


def test_a_server_has_one_lifespan() -> None:
    server, _ = with_lifespan()
    with pytest.raises(ValueError, match="has a lifespan already"):
        server.lifespan(lambda server: None)  # type: ignore[arg-type,return-value]


def test_the_state_outside_of_the_lifespan() -> None:
    server, _ = with_lifespan()
    with pytest.raises(RuntimeError, match="the lifespan is not open"):
        _ = server.state
    assert plain().state is None


# -- mount ---------------------------------------------------------------------------------------


def guest_server() -> Server:
    guest = Server("guest", version="2")

    @guest.tool
    async def cook(what: str) -> str:
        """Cook something."""
        return f"{what} is ready"

    @guest.prompt
    def recipe(dish: str) -> str:
        return f"How do I make {dish}?"

    @recipe.complete("dish")
    def dishes(prefix: str) -> list[str]:
        return [dish for dish in ("soup", "stew") if dish.startswith(prefix)]

    @guest.resource("menu://today")
    def menu() -> str:
        return "soup"

    @guest.resource("dish://{name}")
    def dish(name: str) -> str:
        return f"a plate of {name}"

    @dish.complete("name")
    def complete_name(prefix: str) -> list[str]:
        return ["soup"]

    return guest


@every_revision
def test_what_the_guest_offers_the_host_offers_too(revision: str) -> None:
    host = plain("host")
    host.mount(guest_server(), "kitchen")

    async def main() -> None:
        async with connect(host, revision) as client:
            assert await names(client, "tools") == ["add", "kitchen_cook"]
            assert await names(client, "prompts") == ["kitchen_recipe"]
            assert await names(client, "resources") == ["menu://today"]
            assert await names(client, "templates") == ["dish://{name}"]
            result = await client.call("kitchen_cook", {"what": "soup"})
            assert result["content"][0]["text"] == "soup is ready"
            if revision == E:
                assert result["_meta"][SERVER_INFO_KEY]["name"] == "host", "who answers is the host"
            got = await client.request(
                "prompts/get", {"name": "kitchen_recipe", "arguments": {"dish": "stew"}}
            )
            assert got["messages"][0]["content"]["text"] == "How do I make stew?"
            for uri, contents in (("menu://today", "soup"), ("dish://pie", "a plate of pie")):
                read = await client.request("resources/read", {"uri": uri})
                assert read["contents"][0]["text"] == contents
            for ref, name in (
                ({"type": "ref/prompt", "name": "kitchen_recipe"}, "dish"),
                ({"type": "ref/resource", "uri": "dish://{name}"}, "name"),
            ):
                asked = {"ref": ref, "argument": {"name": name, "value": "so"}}
                done = await client.request("completion/complete", asked)
                assert done["completion"]["values"] == ["soup"]
            bad = await client.call("kitchen_cook", {"what": 7})
            assert bad["isError"] is True
            assert (await client.answer("tools/call", {"name": "cook"}))["error"]["code"] == -32602

    run(main())


def test_a_mount_without_a_prefix_and_several_of_them() -> None:
    host = plain("host")
    host.mount(guest_server())
    other = Server("other")
    other.tool(name="cook")(lambda: None)
    host.mount(other, "other")

    async def main() -> None:
        async with connect(host, D) as client:
            assert await names(client, "tools") == ["add", "cook", "other_cook"]

    run(main())


@both_eras
def test_changes_of_the_guest_are_changes_of_the_host(revision: str) -> None:
    host, guest = plain("host"), guest_server()
    host.mount(guest, "kitchen")

    async def main() -> None:
        async with connect(host, revision) as client:
            if revision == E:
                wanted = {"notifications": {"toolsListChanged": True}}
                client.start("subscriptions/listen", wanted)
                await client.receive()

            async def changed() -> list[str]:
                note = await client.receive()
                assert note["method"] == "notifications/tools/list_changed"
                return await names(client, "tools")

            @guest.tool
            async def bake() -> str:
                return "bread"

            assert await changed() == ["add", "kitchen_cook", "kitchen_bake"]
            assert await text(client, "kitchen_bake") == "bread"
            bake.disable()
            assert await changed() == ["add", "kitchen_cook"]
            error = (await client.answer("tools/call", {"name": "kitchen_bake"}))["error"]
            assert error["code"] == -32602
            bake.enable()
            assert await changed() == ["add", "kitchen_cook", "kitchen_bake"]
            bake.remove()
            assert await changed() == ["add", "kitchen_cook"]

    run(main())


def test_a_resource_that_the_guest_updates() -> None:
    host, guest = plain("host"), guest_server()
    host.mount(guest, "kitchen")

    async def main() -> None:
        async with connect(host, D) as client:
            await client.request("resources/subscribe", {"uri": "menu://today"})
            guest.updated("menu://today")
            (note,) = await client.settle()
            assert note["params"] == {"uri": "menu://today"}

    run(main())


def test_a_tool_of_the_guest_updates_a_resource_and_subscribers_of_the_host_hear_it() -> None:
    host, guest = plain("host"), guest_server()

    @guest.tool
    async def change(ctx: Context) -> None:
        ctx.updated("menu://today")

    host.mount(guest, "kitchen")

    async def main() -> None:
        async with connect(host, D) as client:
            await client.request("resources/subscribe", {"uri": "menu://today"})
            await client.call("kitchen_change")
            (note,) = await client.settle()
            assert note["params"] == {"uri": "menu://today"}

    run(main())


def test_the_guest_has_its_own_state() -> None:
    host, _ = with_lifespan()
    guest, events = with_lifespan()
    guest.tool(name="where")(lambda: guest.state.name)
    host.mount(guest, "guest")

    async def main() -> None:
        async with connect(host, D) as client:
            assert host.state is not guest.state
            assert await text(client, "guest_look") == "notes True"
            assert await text(client, "guest_where") == "notes"
        assert events == ["open s", "close"]

    run(main())


def test_mounts_in_mounts() -> None:
    host, middle, inner = plain("host"), Server("middle"), guest_server()
    middle.mount(inner, "in")
    host.mount(middle, "mid")

    async def main() -> None:
        async with connect(host, D) as client:
            assert await names(client, "tools") == ["add", "mid_in_cook"]
            assert await names(client, "prompts") == ["mid_in_recipe"]
            assert await names(client, "resources") == ["menu://today"]
            inner.tool(name="bake")(lambda: "bread")
            note = await client.receive()
            assert note["method"] == "notifications/tools/list_changed"
            assert await names(client, "tools") == ["add", "mid_in_cook", "mid_in_bake"]
            assert await text(client, "mid_in_bake") == "bread"
            await asyncio.sleep(0.03)
            assert await client.settle() == [], "one burst, one message"

    run(main())


def taken_tool(host: Server) -> None:
    host.tool(name="kitchen_cook")(lambda: None)


def taken_prompt(host: Server) -> None:
    host.prompt(name="kitchen_recipe")(lambda: "")


def taken_resource(host: Server) -> None:
    host.resource("menu://today")(lambda: "")


@pytest.mark.parametrize("take", [taken_tool, taken_prompt, taken_resource])
def test_a_name_that_is_taken_stops_the_whole_mount(take: Callable[[Server], None]) -> None:
    host = plain("host")
    take(host)
    before = [list(registry) for registry in (host.tools, host.prompts, host.resources)]
    guest = guest_server()
    with pytest.raises(ValueError, match="is already registered"):
        host.mount(guest, "kitchen")
    after = [list(registry) for registry in (host.tools, host.prompts, host.resources)]
    assert after == before
    assert not host.templates
    guest.tool(name="later")(lambda: None)
    assert "kitchen_later" not in host.tools, "it is not mounted at all"


def test_a_name_that_is_taken_later_leaves_the_host_as_it_was() -> None:
    host, guest = plain("host"), guest_server()
    host.mount(guest, "kitchen")
    host.tool(name="kitchen_bake")(lambda: None)
    with pytest.raises(ValueError, match="tool 'kitchen_bake' is already registered"):
        guest.tool(name="bake")(lambda: None)
    assert sorted(host.tools) == ["add", "kitchen_bake", "kitchen_cook"]


def test_a_circle_of_mounts() -> None:
    one, two, three = Server("one"), Server("two"), Server("three")
    with pytest.raises(ValueError, match="'one' cannot be mounted on itself"):
        one.mount(one)
    one.mount(two)
    two.mount(three)
    with pytest.raises(ValueError, match="cannot be mounted on itself"):
        three.mount(one)


@both_eras
def test_a_task_through_a_mount(revision: str) -> None:
    host, guest = plain("host"), Server("guest")

    @guest.lifespan
    async def lifespan(server: Server) -> AsyncIterator[str]:
        yield "flour"

    @guest.tool(task="required")
    async def bake(ctx: Context[str]) -> str:
        await asyncio.sleep(0)
        return f"bread of {ctx.state}"

    host.mount(guest, "kitchen")

    async def main() -> None:
        capabilities = {"extensions": {TASKS_EXTENSION: {}}} if revision == E else {}
        async with connect(host, revision, capabilities=capabilities) as client:
            call: dict[str, Any] = {"name": "kitchen_bake"}
            if revision == D:
                made = await client.request("tools/call", {**call, "task": {}})
                id = made["task"]["taskId"]
                result = await client.request("tasks/result", {"taskId": id})
            else:
                id = (await client.request("tools/call", call))["taskId"]
                found: dict[str, Any] = {}
                while "result" not in found:
                    found = await client.request("tasks/get", {"taskId": id})
                result = found["result"]
            assert result["content"][0]["text"] == "bread of flour"

    run(main())


def test_a_task_tool_that_comes_while_serving_ends_with_the_server() -> None:
    host, guest = plain("host"), Server("guest")
    stopped: list[str] = []
    host.mount(guest, "kitchen")

    async def main() -> None:
        async with connect(host, D) as client:

            @guest.tool(task="required")
            async def bake() -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.append("bake")

            await client.request("tools/call", {"name": "kitchen_bake", "task": {}})
            await asyncio.sleep(0)
        assert stopped == ["bake"]

    run(main())


@both_eras
def test_a_guest_asks_the_client_of_the_host(revision: str) -> None:
    host, guest = plain("host"), Server("guest")

    @guest.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.ask("who", Elicit("Who?", Name))
        ctx.log("warning", "asked")
        return answer.value.name

    host.mount(guest, "g")
    given = {"action": "accept", "content": {"name": "Ann"}}

    async def main() -> None:
        async with connect(host, revision, capabilities={"elicitation": {}}) as client:
            if revision == D:
                _, calling = client.start("tools/call", {"name": "g_greet"})
                question = await client.receive()
                client._send({"id": question["id"], "result": given})
                result = (await calling)["result"]
                assert (await client.receive())["params"]["data"] == "asked"
            else:
                asked = await client.call("g_greet")
                retry = {"name": "g_greet", "requestState": asked["requestState"]}
                retry["inputResponses"] = {"who": given}
                result = await client.request("tools/call", retry)
            assert result["content"][0]["text"] == "Ann"

    run(main())


# -- apps ----------------------------------------------------------------------------------------


def app_server() -> Server:
    server = Server("s", version="1")
    apps.page(
        server,
        "ui://clock",
        "<h1>12:00</h1>",
        csp={"connectDomains": ["https://time.example.org"]},
        permissions={"geolocation": {}},
        domain="clock.example.org",
        prefers_border=True,
    )
    apps.page(server, "ui://plain", "<p>", name="Plain")

    @server.tool(meta=apps.shows("ui://clock", visibility=["model", "app"]))
    def clock(ctx: Context) -> str:
        return "shown" if apps.can_show(ctx) else "12:00"

    @server.tool(meta=apps.shows("ui://plain"))
    def other() -> str:
        return ""

    return server


@every_revision
def test_the_shapes_of_an_app(revision: str) -> None:
    async def main() -> None:
        async with connect(app_server(), revision, handshake=False) as client:
            if revision == E:
                told = await client.request("server/discover")
                assert told["capabilities"]["extensions"] == {UI_EXTENSION: {}}
            else:
                await client.initialize()
            tools = (await client.request("tools/list"))["tools"]
            shown = [tool.get("_meta") for tool in tools]
            if revision in (C, D, E):
                ui = {"resourceUri": "ui://clock", "visibility": ["model", "app"]}
                assert shown == [{"ui": ui}, {"ui": {"resourceUri": "ui://plain"}}]
            listed = (await client.request("resources/list"))["resources"]
            assert [(one["uri"], one["name"], one["mimeType"]) for one in listed] == [
                ("ui://clock", "clock", "text/html;profile=mcp-app"),
                ("ui://plain", "Plain", "text/html;profile=mcp-app"),
            ]
            (page,) = (await client.request("resources/read", {"uri": "ui://clock"}))["contents"]
            assert (page["uri"], page["mimeType"]) == ("ui://clock", apps.MIME_TYPE)
            assert page["text"] == "<h1>12:00</h1>"
            if revision in (C, D, E):
                assert page["_meta"] == {
                    "ui": {
                        "csp": {"connectDomains": ["https://time.example.org"]},
                        "permissions": {"geolocation": {}},
                        "domain": "clock.example.org",
                        "prefersBorder": True,
                    }
                }
            (bare,) = (await client.request("resources/read", {"uri": "ui://plain"}))["contents"]
            assert "_meta" not in bare

    run(main())


@pytest.mark.verifies("X35")
@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"mimeTypes": ["text/html;profile=mcp-app"]}, True),
        ({"mimeTypes": ["text/html"]}, False),
        ({"mimeTypes": "text/html;profile=mcp-app"}, False),
        ({"mimeTypes": 7}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_client_that_shows_no_pages_reads_the_text(settings: Any, shown: bool) -> None:
    async def main() -> None:
        async with connect(app_server(), E) as client:
            assert await text(client, "clock") == "12:00"
        declared = {"extensions": {UI_EXTENSION: settings}}
        with no_crash():
            async with connect(app_server(), E, capabilities={}) as client:
                call = client._params({"name": "clock"}, True)["params"]
                call["_meta"]["io.modelcontextprotocol/clientCapabilities"] = declared
                frame = {"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": call}
                client.send(msgspec.json.encode(frame))
                said = (await client.receive())["result"]["content"][0]["text"]
                assert said == ("shown" if shown else "12:00")

    run(main())


@pytest.mark.parametrize("uri", ["https://example.org", "clock", "UI://clock", ""])
def test_a_page_has_a_ui_uri(uri: str) -> None:
    with pytest.raises(ValueError, match="must start with ui://"):
        apps.page(Server("s"), uri, "")
    with pytest.raises(ValueError, match="must start with ui://"):
        apps.shows(uri)
