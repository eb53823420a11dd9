"""Tools whose schemas are written by hand instead of taken from a signature."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.server.function import Function
from dovetail.server.output import OutputError, wrap
from dovetail.server.signature import enc_hook, label, schema_codec

__all__ = ["HandWrittenArguments", "HandWrittenOutput"]

_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode


class HandWrittenArguments:
    """The arguments go to the function's only parameter, as one dict."""

    def __init__(self, schema: dict[str, Any], function: Function) -> None:
        codec = schema_codec(schema)
        self.schema = codec.schema
        self._decode = codec.decode
        self._parameter = _only_parameter(function)

    def decode(self, raw: bytes | msgspec.Raw) -> dict[str, Any]:
        return {self._parameter: self._decode(raw)}


def _only_parameter(function: Function) -> str:
    fn: Callable[..., Any] = function.fn
    names = [name for name in inspect.signature(fn).parameters if name not in function.skipped]
    if len(names) != 1:
        raise TypeError(f"{label(fn)} must take one dict, because its input_schema is given")
    return names[0]


class HandWrittenOutput:
    """Structured output that the author promises to make as the schema says."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.is_object = schema.get("type") == "object"
        self.wrapped_schema = schema if self.is_object else wrap(schema)

    def encode(self, value: Any) -> bytes:
        return _encode(value)

    def check(self, raw: bytes) -> None:
        jsonschema = importlib.import_module("jsonschema")  # an extra, for debugging only
        validator = jsonschema.Draft202012Validator(self.schema)
        for error in validator.iter_errors(msgspec.json.decode(raw)):
            raise OutputError(f"The result does not fit its schema: {error.message}")
