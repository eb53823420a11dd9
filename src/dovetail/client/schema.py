"""Checks structured results against the output schema of their tool.

Most schemas are plain: objects, lists and scalars without further conditions. Such a
schema becomes a msgspec type, and what msgspec accepts is valid, in a microsecond. All
else, and whatever msgspec refuses, is judged by ``jsonschema`` (extra ``schema``), which
knows every keyword. A ``$ref`` to the network is never followed (digest X29).
"""

import importlib
import importlib.util
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from dovetail.errors import RemoteProtocolError
from dovetail.wire.jsonrpc import BROKEN_JSON

__all__ = ["Check", "check_of", "is_wrapped"]

log = logging.getLogger("dovetail")

# Of a stranger's schema; the largest in use have some thousand nodes and ten levels.
MAX_NODES = 20_000
MAX_DEPTH = 64

# Keywords that say nothing about which values are valid.
_NOTES = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated"}
    | {"readOnly", "writeOnly", "format", "x-fastmcp-wrap-result"}
)
_SCALARS: dict[Any, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
}

# Raises RemoteProtocolError unless the structured content fits.
Check = Callable[[Raw], None]


class _NotPlain(Exception):
    """The schema needs the full validator."""


def check_of(tool: str, schema: Mapping[str, Any]) -> Check:
    """The check of one tool; RemoteProtocolError if its schema cannot be used."""
    _bound(tool, schema)
    try:
        decode = msgspec.json.Decoder(_type_of(schema)).decode
    except (_NotPlain, TypeError, ValueError):
        full = _full_check(tool, schema)
        return lambda raw: full(msgspec.json.decode(raw))
    full_later: list[Callable[[Any], None]] = []

    def check(raw: Raw) -> None:
        try:
            decode(raw)
        except BROKEN_JSON:  # or an integer written 1.0, which JSON Schema allows
            if not full_later:
                full_later.append(_full_check(tool, schema))
            full_later[0](msgspec.json.decode(raw))

    return check


def is_wrapped(schema: Any) -> bool:
    """Whether older revisions wrap the value: ``{"result": value}`` and nothing else."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return False
    properties = schema.get("properties")
    return isinstance(properties, Mapping) and list(properties) == ["result"]


def _bound(tool: str, schema: Any) -> None:
    """Refuse what only a stranger who means harm would send."""
    nodes, level = 0, [schema]
    for _ in range(MAX_DEPTH):
        nodes += len(level)
        if nodes > MAX_NODES:
            break
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise RemoteProtocolError.text(f"The output schema of {tool!r} is too large or too deep")


def _children(node: Any) -> list[Any]:
    values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [value for value in values if isinstance(value, dict | list)]


# -- plain schemas -----------------------------------------------------------------------


def _type_of(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        raise _NotPlain
    said = {key: value for key, value in schema.items() if key not in _NOTES}
    kind = said.pop("type", None)
    if kind is None and set(said) == {"anyOf"}:
        return _union(said["anyOf"])
    if kind == "object":
        return _object(said)
    if kind == "array" and set(said) <= {"items"}:
        return list[_type_of(said["items"])] if said else list[Any]  # type: ignore[misc]
    if said or kind not in _SCALARS:
        raise _NotPlain
    return _SCALARS[kind]


def _union(parts: Any) -> Any:
    """``T | null``, the only union that is common and plain."""
    others = [part for part in parts if part != {"type": "null"}]
    if len(parts) != 2 or len(others) != 1:
        raise _NotPlain
    return _type_of(others[0]) | None


def _object(said: dict[str, Any]) -> Any:
    properties = said.pop("properties", {})
    required = said.pop("required", [])
    more = said.pop("additionalProperties", True)
    if said or not isinstance(more, bool) or not isinstance(properties, Mapping):
        raise _NotPlain
    if not set(required) <= set(properties):
        raise _NotPlain
    fields: list[Any] = []
    names = {}
    for number, (name, schema) in enumerate(properties.items()):
        inside = f"f{number}"
        names[inside] = name
        kind = _type_of(schema)
        fields.append((inside, kind) if name in required else (inside, kind | UnsetType, UNSET))
    return msgspec.defstruct(
        "Output", fields, kw_only=True, rename=names, forbid_unknown_fields=not more
    )


# -- all others ----------------------------------------------------------------------------


def _full_check(tool: str, schema: Mapping[str, Any]) -> Callable[[Any], None]:
    if importlib.util.find_spec("jsonschema") is None:
        log.warning("results of %s are not checked: install dovetail[schema]", tool)
        return lambda value: None
    jsonschema = importlib.import_module("jsonschema")
    # A registry of our own: without one, jsonschema fetches references from the network.
    registry = importlib.import_module("referencing").Registry()
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        text = f"The output schema of {tool!r} is no JSON Schema: {error.message}"
        raise RemoteProtocolError.text(text) from None
    validator = kind(schema, registry=registry)

    def check(value: Any) -> None:
        try:
            error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        except Exception as fault:  # an unresolvable reference, a pattern that is none
            text = f"The output schema of {tool!r} cannot be used: {fault}"
            raise RemoteProtocolError.text(text) from None
        if error is not None:
            text = f"The result of {tool!r} does not fit its schema at {error.json_path}"
            raise RemoteProtocolError.text(f"{text}: {error.message[:200]}")

    return check
