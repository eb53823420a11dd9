"""The bytes the driver sends in each protocol revision, and the check of what comes back."""

import json
from collections.abc import Iterable

import msgspec

LEGACY = "2025-11-25"
MODERN = "2026-07-28"

CLIENT = {"name": "bench", "version": "1.0.0"}
CALL = {"name": "add", "arguments": {"a": 1, "b": 2}}
EXPECTED = "3"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}


class WrongAnswer(Exception):
    """The server answered, but not what was asked."""


class Content(msgspec.Struct):
    text: str


class CallResult(msgspec.Struct):
    content: list[Content]


class Answer(msgspec.Struct):
    id: int
    result: CallResult


decode_answer = msgspec.json.Decoder(Answer).decode


def line(**message: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def opening(revision: str) -> bytes:
    """The first request; its answer says that the server is up."""
    if revision == MODERN:
        return line(id=0, method="server/discover", params={"_meta": META})
    return line(id=0, method="initialize", params=INITIALIZE)


def after_opening(revision: str) -> bytes:
    return b"" if revision == MODERN else line(method="notifications/initialized")


def calls(revision: str, ids: Iterable[int]) -> list[bytes]:
    params = {**CALL, "_meta": META} if revision == MODERN else CALL
    head, tail = line(id=0, method="tools/call", params=params).split(b'"id":0', 1)
    return [b'%b"id":%d%b' % (head, id, tail) for id in ids]


def check_answers(data: bytes, ids: Iterable[int]) -> None:
    """Every id is answered exactly once, and every answer is right."""
    try:
        answers = [decode_answer(answer) for answer in data.splitlines()]
    except msgspec.MsgspecError as error:
        raise WrongAnswer(f"{error} in {data[:300]!r}") from error
    if sorted(answer.id for answer in answers) != sorted(ids):
        raise WrongAnswer("the ids of the answers are not the ids of the calls")
    if any([part.text for part in answer.result.content] != [EXPECTED] for answer in answers):
        raise WrongAnswer(f"a sum is not {EXPECTED}")
