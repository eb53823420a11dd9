"""What the token endpoint may answer. No network."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.client.oauth.clients import Registration
from dovetail.client.oauth.discovery import AuthorizationServer, Place
from dovetail.client.oauth.messages import Response
from dovetail.client.oauth.storage import Kept
from dovetail.client.oauth.tokens import Identity, Token, judge
from dovetail.errors import AuthorizationError

AS = "https://as.example"
PLACE = Place(
    server=AuthorizationServer(issuer=AS, token_endpoint=AS), resource="https://a.example"
)
CLIENT = Registration(issuer=AS, client_id="me")
GOOD = {"access_token": "abc.DEF-1_2~3+/==", "token_type": "Bearer"}


def judged(answer: Any, status: int = 200) -> Token:
    body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    response = Response(status=status, headers={}, body=body)
    return judge(response, PLACE, Identity(client=CLIENT), ("asked",), 1000)


@pytest.mark.verifies("C56", "C58")
def test_a_token_belongs_to_issuer_client_and_resource() -> None:
    token = judged(GOOD)
    assert (token.issuer, token.client_id, token.resource) == (AS, "me", "https://a.example")
    assert (token.scopes, token.refresh_token, token.expires_at) == (("asked",), None, None)
    more = {"token_type": "bearer", "scope": "x y", "refresh_token": "r", "expires_in": 60}
    token = judged({**GOOD, **more})
    assert (token.scopes, token.refresh_token, token.expires_at) == (("x", "y"), "r", 1060)
    assert token.fresh(1000, 30)
    assert not token.fresh(1031, 30)
    assert judged({**GOOD, "scope": ""}).scopes == ()


@pytest.mark.parametrize(
    ("lifetime", "until"), [("60", 1060), (0, 1000), (-5, 1000), (60.5, 1060.5), (None, None)]
)
def test_lifetimes(lifetime: Any, until: float | None) -> None:
    assert judged({**GOOD, "expires_in": lifetime}).expires_at == until


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ({**GOOD, "token_type": "mac"}, 200, "type 'mac' are not supported"),
        ({**GOOD, "token_type": "DPoP"}, 200, "type 'DPoP' are not supported"),
        ({"access_token": "x"}, 200, "cannot be used"),
        ({**GOOD, "access_token": ""}, 200, "header cannot carry"),
        ({**GOOD, "access_token": "a\r\nX-Evil: 1"}, 200, "header cannot carry"),
        ({**GOOD, "access_token": "a b"}, 200, "header cannot carry"),
        ({**GOOD, "access_token": "ä"}, 200, "header cannot carry"),
        ({**GOOD, "access_token": 7}, 200, "cannot be used"),
        ({**GOOD, "expires_in": "soon"}, 200, "no number"),
        ({**GOOD, "expires_in": "nan"}, 200, "no number"),
        ({**GOOD, "expires_in": "inf"}, 200, "no number"),
        ({**GOOD, "expires_in": []}, 200, "cannot be used"),
        (b"<html>", 200, "cannot be used"),
        (b"[" * 100_000, 200, "cannot be used"),
        (GOOD, 201, "HTTP 201"),
        ({"error": "invalid_grant"}, 400, "refused, invalid_grant$"),
        ({"error": "x\x1b[0m", "error_description": "y\n" * 999}, 400, "refused, x "),
        (b"", 502, "HTTP 502"),
    ],
)
def test_answers_that_are_refused(answer: Any, status: int, said: str) -> None:
    with pytest.raises(AuthorizationError, match=said) as caught:
        judged(answer, status)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


@pytest.mark.verifies("X42")
def test_secrets_are_not_in_what_is_logged() -> None:
    token = judged({**GOOD, "refresh_token": "r3fresh"})
    client = Registration(issuer=AS, client_id="me", client_secret="s3cret")
    shown = repr([token, client, Identity(client=client), Kept(token=token, place=PLACE)])
    assert "me" in shown
    assert not any(secret in shown for secret in (GOOD["access_token"], "r3fresh", "s3cret"))
