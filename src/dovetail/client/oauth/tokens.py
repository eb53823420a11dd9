"""Requests to the token endpoint and what comes back (RFC 6749 §4, §5, §6; RFC 7523, 8693)."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from urllib.parse import quote

from msgspec import Struct

from dovetail.client.oauth.assertions import PrivateKey
from dovetail.client.oauth.clients import AUTH_METHODS, Registration
from dovetail.client.oauth.discovery import AuthorizationServer, Place
from dovetail.client.oauth.dpop import NONCE_WANTED, ProofKey
from dovetail.client.oauth.messages import Flow, Response, convert, json_object, post_form, refusal
from dovetail.errors import AuthorizationError

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"

_SCHEMES = {"bearer": "Bearer", "dpop": "DPoP"}
# RFC 6750 §2.1. Anything else could end the header and begin another.
_BEARER = re.compile(r"[A-Za-z0-9._~+/=:|!@$-]+")


class Token(Struct, frozen=True, kw_only=True):
    """A token of one issuer for one server."""

    issuer: str
    access_token: str
    client_id: str
    resource: str | None = None
    scopes: tuple[str, ...] = ()
    refresh_token: str | None = None
    expires_at: float | None = None
    scheme: str = "Bearer"

    def __repr__(self) -> str:  # what is logged must not be worth stealing
        return f"Token(issuer={self.issuer!r}, resource={self.resource!r}, scopes={self.scopes})"

    @property
    def header(self) -> str:
        return f"{self.scheme} {self.access_token}"

    def fresh(self, now: float, margin: float) -> bool:
        return self.expires_at is None or self.expires_at - margin > now


class _Answer(Struct, frozen=True, kw_only=True):
    access_token: str
    token_type: str
    # A string in the answers of some older servers.
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None


class Identity(Struct, frozen=True, kw_only=True):
    """A client and what it proves itself with."""

    client: Registration
    key: PrivateKey | None = None
    proof: ProofKey | None = None  # if the token shall be bound to a key


def auth_method(server: AuthorizationServer, who: Identity) -> str:
    """How the client authenticates: as registered, else the first way both sides can."""
    client = who.client
    if client.auth_method in AUTH_METHODS:
        return client.auth_method
    # RFC 8414 §2: a server that lists nothing means client_secret_basic.
    supported = server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    if who.key is not None:
        return "private_key_jwt"
    if client.client_secret is None:
        return "none"
    able = (m for m in ("client_secret_basic", "client_secret_post", "none") if m in supported)
    return next(able, "client_secret_basic")


def authentication(
    server: AuthorizationServer, who: Identity, now: float
) -> tuple[dict[str, str], dict[str, str]]:
    """The headers and the form fields that say who asks.

    ``client_id`` is always among them: where the rest says it too, it does no harm, and
    servers made with the official SDK look for it first.
    """
    client, method = who.client, auth_method(server, who)
    named = {"client_id": client.client_id}
    if method == "private_key_jwt":
        if who.key is None:
            raise AuthorizationError("the client is registered with a key, and none was given")
        assertion = who.key.assertion(client.client_id, server.issuer, now)
        return {}, {
            **named,
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": assertion,
        }
    if method == "none":
        return {}, named
    if client.client_secret is None:
        raise AuthorizationError("the client is registered with a secret, and none is known")
    if method == "client_secret_post":
        return {}, {**named, "client_secret": client.client_secret}
    # RFC 6749 §2.3.1: both are encoded as in a form before they are joined; `%20` is what
    # every decoder reads as a blank, `+` is not.
    pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}, named


def ask(
    place: Place, who: Identity, grant: Mapping[str, str], scopes: tuple[str, ...], now: float
) -> Flow[Token]:
    """One token request; ``grant`` is what makes it this grant and not another."""
    headers, fields = authentication(place.server, who, now)
    resource = {} if place.resource is None else {"resource": place.resource}
    form = {**grant, **fields, **resource}
    url = place.server.token_endpoint
    if who.proof is None:
        response = yield post_form(url, form, headers)
    else:
        response = yield post_form(url, form, _proved(headers, who.proof, url, now, None))
        if (nonce := _wanted_nonce(response)) is not None:
            response = yield post_form(url, form, _proved(headers, who.proof, url, now, nonce))
    return judge(response, place, who, scopes, now)


def _proved(
    headers: dict[str, str], key: ProofKey, url: str, now: float, nonce: str | None
) -> dict[str, str]:
    return {**headers, "DPoP": key.proof("POST", url, now, nonce)}


def _wanted_nonce(response: Response) -> str | None:
    """RFC 9449 §8: the server wants its own number in the proof, and says which."""
    said = json_object(response.body) or {}
    wanted = response.status == 400 and said.get("error") == NONCE_WANTED
    return response.headers.get("dpop-nonce") if wanted else None


def with_code(code: str, verifier: str, redirect_uri: str) -> dict[str, str]:
    return {
        "grant_type": "authorization_code",
        "code": code,
        "code_verifier": verifier,
        "redirect_uri": redirect_uri,
    }


def with_refresh_token(token: str) -> dict[str, str]:
    return {"grant_type": "refresh_token", "refresh_token": token}


def with_credentials(scopes: tuple[str, ...]) -> dict[str, str]:
    return {"grant_type": "client_credentials", **_scope(scopes)}


def with_assertion(assertion: str, scopes: tuple[str, ...]) -> dict[str, str]:
    return {"grant_type": JWT_BEARER, "assertion": assertion, **_scope(scopes)}


def _scope(scopes: tuple[str, ...]) -> dict[str, str]:
    return {"scope": " ".join(scopes)} if scopes else {}


def judge(
    response: Response, place: Place, who: Identity, scopes: tuple[str, ...], now: float
) -> Token:
    if response.status != 200:
        raise refusal("the token endpoint", response)
    answer = convert(json_object(response.body) or {}, _Answer, "the token")
    scheme = _SCHEMES.get(answer.token_type.lower())
    if scheme is None or (scheme == "DPoP" and who.proof is None):
        # RFC 6749 §7.1: a token of a type one does not know must not be used.
        raise AuthorizationError(f"tokens of type {answer.token_type[:40]!r} are not supported")
    if not _BEARER.fullmatch(answer.access_token):
        raise AuthorizationError("the token contains characters a header cannot carry")
    return Token(
        issuer=place.issuer,
        access_token=answer.access_token,
        scheme=scheme,
        client_id=who.client.client_id,
        resource=place.resource,
        # RFC 6749 §5.1: scopes that are not named are those that were asked for.
        scopes=scopes if answer.scope is None else tuple(answer.scope.split()),
        refresh_token=answer.refresh_token or None,
        expires_at=_expiry(answer.expires_in, now),
    )


def _expiry(seconds: float | str | None, now: float) -> float | None:
    if seconds is None:
        return None
    try:
        lifetime = float(seconds)
    except ValueError:
        lifetime = math.nan
    if not math.isfinite(lifetime):
        raise AuthorizationError("the lifetime of the token is no number")
    return now + max(0.0, lifetime)
