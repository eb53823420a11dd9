"""docs/features.md does what it says: every program in it is run and driven."""

from __future__ import annotations

import asyncio
import re
import sys
import types
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.spec.meta import LOG_LEVEL_KEY, TASKS_EXTENSION, UI_EXTENSION
from dovetail.testing import TestClient, connect
from support import run

PAGE = (Path(__file__).parents[1] / "docs" / "features.md").read_text("utf-8")
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
SECTIONS = {heading: CODE.findall(body) for heading, body in SECTION.findall(PAGE)}
D, E = "2025-11-25", "2026-07-28"
MAX_LINES = 15

Drive = Callable[[Any], Coroutine[Any, Any, None]]
DRIVES: dict[str, Drive] = {}


def drives(heading: str) -> Callable[[Drive], Drive]:
    """The test of one section: it gets the module that the program makes."""

    def register(drive: Drive) -> Drive:
        DRIVES[heading] = drive
        return drive

    return register


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def answered(client: TestClient, method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Wait for a question of the server, answer it, and return its params."""
    while (message := await client.receive()).get("method") != method:
        pass
    client._send({"id": message["id"], "result": result})
    params: dict[str, Any] = message.get("params", {})
    return params


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


# -- the sections --------------------------------------------------------------------------------


@drives("Progress")
async def progress(module: Any) -> None:
    async with connect(module.server) as client:
        call = {"name": "copy", "arguments": {"files": ["a", "b"]}, "_meta": {"progressToken": 1}}
        assert text(await client.request("tools/call", call)) == "2"
        said = [message["params"]["message"] for message in await client.settle()]
        assert said == ["copied a", "copied b"]


@drives("Cancellation")
async def cancellation(module: Any) -> None:
    async with connect(module.server) as client:
        id, future = client.start("tools/call", {"name": "wait", "arguments": {"seconds": 60}})
        await asyncio.sleep(0.01)
        client.notify("notifications/cancelled", {"requestId": id})
        await client.settle()
        assert (module.cleaned, future.done()) == ([60], False)


@drives("Timeout")
async def timeout(module: Any) -> None:
    async with connect(module.server) as client:
        result = await client.call("slow")
        assert result["isError"] is True
        assert text(result) == "Tool 'slow' timed out after 0.05 seconds"


@drives("Elicitation: a form")
async def form(module: Any) -> None:
    async with connect(module.server, D, capabilities={"elicitation": {}}) as client:
        for answer, said in (
            (accept(name="Ann", seats=2), "2 seats for Ann"),
            ({"action": "decline"}, "The user declined the request for input"),
        ):
            _, future = client.start("tools/call", {"name": "book"})
            params = await answered(client, "elicitation/create", answer)
            assert params["requestedSchema"]["required"] == ["name"]
            assert text((await future)["result"]) == said
    async with connect(module.server, D) as client:
        assert text(await client.call("book")) == "The client does not support elicitation"


@drives("Elicitation: a page")
async def page(module: Any) -> None:
    async with connect(module.server, D, capabilities={"elicitation": {"url": {}}}) as client:
        for action, said in (("accept", "opened"), ("cancel", "not now")):
            _, future = client.start("tools/call", {"name": "connect"})
            params = await answered(client, "elicitation/create", {"action": action})
            assert (params["mode"], params["url"]) == ("url", "https://example.org/sign-in")
            assert text((await future)["result"]) == said


@drives("Sampling")
async def sampling(module: Any) -> None:
    written = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Of Ducks"}}
    async with connect(module.server, D, capabilities={"sampling": {}}) as client:
        _, future = client.start("tools/call", {"name": "title", "arguments": {"text": "ducks"}})
        params = await answered(client, "sampling/createMessage", written)
        assert params["maxTokens"] == 30
        assert text((await future)["result"]) == "Of Ducks"


@drives("Roots")
async def roots(module: Any) -> None:
    declared = {"roots": {"listChanged": True}}
    async with connect(module.server, D, capabilities=declared) as client:
        _, future = client.start("tools/call", {"name": "where"})
        await answered(client, "roots/list", {"roots": [{"uri": "file:///home/ann"}]})
        assert (await future)["result"]["structuredContent"] == {"result": ["file:///home/ann"]}
        client.notify("notifications/roots/list_changed")
        await asyncio.sleep(0.01)
        assert client.connection.session.notes == {"roots": "stale"}


@drives("Input in both eras")
async def both(module: Any) -> None:
    call: dict[str, Any] = {"name": "pay", "arguments": {"euros": 5}}
    capabilities: dict[str, Any] = {"elicitation": {}}
    async with connect(module.server, D, capabilities=capabilities) as client:
        _, future = client.start("tools/call", call)
        await answered(client, "elicitation/create", accept(name="Ann"))
        await answered(client, "elicitation/create", accept(name="Bob"))
        first = text((await future)["result"])
    async with connect(module.server, E, capabilities=capabilities) as client:
        asked = await client.request("tools/call", call)
        for key, name in (("who", "Ann"), ("from", "Bob")):
            assert list(asked["inputRequests"]) == [key]
            more = {"inputResponses": {key: accept(name=name)}}
            state = {"requestState": asked["requestState"]}
            asked = await client.request("tools/call", {**call, **more, **state})
        assert text(asked) == first == "Bob paid Ann 5 euros"
    assert module.paid == [("Bob", "Ann", 5)] * 2


@drives("Changes")
async def changes(module: Any) -> None:
    async with connect(module.server) as client:
        listed = (await client.request("tools/list"))["tools"]
        assert [tool["name"] for tool in listed] == ["unlock"]
        await client.call("unlock")
        assert (await client.receive())["method"] == "notifications/tools/list_changed"
        assert text(await client.call("treasure")) == "gold"


@drives("Subscriptions")
async def subscriptions(module: Any) -> None:
    async with connect(module.server, D) as client:
        await client.request("resources/subscribe", {"uri": "log://all"})
        await client.call("write", {"line": "hello"})
        assert (await client.receive())["params"] == {"uri": "log://all"}
        read = await client.request("resources/read", {"uri": "log://all"})
        assert read["contents"][0]["text"] == "hello"
    async with connect(module.server, E) as client:
        wanted = {"notifications": {"resourceSubscriptions": ["log://all"]}}
        client.start("subscriptions/listen", wanted)
        await client.receive()
        await client.call("write", {"line": "again"})
        assert (await client.receive())["params"]["uri"] == "log://all"


@drives("Logging")
async def logging(module: Any) -> None:
    async with connect(module.server, D) as client:
        await client.request("logging/setLevel", {"level": "warning"})
        await client.call("check")
        message = {"level": "warning", "data": {"disk": "nearly full"}, "logger": "disk"}
        assert [one["params"] for one in await client.settle()] == [message]
    async with connect(module.server, E) as client:
        call = {"name": "check", "_meta": {LOG_LEVEL_KEY: "debug"}}
        await client.request("tools/call", call)
        assert [one["params"]["level"] for one in await client.settle()] == ["debug", "warning"]


@drives("Log handler")
async def log_handler(module: Any) -> None:
    try:
        async with connect(module.server) as client, connect(module.server) as other:
            await client.call("order", {"count": 3})
            (message,) = await client.settle()
            said = {"level": "warning", "data": "only 7 left", "logger": "shop"}
            assert message["params"] == said
            assert await other.settle() == []
    finally:
        module.log.handlers.clear()


@drives("Tasks")
async def tasks(module: Any) -> None:
    call: dict[str, Any] = {"name": "report", "arguments": {"pages": 3}}
    async with connect(module.server, D) as client:
        made = await client.request("tools/call", {**call, "task": {}})
        assert made["task"]["status"] == "working"
        task = {"taskId": made["task"]["taskId"]}
        assert text(await client.request("tasks/result", task)) == "3 pages"
        assert text(await client.request("tools/call", call)) == "3 pages", "or without a task"
    declared = {"extensions": {TASKS_EXTENSION: {}}}
    async with connect(module.server, E, capabilities=declared) as client:
        found = await client.request("tools/call", call)
        assert found["resultType"] == "task"
        while found["status"] == "working":
            found = await client.request("tasks/get", {"taskId": found["taskId"]})
        assert text(found["result"]) == "3 pages"


@drives("Questions before a task")
async def before_task(module: Any) -> None:
    declared = {"elicitation": {}, "extensions": {TASKS_EXTENSION: {}}}
    async with connect(module.server, E, capabilities=declared) as client:
        call = {"name": "erase", "arguments": {"path": "x"}}
        asked = await client.request("tools/call", call)
        assert asked["resultType"] == "input_required"
        answers = {"inputResponses": {"sure": accept(sure=True)}}
        state = {"requestState": asked["requestState"]}
        found = await client.request("tools/call", {**call, **answers, **state})
        assert found["resultType"] == "task"
        while found["status"] == "working":
            found = await client.request("tasks/get", {"taskId": found["taskId"]})
        assert text(found["result"]) == "erased x"


@drives("Tasks that survive a restart")
async def task_store(module: Any) -> None:
    async with connect(module.server, D) as client:
        made = await client.request(
            "tools/call", {"name": "crunch", "arguments": {"n": 5}, "task": {}}
        )
        assert made["task"]["ttl"] == 60_000
        task = {"taskId": made["task"]["taskId"]}
        assert text(await client.request("tasks/result", task)) == "10"
    again = program("Tasks that survive a restart")  # as a new process would
    async with connect(again.server, D) as client:
        assert text(await client.request("tasks/result", task)) == "10"


@drives("Methods and notifications of your own")
async def custom(module: Any) -> None:
    async with connect(module.server) as client:
        assert await client.request("editor/open", {"path": "a.py"}) == {"path": "a.py", "line": 1}
        opened = await client.receive()
        assert (opened["method"], opened["params"]) == ("editor/opened", {"path": "a.py"})
        client.notify("selection_changed", {"text": "duck"})
        seen = await client.receive()
        assert (seen["method"], seen["params"]) == ("selection_seen", {"length": 4})


@drives("Extensions")
async def extensions(module: Any) -> None:
    declared = {"extensions": {"com.example/colours": {"depth": 8}}}
    async with connect(module.server, E, capabilities=declared) as client:
        told = (await client.request("server/discover"))["capabilities"]
        assert told["extensions"] == {"com.example/colours": {"depth": 24}}
        assert told["experimental"] == {"lamp": {}}
        call = {"name": "paint", "_meta": {"com.example/colour": "red"}}
        assert text(await client.request("tools/call", call)) == "red, {'depth': 8}"
    async with connect(module.server, D) as client:
        assert text(await client.call("paint")) == "grey, no colours"


@drives("Apps")
async def apps(module: Any) -> None:
    shows = {"extensions": {UI_EXTENSION: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
    async with connect(module.server, E, capabilities=shows) as client:
        (tool,) = (await client.request("tools/list"))["tools"]
        assert tool["_meta"] == {"ui": {"resourceUri": "ui://clock"}}
        (page,) = (await client.request("resources/read", {"uri": "ui://clock"}))["contents"]
        assert page["mimeType"] == "text/html;profile=mcp-app"
        assert text(await client.call("clock")) == "Look at the clock."
    async with connect(module.server, D) as client:
        assert text(await client.call("clock")) == "It is 12:00."


@drives("Middleware")
async def middleware(module: Any) -> None:
    async with connect(module.server) as client:
        assert text(await client.call("open")) == "come in"
        error = (await client.answer("tools/call", {"name": "secret"}))["error"]
        assert error["message"] == "Not for you"
    assert module.seen == [("tools/call", "open"), ("tools/call", "secret")]


@drives("Rate limit and size limit")
async def limits(module: Any) -> None:
    async with connect(module.server) as client:
        assert text(await client.call("repeat", {"text": "ab", "times": 2})) == "abab"
        large = await client.call("repeat", {"text": "ab", "times": 1000})
        assert large["isError"] is True
        assert text(large).startswith("The result is too large")
        await client.request("tools/list")
        error = (await client.answer("tools/list"))["error"]
        assert error["data"].startswith("Rate limit exceeded")


@drives("Lifespan")
async def lifespan(module: Any) -> None:
    async with connect(module.server) as client, connect(module.server) as other:
        for one in (client, other):
            result = await one.call("ask", {"sql": "SELECT 1, 2"})
            assert result["structuredContent"] == {"result": [[1, 2]]}


@drives("Mount")
async def mount(module: Any) -> None:
    async with connect(module.server) as client:
        assert text(await client.call("kitchen_cook")) == "soup"
        read = await client.request("resources/read", {"uri": "menu://today"})
        assert read["contents"][0]["text"] == "soup"
        module.kitchen.tool(name="bake")(lambda: "bread")
        assert (await client.receive())["method"] == "notifications/tools/list_changed"
        assert text(await client.call("kitchen_bake")) == "bread"


@drives("Tracing")
async def tracing(module: Any) -> None:
    id = "0af7651916cd43dd8448eb211c80319c"
    async with connect(module.server) as client:
        meta = {"traceparent": f"00-{id}-b7ad6b7169203331-01"}
        result = await client.request("tools/call", {"name": "work", "_meta": meta})
        assert text(result) == id


# -- running them --------------------------------------------------------------------------------


def program(heading: str) -> Any:
    """The program of a section, as a module."""
    module = types.ModuleType("server")
    (code,) = SECTIONS[heading]
    exec(compile(code, f"docs/features.md: {heading}", "exec"), module.__dict__)  # noqa: S102
    return module


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """Only the section about tracing loads OpenTelemetry, and nobody after it sees that."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        del sys.modules[name]


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_program_does_what_the_text_says(
    heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        await DRIVES[heading](program(heading))

    run(main())


def test_every_section_has_one_program_and_one_test() -> None:
    assert len(SECTIONS) >= 20
    assert DRIVES.keys() == SECTIONS.keys()
    assert [heading for heading, programs in SECTIONS.items() if len(programs) != 1] == []


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_program_is_short(heading: str) -> None:
    lines = [line for line in SECTIONS[heading][0].splitlines() if line.strip()]
    assert len(lines) < MAX_LINES, f"{len(lines)} lines"
