"""WWW-Authenticate, as servers write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.client.oauth.challenge import Challenge, bearer, offers_bearer, parse

URL = "https://a.example/.well-known/oauth-protected-resource"


@pytest.mark.verifies("C45", "C51")
@pytest.mark.parametrize(
    ("header", "read"),
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
        ('Basic realm="Bearer scope=x"', Challenge()),
        (",, ,Bearer ,, scope=a,,", Challenge(scopes=("a",))),
    ],
)
def test_reading(header: str | None, read: Challenge) -> None:
    assert bearer(header) == read


def test_a_header_without_bearer_is_not_for_us() -> None:
    assert offers_bearer('Basic realm="x", Bearer')
    assert not offers_bearer('Basic realm="x"')


@given(st.text(alphabet='Bearer =,"\\scope\t\n#', max_size=200))
def test_anything_can_be_read(header: str) -> None:
    assert all(scheme == scheme.lower() for scheme, _ in parse(header))


def test_a_long_header_is_cut() -> None:
    assert parse('Bearer a="' + "\\" * 1_000_000) == [("bearer", {})]
