"""Check messages against the official schemas, and against closed copies of them.

The official schemas are open: an object may have members nobody defined, so a member that
leaks into a revision that does not know it goes unnoticed. The closed copy forbids that. It
also chooses between a real result and an InputRequiredResult (2026-07-28) by `resultType`,
because the official union of the two accepts almost any object.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NoReturn

from dovetail.spec._surface import (
    CLIENT_NOTIFICATIONS,
    CLIENT_REQUESTS,
    REVISIONS,
    SERVER_NOTIFICATIONS,
    SERVER_REQUESTS,
    TASKS_NOTIFICATIONS,
    TASKS_REQUESTS,
)

__all__ = ["SchemaViolation", "UnknownMember", "check_definition", "check_message", "closed"]

Schema = dict[str, Any]
Sender = Literal["client", "server"]

MODERN = "2026-07-28"
TASKS = "ext-tasks"
# Members whose values are anybody's own: what is inside is not checked for leaks.
OPEN = frozenset(
    {"_meta", "inputSchema", "outputSchema", "requestedSchema", "experimental", "extensions"}
)
# The requests that 2025-11-25 can turn into tasks.
TASK_METHODS = frozenset({"tools/call", "sampling/createMessage", "elicitation/create"})
# Marks the copy of a definition that is left open because it is a part of an `allOf`.
PART = "!"

_KEYWORDS_OF_DATA = frozenset({"const", "enum", "default", "required", "type"})
_REQUESTS = {"client": CLIENT_REQUESTS, "server": SERVER_REQUESTS}
_NOTIFICATIONS = {"client": CLIENT_NOTIFICATIONS, "server": SERVER_NOTIFICATIONS}
_KNOWN = frozenset(
    method
    for table in (*_REQUESTS.values(), *_NOTIFICATIONS.values())
    for methods in table.values()
    for method in methods
)


class SchemaViolation(AssertionError):
    """A message that its revision does not allow."""


class UnknownMember(SchemaViolation):
    """A message that the official schema allows, being open, but not its closed copy."""


def check_message(
    message: Mapping[str, Any],
    revision: str,
    sender: Sender,
    request_method: str | None = None,
    *,
    allow_null_id: bool = False,
) -> None:
    """Raise SchemaViolation unless `sender` may send this message in this revision.

    `message` is one decoded JSON-RPC message. The shape of a result depends on the method it
    answers: name it as `request_method`; without it, and for methods that no revision knows,
    only the envelope is checked. An error answer may have `"id": null` up to 2025-06-18, and
    anywhere with `allow_null_id`, which is meant for errors before a revision is agreed on.
    """
    if revision not in REVISIONS:
        raise ValueError(f"no such revision: {revision!r}")
    message = dict(message)
    if "method" in message:
        _check_call(message, revision, sender)
    elif "result" in message:
        _check_result(message, revision, sender, request_method)
    elif "error" in message:
        _check_error(message, revision, sender, allow_null_id)
    else:
        _fail(revision, "message", "$", "has none of `method`, `result`, `error`")


def check_definition(value: Any, revision: str, name: str) -> None:
    """Check any value against one definition of a schema (`ext-tasks` is a schema too)."""
    if name not in _definitions(revision):
        raise ValueError(f"{revision} has no definition {name!r}")
    _validate(value, revision, name, name)


# --- requests and notifications -----------------------------------------------------------------


def _check_call(message: Schema, revision: str, sender: Sender) -> None:
    method = message["method"]
    request = "id" in message
    what = f"{method} {'request' if request else 'notification'}"
    if request:
        _envelope(message, revision, what, "JSONRPCRequest", {"jsonrpc", "id", "method", "params"})
    else:
        _envelope(message, revision, what, "JSONRPCNotification", {"jsonrpc", "method", "params"})
    kind = "Request" if request else "Notification"
    name = _unions(revision, sender + kind).get(method)
    if name is not None:
        # Up to 2025-06-18 the definitions leave `jsonrpc` and `id` to the envelope.
        listed = _definitions(revision)[name]["properties"]
        body = {k: v for k, v in message.items() if k in listed or k not in ("jsonrpc", "id")}
        _validate(body, revision, name, what)
    elif revision == MODERN and method in (TASKS_REQUESTS if request else TASKS_NOTIFICATIONS):
        _check_tasks_call(message, sender, what, request=request)
    elif method in _KNOWN or (not request and method in TASKS_NOTIFICATIONS):
        _fail(revision, what, "$.method", f"not a {kind.lower()} that a {sender} may send")


def _check_tasks_call(message: Schema, sender: Sender, what: str, *, request: bool) -> None:
    if sender != ("client" if request else "server"):
        _fail(MODERN, what, "$.method", f"not a method that a {sender} may send")
    _validate(message, TASKS, _tasks_methods()[message["method"]], what)
    if request:
        # The extension does not repeat what the core asks of every request.
        _validate(message["params"].get("_meta"), MODERN, "RequestMetaObject", f"{what} _meta")


# --- answers ------------------------------------------------------------------------------------


def _check_result(message: Schema, revision: str, sender: Sender, method: str | None) -> None:
    what = f"{method or 'unknown'} result"
    defs = _definitions(revision)
    envelope = next(name for name in ("JSONRPCResultResponse", "JSONRPCResponse") if name in defs)
    _envelope(message, revision, what, envelope, {"jsonrpc", "id", "result"})
    _refuse_client_answer(revision, sender, what)
    if method is None:
        return
    result = message["result"]
    other = "server" if sender == "client" else "client"
    request = _unions(revision, other + "Request").get(method)
    if request is not None:
        schema, name = _result_definition(revision, method, request, result, what)
        _validate(result, schema, name, what)
    elif revision == MODERN and method in TASKS_REQUESTS:
        name = _tasks_methods()[method].removesuffix("Request") + "Result"
        _validate(result, TASKS, name, what)
    elif method in _KNOWN:
        _fail(revision, what, "$", f"a {other} cannot have sent {method}")


def _result_definition(
    revision: str, method: str, request: str, result: Schema, what: str
) -> tuple[str, str]:
    defs = _definitions(revision)
    stem = request.removesuffix("Request")
    name = f"{stem}Result" if f"{stem}Result" in defs else "EmptyResult"
    if revision == MODERN:
        return _modern_result(stem, name, result, what)
    if "task" in result and method in TASK_METHODS and "CreateTaskResult" in defs:
        return revision, "CreateTaskResult"
    return revision, name


def _modern_result(stem: str, name: str, result: Schema, what: str) -> tuple[str, str]:
    kind = result["resultType"]
    if kind == "complete":
        return MODERN, name
    union = _definitions(MODERN)[f"{stem}ResultResponse"]["properties"]["result"]
    if kind == "input_required" and "anyOf" in union:
        if not {"inputRequests", "requestState"} & result.keys():
            _fail(MODERN, what, "$", "has neither `inputRequests` nor `requestState`")
        return MODERN, "InputRequiredResult"
    if kind == "task" and stem == "CallTool":
        return TASKS, "CreateTaskResult"
    _fail(MODERN, what, "$.resultType", f"{kind!r} is not a type this result may have")


def _check_error(message: Schema, revision: str, sender: Sender, allow_null_id: bool) -> None:
    what = "error"
    defs = _definitions(revision)
    name = next(name for name in ("JSONRPCErrorResponse", "JSONRPCError") if name in defs)
    if message.get("id", 0) is None and (allow_null_id or name == "JSONRPCError"):
        # JSON-RPC 2.0 wants null where the id could not be read; no schema allows it.
        message["id"] = 0
    _envelope(message, revision, what, name, {"jsonrpc", "id", "error"})
    _refuse_client_answer(revision, sender, what)
    special = _special_errors(revision).get(message["error"]["code"])
    _validate(message, revision, special or name, what)


def _refuse_client_answer(revision: str, sender: Sender, what: str) -> None:
    if revision == MODERN and sender == "client":
        _fail(revision, what, "$", "a client answers nothing, because a server asks nothing")


# --- definitions --------------------------------------------------------------------------------


@cache
def _document(name: str) -> Schema:
    text = files("dovetail.spec").joinpath("schema", f"{name}.json").read_text("utf-8")
    document: Schema = json.loads(text)
    return document


def _definitions(name: str) -> dict[str, Schema]:
    document = _document(name)
    found: dict[str, Schema] = document.get("$defs") or document["definitions"]
    return found


@cache
def _unions(revision: str, union: str) -> dict[str, str]:
    """Method -> name of its definition, for one direction (`clientRequest`)."""
    defs = _definitions(revision)
    name = union[0].upper() + union[1:]
    if name not in defs:
        return {}
    # A union of one is not written as a union: there the definition itself is the message.
    arms = [arm["$ref"].rpartition("/")[2] for arm in defs[name].get("anyOf", ())] or [name]
    return {defs[arm]["properties"]["method"]["const"]: arm for arm in arms}


@cache
def _special_errors(revision: str) -> dict[int, str]:
    """Error code -> name of its definition, for the codes whose data have a shape."""
    found = {}
    for name, node in _definitions(revision).items():
        for part in node.get("properties", {}).get("error", {}).get("allOf", ()):
            if "properties" in part:
                found[part["properties"]["code"]["const"]] = name
    return found


@cache
def _tasks_methods() -> dict[str, str]:
    """Method -> name of its definition, for the tasks extension."""
    found = {}
    for name, node in _definitions(TASKS).items():
        for part in node.get("allOf", ()):
            if method := part.get("properties", {}).get("method"):
                found[method["const"]] = name
    return found


# --- closed schemas -----------------------------------------------------------------------------


def closed(document: Schema) -> Schema:
    """A copy of a schema document whose objects have the members they list and no others."""
    place = "$defs" if "$defs" in document else "definitions"
    out: dict[str, Schema] = {}
    for name, source in document[place].items():
        node = source
        if name.endswith("MetaObject"):
            out[name] = node
            continue
        if name == "Result":
            # Open only as the base that real results extend; as a result it is the empty one.
            node = {k: v for k, v in node.items() if k != "additionalProperties"}
        out[name] = _close(node)
        out[name + PART] = _close(node, part=True)
    return {**document, place: out}


def _close(node: Any, *, part: bool = False) -> Any:
    if isinstance(node, list):
        return [_close(item, part=part) for item in node]
    if not isinstance(node, dict):
        return node
    out = {key: _close_keyword(key, value, part=part) for key, value in node.items()}
    if part or "additionalProperties" in node:
        return out
    if "allOf" in node:
        out["unevaluatedProperties"] = False
    elif node.get("type") == "object" and "properties" in node:
        out["additionalProperties"] = False
    return out


def _close_keyword(key: str, value: Any, *, part: bool) -> Any:
    if key == "properties":
        return {name: _close_member(name, sub) for name, sub in value.items()}
    if key == "$ref":
        return value + PART if part else value
    if key == "allOf":
        return _close(value, part=True)
    if key == "anyOf":
        return _close(value, part=part)
    return value if key in _KEYWORDS_OF_DATA else _close(value)


def _close_member(name: str, node: Schema) -> Schema:
    if name in OPEN:
        return node
    if name == "params" and "properties" in node:
        # Inline params leave out the `_meta` that they inherit in the TypeScript source.
        node = {**node, "properties": {"_meta": {"type": "object"}, **node["properties"]}}
    result: Schema = _close(node)
    return result


@cache
def _closed_document(name: str) -> Schema:
    document = closed(_document(name))
    if name == MODERN:
        # The tasks extension adds a member to a core type.
        extra = _definitions(TASKS)["TaskSubscriptionNotifications"]["properties"]
        document["$defs"]["SubscriptionFilter"]["properties"].update(extra)
    return document


# --- validation ---------------------------------------------------------------------------------


def _jsonschema() -> Any:
    try:
        return importlib.import_module("jsonschema")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "checking messages against the schemas needs jsonschema: install dovetail[testing]"
        ) from error


@cache
def _validator(schema: str, name: str, *, close: bool) -> Any:
    document = _closed_document(schema) if close else _document(schema)
    place = "$defs" if "$defs" in document else "definitions"
    root = {"$schema": document["$schema"], place: document[place], "$ref": f"#/{place}/{name}"}
    return _jsonschema().validators.validator_for(root)(root)


def _validate(value: Any, schema: str, name: str, what: str, *, close: bool = True) -> None:
    for how in (False, True) if close else (False,):
        validator = _validator(schema, name, close=how)
        if not validator.is_valid(value):
            relevance = _jsonschema().exceptions.relevance
            error = _explain(max(validator.iter_errors(value), key=relevance))
            kind = UnknownMember if how else SchemaViolation
            _fail(schema, what, error.json_path, error.message, kind)


def _explain(error: Any) -> Any:
    """In a union, the error of the one arm whose constants fit: the arm that was meant."""
    while error.context:
        arms: dict[int, list[Any]] = {}
        for sub in error.context:
            arms.setdefault(sub.schema_path[0], []).append(sub)
        wrong = {"const", "enum", "type"}
        meant = [subs for subs in arms.values() if wrong.isdisjoint(e.validator for e in subs)]
        if len(meant) != 1:
            break
        error = meant[0][0]
    return error


def _envelope(message: Schema, revision: str, what: str, name: str, allowed: set[str]) -> None:
    _validate(message, revision, name, what, close=False)
    if extra := message.keys() - allowed:
        text = f"unexpected members of the envelope: {sorted(extra)}"
        _fail(revision, what, "$", text, UnknownMember)


def _fail(
    schema: str, what: str, path: str, text: str, kind: type[SchemaViolation] = SchemaViolation
) -> NoReturn:
    if len(text) > 500:
        text = text[:500] + "..."
    raise kind(f"{schema}, {what}: {path}: {text}")
