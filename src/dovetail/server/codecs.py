"""How the arguments and the result of a tool are read and written."""

from typing import Any, Literal

from dovetail.server.function import Function
from dovetail.server.output import OutCodec, SchemaOutput, output_codec
from dovetail.server.signature import ArgCodec, args_codec

__all__ = ["codecs"]


def codecs(
    function: Function,
    input_schema: dict[str, Any] | None,
    output_schema: dict[str, Any] | None,
    names: Literal["kebab", "camel"] | None = None,
) -> tuple[ArgCodec, OutCodec | None]:
    """From the signature, unless the author wrote a schema by hand."""
    arguments: ArgCodec
    if input_schema is None and output_schema is None:
        arguments = args_codec(function.fn, skip=function.skipped, names=names)
        return arguments, output_codec(function.fn)
    from dovetail.server.handwritten import HandWrittenArguments

    if input_schema is None:
        arguments = args_codec(function.fn, skip=function.skipped, names=names)
    else:
        arguments = HandWrittenArguments(input_schema, function)
    if output_schema is None:
        return arguments, output_codec(function.fn)
    return arguments, SchemaOutput(output_schema)
