"""The authorization code grant: the question to the browser, the judgement of its answer.

PKCE is RFC 7636, the check of ``iss`` RFC 9207 as MCP 2026-07-28 prescribes it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct

from dovetail.client.oauth.clients import Registration
from dovetail.client.oauth.discovery import AuthorizationServer, Place
from dovetail.client.oauth.messages import printable
from dovetail.errors import AuthorizationError


class Attempt(Struct, frozen=True, kw_only=True):
    """One visit to the browser. The issuer is noted here, before the redirect."""

    url: str
    issuer: str
    state: str
    verifier: str
    redirect_uri: str
    scopes: tuple[str, ...]
    iss_promised: bool


def challenge_of(verifier: str) -> str:
    """S256 of RFC 7636 §4.2."""
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def endpoint_of(server: AuthorizationServer) -> str:
    """Where the browser is sent; an error if this server cannot be asked safely."""
    if server.authorization_endpoint is None:
        raise AuthorizationError(f"{server.issuer!r} has no authorization endpoint")
    if "S256" not in (server.code_challenge_methods_supported or ()):
        # MCP: what does not announce PKCE is not to be trusted to check it.
        raise AuthorizationError(f"{server.issuer!r} does not announce PKCE with S256")
    return server.authorization_endpoint


def begin(
    place: Place,
    client: Registration,
    redirect_uri: str,
    scopes: tuple[str, ...],
    random: Callable[[], str] = lambda: secrets.token_urlsafe(32),
) -> Attempt:
    server, endpoint = place.server, endpoint_of(place.server)
    state, verifier = random(), random()
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
    }
    if scopes:
        query["scope"] = " ".join(scopes)
    if place.resource is not None:
        query["resource"] = place.resource
    if "offline_access" in scopes:
        # OpenID Connect Core §11: without asking anew, no refresh token.
        query["prompt"] = "consent"
    return Attempt(
        url=_with_query(endpoint, query),
        issuer=server.issuer,
        state=state,
        verifier=verifier,
        redirect_uri=redirect_uri,
        scopes=scopes,
        iss_promised=server.authorization_response_iss_parameter_supported is True,
    )


def finish(attempt: Attempt, callback: str) -> str:
    """The code in the URL the browser was sent back to.

    Nothing in it is believed, nor shown, before state and issuer are found to be right.
    """
    said = parameters(callback)
    if not hmac.compare_digest(said.get("state", "").encode(), attempt.state.encode()):
        raise AuthorizationError("the answer of the browser belongs to another question (state)")
    _check_issuer(attempt, said.get("iss"))
    if "error" in said:
        text = said.get("error_description", "")
        explained = f": {printable(text)}" if text else ""
        code = printable(said["error"])
        raise AuthorizationError(f"authorization was refused, {code}{explained}", code)
    if not said.get("code"):
        raise AuthorizationError("the answer of the browser holds no code")
    return said["code"]


def parameters(callback: str) -> dict[str, str]:
    """The query of a callback; a parameter given twice is an attack or a fault."""
    pairs = parse_qsl(urlsplit(callback).query, keep_blank_values=True)
    found = dict(pairs)
    if len(found) != len(pairs):
        raise AuthorizationError("the answer of the browser names a parameter twice")
    return found


def _check_issuer(attempt: Attempt, iss: str | None) -> None:
    """The table of MCP 2026-07-28: compared as it came, byte by byte, whenever it came."""
    if iss is None and not attempt.iss_promised:
        return
    if iss is None:
        raise AuthorizationError("the answer of the browser lacks the issuer that was promised")
    if iss != attempt.issuer:
        raise AuthorizationError("the answer of the browser comes from another issuer")


def _with_query(url: str, query: dict[str, str]) -> str:
    """RFC 6749 §3.1: a query the endpoint has already is kept, unless it speaks for us."""
    if any(name in query for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)):
        raise AuthorizationError("the authorization endpoint sets parameters that are ours to set")
    return url + ("&" if "?" in url else "?") + urlencode(query)
