"""Sealed state: only what this server said, for this request, to this user, in time."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import INVALID_PARAMS
from dovetail.server import request_state
from dovetail.server.request_state import MAX_STATE_LENGTH, Seal, StateRefused, binding

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))
BOUND = binding("tools/call", {"name": "pay", "arguments": {"eur": 5}}, "ann")
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
STATE = {"answers": {"ok": {"action": "accept"}}, "round": 2}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


class Clock:
    """A clock that stands still unless told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def seal(**options: Any) -> Seal:
    return Seal("server", **{"keys": [KEY], "clock": Clock(), **options})


def refusal(sealer: Seal, text: str, bound: bytes = BOUND) -> str:
    with pytest.raises(StateRefused) as caught:
        sealer.open(text, binding=bound)
    return caught.value.reason


def resealed(head: bytes, payload: bytes = b"\xc0", key: bytes = KEY) -> str:
    """A state with a right MAC, whatever it says."""
    body = head + payload
    return request_state._encode(body + request_state._mac(key, body))


# --- round trip ---------------------------------------------------------------------------------


@given(JSON)
def test_opens_what_it_sealed(state: Any) -> None:
    sealer = seal()
    text = sealer.seal(state, binding=BOUND)
    assert sealer.open(text, binding=BOUND) == state
    assert set(text) <= set(ALPHABET)


def test_bytes_survive() -> None:
    assert seal().open(seal().seal([b"\xff\0"], binding=BOUND), binding=BOUND) == [b"\xff\0"]


def test_default_clock_and_key() -> None:
    sealer = Seal("server")
    assert sealer.open(sealer.seal(STATE, binding=BOUND), binding=BOUND) == STATE


def test_no_keys_means_one_random_key_per_seal() -> None:
    text = Seal("server").seal(STATE, binding=BOUND)
    assert refusal(Seal("server"), text) == "unknown key"


# --- forgeries (shows: S19) ---------------------------------------------------------------------


SEALED = seal().seal(STATE, binding=BOUND)
SEALED_BYTES = base64.urlsafe_b64decode(SEALED + "=" * (-len(SEALED) % 4))


@given(st.integers(0, len(SEALED_BYTES) - 1), st.integers(1, 255))
def test_every_changed_byte_is_refused(at: int, flip: int) -> None:
    data = bytearray(SEALED_BYTES)
    data[at] ^= flip
    refusal(seal(), request_state._encode(bytes(data)))


@given(st.integers(0, len(SEALED) - 1), st.characters())
def test_every_changed_character_is_refused(at: int, other: str) -> None:
    text = SEALED[:at] + other + SEALED[at + 1 :]
    if text != SEALED:
        refusal(seal(), text)


@pytest.mark.parametrize("state", ["", "x", "xx"])
def test_the_spare_bits_of_base64_are_no_second_spelling(state: str) -> None:
    # Three lengths modulo three: the last character has six, four or two bits that count.
    text = seal().seal(state, binding=BOUND)
    for other in {text[:-1] + last for last in ALPHABET} - {text}:
        refusal(seal(), other)


@pytest.mark.parametrize("text", [SEALED + "=", SEALED + "\n", " " + SEALED, SEALED[:9] + "."])
def test_padding_and_white_space_are_refused(text: str) -> None:
    assert refusal(seal(), text) == "not base64"


@given(st.integers(0, len(SEALED) - 1))
def test_a_cut_state_is_refused(length: int) -> None:
    refusal(seal(), SEALED[:length])


@given(st.text() | st.text("ABab01-_").map(lambda text: "AQ" + text))
def test_random_text_is_only_ever_refused(text: str) -> None:
    refusal(seal(), text)


@pytest.mark.parametrize("text", ["", "\ud800", "é", "A", "AAAA"])
def test_odd_text_is_refused(text: str) -> None:
    refusal(seal(), text)


def test_a_long_text_is_refused_unread() -> None:
    assert refusal(seal(), "A" * (MAX_STATE_LENGTH + 1)) == "too long"


def test_reasons() -> None:
    head = SEALED_BYTES[: request_state._HEAD.size]
    assert refusal(seal(), resealed(b"\2" + head[1:])) == "unknown version"
    assert refusal(seal(), request_state._encode(b"\1short")) == "too short"
    assert refusal(seal(), resealed(head, key=OTHER)) == "wrong MAC"
    assert refusal(seal(), resealed(head, b"\xc1")) == "unreadable payload"
    assert refusal(seal(keys=[OTHER]), SEALED) == "unknown key"


def test_every_refusal_looks_the_same_from_outside() -> None:
    shown = set()
    for text in ("", "?", SEALED[:-4] + "AAAA", resealed(b"\2" * request_state._HEAD.size)):
        with pytest.raises(StateRefused) as caught:
            seal().open(text, binding=BOUND)
        error = caught.value
        shown.add((error.code, error.message, error.data, str(error), error.args))
    assert shown == {
        (
            INVALID_PARAMS,
            "Invalid params",
            "Invalid requestState",
            "Invalid params (-32602): Invalid requestState",
            (INVALID_PARAMS, "Invalid params", "Invalid requestState"),
        )
    }


# --- time, audience, rotation -------------------------------------------------------------------


def test_expires() -> None:
    clock = Clock()
    sealer = seal(clock=clock, ttl_seconds=10)
    text = sealer.seal(STATE, binding=BOUND)
    clock.now += 9.9
    assert sealer.open(text, binding=BOUND) == STATE
    clock.now += 0.1
    assert refusal(sealer, text) == "expired"


def test_foreign_audience() -> None:
    text = Seal("other", keys=[KEY], clock=Clock()).seal(STATE, binding=BOUND)
    assert refusal(seal(), text) == "wrong audience"


def test_key_rotation() -> None:
    old = seal().seal(STATE, binding=BOUND)
    rotated = seal(keys=[OTHER, KEY])
    assert rotated.open(old, binding=BOUND) == STATE
    new = rotated.seal(STATE, binding=BOUND)
    assert seal(keys=[OTHER]).open(new, binding=BOUND) == STATE
    assert refusal(seal(), new) == "unknown key"
    assert refusal(seal(keys=[OTHER]), old) == "unknown key"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"keys": [KEY[:31]]}, "at least 32 bytes"),
        ({"keys": [KEY, KEY]}, "twice"),
        ({"ttl_seconds": 0}, "positive"),
        ({"ttl_seconds": float("nan")}, "positive"),
    ],
)
def test_bad_settings(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        seal(**options)


# --- what cannot be sealed ----------------------------------------------------------------------


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("state", [object(), 2**64, nested(100_000)], ids=["object", "int", "deep"])
def test_a_state_msgpack_cannot_hold(state: Any) -> None:
    with pytest.raises(ValueError, match="cannot be sealed"):
        seal().seal(state, binding=BOUND)


def test_a_state_too_long_to_come_back() -> None:
    with pytest.raises(ValueError, match="too long"):
        seal().seal("x" * MAX_STATE_LENGTH, binding=BOUND)


# --- binding (shows: S19, S80, S81) -------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        binding("prompts/get", {"name": "pay", "arguments": {"eur": 5}}, "ann"),
        binding("tools/call", {"name": "get", "arguments": {"eur": 5}}, "ann"),
        binding("tools/call", {"name": "pay", "arguments": {"eur": 6}}, "ann"),
        binding("tools/call", {"name": "pay", "arguments": {"eur": "5"}}, "ann"),
        binding("tools/call", {"name": "pay"}, "ann"),
        binding("tools/call", {"name": "pay", "arguments": {"eur": 5}}, "bob"),
        binding("tools/call", {"name": "pay", "arguments": {"eur": 5}}, None),
        binding("tools/call", {"name": "pay", "arguments": {"eur": 5}}, ""),
        binding("tools/call", {"uri": "pay", "arguments": {"eur": 5}}, "ann"),
        b"",
    ],
)
def test_another_request_cannot_use_the_state(other: bytes) -> None:
    assert refusal(seal(), SEALED, other) == "wrong binding"


def test_nobody_is_not_the_empty_name() -> None:
    params = {"name": "pay"}
    assert binding("tools/call", params, None) != binding("tools/call", params, "")


@pytest.mark.parametrize(
    "again",
    [
        b'{"arguments" : {"eur":5},\n "name":"pay"}',
        b'{"name":"p\\u0061y","arguments":{"eur":5}}',
        b'{"name":"pay","arguments":{"eur":5},"_meta":{"progressToken":1}}',
        b'{"name":"pay","arguments":{"eur":5},"inputResponses":{"a":{}},"requestState":"x"}',
        msgspec.Raw(b'{"name":"pay","arguments":{"eur":5}}'),
        {"name": "pay", "arguments": msgspec.Raw(b'{"eur":5}')},
    ],
)
def test_the_same_request_again(again: Any) -> None:
    assert binding("tools/call", again, "ann") == BOUND


@given(st.dictionaries(st.text(), JSON), st.randoms())
def test_the_order_of_members_does_not_matter(arguments: dict[str, Any], random: Any) -> None:
    members = list(arguments.items())
    random.shuffle(members)
    first = json.dumps({"name": "t", "arguments": arguments})
    second = json.dumps({"arguments": dict(members), "name": "t"}, indent=1, ensure_ascii=False)
    assert binding("tools/call", first.encode(), None) == binding(
        "tools/call", second.encode(), None
    )


def test_numbers_are_not_rounded() -> None:
    def bound(number: str) -> bytes:
        return binding("tools/call", f'{{"arguments":{{"n":{number}}}}}'.encode(), None)

    assert float("0.1") == float("0.10000000000000000001")
    assert bound("0.1") != bound("0.10000000000000000001")
    assert bound(str(2**80)) != bound(str(2**80 + 1))


@pytest.mark.parametrize(
    "raw", [b'{"arguments":{"n":1e99999999999999999999}}', b"[1]", b"\xff", b"", b'"' + b"\xff"]
)
def test_params_without_a_canonical_form_still_bind(raw: bytes) -> None:
    assert binding("tools/call", raw, None) == binding("tools/call", raw, None)
    assert binding("tools/call", raw, None) != binding("tools/call", raw + b" ", None)
