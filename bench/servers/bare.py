"""The messages the bare loops share: as little MCP as `add` needs, and no library."""

from typing import Any

import msgspec

INTEGER = {"type": "integer"}
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": INTEGER, "b": INTEGER},
        "required": ["a", "b"],
    },
    "outputSchema": {"type": "object", "properties": {"result": INTEGER}, "required": ["result"]},
}
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bench", "version": "1.0.0"},
}
FIXED_RESULTS = {"initialize": INITIALIZED, "tools/list": {"tools": [ADD]}, "ping": {}}


class Envelope(msgspec.Struct):
    method: str
    id: int | str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


class CallParams(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class AddArguments(msgspec.Struct, forbid_unknown_fields=True):
    a: int
    b: int


class Text(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class Sum(msgspec.Struct):
    result: int


class CallResult(msgspec.Struct, rename="camel"):
    content: list[Text]
    structured_content: Sum


class Answer(msgspec.Struct):
    id: int | str
    result: Any
    jsonrpc: str = "2.0"


class Failure(msgspec.Struct):
    id: int | str
    error: dict[str, Any]
    jsonrpc: str = "2.0"


decode_envelope = msgspec.json.Decoder(Envelope).decode
decode_call = msgspec.json.Decoder(CallParams).decode
decode_arguments = msgspec.json.Decoder(AddArguments).decode
encode = msgspec.json.Encoder().encode


def answer_call(id: int | str, total: int) -> bytes:
    return encode(Answer(id, CallResult([Text(str(total))], Sum(total)))) + b"\n"


def answer_other(envelope: Envelope) -> bytes:
    """Answer everything but `tools/call`; a notification gets no bytes."""
    if envelope.id is None:
        return b""
    result = FIXED_RESULTS.get(envelope.method)
    if result is None:
        error = {"code": -32601, "message": "Method not found"}
        return encode(Failure(envelope.id, error)) + b"\n"
    return encode(Answer(envelope.id, result)) + b"\n"
