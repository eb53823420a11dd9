"""How the arguments and the result of a tool are read and written."""

from typing import Any

from dovetail.server.function import Function
from dovetail.server.output import OutCodec, SchemaOutput, output_codec
from dovetail.server.signature import ArgCodec, args_codec

__all__ = ["codecs"]


def codecs(
    function: Function,
    input_schema: dict[str, Any] | None,
    output_schema: dict[str, Any] | None,
) -> tuple[ArgCodec, OutCodec | None]:
    """From the signature, unless the author wrote a schema by hand."""
    if input_schema is None and output_schema is None:
        return args_codec(function.fn, skip=function.skipped), output_codec(function.fn)
    from dovetail.server.handwritten import HandWrittenArguments

    arguments: ArgCodec
    if input_schema is None:
        arguments = args_codec(function.fn, skip=function.skipped)
    else:
        arguments = HandWrittenArguments(input_schema, function)
    if output_schema is None:
        return arguments, output_codec(function.fn)
    return arguments, SchemaOutput(output_schema)
