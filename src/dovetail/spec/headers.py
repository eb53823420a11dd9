"""The ``Mcp-*`` headers of 2026-07-28: their codec, and the ``x-mcp-header`` mark of schemas.

A value that a header field cannot carry, or that looks like an encoded one,
travels as ``=?base64?…?=`` (digest 8.11). The mark and its rules: digest 8.12.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET, Struct

__all__ = [
    "NAMED_BY",
    "BadHeader",
    "Mirror",
    "decode_value",
    "encode_argument",
    "encode_value",
    "mirrors",
    "name_of",
    "same_value",
]

_PREFIX, _SUFFIX = "=?base64?", "?="
_MARK = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_INTEGER = re.compile(r"-?[0-9]{1,400}(\.0+)?")
_MAX_SAFE = 2**53 - 1  # integers that every JSON reader keeps exact

# Where the value of `Mcp-Name` comes from, by method (digest 8.11, 12.1).
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "task_id",
    "tasks/update": "task_id",
    "tasks/cancel": "task_id",
}


class BadHeader(ValueError):
    """A header, or a mark that asks for one, is malformed; the text says how."""


def encode_value(text: str) -> str:
    """``text`` as the value of a header field."""
    plain = text.isascii() and all(c.isprintable() or c == "\t" for c in text)
    if plain and text.strip(" \t") == text and not _is_wrapped(text):
        return text
    return _PREFIX + base64.b64encode(text.encode()).decode() + _SUFFIX


def decode_value(value: bytes) -> str:
    """The text a header field carries. Without both markers it stands for itself."""
    text = value.strip(b" \t").decode("latin-1")
    if not _is_wrapped(text):
        if not text.isascii() or not all(c.isprintable() or c == "\t" for c in text):
            raise BadHeader("has characters that must be base64-encoded")
        return text
    try:
        encoded = text[len(_PREFIX) : -len(_SUFFIX)].encode("ascii")
        # Alphabet and padding are checked: whoever is lenient here lets two texts mean one.
        if len(encoded) % 4:
            raise ValueError
        return base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        raise BadHeader("is not valid base64 of UTF-8") from None


def _is_wrapped(text: str) -> bool:
    return text.startswith(_PREFIX) and text.endswith(_SUFFIX) and len(text) >= 11


def name_of(method: str, params: Any) -> str | None:
    """What ``Mcp-Name`` must say for this request, if it must be there at all."""
    member = NAMED_BY.get(method)
    if member is None:
        return None
    value = getattr(params, member, UNSET)
    return value if isinstance(value, str) else None


# -- x-mcp-header ------------------------------------------------------------------------


class Mirror(Struct, frozen=True):
    """One argument that travels as a header as well: ``Mcp-Param-{name}``."""

    header: str  # lower case, whole
    path: tuple[str, ...]
    type: str  # "string", "integer" or "boolean"


def mirrors(schema: Mapping[str, Any]) -> tuple[Mirror, ...]:
    """The marked properties of an input schema; BadHeader if a mark breaks the rules."""
    found = tuple(_walk(schema, (), static=True))
    names = [mirror.header for mirror in found]
    for name in names:
        if names.count(name) > 1:
            raise BadHeader(f"two arguments are marked {name.removeprefix('mcp-param-')!r}")
    return found


def _walk(node: Any, path: tuple[str, ...], *, static: bool) -> Iterator[Mirror]:
    """Only what is reached through ``properties`` alone may be marked."""
    if isinstance(node, list):
        for item in node:
            yield from _walk(item, path, static=False)
    if not isinstance(node, Mapping):
        return
    if _MARK in node:
        yield _mirror(node, path, static)
    for key, value in node.items():
        if key == "properties" and isinstance(value, Mapping):
            for name, schema in value.items():
                yield from _walk(schema, (*path, name), static=static)
        elif isinstance(value, Mapping | list) and key not in ("default", "examples", "enum"):
            yield from _walk(value, path, static=False)


def _mirror(node: Mapping[str, Any], path: tuple[str, ...], static: bool) -> Mirror:
    mark, kind = node[_MARK], node.get("type")
    where = ".".join(path) or "the root"
    if not isinstance(mark, str) or not _TOKEN.fullmatch(mark):
        raise BadHeader(f"{_MARK} of {where} is no header name: {mark!r}")
    if not static or not path:
        raise BadHeader(f"{_MARK} of {where} is not reached through properties alone")
    if kind not in ("string", "integer", "boolean"):
        raise BadHeader(f"{_MARK} of {where}: only string, integer and boolean can be mirrored")
    return Mirror(f"mcp-param-{mark.lower()}", path, kind)


def encode_argument(value: Any) -> str | None:
    """The header value of a marked argument; None where there must be no header."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if abs(value) > _MAX_SAFE:
            raise BadHeader(f"{value} is too large to be mirrored in a header")
        return str(value)
    return encode_value(value) if isinstance(value, str) else None


def same_value(decoded: str, value: Any) -> bool:
    """Whether a header says what the argument says; integers are compared as numbers."""
    if isinstance(value, bool):
        return decoded == ("true" if value else "false")
    if isinstance(value, int | float):
        return bool(_INTEGER.fullmatch(decoded)) and int(decoded.partition(".")[0]) == value
    return bool(decoded == value)
