"""Turns a return annotation into the codec of a tool's structured result."""

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from dovetail.server.exact import ArgumentError, subschemas
from dovetail.server.signature import (
    check_references,
    check_type,
    components,
    dec_hook,
    enc_hook,
    hint,
    label,
    needs_pydantic,
    validator,
)
from dovetail.spec.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

__all__ = [
    "OutCodec",
    "OutputError",
    "SchemaOutput",
    "encode_json",
    "is_text_only",
    "output_codec",
    "unstructured",
]

_CONTENT = (
    TextContent,
    ImageContent,
    AudioContent,
    ResourceLink,
    EmbeddedResource,
    CallToolResult,
)
_UNIONS = (typing.Union, types.UnionType)
_LISTS = (list, tuple, typing.get_origin(typing.Sequence[int]))

encode_json = msgspec.json.Encoder(enc_hook=enc_hook).encode


class OutputError(Exception):
    """A tool returned something its result cannot carry."""


class Unstructured:
    """Marks a return type whose value is shown as text only."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "unstructured"


unstructured = Unstructured()


class OutCodec(Protocol):
    """What a tool knows about its structured result."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the value."""

    @property
    def wrapped_schema(self) -> dict[str, Any]:
        """The same with an object at the root, as revisions before 2026 want it."""

    @property
    def is_object(self) -> bool:
        """True if the value is an object by itself, so that nothing is wrapped."""

    def encode(self, value: Any, /) -> bytes:
        """JSON of the value; raises OutputError."""

    def check(self, raw: bytes, /) -> None:
        """OutputError unless the JSON fits the annotation."""


class _Encoded:
    """What both codecs without pydantic share."""

    __slots__ = ("is_object", "schema", "wrapped_schema")

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.is_object = schema.get("type") == "object"
        self.wrapped_schema = schema if self.is_object else wrap(schema)

    def encode(self, value: Any) -> bytes:
        try:
            return encode_json(value)
        except Exception as error:  # the user's own properties and types may raise anything
            raise cannot_encode(value, error) from error


class SchemaOutput(_Encoded):
    """The result of a schema the author wrote; values are encoded as they are."""

    __slots__ = ()

    def __init__(self, schema: dict[str, Any]) -> None:
        check_references(schema)
        super().__init__(schema)

    def check(self, raw: bytes) -> None:
        try:
            validator(self.schema)(msgspec.json.decode(raw))
        except ArgumentError as error:
            where = f"at '{error.path}': " if error.path else ""
            raise OutputError(
                f"The result does not fit its schema: {where}expected {error.want}, got {error.got}"
            ) from error


class TypeOutput(_Encoded):
    """The result of a type that msgspec knows."""

    __slots__ = ("_decode", "_kind")

    def __init__(self, kind: Any, schema: dict[str, Any]) -> None:
        super().__init__(schema)
        self._kind = kind if kind in (int, str, bool) else None
        self._decode = msgspec.json.Decoder(kind, dec_hook=dec_hook).decode

    def encode(self, value: Any) -> bytes:
        """What an annotation promises is kept (digest S33), or the tool has failed."""
        try:
            data = encode_json(value)
        except Exception as error:  # the user's own properties and types may raise anything
            raise cannot_encode(value, error) from error
        if type(value) is not self._kind:  # of these types every value fits
            self.check(data)
        return data

    def check(self, raw: bytes) -> None:
        try:
            self._decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise OutputError(f"The result does not fit its annotation: {error}") from error


def output_codec(fn: Callable[..., Any]) -> OutCodec | None:
    """The codec of what ``fn`` returns, or None if there is no structured result."""
    kind = _returned(fn)
    if _is_marked(kind) or kind in (Any, None, type(None)) or is_content(kind):
        return None
    if needs_pydantic(kind):
        from dovetail.server.pydantic_bridge import model_output

        return model_output(label(fn), kind)
    what = f"{label(fn)}: the return value (Annotated[..., unstructured] gives plain text)"
    check_type(what, kind)
    (schema,), defs = components([kind])
    return TypeOutput(kind, inline(schema, defs))


def is_text_only(fn: Callable[..., Any]) -> bool:
    """True for ``-> Annotated[T, unstructured]``: the value is never structured content."""
    return _is_marked(_returned(fn))


def _returned(fn: Callable[..., Any]) -> Any:
    return hint(fn, "the return value", inspect.signature(fn).return_annotation)


def _is_marked(kind: Any) -> bool:
    return any(isinstance(note, Unstructured) for note in getattr(kind, "__metadata__", ()))


def is_content(kind: Any) -> bool:
    """Content blocks, a whole result, and lists, unions and Annotated forms of these."""
    if typing.get_origin(kind) is typing.Annotated:
        return is_content(kind.__origin__)
    if typing.get_origin(kind) in _UNIONS:
        arms = [arm for arm in typing.get_args(kind) if arm is not type(None)]
        # A mixture may turn out to be content at run time, and content is not structured.
        return any(map(is_content, arms))
    if typing.get_origin(kind) in _LISTS:
        return any(map(is_content, typing.get_args(kind)))
    return isinstance(kind, type) and issubclass(kind, _CONTENT)


def inline(schema: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """One schema with ``$defs``; a reference at the root is replaced by what it names."""
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name in defs:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**defs[name], **rest}
    used = {**schema, "$defs": {k: v for k, v in defs.items() if k != name}}
    if any(node.get("$ref") == f"#/$defs/{name}" for node in subschemas(used)):
        used["$defs"] = defs  # a recursive type still refers to itself
    return used if used["$defs"] else schema


def wrap(schema: dict[str, Any]) -> dict[str, Any]:
    """``{"result": value}`` around a schema whose root is no object."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    root = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    # References are pointers from the root, so the definitions must stay there.
    return {**root, "$defs": schema["$defs"]} if "$defs" in schema else root


def cannot_encode(value: Any, error: Exception) -> OutputError:
    return OutputError(f"The result ({type(value).__qualname__}) cannot be encoded: {error}")
