"""WWW-Authenticate, as servers write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.client.oauth.challenge import Challenge, parse, read

URL = "https://a.example/.well-known/oauth-protected-resource"


@pytest.mark.verifies("C45", "C51")
@pytest.mark.parametrize(
    ("header", "found"),
    [
        (None, Challenge()),
        ("", Challenge()),
        ("Bearer", Challenge()),
        (f'Bearer resource_metadata="{URL}"', Challenge(resource_metadata=URL)),
        (f'bearer realm="x", resource_metadata = "{URL}"', Challenge(resource_metadata=URL)),
        (f"BEARER resource_metadata={URL!r}".replace("'", '"'), Challenge(resource_metadata=URL)),
        ('Bearer scope="a  b a"', Challenge(scopes=("a", "b"))),
        ("Bearer scope=a, error=invalid_token", Challenge("invalid_token", ("a",))),
        ('Bearer error="insufficient_scope",scope="w"', Challenge("insufficient_scope", ("w",))),
        ('Basic realm="x", Bearer scope="a"', Challenge(scopes=("a",))),
        ('Bearer scope="a", Basic realm="x", scope="b"', Challenge(scopes=("a",))),
        ('Negotiate, Bearer scope="a"', Challenge(scopes=("a",))),
        ('Negotiate YWJj==, Bearer scope="a"', Challenge(scopes=("a",))),
        (r'Bearer realm="say \"hi\", Basic", scope="a"', Challenge(scopes=("a",))),
        ('Bearer scope="a", scope="b"', Challenge(scopes=("a",))),
        ('Bearer scope="a", "broken', Challenge(scopes=("a",))),
        ('Bearer scope="never closed', Challenge()),
        ('DPoP algs="ES256", scope="a"', Challenge(scopes=("a",), scheme="dpop")),
        ('DPoP scope="a", Bearer scope="b"', Challenge(scopes=("b",))),
        ('Bearer scope="a", Bearer scope="b"', Challenge(scopes=("a",))),
        (",, ,Bearer ,, scope=a,,", Challenge(scopes=("a",))),
    ],
)
def test_reading(header: str | None, found: Challenge) -> None:
    assert read(header) == found


@pytest.mark.parametrize("header", ['Basic realm="x"', 'Basic realm="Bearer scope=x"', "?"])
def test_a_header_that_wants_something_else(header: str) -> None:
    assert read(header) is None


@given(st.text(alphabet='Bearer =,"\\scope\t\n#', max_size=200))
def test_anything_can_be_read(header: str) -> None:
    assert all(scheme == scheme.lower() for scheme, _ in parse(header))


def test_a_long_header_is_cut() -> None:
    assert parse('Bearer a="' + "\\" * 1_000_000) == [("bearer", {})]
