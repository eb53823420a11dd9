"""check_message: what each revision allows, and what it catches."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest

from dovetail.spec._surface import CLIENT_REQUESTS, REVISIONS, SERVER_NOTIFICATIONS, SERVER_REQUESTS
from dovetail.testing import schema as checker
from dovetail.testing.schema import SchemaViolation, check_definition, check_message, closed

A, B, C, D, E = REVISIONS
LEGACY = [A, B, C, D]
TASK = {"taskId": "t", "status": "working", "createdAt": "c", "lastUpdatedAt": "l"}
META = {
    "io.modelcontextprotocol/protocolVersion": E,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(method: str, revision: str, **params: Any) -> dict[str, Any]:
    if revision == E:
        params.setdefault("_meta", META)
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def answer(revision: str, **result: Any) -> dict[str, Any]:
    if revision == E:
        result.setdefault("resultType", "complete")
    return {"jsonrpc": "2.0", "id": 1, "result": result}


def error(code: int, id: Any = 1, **rest: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "m", **rest}}


def cached(revision: str) -> dict[str, Any]:
    return {"ttlMs": 0, "cacheScope": "private"} if revision == E else {}


TEXT = {"type": "text", "text": "x"}


# --- good messages ------------------------------------------------------------------------------

# A request of every method, with params that all its revisions accept.
PARAMS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "x",
        "capabilities": {"roots": {"listChanged": True}, "sampling": {}},
        "clientInfo": {"name": "c", "version": "1"},
    },
    "ping": {},
    "server/discover": {},
    "subscriptions/listen": {"notifications": {"toolsListChanged": True, "taskIds": ["t"]}},
    "tools/list": {"cursor": ""},
    "tools/call": {"name": "n", "arguments": {"a": [1, None]}},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "a:b"},
    "resources/subscribe": {"uri": "a:b"},
    "resources/unsubscribe": {"uri": "a:b"},
    "prompts/list": {},
    "prompts/get": {"name": "n", "arguments": {"a": "b"}},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "n"},
        "argument": {"name": "a", "value": "b"},
    },
    "logging/setLevel": {"level": "info"},
    "tasks/get": {"taskId": "t"},
    "tasks/result": {"taskId": "t"},
    "tasks/list": {},
    "tasks/cancel": {"taskId": "t"},
    "sampling/createMessage": {
        "messages": [{"role": "user", "content": TEXT}],
        "maxTokens": 5,
    },
    "roots/list": {},
    "elicitation/create": {
        "message": "?",
        "requestedSchema": {"type": "object", "properties": {"a": {"type": "number"}}},
    },
}
CALLS = [
    *(
        (revision, "client", method)
        for revision in REVISIONS
        for method in CLIENT_REQUESTS[revision]
    ),
    *(
        (revision, "server", method)
        for revision in REVISIONS
        for method in SERVER_REQUESTS[revision]
    ),
]


@pytest.mark.parametrize(("revision", "sender", "method"), sorted(CALLS))
def test_requests(revision: str, sender: Any, method: str) -> None:
    good = request(method, revision, **PARAMS[method])
    assert check_message(good, revision, sender) is None
    with_meta = copy.deepcopy(good)
    with_meta["params"]["_meta"] = {
        **good["params"].get("_meta", {}),
        "progressToken": "p",
        "com.example/own": {"a": None},
    }
    assert check_message(with_meta, revision, sender) is None


@pytest.mark.parametrize(("revision", "sender", "method"), sorted(CALLS))
def test_requests_with_a_wrong_envelope(revision: str, sender: Any, method: str) -> None:
    good = request(method, revision, **PARAMS[method])
    for change in ({"jsonrpc": "1.0"}, {"id": None}, {"id": 1.5}, {"params": []}, {"extra": 1}):
        with pytest.raises(SchemaViolation, match=method):
            check_message({**good, **change}, revision, sender)


NOTIFICATIONS: dict[str, dict[str, Any]] = {
    "notifications/cancelled": {"requestId": 1, "reason": "r"},
    "notifications/progress": {"progressToken": 1, "progress": 0.5, "total": 1},
    "notifications/message": {"level": "info", "data": None},
    "notifications/tools/list_changed": {},
    "notifications/prompts/list_changed": {},
    "notifications/resources/list_changed": {},
    "notifications/resources/updated": {"uri": "a:b"},
    "notifications/elicitation/complete": {"elicitationId": "e"},
    "notifications/tasks/status": {**TASK, "ttl": None},
    "notifications/subscriptions/acknowledged": {"notifications": {"resourceSubscriptions": []}},
}


@pytest.mark.parametrize(
    ("revision", "method"),
    sorted(
        (revision, method) for revision in REVISIONS for method in SERVER_NOTIFICATIONS[revision]
    ),
)
def test_notifications(revision: str, method: str) -> None:
    good = notification(method, **NOTIFICATIONS[method])
    assert check_message(good, revision, "server") is None
    good["params"]["_meta"] = {"io.modelcontextprotocol/subscriptionId": 1}
    assert check_message(good, revision, "server") is None


RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "x",
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
        "serverInfo": {"name": "s", "version": "1"},
    },
    "ping": {},
    "server/discover": {"supportedVersions": [E], "capabilities": {}},
    "subscriptions/listen": {"_meta": {"io.modelcontextprotocol/subscriptionId": 1}},
    "tools/list": {"tools": [{"name": "n", "inputSchema": {"type": "object", "required": ["a"]}}]},
    "tools/call": {"content": [TEXT], "isError": False},
    "resources/list": {"resources": [{"uri": "a:b", "name": "n"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": [{"uri": "a:b", "blob": ""}]},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "prompts/list": {"prompts": [{"name": "n", "arguments": [{"name": "a"}]}]},
    "prompts/get": {"messages": [{"role": "user", "content": TEXT}]},
    "completion/complete": {"completion": {"values": [], "hasMore": False}},
    "logging/setLevel": {},
    "tasks/get": {**TASK, "ttl": 5},
    "tasks/result": {"content": [TEXT], "isError": False},
    "tasks/list": {"tasks": [{**TASK, "ttl": None}]},
    "tasks/cancel": {**TASK, "ttl": 5},
    "sampling/createMessage": {"role": "assistant", "content": TEXT, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///a"}]},
    "elicitation/create": {"action": "accept", "content": {"a": 1.5}},
}
CACHED = {
    "server/discover",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
}


def result(method: str, revision: str) -> dict[str, Any]:
    extra = cached(revision) if method in CACHED else {}
    return answer(revision, **copy.deepcopy(RESULTS[method]), **extra)


@pytest.mark.parametrize(("revision", "asker", "method"), sorted(CALLS))
@pytest.mark.verifies("F-recorder")
def test_results(revision: str, asker: str, method: str) -> None:
    sender: Any = "server" if asker == "client" else "client"
    good = result(method, revision)
    assert check_message(good, revision, sender, method) is None
    good["result"].setdefault("_meta", {})["com.example/own"] = 1
    assert check_message(good, revision, sender, method) is None


# `tasks/result` is the result of any other request, so its schema says nothing.
LEAKY = [call for call in CALLS if call[2] != "tasks/result"]


@pytest.mark.parametrize(("revision", "asker", "method"), sorted(LEAKY))
@pytest.mark.verifies("F-recorder-closed")
def test_results_do_not_leak(revision: str, asker: str, method: str) -> None:
    sender: Any = "server" if asker == "client" else "client"
    leak = "task" if revision == E else "resultType"
    bad = result(method, revision)
    bad["result"][leak] = "complete"
    with pytest.raises(SchemaViolation, match=f"{revision}, {method} result: .*'{leak}'"):
        check_message(bad, revision, sender, method)


# --- leaks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "value", "revisions"),
    [
        ("title", "t", [C, D, E]),
        ("annotations", {"readOnlyHint": True}, [B, C, D, E]),
        ("outputSchema", {"type": "object"}, [C, D, E]),
        ("icons", [{"src": "https://a"}], [D, E]),
        ("execution", {"taskSupport": "optional"}, [D]),
        ("_meta", {"a": 1}, [C, D, E]),
        ("colour", "red", []),
    ],
)
@pytest.mark.parametrize("revision", REVISIONS)
def test_members_of_a_tool(member: str, value: Any, revisions: list[str], revision: str) -> None:
    message = result("tools/list", revision)
    message["result"]["tools"][0][member] = value
    if revision in revisions:
        assert check_message(message, revision, "server", "tools/list") is None
    else:
        with pytest.raises(SchemaViolation, match=rf"\$\.tools\[0\]: .*'{member}' was unexpected"):
            check_message(message, revision, "server", "tools/list")


@pytest.mark.parametrize("revision", REVISIONS)
def test_structured_content(revision: str) -> None:
    def check(value: Any) -> None:
        message = answer(revision, content=[], structuredContent=value)
        check_message(message, revision, "server", "tools/call")

    refused = [A, B]
    if revision in refused:
        with pytest.raises(SchemaViolation, match="structuredContent"):
            check({})
    else:
        check({"any": {"thing": 1}})
    if revision == E:
        check([None, 1.5])
    else:
        with pytest.raises(SchemaViolation, match="structuredContent"):
            check([])


@pytest.mark.parametrize("revision", LEGACY)
def test_params_do_not_leak(revision: str) -> None:
    bad = request("tools/call", revision, name="n", requestState="s")
    with pytest.raises(SchemaViolation, match="requestState"):
        check_message(bad, revision, "client")


def test_capabilities_do_not_leak() -> None:
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": {"roots": {"listChanged": True}}}
    with pytest.raises(SchemaViolation, match="listChanged"):
        check_message(request("tools/list", E, _meta=meta), E, "client")
    params = {**PARAMS["initialize"], "capabilities": {"extensions": {}}}
    with pytest.raises(SchemaViolation, match="extensions"):
        check_message(request("initialize", D, **params), D, "client")


def test_compositions_are_closed() -> None:
    """An `allOf` is closed as a whole: its parts know only their own members."""
    with pytest.raises(SchemaViolation, match=r"Unevaluated properties.*'ttlMs'"):
        check_message(answer(D, **TASK, ttl=1, ttlMs=1), D, "server", "tasks/get")
    with pytest.raises(SchemaViolation, match="'ttl'"):
        check_message(answer(E, **TASK, ttl=1, ttlMs=1), E, "server", "tasks/get")


# --- missing and wrong --------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_missing_members(revision: str) -> None:
    bad = result("tools/list", revision)
    del bad["result"]["tools"][0]["inputSchema"]
    with pytest.raises(SchemaViolation, match=r"\$\.tools\[0\]: 'inputSchema' is a required"):
        check_message(bad, revision, "server", "tools/list")


@pytest.mark.parametrize("revision", REVISIONS)
def test_wrong_constants(revision: str) -> None:
    bad = result("tools/call", revision)
    bad["result"]["content"][0]["type"] = "txet"
    with pytest.raises(SchemaViolation, match=r"\$\.content\[0\]"):
        check_message(bad, revision, "server", "tools/call")


@pytest.mark.parametrize("revision", REVISIONS)
def test_in_a_union_the_arm_that_was_meant_is_explained(revision: str) -> None:
    bad = answer(revision, content=[TEXT, {**TEXT, "colour": "red"}])
    with pytest.raises(SchemaViolation, match=r"\$\.content\[1\]: .*'colour' was unexpected"):
        check_message(bad, revision, "server", "tools/call")


@pytest.mark.parametrize(
    ("revision", "block"),
    [
        (A, {"type": "audio", "data": "", "mimeType": "audio/wav"}),
        (A, {"type": "resource_link", "uri": "a:b", "name": "n"}),
        (B, {"type": "resource_link", "uri": "a:b", "name": "n"}),
    ],
)
def test_content_of_a_later_revision(revision: str, block: dict[str, Any]) -> None:
    message = answer(revision, content=[block])
    with pytest.raises(SchemaViolation, match=r"\$\.content\[0\]"):
        check_message(message, revision, "server", "tools/call")
    assert check_message(answer(C, content=[block]), C, "server", "tools/call") is None


def test_modern_requests_need_their_envelope() -> None:
    with pytest.raises(SchemaViolation, match="clientCapabilities' is a required property"):
        check_message(request("tools/list", E, _meta={}), E, "client")
    bare = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    with pytest.raises(SchemaViolation, match="params"):
        check_message(bare, E, "client")
    assert check_message(bare, D, "client") is None


def test_not_a_message() -> None:
    with pytest.raises(SchemaViolation, match="none of"):
        check_message({"jsonrpc": "2.0", "id": 1}, D, "client")


def test_unknown_revision_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="2023-01-01"):
        check_message({}, "2023-01-01", "client")


def test_long_texts_are_cut() -> None:
    with pytest.raises(SchemaViolation) as caught:
        check_message(answer(D, content="x" * 5000), D, "server", "tools/call")
    assert len(str(caught.value)) < 600


# --- result types of 2026-07-28 -----------------------------------------------------------------


def test_the_arm_is_chosen_by_result_type() -> None:
    """The official union accepts a result without its required members as input_required."""
    bad = answer(E, contents=[])
    with pytest.raises(SchemaViolation, match=r"'(ttlMs|cacheScope)' is a required property"):
        check_message(bad, E, "server", "resources/read")


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_input_required(method: str) -> None:
    good = answer(
        E,
        resultType="input_required",
        requestState="s",
        inputRequests={
            "a": {"method": "elicitation/create", "params": PARAMS["elicitation/create"]},
            "b": {"method": "roots/list"},
        },
    )
    assert check_message(good, E, "server", method) is None
    good["result"]["inputRequests"]["a"]["id"] = 1
    with pytest.raises(SchemaViolation, match="inputRequests"):
        check_message(good, E, "server", method)
    with pytest.raises(SchemaViolation, match="neither"):
        check_message(answer(E, resultType="input_required"), E, "server", method)


@pytest.mark.parametrize("kind", ["input_required", "task", "finished"])
def test_result_types_that_a_list_does_not_have(kind: str) -> None:
    bad = result("tools/list", E)
    bad["result"].update(resultType=kind, requestState="s")
    with pytest.raises(SchemaViolation, match=rf"\$\.resultType: '{kind}'"):
        check_message(bad, E, "server", "tools/list")


def test_answers_to_input_requests() -> None:
    params = {"name": "n", "requestState": "s", "inputResponses": {"a": {"action": "decline"}}}
    assert check_message(request("tools/call", E, **params), E, "client") is None
    params["inputResponses"] = {"a": {"action": "decline", "resultType": "complete"}}
    with pytest.raises(SchemaViolation, match="inputResponses"):
        check_message(request("tools/call", E, **params), E, "client")


# --- tasks --------------------------------------------------------------------------------------


def test_core_tasks() -> None:
    good = answer(D, task={**TASK, "ttl": None})
    assert check_message(good, D, "server", "tools/call") is None
    assert check_message(good, D, "client", "elicitation/create") is None
    for revision, method in ((C, "tools/call"), (D, "prompts/get")):
        with pytest.raises(SchemaViolation, match=method):
            check_message(good, revision, "server", method)


def test_extension_tasks() -> None:
    task = {**TASK, "ttlMs": None}
    assert check_message(answer(E, **task, resultType="task"), E, "server", "tools/call") is None
    assert check_message(answer(E, **task), E, "server", "tasks/get") is None
    assert check_message(answer(E), E, "server", "tasks/cancel") is None
    assert check_message(answer(E), E, "server", "tasks/update") is None
    update = request("tasks/update", E, taskId="t", inputResponses={"a": {"action": "cancel"}})
    assert check_message(update, E, "client") is None
    assert check_message(request("tasks/get", E, taskId="t"), E, "client") is None
    assert check_message(notification("notifications/tasks", **task), E, "server") is None


def test_extension_tasks_are_checked() -> None:
    with pytest.raises(SchemaViolation, match="ttlMs"):
        check_message(answer(E, **TASK), E, "server", "tasks/get")
    with pytest.raises(SchemaViolation, match="clientCapabilities' is a required property"):
        check_message(request("tasks/get", E, taskId="t", _meta={}), E, "client")
    with pytest.raises(SchemaViolation, match="colour"):
        check_message(request("tasks/get", E, taskId="t", colour="red"), E, "client")
    with pytest.raises(SchemaViolation, match="server"):
        check_message(request("tasks/get", E, taskId="t"), E, "server")
    with pytest.raises(SchemaViolation, match="client"):
        check_message(notification("notifications/tasks", **TASK, ttlMs=1), E, "client")
    with pytest.raises(SchemaViolation, match="server"):
        check_message(notification("notifications/tasks", **TASK, ttlMs=1), D, "server")


# --- directions and methods ---------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_methods_have_a_direction(revision: str) -> None:
    with pytest.raises(SchemaViolation, match=r"\$\.method: not a request that a server"):
        check_message(request("tools/list", revision), revision, "server")
    with pytest.raises(SchemaViolation, match="a server cannot have sent tools/list"):
        check_message(
            answer(revision), LEGACY[-1] if revision == E else revision, "client", "tools/list"
        )


def test_methods_have_revisions() -> None:
    for method, revision in (("server/discover", D), ("initialize", E), ("tasks/list", E)):
        with pytest.raises(SchemaViolation, match="not a request that a client may send"):
            check_message(request(method, revision), revision, "client")


@pytest.mark.parametrize("revision", REVISIONS)
def test_custom_methods_have_an_envelope_only(revision: str) -> None:
    assert check_message(request("x/y", revision, any=1), revision, "server") is None
    assert check_message(notification("x/y", any=1), revision, "client") is None
    assert check_message(answer(revision, any=1), revision, "server", "x/y") is None
    assert check_message(answer(revision, any=1), revision, "server") is None
    with pytest.raises(SchemaViolation, match="extra"):
        check_message({**answer(revision), "extra": 1}, revision, "server", "x/y")


def test_modern_clients_answer_nothing() -> None:
    for message in (answer(E), error(-32603)):
        with pytest.raises(SchemaViolation, match="a client answers nothing"):
            check_message(message, E, "client")


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_errors(revision: str) -> None:
    assert check_message(error(-32601), revision, "server") is None
    assert check_message(error(-32601, data=[1]), revision, "server") is None
    for bad in (error(-32601, hint="h"), error(-32601, id=1.5), {**error(-32601), "result": None}):
        with pytest.raises(SchemaViolation):
            check_message(bad, revision, "server")
    with pytest.raises(SchemaViolation, match=r"1\.5"):
        check_message(error(1.5), revision, "server")  # type: ignore[arg-type]


@pytest.mark.parametrize("revision", REVISIONS)
def test_null_ids(revision: str) -> None:
    message = error(-32700, id=None)
    assert check_message(message, revision, "server", allow_null_id=True) is None
    assert message["id"] is None
    if revision in (A, B, C):
        assert check_message(message, revision, "server") is None
    else:
        with pytest.raises(SchemaViolation, match=r"\$\.id"):
            check_message(message, revision, "server")


def test_an_error_without_id() -> None:
    """2025-11-25 made the id optional."""
    message = error(-32700)
    del message["id"]
    assert check_message(message, D, "server") is None
    with pytest.raises(SchemaViolation, match="'id' is a required"):
        check_message(message, C, "server")


def test_errors_with_data_of_their_own() -> None:
    good = error(-32022, data={"supported": [E], "requested": "x"})
    assert check_message(good, E, "server") is None
    with pytest.raises(SchemaViolation, match="supported"):
        check_message(error(-32022, data={"requested": "x"}), E, "server")
    with pytest.raises(SchemaViolation, match="hint"):
        check_message(error(-32022, data=good["error"]["data"], hint="h"), E, "server")
    with pytest.raises(SchemaViolation, match="elicitations"):
        check_message(error(-32042, data={}), D, "server")
    # The same numbers mean nothing special in another revision.
    assert check_message(error(-32022, data={}), D, "server") is None


# --- the pieces ---------------------------------------------------------------------------------


def test_closed() -> None:
    document = {
        "$schema": "x",
        "$defs": {
            "MetaObject": {"type": "object", "properties": {"k": {}}},
            "Part": {"type": "object", "properties": {"a": {}}},
            "Whole": {"allOf": [{"$ref": "#/$defs/Part"}, {"type": "object", "properties": {}}]},
            "Free": {"type": "object", "properties": {"a": {}}, "additionalProperties": {}},
            "Holder": {
                "type": "object",
                "properties": {
                    "_meta": {"type": "object", "properties": {"k": {}}},
                    "params": {"type": "object", "properties": {"p": {}}},
                    "list": {"type": "array", "items": {"type": "object", "properties": {}}},
                },
            },
        },
    }
    before = copy.deepcopy(document)
    found = closed(document)["$defs"]
    assert document == before
    assert found["MetaObject"] == document["$defs"]["MetaObject"]
    assert found["Part"]["additionalProperties"] is False
    assert "additionalProperties" not in found["Part!"]
    assert found["Whole"] == {
        "allOf": [{"$ref": "#/$defs/Part!"}, {"type": "object", "properties": {}}],
        "unevaluatedProperties": False,
    }
    assert found["Free"]["additionalProperties"] == {}
    holder = found["Holder"]["properties"]
    assert holder["_meta"] == {"type": "object", "properties": {"k": {}}}
    assert holder["params"] == {
        "type": "object",
        "properties": {"_meta": {"type": "object"}, "p": {}},
        "additionalProperties": False,
    }
    assert holder["list"]["items"]["additionalProperties"] is False


def test_check_definition() -> None:
    assert check_definition({"taskIds": []}, "ext-tasks", "TaskSubscriptionNotifications") is None
    with pytest.raises(SchemaViolation, match="Tool"):
        check_definition({"name": "n"}, E, "Tool")
    with pytest.raises(ValueError, match="Hammer"):
        check_definition({}, E, "Hammer")


def test_patched_defects() -> None:
    """The official schemas refuse these by mistake; see PINNED.json."""
    for revision in (C, D):
        message = answer(revision, action="accept", content={"a": 1.5})
        assert check_message(message, revision, "client", "elicitation/create") is None
    capabilities = {"extensions": {"x/y": {"a": None, "b": 1.5}}}
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": capabilities}
    assert check_message(request("tools/list", E, _meta=meta), E, "client") is None


def test_validators_are_compiled_once() -> None:
    check_message(result("tools/list", D), D, "server", "tools/list")
    before = checker._validator.cache_info().misses
    check_message(result("tools/list", D), D, "server", "tools/list")
    assert checker._validator.cache_info().misses == before


def test_dialects() -> None:
    names = [type(checker._validator(r, "Tool", close=True)).__name__ for r in REVISIONS]
    assert names == ["Draft7Validator"] * 3 + ["Draft202012Validator"] * 2


def test_missing_jsonschema_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ModuleNotFoundError, match=r"dovetail\[testing\]"):
        checker._jsonschema()
