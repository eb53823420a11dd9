"""The official examples of 2026-07-28: read, written back, and checked against the schema."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.spec import types as t
from dovetail.testing.schema import SchemaViolation, check_definition, check_message

REVISION = "2026-07-28"
SHARED = Path(__file__).resolve().parents[3] / "shared"
EXAMPLES = SHARED / "spec" / REVISION / "examples"

pytestmark = pytest.mark.skipif(
    not SHARED.exists() and not os.environ.get("CI"), reason="needs the official schemas"
)

# Examples that are wrong by their own schema.
INVALID = {
    "ReadResourceResultResponse/read-resource-result-response.json": (
        "lacks the required ttlMs and cacheScope; the open InputRequiredResult accepts it"
    ),
    "ListRootsRequest/list-roots-request.json": "has an `id`, which its schema does not list",
}
# Examples that come back changed, and how.
CHANGED: dict[str, dict[str, Any]] = {
    # `isError` is optional, and we always send it.
    "CallToolResult/result-with-array-structured-content.json": {"isError": False},
    "CallToolResult/result-with-structured-content.json": {"isError": False},
    # A member that no schema knows is not kept.
    "ListRootsRequest/list-roots-request.json": {"id": None},
}

# Directories whose name is not the name of a Struct.
TYPES: dict[str, Any] = {
    "TextResourceContents": t.ResourceContents,
    "BlobResourceContents": t.ResourceContents,
    "ElicitRequestFormParams": t.ElicitRequestParams,
    "ElicitRequestURLParams": t.ElicitRequestParams,
    "PaginatedRequestParams": t.ListRequestParams,
    "InputRequests": dict[str, t.InputRequest],
    "InputResponses": dict[str, msgspec.Raw],
}
PARAMS: dict[str, Any] = {
    "DiscoverRequest": t.EmptyRequestParams,
    "ListPromptsRequest": t.ListRequestParams,
    "ListResourceTemplatesRequest": t.ListRequestParams,
    "ListResourcesRequest": t.ListRequestParams,
    "ListToolsRequest": t.ListRequestParams,
    "PromptListChangedNotification": t.NotificationParams,
    "ResourceListChangedNotification": t.NotificationParams,
    "ToolListChangedNotification": t.NotificationParams,
}
ERROR_DATA: dict[str, Any] = {
    "HeaderMismatchError": Any,
    "MissingRequiredClientCapabilityError": t.MissingRequiredClientCapabilityData,
    "UnsupportedProtocolVersionError": t.UnsupportedProtocolVersionData,
}
# JSON Schemas are plain dicts in the library; these have no Struct.
PLAIN = {"BooleanSchema", "NumberSchema", "StringSchema"}


def envelope(name: str, **members: Any) -> type[msgspec.Struct]:
    """A JSON-RPC message around one typed member; the members not asked for are absent."""
    fields: list[Any] = [("jsonrpc", str), *members.items()]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True)


def struct_of(name: str) -> Any:
    if name in TYPES or hasattr(t, name):
        return TYPES.get(name) or getattr(t, name)
    if name in PLAIN or name.endswith("EnumSchema"):
        return dict[str, Any]
    if name.endswith("ResultResponse"):
        return envelope(name, id=int | str, result=getattr(t, name.removesuffix("Response")))
    if name.endswith("Request"):
        params = PARAMS.get(name) or getattr(t, f"{name}Params")
        return envelope(name, id=int | str, method=str, params=params)
    if name.endswith("Notification"):
        params = PARAMS.get(name) or getattr(t, f"{name}Params")
        return envelope(name, method=str, params=params)
    if name in ERROR_DATA:
        error = msgspec.defstruct(
            "SpecialError",
            [("data", ERROR_DATA[name], msgspec.UNSET)],
            bases=(t.Error,),
            kw_only=True,
        )
        return envelope(name, id=int | str, error=error)
    assert name.endswith("Error"), name
    return t.Error


def examples() -> list[Any]:
    return [
        pytest.param(path, id=f"{path.parent.name}/{path.name}")
        for path in sorted(EXAMPLES.glob("*/*.json"))
    ]


def key_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def test_all_are_there() -> None:
    found = {key_of(path) for path in EXAMPLES.glob("*/*.json")}
    assert len(found) == 129
    assert len(messages()) == 32
    assert INVALID.keys() | CHANGED.keys() <= found


@pytest.mark.verifies("F-examples")
@pytest.mark.parametrize("path", examples())
def test_round_trip(path: Path) -> None:
    data = path.read_bytes()
    value = msgspec.json.decode(data, type=struct_of(path.parent.name))
    expected = {**json.loads(data), **CHANGED.get(key_of(path), {})}
    assert json.loads(msgspec.json.encode(value)) == {
        key: member for key, member in expected.items() if member is not None
    }


@pytest.mark.parametrize("path", examples())
def test_schema(path: Path) -> None:
    value = json.loads(path.read_bytes())
    if key_of(path) in INVALID:
        with pytest.raises(SchemaViolation) as caught:
            check_definition(value, REVISION, path.parent.name)
        assert path.parent.name in str(caught.value)
    else:
        assert check_definition(value, REVISION, path.parent.name) is None


METHODS = {
    "CallToolResultResponse": "tools/call",
    "CompleteResultResponse": "completion/complete",
    "DiscoverResultResponse": "server/discover",
    "GetPromptResultResponse": "prompts/get",
    "ListPromptsResultResponse": "prompts/list",
    "ListResourceTemplatesResultResponse": "resources/templates/list",
    "ListResourcesResultResponse": "resources/list",
    "ListToolsResultResponse": "tools/list",
    "ReadResourceResultResponse": "resources/read",
    "SubscriptionsListenResultResponse": "subscriptions/listen",
}


def messages() -> list[Any]:
    return [param for param in examples() if b'"jsonrpc"' in param.values[0].read_bytes()]


@pytest.mark.parametrize("path", messages())
def test_as_message(path: Path) -> None:
    name = path.parent.name
    value = json.loads(path.read_bytes())
    sender: Any = "client" if name.endswith("Request") else "server"
    if key_of(path) in INVALID:
        with pytest.raises(SchemaViolation, match="required property"):
            check_message(value, REVISION, sender, METHODS.get(name))
    else:
        assert check_message(value, REVISION, sender, METHODS.get(name)) is None


def test_input_responses() -> None:
    """The union of the answers is untagged; the request they answer says which one it is."""
    kinds = {"action": t.ElicitResult, "model": t.CreateMessageResult, "roots": t.ListRootsResult}
    seen = set()
    for path in (EXAMPLES / "InputResponses").glob("*.json"):
        for value in json.loads(path.read_bytes()).values():
            member = next(member for member in kinds if member in value)
            again = msgspec.json.encode(msgspec.convert(value, kinds[member]))
            assert json.loads(again) == value
            seen.add(member)
    assert seen >= {"action", "model"}
