"""Who we are: documents, registrations, and how a client proves it is itself. No network."""

from __future__ import annotations

import base64
import sys
from typing import Any

import msgspec
import pytest

from dovetail.client.oauth import PrivateKey, client_metadata_document
from dovetail.client.oauth.clients import (
    Registration,
    application_type,
    check_document_url,
    register,
)
from dovetail.client.oauth.discovery import AuthorizationServer
from dovetail.client.oauth.dpop import ProofKey
from dovetail.client.oauth.messages import Request, Response
from dovetail.client.oauth.tokens import Identity, auth_method, authentication
from dovetail.errors import AuthorizationError

AS = "https://as.example"
CALLBACK = "http://127.0.0.1:5000/callback"


def server(**more: Any) -> AuthorizationServer:
    fields = {"issuer": AS, "token_endpoint": AS + "/t", "registration_endpoint": AS + "/r", **more}
    return AuthorizationServer(**fields)


def registering(
    answer: Any, status: int = 201, uri: str = CALLBACK, **more: Any
) -> tuple[Request, Registration]:
    flow = register(server(**more), "a test", uri, ("a", "b"))
    request = next(flow)
    with pytest.raises(StopIteration) as stop:
        flow.send(Response(status=status, headers={}, body=msgspec.json.encode(answer)))
    return request, stop.value.value


@pytest.mark.verifies("C52")
def test_the_document_lives_at_its_own_client_id() -> None:
    url = "https://app.example/oauth/client.json"
    made = client_metadata_document(url, "An app", (CALLBACK,))
    assert made["client_id"] == url
    assert (made["client_name"], made["redirect_uris"]) == ("An app", [CALLBACK])
    assert made["token_endpoint_auth_method"] == "none"


@pytest.mark.verifies("C52")
@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/client.json",
        "https://app.example",
        "https://app.example/",
        "https://app.example/a/../b",
        "https://app.example/./b",
        "https://user@app.example/b",
        "https://app.example/b#c",
        "app",
    ],
)
def test_a_client_id_that_is_no_such_address(url: str) -> None:
    with pytest.raises(AuthorizationError):
        check_document_url(url)


@pytest.mark.verifies("C57")
@pytest.mark.parametrize(
    ("uri", "type"),
    [
        (CALLBACK, "native"),
        ("http://localhost:3000/callback", "native"),
        ("https://localhost/callback", "native"),
        ("com.example.app:/callback", "native"),
        ("https://app.example/callback", "web"),
    ],
)
def test_the_application_type_follows_the_redirect(uri: str, type: str) -> None:
    assert application_type((uri,)) == type
    request, _ = registering({"client_id": "x"}, uri=uri)
    assert msgspec.json.decode(request.body)["application_type"] == type


@pytest.mark.verifies("C50", "C57")
def test_a_registration() -> None:
    more = {"token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"]}
    secret = {"client_id": "x", "client_secret": "s", "client_secret_expires_at": 100}
    request, client = registering(secret, **more)
    assert (request.method, request.url) == ("POST", AS + "/r")
    assert msgspec.json.decode(request.body) == {
        "client_name": "a test",
        "redirect_uris": [CALLBACK],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "client_secret_post",
        "application_type": "native",
        "scope": "a b",
    }
    assert (client.issuer, client.client_id, client.redirect_uris) == (AS, "x", (CALLBACK,))
    assert client.usable(99)
    assert not client.usable(100)
    assert registering({"client_id": "x"})[1].usable(1e12)


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ({}, 201, "cannot be used"),
        ({"client_id": 7}, 201, "cannot be used"),
        ([], 201, "cannot be used"),
        ({"client_id": "x", "redirect_uris": ["https://evil.example"]}, 201, "left out our"),
        ({"error": "invalid_redirect_uri", "error_description": "no"}, 400, "invalid_redirect_uri"),
        ({}, 403, "HTTP 403"),
        ({"error": {"x": 1}}, 500, "HTTP 500"),
    ],
)
def test_registrations_that_fail(answer: Any, status: int, said: str) -> None:
    with pytest.raises(AuthorizationError, match=said):
        registering(answer, status)


@pytest.mark.verifies("C53")
def test_no_way_to_a_client_id() -> None:
    with pytest.raises(AuthorizationError, match="give client_id"):
        registering({}, registration_endpoint=None)
    with pytest.raises(AuthorizationError, match="no way we know"):
        registering({}, token_endpoint_auth_methods_supported=["tls_client_auth"])


def identity(**more: Any) -> Identity:
    key = more.pop("key", None)
    return Identity(client=Registration(issuer=AS, client_id="me", **more), key=key)


BASIC, POST, NONE = "client_secret_basic", "client_secret_post", "none"
KEY = PrivateKey(pem="")


@pytest.mark.parametrize(
    ("supported", "who", "method"),
    [
        (None, {"client_secret": "s"}, BASIC),
        ([BASIC, POST], {"client_secret": "s"}, BASIC),
        ([POST], {"client_secret": "s"}, POST),
        ([NONE], {"client_secret": "s"}, NONE),
        (["tls_client_auth"], {"client_secret": "s"}, BASIC),
        ([BASIC], {}, NONE),
        ([BASIC], {"client_secret": "s", "auth_method": POST}, POST),
        ([BASIC], {"client_secret": "s", "auth_method": "unheard_of"}, BASIC),
        ([BASIC], {"key": KEY}, "private_key_jwt"),
    ],
)
def test_how_a_client_authenticates(
    supported: list[str] | None, who: dict[str, Any], method: str
) -> None:
    at = server(token_endpoint_auth_methods_supported=supported)
    assert auth_method(at, identity(**who)) == method


def test_basic_encodes_both_halves() -> None:
    client = Registration(issuer=AS, client_id="a:b", client_secret="ü %")
    headers, form = authentication(server(), Identity(client=client), 0)
    assert (
        base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"a%3Ab:%C3%BC%20%25"
    )
    assert form == {"client_id": "a:b"}


def test_post_and_none() -> None:
    at = server(token_endpoint_auth_methods_supported=[POST])
    with_secret = authentication(at, identity(client_secret="s"), 0)
    assert with_secret == ({}, {"client_id": "me", "client_secret": "s"})
    assert authentication(at, identity(), 0) == ({}, {"client_id": "me"})


@pytest.mark.parametrize("method", [BASIC, POST, "private_key_jwt"])
def test_what_a_client_needs_and_lacks(method: str) -> None:
    with pytest.raises(AuthorizationError, match="the client is registered with"):
        authentication(server(), identity(auth_method=method), 0)


def test_a_key_that_is_none() -> None:
    with pytest.raises(AuthorizationError, match="private key cannot be used"):
        authentication(server(), identity(key=PrivateKey(pem="no key")), 0)
    with pytest.raises(AuthorizationError, match="private key cannot be used"):
        authentication(server(), identity(key=PrivateKey(pem="x", algorithm="XX1")), 0)
    assert "very secret" not in repr(PrivateKey(pem="very secret"))


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("jwt", "jwt.algorithms"):
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(AuthorizationError, match=r"pip install 'dovetail\[auth\]'"):
        authentication(server(), identity(key=KEY), 0)
    with pytest.raises(AuthorizationError, match=r"pip install 'dovetail\[auth\]'"):
        ProofKey()
