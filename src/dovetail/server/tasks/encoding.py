"""A record as the stores beyond memory keep it: what a list shows, and what the task carries."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from dovetail.errors import INTERNAL_ERROR, MESSAGES
from dovetail.server.tasks.record import StoreError, TaskRecord, transition
from dovetail.server.tasks.store import RESERVE, Change

__all__ = ["decoded", "decoded_head", "encoded", "failing"]

_T = TypeVar("_T")

_Payload = tuple[bytes | None, bytes | None, dict[str, bytes], frozenset[str]]
_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(TaskRecord).decode
_decode_payload = msgspec.msgpack.Decoder(_Payload).decode


def encoded(record: TaskRecord) -> tuple[bytes, bytes]:
    payload = (record.outcome, record.error, record.input_requests, record.asked_keys)
    return _encode(record.head()), _encode(payload)


def decoded(head: bytes, payload: bytes) -> TaskRecord:
    outcome, error, questions, keys = _read(_decode_payload, payload)
    record = decoded_head(head)
    return replace(record, outcome=outcome, error=error, input_requests=questions, asked_keys=keys)


def decoded_head(head: bytes) -> TaskRecord:
    return _read(_decode_head, head)


def _read(decode: Callable[[bytes], _T], data: bytes) -> _T:
    try:
        return decode(data)
    except msgspec.DecodeError as error:
        raise StoreError(f"The task store holds a record that cannot be read: {error}") from error


def failing(reason: str) -> Change:
    """What becomes of a task whose owner is dead."""
    # Shorter than what every task has in reserve, so that this always fits.
    text = reason[: RESERVE // 8]
    message = MESSAGES[INTERNAL_ERROR]
    error = msgspec.json.encode({"code": INTERNAL_ERROR, "message": message, "data": text})
    return lambda record: transition(record, "failed", error=error, status_message=text)
