"""JSON-RPC 2.0 as MCP narrows it: one message is one JSON object.

JSON-RPC has no tag that names the kind of a message; which members are set
decides it. So one Struct with optional members takes every kind, and msgspec
checks grammar, ``jsonrpc`` and the type of ``id`` in one pass while ``params``
and ``result`` stay slices of the frame.

The fast path accepts or fails; ``explain`` reads a failed frame a second time
to say what was wrong with it and whose request it was.
"""

import re
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dovetail.errors import INVALID_REQUEST, PARSE_ERROR, McpError, RemoteProtocolError

__all__ = [
    "BROKEN_JSON",
    "Envelope",
    "ErrorFrame",
    "Id",
    "NotificationFrame",
    "RequestFrame",
    "ResultFrame",
    "WireError",
    "check_depth",
    "decode",
    "encode",
    "encode_into",
    "explain",
    "split_batch",
    "too_long",
]

# MCP forbids null and fractions as ids (digest X2), JSON-RPC only discourages them.
Id: TypeAlias = int | str


class WireError(Struct, gc=False, omit_defaults=True):
    code: int
    message: str
    data: Any = UNSET


class Envelope(Struct, gc=False):
    """Any message. ``id`` admits null only so that ``explain`` need not run for it."""

    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: WireError | UnsetType = UNSET


# The tag gives `"jsonrpc":"2.0"` as the first member without a field to fill in.
class RequestFrame(Struct, gc=False, omit_defaults=True, tag_field="jsonrpc", tag="2.0"):
    id: Id
    method: str
    params: Any = UNSET


class NotificationFrame(Struct, gc=False, omit_defaults=True, tag_field="jsonrpc", tag="2.0"):
    method: str
    params: Any = UNSET


class ResultFrame(Struct, gc=False, tag_field="jsonrpc", tag="2.0"):
    id: Id
    result: Any


class ErrorFrame(Struct, gc=False, omit_defaults=True, tag_field="jsonrpc", tag="2.0"):
    """An error answer. ``id=None`` is sent as null, ``id=UNSET`` is left out."""

    id: int | str | UnsetType | None
    error: WireError


_encoder = msgspec.json.Encoder()
encode = _encoder.encode
encode_into = _encoder.encode_into
_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode

# What msgspec raises for text that is not JSON. ValidationError is a DecodeError,
# but a lone surrogate or bad UTF-8 inside a Raw slice comes as UnicodeDecodeError,
# and nesting beyond the interpreter's stack as RecursionError.
BROKEN_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode(frame: bytes, max_depth: int) -> Envelope:
    """One frame to one envelope; RemoteProtocolError says what to answer otherwise."""
    # A Raw slice is not checked for UTF-8, so the whole frame is, unless it is ASCII.
    if not frame.isascii():
        _check_utf8(frame)
    try:
        envelope = _decode_envelope(frame)
    except BROKEN_JSON:
        raise explain(frame) from None
    if len(frame) > 2 * max_depth:  # n levels take at least 2n bytes
        check_depth(frame, max_depth, envelope)
    return envelope


def _check_utf8(frame: bytes) -> None:
    try:
        frame.decode()
    except UnicodeDecodeError:
        raise _broken(frame, "Invalid UTF-8") from None


# Compiled when first used, as are all patterns here: most connections never need them.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_NOT_BRACKET = bytes(set(range(256)) - set(b"[]{}"))


def check_depth(frame: bytes, max_depth: int, envelope: Envelope) -> None:
    """Refuse nesting deeper than ``max_depth``; counting brackets rules out most frames."""
    if frame.count(b"{") + frame.count(b"[") <= max_depth:
        return
    depth = 0
    for bracket in re.sub(_STRING, b"", frame).translate(None, _NOT_BRACKET):
        depth += 1 if bracket in b"[{" else -1
        if depth > max_depth:
            text = f"Nesting deeper than {max_depth} levels"
            id = None if isinstance(envelope.id, UnsetType) else envelope.id
            raise _invalid(text, id, is_answer=envelope.method is UNSET)


def explain(frame: bytes) -> RemoteProtocolError:
    """Why ``frame`` is not a message, with the id of its request where it can be read."""
    try:
        value = msgspec.json.decode(frame)
    except RecursionError:
        return _broken(frame, "Nesting too deep")
    except BROKEN_JSON:
        return _broken(frame, "Invalid JSON")
    if not isinstance(value, dict):
        return _invalid("A message must be a JSON object")
    id = value.get("id")
    readable = id if isinstance(id, int | str) and not isinstance(id, bool) else None
    is_answer = "method" not in value and ("result" in value or "error" in value)
    return _invalid(_first_fault(value, readable), readable, is_answer=is_answer)


def _broken(frame: bytes, text: str) -> RemoteProtocolError:
    """No JSON. If it was meant as an answer, whoever waits for it must hear of it."""
    id, is_answer = _ends(frame[:1024], frame[-128:])
    return RemoteProtocolError(McpError(PARSE_ERROR, data=text), None, id if is_answer else None)


def _invalid(text: str, id: Id | None = None, *, is_answer: bool = False) -> RemoteProtocolError:
    """Only the id of a request is ours to answer with; that of an answer is our own."""
    error = McpError(INVALID_REQUEST, data=text)
    return RemoteProtocolError(error, None if is_answer else id, id if is_answer else None)


def _first_fault(value: dict[str, Any], readable_id: Id | None) -> str:
    """The texts of requirement 001, in the order in which a reader meets the members."""
    if "jsonrpc" not in value:
        return "Missing required field: jsonrpc"
    if value["jsonrpc"] != "2.0":
        return "Field 'jsonrpc' must be \"2.0\""
    if "id" in value and readable_id is None:
        return "Field 'id' must be a string or an integer"
    if "method" in value and not isinstance(value["method"], str):
        return "Field 'method' must be a string"
    if "error" in value:
        return "Field 'error' must be an object with 'code' and 'message'"
    return "A field is there twice, once with a wrong value"


def split_batch(frame: bytes) -> list[bytes] | None:
    """The messages of a JSON array, or None when the frame is something else."""
    if not frame.lstrip(b" \t\r").startswith(b"["):
        return None
    try:
        return [bytes(item) for item in _decode_items(frame)]
    except BROKEN_JSON:
        return None


_SCALAR_MEMBER = rb'\s*"((?:[^"\\]++|\\.)*+)"\s*:\s*("(?:[^"\\]++|\\.)*+"|-?\d+(?=\s*[,}]))\s*,'


_ANSWER_MEMBER = rb'\s*"(?:result|error)"\s*:'


# Scalar members right before the brace that ends the frame are members of the message
# itself: the brace closes nothing else.
_LAST_MEMBERS = (
    rb'[{}\],]\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*("(?:[^"\\]++|\\.)*+"|-?\d+)'
    rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z'
)
_RESULT_FIRST = rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"(?:result|error)"\s*:'


def too_long(prefix: bytes, limit: int, suffix: bytes = b"") -> RemoteProtocolError:
    """The refusal of a frame that is too long to be read whole, given its two ends."""
    id, is_answer = _ends(prefix, suffix)
    return _invalid(f"Message longer than {limit} bytes", id, is_answer=is_answer)


def _ends(prefix: bytes, suffix: bytes) -> tuple[Id | None, bool]:
    """The id that a frame shows at one of its ends, and whether it is that of an answer."""
    id, is_answer = _salvage(prefix)
    if id is None and re.match(_RESULT_FIRST, prefix):
        last = re.search(_LAST_MEMBERS, suffix)
        return (None if last is None else _scalar(last[1])), True
    return id, is_answer


def _salvage(prefix: bytes) -> tuple[Id | None, bool]:
    """An id, and whether it is that of an answer.

    Only members before the first nested value are looked at: deeper inside, an
    "id" could be anybody's, and a wrong guess would answer another request.
    """
    found: Id | None = None
    is_request = False
    position = prefix.find(b"{") + 1
    pattern = re.compile(_SCALAR_MEMBER)
    while position and (member := pattern.match(prefix, position)):
        if member[1] == b"id":
            found = _scalar(member[2])
        is_request = is_request or member[1] == b"method"
        position = member.end()
    is_answer = not is_request and bool(re.match(_ANSWER_MEMBER, prefix[position:]))
    return (found if is_request or is_answer else None), is_answer


def _scalar(text: bytes) -> Id | None:
    try:
        return msgspec.json.decode(text, type=int | str)
    except BROKEN_JSON:
        return None
