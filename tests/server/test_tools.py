"""Tools as a client of each revision sees them: definitions, calls, results and failures."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import enum
import logging
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict

import jsonschema
import pydantic
import pytest
from msgspec import Meta, Struct

from dovetail import Context, McpError, Server, ToolError, unstructured
from dovetail.spec.types import (
    Annotations,
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    Icon,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from dovetail.testing import TestClient, connect

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
STAMP = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}


def run(
    server: Server, revision: str, scenario: Callable[[TestClient], Any], **options: Any
) -> Any:
    async def main() -> Any:
        async with connect(server, revision, **options) as client:
            return await scenario(client)

    return asyncio.run(main())


def call(
    server: Server, revision: str, name: str, arguments: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The result without the stamps that 2026-07-28 has on everything."""
    result: dict[str, Any] = run(server, revision, lambda client: client.call(name, arguments))
    if revision == E:
        assert result.pop("resultType") == "complete"
        assert result.pop("_meta") == STAMP
    assert not result.keys() & {"resultType", "ttlMs", "cacheScope"}
    return result


def answer(
    server: Server, revision: str, method: str, params: dict[str, Any] | None = None
) -> dict[str, Any]:
    return run(server, revision, lambda client: client.answer(method, params))  # type: ignore[no-any-return]


def listed(server: Server, revision: str) -> dict[str, dict[str, Any]]:
    result = answer(server, revision, "tools/list")["result"]
    return {tool["name"]: tool for tool in result["tools"]}


def server_with(fn: Callable[..., Any], **options: Any) -> Server:
    server = Server("s", version="1")
    server.tool(name="it", **options)(fn)
    return server


def text(result: dict[str, Any]) -> str:
    (block,) = result["content"]
    assert block.keys() == {"type", "text"}
    return block["text"]  # type: ignore[no-any-return]


# --- structured output ------------------------------------------------------------------------


class Point(Struct):
    x: int
    y: int


@dataclasses.dataclass
class Pair:
    left: int
    right: str


class Options(TypedDict):
    deep: bool


class Colour(enum.Enum):
    RED = "red"


def point() -> Point:
    return Point(1, 2)


def pair() -> Pair:
    return Pair(1, "é")


def options() -> Options:
    return {"deep": True}


def number() -> int:
    return 3


def words() -> str:
    return "three"


def items() -> list[int]:
    return [1, 2]


def maybe() -> int | None:
    return None


def colour() -> Colour:
    return Colour.RED


def yes() -> bool:
    return True


def untyped():  # type: ignore[no-untyped-def]
    return {"a": [1]}


def untyped_list():  # type: ignore[no-untyped-def]
    return [1, "a"]


def anything() -> Any:
    return 1.5


OBJECTS = [
    (point, {"x": 1, "y": 2}, '{"x":1,"y":2}'),
    (pair, {"left": 1, "right": "é"}, '{"left":1,"right":"é"}'),
    (options, {"deep": True}, '{"deep":true}'),
    (untyped, {"a": [1]}, '{"a":[1]}'),
]
OTHERS = [
    (number, 3, "3"),
    (words, "three", "three"),
    (items, [1, 2], "[1,2]"),
    (maybe, None, "null"),
    (colour, "red", '"red"'),
    (yes, True, "true"),
    (untyped_list, [1, "a"], '[1,"a"]'),
    (anything, 1.5, "1.5"),
]


@every_revision
@pytest.mark.parametrize(("fn", "value", "shown"), OBJECTS)
@pytest.mark.verifies("F-structured-output", "D-text-always", "SH-text-block", "D-is-error")
def test_an_object_is_structured_content_as_it_is(
    revision: str, fn: Any, value: Any, shown: str
) -> None:
    result = call(server_with(fn), revision, "it")
    structured = {} if revision in (A, B) else {"structuredContent": value}
    block = {"type": "text", "text": shown}
    assert result == {"content": [block], "isError": False, **structured}


@every_revision
@pytest.mark.parametrize(("fn", "value", "shown"), OTHERS)
@pytest.mark.verifies("D-wrap", "D-text-always", "SH-text-block", "D-is-error", "F-no-stamps")
def test_any_other_value_is_wrapped_before_2026(
    revision: str, fn: Any, value: Any, shown: str
) -> None:
    result = call(server_with(fn), revision, "it")
    structured: dict[str, Any] = {}
    if revision in (C, D):
        structured = {"structuredContent": {"result": value}}
    elif revision == E:
        structured = {"structuredContent": value}
    block = {"type": "text", "text": shown}
    assert result == {"content": [block], "isError": False, **structured}


@every_revision
@pytest.mark.parametrize("fn", [case[0] for case in (*OBJECTS, *OTHERS)])
@pytest.mark.verifies("S33", "F-structured-output", "F-no-leak")
def test_structured_content_fits_the_schema_that_was_listed(revision: str, fn: Any) -> None:
    server = server_with(fn)
    tool = listed(server, revision)["it"]
    result = call(server, revision, "it")
    if revision in (A, B):
        assert "outputSchema" not in tool
    elif fn in (untyped, untyped_list, anything):
        assert "outputSchema" not in tool, "nothing is promised that the signature does not say"
    else:
        if revision != E:
            assert tool["outputSchema"]["type"] == "object"
        jsonschema.Draft202012Validator(tool["outputSchema"]).validate(result["structuredContent"])


@every_revision
def test_nothing_returned_is_no_content(revision: str) -> None:
    def nothing() -> None: ...

    assert call(server_with(nothing), revision, "it") == {"content": [], "isError": False}


@every_revision
def test_unstructured_is_text_only(revision: str) -> None:
    def marked() -> Annotated[int, unstructured]:
        return 3

    server = server_with(marked)
    assert "outputSchema" not in listed(server, revision)["it"]
    expected = {"content": [{"type": "text", "text": "3"}], "isError": False}
    assert call(server, revision, "it") == expected


@every_revision
@pytest.mark.verifies("E-handler-crash")
def test_a_result_json_cannot_express_is_a_crash(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    def strange() -> Any:
        return object()

    result = call(server_with(strange), revision, "it")
    assert result["isError"] is True
    assert text(result) == "Internal error in tool 'it'"
    assert caplog.records[0].exc_info is not None


# --- content ----------------------------------------------------------------------------------

NOTES = Annotations(audience=["user"], priority=0.5, last_modified="2026-01-01T00:00:00Z")
META = {"example.org/k": 1}
PNG = base64.b64encode(b"png").decode()


def notes(revision: str) -> dict[str, Any]:
    known: dict[str, Any] = {"audience": ["user"], "priority": 0.5}
    return known if revision in (A, B) else {**known, "lastModified": "2026-01-01T00:00:00Z"}


def meta(revision: str) -> dict[str, Any]:
    return {} if revision in (A, B) else {"_meta": META}


@every_revision
@pytest.mark.verifies("F-content-kinds", "F-no-leak", "S40")
def test_text_image_and_embedded_resources_exist_everywhere(revision: str) -> None:
    contents = ResourceContents.of("x://y", "text", "text/plain", meta=META)

    def blocks() -> list[TextContent | ImageContent | EmbeddedResource]:
        return [
            TextContent(text="a", annotations=NOTES, meta=META),
            ImageContent.of(b"png", "image/png", annotations=NOTES, meta=META),
            EmbeddedResource(resource=contents, annotations=NOTES, meta=META),
            EmbeddedResource(resource=ResourceContents.of("x://z", b"png", "image/png")),
        ]

    result = call(server_with(blocks), revision, "it")
    rest = {"annotations": notes(revision), **meta(revision)}
    resource = {"uri": "x://y", "text": "text", "mimeType": "text/plain", **meta(revision)}
    blob = {"uri": "x://z", "blob": PNG, "mimeType": "image/png"}
    assert result == {
        "content": [
            {"type": "text", "text": "a", **rest},
            {"type": "image", "data": PNG, "mimeType": "image/png", **rest},
            {"type": "resource", "resource": resource, **rest},
            {"type": "resource", "resource": blob},
        ],
        "isError": False,
    }


@every_revision
@pytest.mark.verifies("F-content-kinds", "F-downgrade", "F-no-leak", "S40")
def test_audio_is_a_note_where_the_revision_has_none(revision: str) -> None:
    def sound() -> AudioContent:
        return AudioContent.of(b"png", "audio/wav", annotations=NOTES, meta=META)

    (block,) = call(server_with(sound), revision, "it")["content"]
    if revision == A:
        said = "[audio, audio/wav: not supported in 2024-11-05]"
        assert block == {"type": "text", "text": said}
    else:
        rest = {"annotations": notes(revision), **meta(revision)}
        assert block == {"type": "audio", "data": PNG, "mimeType": "audio/wav", **rest}


@every_revision
@pytest.mark.verifies("F-content-kinds", "F-downgrade", "F-no-leak")
def test_a_link_is_a_text_where_the_revision_has_none(revision: str) -> None:
    def link() -> list[ResourceLink]:
        return [
            ResourceLink(
                uri="x://y",
                name="y",
                title="Why",
                description="d",
                mime_type="text/plain",
                size=3,
                icons=[Icon(src="https://e.org/i.png", sizes=["48x48"])],
                annotations=NOTES,
                meta=META,
            ),
            ResourceLink(uri="x://z", name="z"),
        ]

    first, second = call(server_with(link), revision, "it")["content"]
    if revision in (A, B):
        assert first == {"type": "text", "text": "Why: x://y"}
        assert second == {"type": "text", "text": "z: x://z"}
        return
    icons = {"icons": [{"src": "https://e.org/i.png", "sizes": ["48x48"]}]}
    assert first == {
        "type": "resource_link",
        "uri": "x://y",
        "name": "y",
        "title": "Why",
        "description": "d",
        "mimeType": "text/plain",
        "size": 3,
        "annotations": notes(revision),
        **meta(revision),
        **({} if revision == C else icons),
    }
    assert second == {"type": "resource_link", "uri": "x://z", "name": "z"}


def mixed() -> list[str | ImageContent | dict[str, int]]:
    return ["before", ImageContent.of(b"png", "image/png"), {"n": 1}]


def mixed_untyped():  # type: ignore[no-untyped-def]
    return tuple(mixed())


@every_revision
@pytest.mark.parametrize("fn", [mixed, mixed_untyped])
def test_values_between_blocks_are_texts(revision: str, fn: Any) -> None:
    server = server_with(fn)
    assert "outputSchema" not in listed(server, revision)["it"]
    blocks = [
        {"type": "text", "text": "before"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "text", "text": '{"n":1}'},
    ]
    assert call(server, revision, "it") == {"content": blocks, "isError": False}


@every_revision
def test_no_blocks_is_no_content(revision: str) -> None:
    def none() -> list[TextContent]:
        return []

    assert call(server_with(none), revision, "it") == {"content": [], "isError": False}


@every_revision
@pytest.mark.verifies("F-no-leak", "D-wrap", "SH-server-info")
def test_a_whole_result_is_fitted_to_the_revision(revision: str) -> None:
    def whole() -> CallToolResult:
        return CallToolResult(
            content=[ResourceLink(uri="x://y", name="y")],
            structured_content=[1],
            is_error=True,
            meta=META,
        )

    async def scenario(client: TestClient) -> Any:
        return await client.call("it")

    result = run(server_with(whole), revision, scenario)
    stamp = STAMP if revision == E else {}
    assert result.pop("_meta") == {**stamp, **META}
    assert result.pop("resultType", None) == ("complete" if revision == E else None)
    structured = {C: {"result": [1]}, D: {"result": [1]}, E: [1]}
    assert result.pop("structuredContent", None) == structured.get(revision)
    assert result.pop("isError") is True
    (block,) = result.pop("content")
    assert block["type"] == ("text" if revision in (A, B) else "resource_link")
    assert not result


@every_revision
def test_a_whole_result_of_a_tool_with_an_output_schema(revision: str) -> None:
    def whole() -> Any:
        return CallToolResult(content=[TextContent(text="a")], structured_content={"a": 1})

    result = call(server_with(whole, output_schema={"type": "object"}), revision, "it")
    assert text(result) == "a"
    assert result.get("structuredContent") == (None if revision in (A, B) else {"a": 1})


# --- definitions ------------------------------------------------------------------------------


@every_revision
@pytest.mark.verifies("F-metadata", "F-no-leak", "F-tool-schema", "S34", "R001-3")
def test_members_of_a_definition_by_revision(revision: str) -> None:
    def add(a: int, b: Annotated[int, Meta(ge=0)] = 1) -> int:
        """Add two numbers.

        Args:
            a: The first.
        """
        return a + b

    server = server_with(
        add,
        title="Add",
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
        icons=[Icon(src="https://e.org/i.png", mime_type="image/png", theme="dark")],
        meta=META,
    )
    hints = {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    icon = {"src": "https://e.org/i.png", "mimeType": "image/png", "theme": "dark"}
    number = {"type": "integer"}
    wrapped = {"type": "object", "properties": {"result": number}, "required": ["result"]}
    since = [
        (A, {"name": "it", "description": "Add two numbers."}),
        (B, {"annotations": hints}),
        (C, {"title": "Add", "outputSchema": wrapped, "_meta": META}),
        (D, {"icons": [icon]}),
        (E, {"outputSchema": number}),
    ]
    expected: dict[str, Any] = {
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first."},
                "b": {"type": "integer", "minimum": 0, "default": 1},
            },
            "required": ["a"],
            "additionalProperties": False,
        }
    }
    for first, members in since:
        if first <= revision:
            expected.update(members)
    assert listed(server, revision) == {"it": expected}


@every_revision
@pytest.mark.verifies("S34")
def test_a_tool_without_arguments_has_a_closed_object_as_schema(revision: str) -> None:
    def nothing() -> None: ...

    assert listed(server_with(nothing), revision)["it"] == {
        "name": "it",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    }


def test_names_and_descriptions_come_from_the_function_or_from_the_author() -> None:
    server = Server("s", version="1")

    @server.tool
    def first() -> None:
        """One."""

    @server.tool(name="second.tool-2", description="Two.")
    def other() -> None:
        """Not shown."""

    tools = listed(server, D)
    assert {name: tool["description"] for name, tool in tools.items()} == {
        "first": "One.",
        "second.tool-2": "Two.",
    }


def test_a_registered_tool_can_still_be_called() -> None:
    server = Server("s", version="1")

    @server.tool
    def double(n: int) -> int:
        return 2 * n

    assert double(4) == 8
    assert double.name == "double"


# --- arguments --------------------------------------------------------------------------------


class Address(Struct):
    street: str
    number: int = 1


def takes(
    n: int,
    x: float = 0.5,
    flag: bool = False,
    kind: Literal["a", "b"] = "a",
    to: Address | None = None,
    colours: list[Colour] = [],  # noqa: B006 - copied per call
) -> Any:
    return {"n": n, "x": x, "flag": flag, "kind": kind, "to": to, "colours": colours}


@every_revision
@pytest.mark.verifies("F-tool-types", "F-integral-floats", "S32")
def test_arguments_arrive_as_the_signature_says(revision: str) -> None:
    given = {"n": 2.0, "x": 1, "kind": "b", "to": {"street": "s"}, "colours": ["red"]}
    result = call(server_with(takes), revision, "it", given)
    shown = '"to":{"street":"s","number":1},"colours":["red"]}'
    assert text(result) == '{"n":2,"x":1.0,"flag":false,"kind":"b",' + shown


FAULTS = [
    ({}, "Missing required argument 'n'"),
    ({"n": "1"}, "Invalid argument 'n': expected int, got str \"1\""),
    ({"n": 1.5}, "Invalid argument 'n': expected int, got float 1.5"),
    ({"n": True}, "Invalid argument 'n': expected int, got bool true"),
    ({"n": None}, "Invalid argument 'n': expected int, got null"),
    ({"n": 1, "flag": 1}, "Invalid argument 'flag': expected bool, got int 1"),
    ({"n": 1, "kind": "c"}, 'Invalid argument \'kind\': expected one of "a", "b", got str "c"'),
    (
        {"n": 1, "to": {"street": 5}},
        "Invalid argument 'to.street': expected str, got int 5",
    ),
    (
        {"n": 1, "colours": ["red", "blue"]},
        'Invalid argument \'colours[1]\': expected one of "red", got str "blue"',
    ),
    (
        {"n": 1, "m": 2},
        "Unknown argument 'm'; known: 'n', 'x', 'flag', 'kind', 'to', 'colours'",
    ),
]


@every_revision
@pytest.mark.parametrize(("given", "said"), FAULTS)
@pytest.mark.verifies("D-bad-arguments", "D-unknown-arguments", "F-strict-arguments", "S32")
def test_arguments_that_do_not_fit_are_a_result_for_the_model(
    revision: str, given: dict[str, Any], said: str
) -> None:
    ran = []

    def tool(
        n: int,
        x: float = 0.5,
        flag: bool = False,
        kind: Literal["a", "b"] = "a",
        to: Address | None = None,
        colours: list[Colour] = [],  # noqa: B006
    ) -> None:
        ran.append(n)

    result = call(server_with(tool), revision, "it", given)
    assert result == {"content": [{"type": "text", "text": said}], "isError": True}
    assert not ran, "the function never sees arguments that do not fit"


@every_revision
@pytest.mark.parametrize("arguments", ["[1]", '"a"', "1", "null"])
@pytest.mark.verifies("R000-8")
def test_arguments_that_are_no_object_are_a_malformed_call(revision: str, arguments: str) -> None:
    async def scenario(client: TestClient) -> Any:
        params = '"name":"it","arguments":' + arguments
        if revision == E:
            params += (
                ',"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
                '"io.modelcontextprotocol/clientCapabilities":{}}'
            )
        frame = '{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{' + params + "}}"
        client.send(frame.encode())
        return await client.receive()

    message = run(server_with(takes), revision, scenario)
    assert message["id"] == "x"
    assert message["error"]["code"] == -32602
    assert message["error"]["data"].startswith("Arguments must be an object, got ")


@every_revision
def test_no_arguments_are_an_empty_object(revision: str) -> None:
    def default(n: int = 7) -> int:
        return n

    server = server_with(default)
    assert text(call(server, revision, "it")) == text(call(server, revision, "it", {})) == "7"


@pytest.mark.verifies("D-unknown-arguments", "D-unknown-members")
def test_members_beside_the_arguments_are_not_arguments() -> None:
    async def task(client: TestClient) -> Any:
        meta = {"progressToken": 1, "example.org/k": {}}
        params = {"name": "it", "arguments": {}, "task": {"ttl": 1}, "_meta": meta}
        return await client.request("tools/call", params)

    async def retry(client: TestClient) -> Any:
        params = {"name": "it", "arguments": {}, "inputResponses": {}}
        return await client.request("tools/call", params)

    async def state(client: TestClient) -> Any:
        params = {"name": "it", "arguments": {}, "requestState": "s"}
        return await client.answer("tools/call", params)

    async def unknown(client: TestClient) -> Any:
        client.send(
            b'{"id":"x","jsonrpc":"2.0","x":1,"method":"tools/call",'
            b'"params":{"name":"it","other":[1]}}'
        )
        return (await client.receive())["result"]

    def nothing() -> str:
        return "ok"

    server = server_with(nothing)
    assert text(run(server, D, task)) == "ok"
    assert text(run(server, E, retry)) == "ok"
    # State that nobody gave out may be refused, but not as an argument.
    assert "rgument" not in str(run(server, E, state))
    for revision in (A, B, C, D):
        assert text(run(server, revision, unknown)) == "ok"


# --- how functions run ------------------------------------------------------------------------


@every_revision
@pytest.mark.verifies("F-sync-thread")
def test_a_sync_tool_runs_off_the_loop(revision: str) -> None:
    entered, leave = threading.Event(), threading.Event()
    server = Server("s", version="1")

    @server.tool
    def blocking() -> str:
        entered.set()
        assert leave.wait(10)
        return threading.current_thread().name

    @server.tool(inline=True)
    def quick() -> str:
        return threading.current_thread().name

    async def scenario(client: TestClient) -> Any:
        _, waiting = client.start("tools/call", {"name": "blocking"})
        # The loop serves others while the thread is blocked, and sets it free.
        here = await client.call("quick")
        assert await asyncio.to_thread(entered.wait, 10)
        assert not waiting.done()
        leave.set()
        return here, (await waiting)["result"]

    here, there = run(server, revision, scenario)
    assert text(here) == threading.main_thread().name
    assert text(there).startswith("dovetail-worker-")


@every_revision
@pytest.mark.verifies("F-async-loop")
def test_async_tools_run_on_the_loop_beside_each_other(revision: str) -> None:
    server = Server("s", version="1")
    arrived: dict[str, asyncio.Event] = {}

    @server.tool
    async def meet(me: str, other: str) -> str:
        arrived.setdefault(me, asyncio.Event()).set()
        await arrived.setdefault(other, asyncio.Event()).wait()
        return threading.current_thread().name

    async def scenario(client: TestClient) -> Any:
        arrived.clear()
        _, one = client.start(
            "tools/call", {"name": "meet", "arguments": {"me": "a", "other": "b"}}
        )
        two = await client.call("meet", {"me": "b", "other": "a"})
        return (await one)["result"], two

    one, two = run(server, revision, scenario)
    assert text(one) == text(two) == threading.main_thread().name


def test_an_async_tool_cannot_be_inline() -> None:
    async def tool() -> None: ...

    with pytest.raises(TypeError, match="only a sync function can run inline"):
        server_with(tool, inline=True)


def test_a_callable_object_and_a_bound_method_are_tools() -> None:
    class Calls:
        async def __call__(self, n: int) -> int:
            return n + 1

        def method(self, n: int) -> int:
            return n + 2

    server = Server("s", version="1")
    server.tool(name="object")(Calls())
    server.tool(Calls().method)
    assert text(call(server, D, "object", {"n": 1})) == "2"
    assert text(call(server, D, "method", {"n": 1})) == "3"


# --- failures ---------------------------------------------------------------------------------


async def crash_async() -> None:
    raise RuntimeError("secret")


def crash_sync() -> None:
    raise RuntimeError("secret")


def leaves() -> None:
    raise SystemExit("secret")


def stops() -> None:
    raise StopIteration("secret")


@every_revision
@pytest.mark.parametrize(
    ("fn", "inline"),
    [
        (crash_async, False),
        (crash_sync, False),
        (crash_sync, True),
        (leaves, False),
        (leaves, True),
        (stops, False),
    ],
)
@pytest.mark.verifies("E-handler-crash", "R001-5", "INV-002")
def test_a_crash_tells_the_client_nothing(
    revision: str, fn: Any, inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(client: TestClient) -> Any:
        first = await client.call("it")
        return first, await client.answer("tools/list")

    caplog.set_level(logging.ERROR, "dovetail")
    result, after = run(server_with(fn, inline=inline), revision, scenario)
    assert result["isError"] is True
    assert text(result) == "Internal error in tool 'it'"
    assert "structuredContent" not in result
    assert "result" in after, "the server goes on"
    (record,) = caplog.records
    assert record.name == "dovetail"
    assert "secret" in caplog.text, "the traceback is in the log"


@every_revision
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.verifies("F-tool-error", "R001-5")
def test_a_tool_error_reaches_the_model(
    revision: str, inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> int:
        raise ToolError("The disk is full.\nFree some space.")

    result = call(server_with(fails, inline=inline), revision, "it")
    block = {"type": "text", "text": "The disk is full.\nFree some space."}
    assert result == {"content": [block], "isError": True}
    assert not caplog.records


@every_revision
@pytest.mark.parametrize("inline", [False, True])
def test_an_mcp_error_is_a_protocol_error(
    revision: str, inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise McpError(-31999, "Quota", {"left": 0})

    message = answer(server_with(fails, inline=inline), revision, "tools/call", {"name": "it"})
    assert message["error"] == {"code": -31999, "message": "Quota", "data": {"left": 0}}
    assert not caplog.records


@every_revision
def test_error_data_that_json_cannot_express_is_left_out(revision: str) -> None:
    def fails() -> None:
        raise McpError(-31999, "Quota", object())

    message = answer(server_with(fails), revision, "tools/call", {"name": "it"})
    assert message["error"] == {"code": -31999, "message": "Quota"}


@every_revision
@pytest.mark.verifies("D-unknown-tool", "X7", "X8")
def test_an_unknown_tool_is_a_protocol_error(revision: str) -> None:
    server = server_with(number)
    message = answer(server, revision, "tools/call", {"name": "other", "arguments": {}})
    data = "Unknown tool: 'other'"
    assert message["error"] == {"code": -32602, "message": "Invalid params", "data": data}


@pytest.mark.verifies("F-many-tools")
def test_a_call_costs_the_same_among_a_thousand_tools() -> None:
    def cost(count: int) -> int:
        server = server_with(number, inline=True)
        for n in range(count):
            server.tool(name=f"other-{n}")(lambda: None)

        async def scenario(client: TestClient) -> int:
            await client.call("it")
            frame = b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"it"}}'
            client.recorder.sent("client", frame)
            calls = 0

            def count_calls(frame: Any, event: str, _: Any) -> None:
                nonlocal calls
                where = frame.f_code.co_filename
                # Ours alone: the recorder of the test client may run inside the write.
                calls += event == "call" and "/dovetail/" in where and "/testing/" not in where

            sys.setprofile(count_calls)
            client.connection.feed(frame + b"\n")
            sys.setprofile(None)
            assert text((await client.receive())["result"]) == "3"
            return calls

        return run(server, D, scenario)  # type: ignore[no-any-return]

    assert cost(1000) == cost(0) > 0


# --- hand-written schemas -----------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "multipleOf": 2},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
    },
    "required": ["n"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string", "maxLength": 3}},
}


@every_revision
@pytest.mark.verifies("F-handwritten-schema", "X28")
def test_a_hand_written_input_schema_is_listed_and_enforced(revision: str) -> None:
    def tool(arguments: dict[str, Any], ctx: Context) -> Any:
        return [arguments, ctx.method]

    server = server_with(tool, input_schema=SCHEMA)
    assert listed(server, revision)["it"]["inputSchema"] == SCHEMA
    good = call(server, revision, "it", {"n": 4.0, "tags": ["a"]})
    assert text(good) == '[{"n":4,"tags":["a"]},"tools/call"]'
    for given, said in [
        ({}, "Missing required argument 'n'"),
        ({"n": 3}, "Invalid argument 'n': expected multipleOf 2, got int 3"),
        ({"n": 2, "m": 1}, "Unknown argument 'm'; known: 'n', 'tags'"),
        (
            {"n": 2, "tags": ["long"]},
            "Invalid argument 'tags[0]': expected maxLength 3, got str \"long\"",
        ),
    ]:
        bad = call(server, revision, "it", given)
        assert bad == {"content": [{"type": "text", "text": said}], "isError": True}


@pytest.mark.verifies("X28")
def test_a_schema_is_read_by_the_dialect_it_names() -> None:
    draft7 = "http://json-schema.org/draft-07/schema#"
    # `items` as a list means a tuple in draft 7, and is invalid since 2020-12.
    tuples = {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}
    schema = {"$schema": draft7, "type": "object", "properties": {"t": tuples}}

    def tool(arguments: dict[str, Any]) -> str:
        return "ok"

    server = server_with(tool, input_schema=schema)
    assert text(call(server, D, "it", {"t": [1, "a"]})) == "ok"
    assert call(server, D, "it", {"t": ["a", 1]})["isError"] is True


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "array"}])
@every_revision
@pytest.mark.verifies("F-handwritten-schema", "D-wrap")
def test_a_hand_written_output_schema(revision: str, schema: dict[str, Any]) -> None:
    value: Any = {"a": 1} if schema["type"] == "object" else [1]

    def tool() -> Any:
        return value

    server = server_with(tool, output_schema=schema)
    wrap = schema["type"] == "array" and revision in (C, D)
    wrapped = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    tool_listed = listed(server, revision)["it"]
    result = call(server, revision, "it")
    if revision in (A, B):
        assert "outputSchema" not in tool_listed
        assert "structuredContent" not in result
    else:
        assert tool_listed["outputSchema"] == (wrapped if wrap else schema)
        assert result["structuredContent"] == ({"result": value} if wrap else value)


# --- pydantic ---------------------------------------------------------------------------------


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=2)
    age: int = 0


@every_revision
@pytest.mark.verifies("F-pydantic", "F-integral-floats", "D-unknown-arguments")
def test_a_tool_with_pydantic_types(revision: str) -> None:
    def older(person: Person, years: int = 1) -> Person:
        return Person(name=person.name, age=person.age + years)

    server = server_with(older)
    tool = listed(server, revision)["it"]
    assert tool["inputSchema"]["required"] == ["person"]
    assert tool["inputSchema"]["additionalProperties"] is False
    result = call(server, revision, "it", {"person": {"name": "Jo", "age": 2.0}})
    assert text(result) == '{"name":"Jo","age":3}'
    structured = None if revision in (A, B) else {"name": "Jo", "age": 3}
    assert result.get("structuredContent") == structured
    for given in (
        {"person": {"name": "J"}},
        {"person": {"name": "Jo", "age": "2"}},
        {"person": {"name": "Jo"}, "other": 1},
        {},
    ):
        bad = call(server, revision, "it", given)
        assert bad["isError"] is True
        assert text(bad).startswith(("Invalid argument", "Unknown argument", "Missing required"))
