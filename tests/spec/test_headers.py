"""The codec of ``Mcp-*`` headers and the mark ``x-mcp-header``."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.spec.headers import (
    BadHeader,
    Mirror,
    decode_value,
    encode_argument,
    encode_value,
    mirrors,
    name_of,
    same_value,
)
from dovetail.spec.types import CallToolRequestParams, ListRequestParams


@given(st.text(st.characters(codec="utf-8")))
def test_every_text_survives(text: str) -> None:
    value = encode_value(text)
    assert value.isascii()
    assert decode_value(f"  {value}\t".encode()) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("with blank", "with blank"),
        ("", ""),
        (" lead", "=?base64?IGxlYWQ=?="),
        ("trail\t", "=?base64?dHJhaWwJ?="),
        ("grüße", "=?base64?Z3LDvMOfZQ==?="),
        ("line\nbreak", "=?base64?bGluZQpicmVhaw==?="),
        ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
    ],
)
def test_values(text: str, value: str) -> None:
    assert encode_value(text) == value


@pytest.mark.parametrize(
    "value",
    [
        b"=?base64?SGVsbG8?=",
        b"=?base64?SGVs!!!bG8=?=",
        b"=?base64?/w==?=",
        b"gr\xc3\xbc",
        b"a\x01b",
        b"=?base64?SG Vs?=",
    ],
)
def test_bad_values(value: bytes) -> None:
    with pytest.raises(BadHeader):
        decode_value(value)


@pytest.mark.parametrize(
    "value", [b"=?BASE64?SGVsbG8=?=", b"=?base64?SGVsbG8=", b"SGVsbG8=?=", b"=?base64?="]
)
def test_half_a_wrapper_is_a_text(value: bytes) -> None:
    assert decode_value(value) == value.decode()


@pytest.mark.parametrize(
    ("value", "header"),
    [
        (True, "true"),
        (False, "false"),
        (42, "42"),
        (-1, "-1"),
        ("x", "x"),
        (None, None),
        (1.5, None),
        ([], None),
    ],
)
def test_arguments(value: Any, header: str | None) -> None:
    assert encode_argument(value) == header


def test_integers_that_not_everybody_can_read() -> None:
    assert encode_argument(2**53 - 1) == "9007199254740991"
    with pytest.raises(BadHeader):
        encode_argument(2**53)


@pytest.mark.parametrize(
    ("decoded", "value", "same"),
    [
        ("true", True, True),
        ("True", True, False),
        ("1", True, False),
        ("42", 42, True),
        ("42.0", 42, True),
        ("042", 42, True),
        ("42", 42.0, True),
        ("4_2", 42, False),
        ("0x2a", 42, False),
        ("x", "x", True),
        ("X", "x", False),
    ],
)
def test_comparing(decoded: str, value: Any, same: bool) -> None:
    assert same_value(decoded, value) is same


def test_names() -> None:
    assert name_of("tools/call", CallToolRequestParams(name="add")) == "add"
    assert name_of("tools/list", ListRequestParams()) is None


def test_marks() -> None:
    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {
                "type": "object",
                "properties": {"n": {"type": "integer", "x-mcp-header": "N"}},
            },
            "plain": {"type": "string", "default": {"x-mcp-header": "no schema"}},
        },
    }
    assert mirrors(schema) == (
        Mirror("mcp-param-region", ("region",), "string"),
        Mirror("mcp-param-n", ("deep", "n"), "integer"),
    )
