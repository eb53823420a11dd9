"""The question to the browser and the judgement of its answer. No network."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from dovetail.client.oauth.authorize import Attempt, begin, challenge_of, finish
from dovetail.client.oauth.clients import Registration
from dovetail.client.oauth.discovery import AuthorizationServer, Place
from dovetail.errors import AuthorizationError

AS = "https://as.example"
CALLBACK = "http://127.0.0.1:5000/callback"
CLIENT = Registration(issuer=AS, client_id="me")


def place(resource: str | None = "https://mcp.example/mcp", **more: Any) -> Place:
    fields: dict[str, Any] = {
        "issuer": AS,
        "token_endpoint": AS + "/token",
        "authorization_endpoint": AS + "/authorize",
        "code_challenge_methods_supported": ["plain", "S256"],
        **more,
    }
    return Place(server=AuthorizationServer(**fields), resource=resource)


def attempt(scopes: tuple[str, ...] = (), **more: Any) -> Attempt:
    counter = itertools.count()
    return begin(place(**more), CLIENT, CALLBACK, scopes, lambda: f"random{next(counter)}")


def query(made: Attempt) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(made.url).query).items()}


def answer(**said: str) -> str:
    return f"{CALLBACK}?{urlencode(said)}"


@pytest.mark.verifies("C47", "C49")
def test_the_question() -> None:
    made = attempt(("a", "b"))
    assert made.url.startswith(AS + "/authorize?")
    assert query(made) == {
        "response_type": "code",
        "client_id": "me",
        "redirect_uri": CALLBACK,
        "state": "random0",
        "code_challenge": challenge_of("random1"),
        "code_challenge_method": "S256",
        "scope": "a b",
        "resource": "https://mcp.example/mcp",
    }


def test_pkce_is_that_of_the_rfc() -> None:
    # The example of RFC 7636, appendix B.
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert challenge_of(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_state_and_verifier_are_new_each_time() -> None:
    made = [begin(place(), CLIENT, CALLBACK, ()) for _ in range(50)]
    assert len({one.state for one in made} | {one.verifier for one in made}) == 100
    # RFC 7636 §4.1.
    assert all(43 <= len(one.verifier) <= 128 for one in made)


def test_what_is_not_wanted_is_left_out() -> None:
    assert {"scope", "resource", "prompt"}.isdisjoint(query(attempt(resource=None)))
    assert query(attempt(("offline_access",)))["prompt"] == "consent"


@pytest.mark.verifies("C49")
@pytest.mark.parametrize("methods", [None, [], ["plain"]])
def test_no_pkce_no_question(methods: list[str] | None) -> None:
    with pytest.raises(AuthorizationError, match="does not announce PKCE"):
        attempt(code_challenge_methods_supported=methods)


def test_an_endpoint_may_have_a_query_but_not_speak_for_us() -> None:
    made = attempt(authorization_endpoint=AS + "/authorize?tenant=7")
    assert query(made)["tenant"] == "7"
    for name in ("redirect_uri", "client_id", "state", "code_challenge"):
        with pytest.raises(AuthorizationError, match="ours to set"):
            attempt(authorization_endpoint=f"{AS}/authorize?{name}=evil")
    with pytest.raises(AuthorizationError, match="no authorization endpoint"):
        attempt(authorization_endpoint=None)


@pytest.mark.verifies("C55")
@pytest.mark.parametrize(
    ("promised", "iss", "accepted"),
    [
        (True, AS, True),
        (True, None, False),
        (False, None, True),
        (None, None, True),
        (False, AS, True),
        (None, AS, True),
        (True, "https://evil.example", False),
        (False, "https://evil.example", False),
        (None, "https://evil.example", False),
        (True, AS + "/", False),
        (True, "HTTPS://as.example", False),
        (True, AS + ":443", False),
        (True, "", False),
        (False, "", False),
    ],
)
def test_the_issuer_is_compared_byte_by_byte(
    promised: bool | None, iss: str | None, accepted: bool
) -> None:
    made = attempt(authorization_response_iss_parameter_supported=promised)
    said = {"state": made.state, "code": "secret"} | ({} if iss is None else {"iss": iss})
    if accepted:
        assert finish(made, answer(**said)) == "secret"
    else:
        with pytest.raises(AuthorizationError) as caught:
            finish(made, answer(**said))
        assert "secret" not in str(caught.value)


@pytest.mark.verifies("C55")
def test_the_error_of_another_issuer_is_not_shown() -> None:
    made = attempt()
    said = {"error": "access_denied", "error_description": "call +1-555"}
    with pytest.raises(AuthorizationError) as caught:
        finish(made, answer(state=made.state, iss="https://evil.example", **said))
    assert (caught.value.error, "555" in str(caught.value)) == (None, False)
    with pytest.raises(AuthorizationError, match=r"access_denied: call \+1-555") as caught:
        finish(made, answer(state=made.state, iss=AS, **said))
    assert caught.value.error == "access_denied"


@pytest.mark.parametrize(
    ("callback", "said"),
    [
        (answer(code="x"), "another question"),
        (answer(code="x", state=""), "another question"),
        (answer(code="x", state="random1"), "another question"),
        (answer(code="x", state="rändom"), "another question"),
        (answer(state="random0"), "no code"),
        (answer(state="random0", code=""), "no code"),
        (CALLBACK, "another question"),
        (answer(state="random0", code="x") + "&code=y", "twice"),
        (answer(state="random0", code="x") + "&state=random0", "twice"),
        (answer(state="random0", code="x", iss=AS) + "&iss=https://evil.example", "twice"),
    ],
)
def test_answers_that_are_none(callback: str, said: str) -> None:
    with pytest.raises(AuthorizationError, match=said):
        finish(attempt(), callback)
