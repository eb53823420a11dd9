"""Arguments that come as strings: of prompts, and of the variables of a URI.

MCP has no other type there, so a parameter annotated ``int`` takes "42". This
is the one place where text is turned into numbers.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from dovetail.errors import INVALID_PARAMS, McpError
from dovetail.server.exact import explain
from dovetail.server.signature import StructCodec, args_codec, dec_hook, label

__all__ = ["StringCodec"]


class StringCodec:
    """The parameters of a function whose arguments are all strings."""

    def __init__(self, fn: Callable[..., Any], skip: Collection[str]) -> None:
        codec = args_codec(fn, skip=skip)
        if not isinstance(codec, StructCodec):
            raise TypeError(f"{label(fn)}: pydantic types are for the arguments of tools")
        self._struct = codec.struct
        self._schema = codec.schema
        self.properties: dict[str, Any] = codec.schema["properties"]
        self.required: list[str] = codec.schema.get("required", [])

    def decode(self, values: dict[str, str]) -> dict[str, Any]:
        """The keyword arguments; McpError (-32602) says what does not fit."""
        try:
            struct = msgspec.convert(values, self._struct, strict=False, dec_hook=dec_hook)
        except msgspec.ValidationError as error:
            text = str(explain(str(error), values, self._schema))
            raise McpError(INVALID_PARAMS, data=text) from None
        return msgspec.structs.asdict(struct)
