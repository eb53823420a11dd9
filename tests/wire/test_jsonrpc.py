"""The JSON layer against a corpus, and the rules of the envelope as a table."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from json_corpus import ACCEPT, CHOICES, NOT_UTF8, REFUSE, Choice
from msgspec import UNSET

from dovetail.errors import McpError, RemoteProtocolError
from dovetail.wire.jsonrpc import (
    Envelope,
    ErrorFrame,
    NotificationFrame,
    RequestFrame,
    ResultFrame,
    WireError,
    decode,
    encode,
    split_batch,
    too_long,
)

DEPTH = 128
NOT_OBJECT = "A message must be a JSON object"


def in_params(value: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":' + value + b"}}"


def in_result(value: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"result":{"x":' + value + b"}}"


def ignored(value: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","zzz":' + value + b',"id":1,"method":"m"}'


def refusal(frame: bytes, max_depth: int = DEPTH) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(frame, max_depth)
    return caught.value


def table(cases: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("value", cases.values(), ids=cases.keys())


def test_the_corpus_is_of_a_size() -> None:
    values = [*ACCEPT.values(), *REFUSE.values(), *NOT_UTF8.values()]
    assert len(values) + len(CHOICES) >= 150
    assert len(set(values)) == len(values)


@pytest.mark.verifies("F-json-corpus", "X12", "R001-12", "R001-15")
@table(ACCEPT)
def test_what_is_json_is_accepted(value: bytes) -> None:
    want = json.loads(value)
    envelope = decode(in_params(value), DEPTH)
    assert json.loads(bytes(envelope.params)) == {"x": want}
    assert json.loads(bytes(decode(in_result(value), DEPTH).result)) == {"x": want}
    assert decode(ignored(value), DEPTH).method == "m"
    (item,) = split_batch(b"[" + value + b"]") or []
    assert json.loads(item) == want
    assert refusal(value).error.code == -32600  # JSON, but no message


@pytest.mark.verifies("F-json-corpus", "E-bad-json", "E-nan", "E-lone-surrogate")
@table(REFUSE)
def test_what_is_not_json_is_refused(value: bytes) -> None:
    for frame in (in_params(value), in_result(value), ignored(value), value):
        problem = refusal(frame)
        assert problem.error.code == -32700
        assert problem.error.message == "Parse error"
        assert problem.error.data == "Invalid JSON"  # never the parser's own words
        assert problem.id is None
    if value.strip():
        assert split_batch(b'[{"x":' + value + b"}]") is None


@pytest.mark.verifies("F-json-corpus", "E-bad-utf8", "X12")
@table(NOT_UTF8)
def test_what_is_not_utf8_is_refused(value: bytes) -> None:
    for frame in (in_params(value), in_result(value), ignored(value), value):
        problem = refusal(frame)
        assert problem.error.code == -32700
        assert problem.error.data == "Invalid UTF-8"
        assert problem.id is None


@pytest.mark.verifies("F-json-corpus", "E-overdeep")
@table(CHOICES)
def test_what_json_leaves_open_is_decided(value: Choice) -> None:
    for frame in (in_params(value.value), ignored(value.value)):
        if value.inside is None:
            assert decode(frame, DEPTH).id == 1
        else:
            assert refusal(frame).error.code == value.inside
    assert refusal(value.value).error.code == (value.alone or -32600)


# -- the envelope --------------------------------------------------------------------

JSONRPC = "Field 'jsonrpc' must be \"2.0\""
ID = "Field 'id' must be a string or an integer"
METHOD = "Field 'method' must be a string"
ERROR = "Field 'error' must be an object with 'code' and 'message'"
MISSING = "Missing required field: jsonrpc"
TWICE = "A field is there twice, once with a wrong value"

# frame -> code, data, id to answer
REFUSED: list[tuple[bytes, int, str, Any]] = [
    (b'{"not-jsonrpc":"2.0","method":"initialize"}', -32600, MISSING, None),
    (b'{"id":1,"method":"m"}', -32600, MISSING, 1),
    (b'{"id":"a","method":"m"}', -32600, MISSING, "a"),
    (b'{"id":0,"method":"m"}', -32600, MISSING, 0),
    (b'{"id":"","method":"m"}', -32600, MISSING, ""),
    (b'{"method":"m"}', -32600, MISSING, None),
    (b"{}", -32600, MISSING, None),
    (b'{"id":1,"result":{}}', -32600, MISSING, None),
    (b'{"jsonrpc":"1.0","id":1,"method":"m"}', -32600, JSONRPC, 1),
    (b'{"jsonrpc":"2","id":1,"method":"m"}', -32600, JSONRPC, 1),
    (b'{"jsonrpc":"2.0 ","id":1,"method":"m"}', -32600, JSONRPC, 1),
    (b'{"jsonrpc":"","id":1,"method":"m"}', -32600, JSONRPC, 1),
    (b'{"jsonrpc":2.0,"id":1,"method":"m"}', -32600, JSONRPC, 1),
    (b'{"jsonrpc":2,"id":1,"method":"m"}', -32600, JSONRPC, 1),
    (b'{"jsonrpc":null,"id":1,"method":"m"}', -32600, JSONRPC, 1),
    (b'{"jsonrpc":["2.0"],"id":1,"method":"m"}', -32600, JSONRPC, 1),
    (b'{"JSONRPC":"2.0","id":1,"method":"m"}', -32600, MISSING, 1),
    (b'{"jsonrpc":"2.0","id":true,"method":"m"}', -32600, ID, None),
    (b'{"jsonrpc":"2.0","id":false,"method":"m"}', -32600, ID, None),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', -32600, ID, None),
    (b'{"jsonrpc":"2.0","id":1.0,"method":"m"}', -32600, ID, None),
    (b'{"jsonrpc":"2.0","id":1e3,"method":"m"}', -32600, ID, None),
    (b'{"jsonrpc":"2.0","id":[],"method":"m"}', -32600, ID, None),
    (b'{"jsonrpc":"2.0","id":[1],"method":"m"}', -32600, ID, None),
    (b'{"jsonrpc":"2.0","id":{},"method":"m"}', -32600, ID, None),
    (b'{"jsonrpc":"1.0","id":true,"method":5}', -32600, JSONRPC, None),
    (b'{"jsonrpc":"2.0","id":true,"method":5}', -32600, ID, None),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600, METHOD, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":null}', -32600, METHOD, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":["m"]}', -32600, METHOD, 1),
    (b'{"jsonrpc":"2.0","method":{}}', -32600, METHOD, None),
    (b'{"jsonrpc":"2.0","id":1,"error":"x"}', -32600, ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"error":null}', -32600, ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"error":{}}', -32600, ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}', -32600, ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"error":{"message":"m"}}', -32600, ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"m"}}', -32600, ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":"m"}}', -32600, ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":5}}', -32600, ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"m","error":5}', -32600, ERROR, 1),
    (b'{"jsonrpc":"1.0","jsonrpc":"2.0","id":1,"method":"m"}', -32600, TWICE, 1),
    (b'{"jsonrpc":"2.0","id":true,"id":1,"method":"m"}', -32600, TWICE, 1),
    (b'{"jsonrpc":"2.0","jsonrpc":"1.0","id":1,"method":"m"}', -32600, JSONRPC, 1),
    (b"[]", -32600, NOT_OBJECT, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', -32600, NOT_OBJECT, None),
    (b"null", -32600, NOT_OBJECT, None),
    (b"true", -32600, NOT_OBJECT, None),
    (b"1", -32600, NOT_OBJECT, None),
    (b"1.5", -32600, NOT_OBJECT, None),
    (b'"text"', -32600, NOT_OBJECT, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"m"} {}', -32700, "Invalid JSON", None),
    (b'{"jsonrpc":"2.0","id":1,"method":"m"}{"jsonrpc":"2.0"}', -32700, "Invalid JSON", None),
    (b'{"jsonrpc":"2.0","id":1,"method":"m"', -32700, "Invalid JSON", None),
    (b'{"jsonrpc":"2.0","id":NaN,"method":"m"}', -32700, "Invalid JSON", None),
    (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', -32700, "Invalid JSON", None),
    (b'{"jsonrpc":"2.0","id":"\\udc00","method":"m"}', -32700, "Invalid JSON", None),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, "Invalid UTF-8", None),
    (b'{"jsonrpc":"2.0","id":"\xff","method":"m"}', -32700, "Invalid UTF-8", None),
    (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}', -32700, "Invalid JSON", None),
]


@pytest.mark.verifies("R001-6", "R001-7", "R000-8", "E-jsonrpc-missing", "E-jsonrpc-wrong")
@pytest.mark.verifies("E-id-true", "E-id-float", "E-method-wrong", "E-not-object", "X2", "R002-1")
@pytest.mark.parametrize(("frame", "code", "data", "id"), REFUSED)
def test_refused_envelopes(frame: bytes, code: int, data: str, id: Any) -> None:
    problem = refusal(frame)
    assert (problem.error.code, problem.error.data, problem.id) == (code, data, id)
    assert type(problem.id) is type(id)
    assert problem.error.message == {-32600: "Invalid Request", -32700: "Parse error"}[code]


TAKEN: list[tuple[bytes, dict[str, Any]]] = [
    (b'{"jsonrpc":"2.0","id":1,"method":"m"}', {"id": 1, "method": "m"}),
    (b'{"method":"m","id":1,"jsonrpc":"2.0"}', {"id": 1, "method": "m"}),
    (b' { "jsonrpc" : "2.0" , "id" : 1 , "method" : "m" } \r', {"id": 1, "method": "m"}),
    (b'{"jsonrpc":"2.0","id":0,"method":""}', {"id": 0, "method": ""}),
    (b'{"jsonrpc":"2.0","id":"","method":"m"}', {"id": "", "method": "m"}),
    (b'{"jsonrpc":"2.0","id":-5,"method":"m"}', {"id": -5, "method": "m"}),
    (b'{"jsonrpc":"2.0","id":"1","method":"m"}', {"id": "1", "method": "m"}),
    (b'{"jsonrpc":"2.0","id":18446744073709551616,"method":"m"}', {"id": 2**64, "method": "m"}),
    (b'{"jsonrpc":"2.0","id":null,"method":"m"}', {"id": None, "method": "m"}),
    (b'{"json\\u0072pc":"2\\u002e0","id":"\\u0061","method":"m"}', {"id": "a", "method": "m"}),
    (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', {"id": 2, "method": "m"}),
    (b'{"jsonrpc":"2.0","method":"m"}', {"method": "m"}),
    (b'{"jsonrpc":"2.0","method":"m","extra":[1],"x":{}}', {"method": "m"}),
    (b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', {"id": 1, "params": b"[1]"}),
    (b'{"jsonrpc":"2.0","id":1,"result":{"a": 1}}', {"id": 1, "result": b'{"a": 1}'}),
    (b'{"jsonrpc":"2.0","id":1,"result":null}', {"id": 1, "result": b"null"}),
    (b'{"jsonrpc":"2.0"}', {}),
]


@pytest.mark.verifies("R000-4", "R001-15", "R002-2", "R002-5", "X2")
@pytest.mark.parametrize(("frame", "members"), TAKEN)
def test_taken_envelopes(frame: bytes, members: dict[str, Any]) -> None:
    envelope = decode(frame, DEPTH)
    assert envelope.jsonrpc == "2.0"
    for name in ("id", "method", "params", "result"):
        value = getattr(envelope, name)
        if name in ("params", "result") and value is not UNSET:
            value = bytes(value)
        if name in members or name == "id":
            assert value == members.get(name, UNSET)
            assert type(value) is type(members.get(name, UNSET))


@pytest.mark.verifies("R002-4", "R002-6", "X7", "X8")
def test_an_error_answer_is_read() -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"m","data":[1],"more":2}}'
    envelope = decode(frame, DEPTH)
    assert envelope.error == WireError(-5, "m", [1])
    without = decode(b'{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":""}}', DEPTH)
    assert without.error == WireError(5, "", UNSET)


# -- depth ---------------------------------------------------------------------------


def nested(depth: int, beside: bytes = b"") -> bytes:
    """A request whose deepest value is ``depth`` brackets down."""
    inner = depth - 2
    return in_params(b"[" * inner + b"]" * inner + beside)


@pytest.mark.verifies("E-overdeep")
@pytest.mark.parametrize("limit", [3, 4, 10, 128, 500])
@pytest.mark.parametrize("beside", [b"", b',"y":{},"z":"[["', b',"y":[' + b"0," * 600 + b"0]"])
def test_depth_is_counted_exactly(limit: int, beside: bytes) -> None:
    assert decode(nested(limit, beside), limit).id == 1
    problem = refusal(nested(limit + 1, beside), limit)
    assert problem.error.code == -32600
    assert problem.error.data == f"Nesting deeper than {limit} levels"
    assert problem.id == 1


@pytest.mark.verifies("E-overdeep")
@pytest.mark.parametrize(
    ("frame", "id"),
    [
        (b'{"jsonrpc":"2.0","method":"m","params":[[[[[]]]]]}', None),
        (b'{"jsonrpc":"2.0","id":5,"result":[[[[[]]]]]}', None),
        (b'{"jsonrpc":"2.0","zzz":[[[[[]]]]],"id":"a","method":"m"}', "a"),
        (b'{"jsonrpc":"2.0","id":null,"method":"m","params":[[[[[]]]]]}', None),
    ],
)
def test_who_is_told_of_depth(frame: bytes, id: Any) -> None:
    """Only a request has an id that is ours to answer."""
    problem = refusal(frame, 4)
    assert problem.error.data == "Nesting deeper than 4 levels"
    assert problem.id == id


@pytest.mark.parametrize(
    "value",
    [
        b'"' + b"[" * 50 + b'"',
        b'"' + b"{" * 50 + rb"\"" + b"[" * 50 + b'"',
        rb'"\\"' + b"",
        b"[" + b",".join([b"[]"] * 50) + b"]",
        b"[" + b",".join([b'{"a":"}{"}'] * 50) + b"]",
        rb'["\\", "[[[[", "\"", "]]]]", "\\\"{{{{"]',
    ],
)
def test_brackets_that_do_not_nest_do_not_count(value: bytes) -> None:
    padded = value + b" " * 100
    assert json.loads(value) is not None
    assert decode(in_params(padded), 5).id == 1


# -- batches and frames that are too long --------------------------------------------


@pytest.mark.verifies("X11")
@pytest.mark.parametrize(
    ("frame", "items"),
    [
        (b"[]", []),
        (b" \t\r[ ]", []),
        (b'[1, {"a": [2]} ,"x"]', [b"1", b'{"a": [2]}', b'"x"']),
        (b"[[1],[2]]", [b"[1]", b"[2]"]),
        (b"{}", None),
        (b'"["', None),
        (b"", None),
        (b"[1", None),
        (b"[1]]", None),
        (b"[NaN]", None),
        (b"[" * 100_000, None),
    ],
)
def test_arrays_are_split(frame: bytes, items: list[bytes] | None) -> None:
    assert split_batch(frame) == items


@pytest.mark.verifies("E-oversize")
@pytest.mark.parametrize(
    ("prefix", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"x":"yyyy', 7),
        (b'{"jsonrpc":"2.0","method":"tools/call","id":7,"params":{"x":"yyyy', 7),
        (b'{"id":"a\\"b","method":"m","jsonrpc":"2.0","params":{', 'a"b'),
        (b' { "id" : -1 , "method" : "m" , "params" : {', -1),
        (b'{"id":0,"method":"m","params":{', 0),
        (b'{"id":"","method":"m","params":{', ""),
        (b'{"id":1,"method":"m","id":2,"params":{', 2),
        # not ours to answer, or not to be read for sure
        (b'{"jsonrpc":"2.0","id":7,"result":{"x":"yyyy', None),
        (b'{"jsonrpc":"2.0","method":"m","params":{"id":7,"method":"x",', None),
        (b'{"jsonrpc":"2.0","params":{"id":7,"method":"x","y":"', None),
        (b'{"jsonrpc":"2.0","id":7,"met', None),
        (b'{"jsonrpc":"2.0","id":7', None),
        (b'{"jsonrpc":"2.0","method":"m","id":7', None),
        (b'{"id":1.5,"method":"m","params":{', None),
        (b'{"id":01,"method":"m","params":{', None),
        (b'{"id":true,"method":"m","params":{', None),
        (b'{"id":null,"method":"m","params":{', None),
        (b'{"id":"\\ud800","method":"m","params":{', None),
        (b'{"id":"\xff","method":"m","params":{', None),
        (b'"{', None),
        (b"", None),
        (b"x" * 1024, None),
        (b"[" * 1024, None),
        (b'{"' + b"\\" * 1000, None),
    ],
)
def test_the_id_of_a_frame_that_is_too_long(prefix: bytes, id: Any) -> None:
    assert too_long(prefix, 1).id == id


# -- what we write -------------------------------------------------------------------


@pytest.mark.verifies("X1", "X5", "X6", "X7", "X9", "X15", "R000-4", "R000-7", "INV-005")
@pytest.mark.parametrize(
    ("message", "written"),
    [
        (RequestFrame(1, "m"), b'{"jsonrpc":"2.0","id":1,"method":"m"}'),
        (RequestFrame("", "m", {}), b'{"jsonrpc":"2.0","id":"","method":"m","params":{}}'),
        (NotificationFrame("m"), b'{"jsonrpc":"2.0","method":"m"}'),
        (
            NotificationFrame("m", {"a": "\n"}),
            rb'{"jsonrpc":"2.0","method":"m","params":{"a":"\n"}}',
        ),
        (ResultFrame(0, {}), b'{"jsonrpc":"2.0","id":0,"result":{}}'),
        (ResultFrame("0", None), b'{"jsonrpc":"2.0","id":"0","result":null}'),
        (
            ErrorFrame(1, WireError(-1, "m")),
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}',
        ),
        (
            ErrorFrame(None, WireError(-1, "m", "d")),
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m","data":"d"}}',
        ),
        (
            ErrorFrame(UNSET, WireError(-1, "m", 0)),
            b'{"jsonrpc":"2.0","error":{"code":-1,"message":"m","data":0}}',
        ),
    ],
)
def test_what_we_write(message: Any, written: bytes) -> None:
    assert encode(message) == written
    assert b"\n" not in written
    back = decode(written, DEPTH)
    assert isinstance(back, Envelope)
    assert msgspec.json.decode(written)["jsonrpc"] == "2.0"


@pytest.mark.verifies("X5")
@pytest.mark.parametrize("id", [0, -1, "", "0", 2**53 + 1, 2**70, -(2**70), "\u00e9\U0001f600\n"])
def test_an_id_survives_the_way_there_and_back(id: Any) -> None:
    read = decode(encode(RequestFrame(id, "m")), DEPTH).id
    assert (read, type(read)) == (id, type(id))


def test_the_text_of_a_refusal() -> None:
    error = RemoteProtocolError(McpError(-32600, data="why"), 5)
    assert str(error) == "Invalid Request (-32600): why"
    assert error.id == 5
