"""``name=value`` on a command line, read by the schema of the tool.

``name=value`` is read by the type the schema names; ``name:=json`` is JSON whatever it
says; ``name=@file`` is the contents of a file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from dovetail.client.schema import check_of
from dovetail.errors import RemoteProtocolError

__all__ = ["BadArgument", "read_arguments", "read_strings", "read_value"]

_WORDS = {"true": True, "false": False}


class BadArgument(ValueError):
    """An argument that does not fit; the text says which and what would."""


def read_arguments(words: Sequence[str], schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    arguments: dict[str, Any] = {}
    for word in words:
        name, is_json, text = _split(word)
        if properties and name not in properties and schema.get("additionalProperties") is False:
            raise BadArgument(f"there is no argument {name!r}; there are {', '.join(properties)}")
        if is_json:
            arguments[name] = _json(name, text)
        else:
            arguments[name] = read_value(name, text, properties.get(name, {}))
    for name in schema.get("required", ()):
        if name not in arguments:
            raise BadArgument(f"the argument {name!r} is missing")
    _check(arguments, schema)
    return arguments


def read_strings(words: Sequence[str]) -> dict[str, str]:
    """The arguments of a prompt, which are texts."""
    return {name: text for name, _, text in map(_split, words)}


def _split(word: str) -> tuple[str, bool, str]:
    name, equals, text = word.partition("=")
    if not equals or not name.strip(":"):
        raise BadArgument(f"an argument is written name=value, not {word!r}")
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise BadArgument(f"{name}: {error}") from None
    return name.removesuffix(":"), name.endswith(":"), text


def read_value(name: str, text: str, schema: Any) -> Any:
    """A value by its schema; without a type, JSON if it is some, else the text."""
    kinds = _kinds(schema)
    if "string" in kinds:
        return text
    if "boolean" in kinds and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if not kinds:
            return text
        raise BadArgument(f"{name}: {text!r} is no {' or '.join(kinds)}") from None
    if "integer" in kinds and "number" not in kinds and not _is_integer(value, kinds):
        raise BadArgument(f"{name}: {text!r} is no {' or '.join(kinds)}")
    return value


def _is_integer(value: Any, kinds: list[str]) -> bool:
    others = any(kind != "integer" for kind in kinds)
    return others or (isinstance(value, int) and not isinstance(value, bool))


def _kinds(schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return []
    if "enum" in schema and all(isinstance(one, str) for one in schema["enum"]):
        return ["string"]
    kind = schema.get("type", [])
    kinds = [kind] if isinstance(kind, str) else list(kind)
    for part in schema.get("anyOf") or schema.get("oneOf") or []:
        kinds += _kinds(part)
    return kinds


def _json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadArgument(f"{name}: that is no JSON: {error}") from None


def _check(arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    try:
        check_of("the tool", schema)(Raw(msgspec.json.encode(arguments)))
    except RemoteProtocolError as error:
        text = str(error.error.data).replace("The result of 'the tool' does", "The arguments do")
        raise BadArgument(text.replace("its schema", "the schema")) from None
