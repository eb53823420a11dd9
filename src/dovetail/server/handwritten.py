"""Tools whose input schema is written by hand instead of taken from a signature."""

import inspect
import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import msgspec

from dovetail.server.function import Function
from dovetail.server.signature import label, schema_codec

__all__ = ["HandWrittenArguments"]

log = logging.getLogger("dovetail")


class HandWrittenArguments:
    """The arguments go to the function's only parameter, as one dict."""

    def __init__(self, schema: dict[str, Any], function: Function) -> None:
        codec = schema_codec(schema)
        if find_spec("jsonschema") is None:
            log.warning(
                "%s: only names and types of its input_schema are checked; "
                "the extra dovetail[schema] enforces the rest",
                label(function.fn),
            )
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
