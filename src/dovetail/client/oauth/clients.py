"""Who we are at an authorization server: registered before, by document, or dynamically."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from dovetail.client.oauth.discovery import AuthorizationServer
from dovetail.client.oauth.messages import Flow, convert, json_object, post_json, refusal
from dovetail.client.oauth.urls import is_loopback, refuse, split
from dovetail.errors import AuthorizationError

AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none", "private_key_jwt")


class Registration(Struct, frozen=True, kw_only=True):
    """A client as one issuer knows it. It is never shown to another issuer."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    auth_method: str | None = None
    secret_expires_at: int = 0
    redirect_uris: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    dynamic: bool = False

    def __repr__(self) -> str:  # without the secret: it would end up in a log
        return f"Registration(issuer={self.issuer!r}, client_id={self.client_id!r})"

    def usable(self, now: float) -> bool:
        return not self.secret_expires_at or self.secret_expires_at > now

    def fits(self, redirect_uri: str, scopes: tuple[str, ...]) -> bool:
        """RFC 7591 §2: a client may ask for what it was registered with, and nothing else.

        One that was not registered by us is known to its user, who has seen to that.
        """
        covered = redirect_uri in self.redirect_uris and set(scopes) <= set(self.scopes)
        return covered or not self.dynamic


class _Answer(Struct, frozen=True, kw_only=True):
    """What RFC 7591 §3.2.1 promises and a client uses."""

    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: int | None = None
    token_endpoint_auth_method: str | None = None
    redirect_uris: list[str] | None = None


def check_document_url(url: str) -> str:
    """A client id that is the address of its own document: https, with a path, nothing odd."""
    parts = split(url, "client_metadata_url")
    if parts.scheme != "https" or parts.path in ("", "/"):
        raise refuse(url, "client_metadata_url must be an https URL with a path")
    if any(step in (".", "..") for step in parts.path.split("/")):
        raise refuse(url, "client_metadata_url has a path with dots")
    return url


def by_document(server: AuthorizationServer, url: str) -> Registration:
    return Registration(issuer=server.issuer, client_id=url, auth_method="none")


def document(url: str, name: str, redirect_uris: tuple[str, ...]) -> dict[str, Any]:
    """The document to publish at ``url``, for authorization servers to read."""
    return {"client_id": check_document_url(url), **_metadata(name, redirect_uris, "none")}


def register(
    server: AuthorizationServer, name: str, redirect_uri: str, scopes: tuple[str, ...]
) -> Flow[Registration]:
    """Dynamic registration (RFC 7591)."""
    if server.registration_endpoint is None:
        raise AuthorizationError(
            f"{server.issuer!r} does not register clients by itself: give client_id,"
            " or client_metadata_url if it supports that"
        )
    wanted = _metadata(name, (redirect_uri,), _preferred_method(server))
    if scopes:
        wanted["scope"] = " ".join(scopes)
    response = yield post_json(server.registration_endpoint, wanted)
    if response.status not in (200, 201):
        raise refusal("the registration", response)
    answer = convert(json_object(response.body) or {}, _Answer, "the registration")
    return _registration(server, answer, redirect_uri, scopes)


def _registration(
    server: AuthorizationServer, answer: _Answer, redirect_uri: str, scopes: tuple[str, ...]
) -> Registration:
    if answer.redirect_uris is not None and redirect_uri not in answer.redirect_uris:
        raise AuthorizationError(f"the registration left out our redirect URI {redirect_uri!r}")
    return Registration(
        issuer=server.issuer,
        client_id=answer.client_id,
        client_secret=answer.client_secret,
        auth_method=answer.token_endpoint_auth_method,
        secret_expires_at=answer.client_secret_expires_at or 0,
        redirect_uris=(redirect_uri,),
        scopes=scopes,
        dynamic=True,
    )


def _preferred_method(server: AuthorizationServer) -> str:
    """A program on a user's machine keeps no secret, so none is wanted if that is allowed."""
    supported = server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    for method in ("none", "client_secret_basic", "client_secret_post"):
        if method in supported:
            return method
    raise AuthorizationError(f"{server.issuer!r} supports no way we know to authenticate a client")


def _metadata(name: str, redirect_uris: tuple[str, ...], method: str) -> dict[str, Any]:
    return {
        "client_name": name,
        "redirect_uris": list(redirect_uris),
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": application_type(redirect_uris),
    }


def application_type(redirect_uris: tuple[str, ...]) -> str:
    """OpenID Registration §2: a web application is called back over https and not at home."""
    web = (urlsplit(uri) for uri in redirect_uris)
    hosted = all(uri.scheme == "https" and not is_loopback(uri.hostname or "") for uri in web)
    return "web" if hosted else "native"
