"""The wire types: names, what is sent and what is not, and the rules of the merged types."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from dovetail.spec import content, inputs, meta
from dovetail.spec import types as t


def wire(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def structs() -> list[type[msgspec.Struct]]:
    found = [getattr(t, name) for name in t.__all__]
    return [item for item in found if isinstance(item, type) and issubclass(item, msgspec.Struct)]


# --- all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", t.__all__)
def test_every_type_can_be_decoded(name: str) -> None:
    assert msgspec.json.Decoder(getattr(t, name)).type is getattr(t, name)


def test_types_exports_every_struct() -> None:
    found = {
        name for module in (content, inputs, meta) for name in module.__all__ if not name.isupper()
    }
    assert found <= set(t.__all__)


@pytest.mark.parametrize("struct", structs())
def test_conventions(struct: type[msgspec.Struct]) -> None:
    """Keyword arguments only, camelCase outside, and optional means UNSET."""
    assert issubclass(struct, t.Wire)
    assert struct.__doc__
    for item in msgspec.structs.fields(struct):
        if item.name == "meta":
            assert item.encode_name == "_meta"
        else:
            assert "_" not in item.encode_name
        if not item.required and item.name not in ("is_error", "result_type"):
            assert item.default is UNSET
    if struct.__struct_fields__:
        with pytest.raises(TypeError, match="Extra positional arguments"):
            struct(1)


@pytest.mark.parametrize("struct", [s for s in structs() if not s.__struct_config__.gc])
def test_only_scalars_escape_the_collector(struct: type[msgspec.Struct]) -> None:
    info: Any = msgspec.inspect.type_info(struct)
    scalars = (
        msgspec.inspect.StrType,
        msgspec.inspect.BoolType,
        msgspec.inspect.IntType,
        msgspec.inspect.LiteralType,
    )
    for item in info.fields:
        parts = getattr(item.type, "types", [item.type])
        assert all(isinstance(part, scalars) for part in parts), item.name


def test_unknown_members_are_ignored() -> None:
    found = msgspec.json.decode(
        b'{"name": "n", "version": "1", "colour": "red"}', type=t.Implementation
    )
    assert found == t.Implementation(name="n", version="1")


def test_import_is_cheap() -> None:
    """Nothing but msgspec and one small module of the standard library."""
    # A stand-in for the package: its own `__init__` imports the whole library.
    code = (
        "import sys, types, typing, msgspec\n"
        "package = types.ModuleType('dovetail')\n"
        "package.__path__ = [sys.argv[1]]\n"
        "sys.modules['dovetail'] = package\n"
        "before = set(sys.modules)\n"
        "import dovetail.spec.types\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    where = str(Path(t.__file__).parents[1])
    command = [sys.executable, "-c", code, where]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if not name.startswith("dovetail.spec")}
    assert loaded <= {"binascii"}


# --- requests -----------------------------------------------------------------------------------


def test_tool_call() -> None:
    data = b"""{"name": "add", "arguments": {"a":1, "b":2}, "_meta": {
        "progressToken": 7,
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/logLevel": "info",
        "traceparent": "00-a-b-01",
        "com.example/own": true}}"""
    call = msgspec.json.decode(data, type=t.CallToolRequestParams)
    assert call.name == "add"
    assert isinstance(call.arguments, msgspec.Raw)
    assert bytes(call.arguments) == b'{"a":1, "b":2}'
    assert call.meta == t.RequestMeta(
        progress_token=7,
        protocol_version="2026-07-28",
        client_capabilities=t.ClientCapabilities(elicitation=t.ElicitationCapability()),
        client_info=t.Implementation(name="c", version="1"),
        log_level="info",
        traceparent="00-a-b-01",
    )
    assert call.task is call.input_responses is call.request_state is UNSET


@pytest.mark.parametrize("value", [b"1", b"null", b'{"a": []}', b'"text"'])
def test_trace_keys_may_hold_anything(value: bytes) -> None:
    """They are reserved only from 2026-07-28 on."""
    found = msgspec.json.decode(b'{"traceparent": ' + value + b"}", type=t.RequestMeta)
    assert found.traceparent == msgspec.json.decode(value)


@pytest.mark.parametrize("token", [b"1.5", b"true", b"null", b"[]"])
def test_progress_tokens_are_strings_or_integers(token: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"progressToken": ' + token + b"}", type=t.RequestMeta)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"type": "ref/prompt", "name": "p"}', t.PromptReference(name="p")),
        (b'{"type": "ref/resource", "uri": "a:{b}"}', t.ResourceTemplateReference(uri="a:{b}")),
    ],
)
def test_completion_references(data: bytes, expected: msgspec.Struct) -> None:
    params = b'{"ref": ' + data + b', "argument": {"name": "a", "value": ""}}'
    found = msgspec.json.decode(params, type=t.CompleteRequestParams)
    assert found.ref == expected


# --- results ------------------------------------------------------------------------------------


def test_tool_result_always_says_is_error() -> None:
    result = t.CallToolResult(content=[t.TextContent(text="hi")])
    assert wire(result) == {"content": [{"type": "text", "text": "hi"}], "isError": False}


def test_tool_result_without_is_error_is_a_success() -> None:
    assert msgspec.json.decode(b'{"content": []}', type=t.CallToolResult).is_error is False


def test_structured_content_may_be_null() -> None:
    result = t.CallToolResult(content=[], structured_content=None)
    assert wire(result) == {"content": [], "isError": False, "structuredContent": None}
    again = msgspec.json.decode(msgspec.json.encode(result), type=t.CallToolResult)
    assert again.structured_content is None


def test_structured_content_and_meta_may_be_encoded_already() -> None:
    result = t.CallToolResult(
        content=[], structured_content=msgspec.Raw(b'{"a":1}'), meta=msgspec.Raw(b'{"k":2}')
    )
    assert wire(result) == {
        "content": [],
        "isError": False,
        "structuredContent": {"a": 1},
        "_meta": {"k": 2},
    }


def test_input_required_always_says_so() -> None:
    result = t.InputRequiredResult(
        input_requests={
            "who": t.ElicitRequest(
                params=t.ElicitRequestParams(message="?", requested_schema={"type": "object"})
            ),
            "where": t.ListRootsRequest(),
        }
    )
    assert wire(result) == {
        "resultType": "input_required",
        "inputRequests": {
            "who": {
                "method": "elicitation/create",
                "params": {"message": "?", "requestedSchema": {"type": "object"}},
            },
            "where": {"method": "roots/list"},
        },
    }


def test_input_required_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="inputRequests"):
        t.InputRequiredResult()
    with pytest.raises(msgspec.ValidationError, match="complete"):
        msgspec.json.decode(
            b'{"resultType": "complete", "requestState": "s"}', type=t.InputRequiredResult
        )


def test_empty_settings_are_sent() -> None:
    """An empty object is a capability, its absence is none."""
    offered = t.ServerCapabilities(tools=t.ListChangedCapability(), logging={}, extensions={})
    assert wire(offered) == {"tools": {}, "logging": {}, "extensions": {}}


def test_an_empty_cursor_is_a_cursor() -> None:
    assert wire(t.ListToolsResult(tools=[], next_cursor="")) == {"tools": [], "nextCursor": ""}


def test_tasks_of_both_kinds() -> None:
    common: Any = {"task_id": "t", "status": "working", "created_at": "c", "last_updated_at": "l"}
    named = {"taskId": "t", "status": "working", "createdAt": "c", "lastUpdatedAt": "l"}
    core = t.CreateTaskResult(task=t.Task(**common, ttl=None))
    assert wire(core) == {"task": {**named, "ttl": None}}
    flat = t.GetTaskResult(**common, ttl_ms=5, result_type="task")
    assert wire(flat) == {**named, "ttlMs": 5, "resultType": "task"}


# --- content ------------------------------------------------------------------------------------

BLOCKS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "text", "text": "x"}, t.TextContent),
    ({"type": "image", "data": "", "mimeType": "image/png"}, t.ImageContent),
    ({"type": "audio", "data": "", "mimeType": "audio/wav"}, t.AudioContent),
    ({"type": "resource_link", "uri": "a:b", "name": "n"}, t.ResourceLink),
    ({"type": "resource", "resource": {"uri": "a:b", "text": "x"}}, t.EmbeddedResource),
]
SAMPLING_BLOCKS: list[tuple[dict[str, Any], Any]] = [
    *BLOCKS[:3],
    ({"type": "tool_use", "id": "1", "name": "n", "input": {}}, t.ToolUseContent),
    ({"type": "tool_result", "toolUseId": "1", "content": []}, t.ToolResultContent),
]


@pytest.mark.parametrize(("block", "expected"), BLOCKS)
def test_content(block: dict[str, Any], expected: type) -> None:
    found = msgspec.convert(block, t.Content)
    assert type(found) is expected
    assert wire(found) == block


@pytest.mark.parametrize(("block", "expected"), SAMPLING_BLOCKS)
def test_sampling_content_alone_and_in_a_list(block: dict[str, Any], expected: type) -> None:
    one = msgspec.convert({"role": "user", "content": block}, t.SamplingMessage)
    assert type(one.content) is expected
    many = msgspec.convert({"role": "user", "content": [block, block]}, t.SamplingMessage)
    assert isinstance(many.content, list)
    assert [type(item) for item in many.content] == [expected, expected]


def test_unknown_content_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="hologram"):
        msgspec.convert({"type": "hologram"}, t.Content)


@pytest.mark.parametrize("block", [t.ImageContent, t.AudioContent])
def test_media_from_bytes(block: Any) -> None:
    data = bytes(range(256))
    found = block.of(data, "x/y", annotations=t.Annotations(priority=1))
    assert base64.b64decode(found.data, validate=True) == data
    assert found.mime_type == "x/y"
    assert wire(found)["annotations"] == {"priority": 1}


def test_resource_contents_from_text_and_bytes() -> None:
    text = t.ResourceContents.of("a:b", "x", "text/plain", meta={"k": 1})
    assert wire(text) == {
        "uri": "a:b",
        "mimeType": "text/plain",
        "text": "x",
        "_meta": {"k": 1},
    }
    assert wire(t.ResourceContents.of("a:b", b"\xff")) == {"uri": "a:b", "blob": "/w=="}
    assert wire(t.ResourceContents.of("a:b", "")) == {"uri": "a:b", "text": ""}


@pytest.mark.parametrize("members", [{}, {"text": "", "blob": ""}])
def test_resource_contents_are_text_or_blob(members: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either `text` or `blob`"):
        t.ResourceContents(uri="a:b", **members)
    with pytest.raises(msgspec.ValidationError, match="either `text` or `blob`"):
        msgspec.convert({"uri": "a:b", **members}, t.ResourceContents)


# --- elicitation --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "members",
    [
        {"requestedSchema": {}},
        {"requestedSchema": {}, "mode": "form"},
        {"url": "https://a", "mode": "url"},
        {"url": "https://a", "mode": "url", "elicitationId": "1"},
    ],
)
def test_elicitation_modes(members: dict[str, Any]) -> None:
    value = {"message": "?", **members}
    assert wire(msgspec.convert(value, t.ElicitRequestParams)) == value


@pytest.mark.parametrize(
    ("members", "mode"),
    [
        ({}, "form"),
        ({"mode": "form"}, "form"),
        ({"url": "https://a"}, "form"),
        ({"url": "https://a", "requestedSchema": {}}, "form"),
        ({"mode": "url"}, "url"),
        ({"mode": "url", "requestedSchema": {}}, "url"),
        ({"mode": "url", "url": "https://a", "requestedSchema": {}}, "url"),
    ],
)
def test_elicitation_modes_do_not_mix(members: dict[str, Any], mode: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"mode `{mode}`"):
        msgspec.convert({"message": "?", **members}, t.ElicitRequestParams)


def test_answers_keep_their_types() -> None:
    value = {"action": "accept", "content": {"a": 1, "b": 1.5, "c": True, "d": "x", "e": ["y"]}}
    found = msgspec.json.decode(msgspec.json.encode(value), type=t.ElicitResult)
    assert isinstance(found.content, dict)
    assert {key: type(item) for key, item in found.content.items()} == {
        "a": int,
        "b": float,
        "c": bool,
        "d": str,
        "e": list,
    }


# --- keys ---------------------------------------------------------------------------------------


def test_reserved_keys() -> None:
    keys = {name: getattr(meta, name) for name in meta.__all__ if name.endswith("_KEY")}
    bare = {key for key in keys.values() if not key.startswith(meta.PREFIX)}
    assert bare == {"progressToken", "traceparent", "tracestate", "baggage"}
    assert len(set(keys.values())) == len(keys)
    assert set(t.RequestMeta.__struct_encode_fields__) <= set(keys.values())
