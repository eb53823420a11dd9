"""Bearer tokens: the server as the resource server of OAuth 2.1 (digest 11, S65 to S71).

    auth = BearerAuth(
        server,
        JwtVerifier("https://auth.example.org"),
        resource="https://mcp.example.org/mcp",
        authorization_servers=["https://auth.example.org"],
    )
    app = server.asgi(auth=auth)

Written with public hooks only: ``dovetail.transport.http.auth`` says what the
application asks, and this is one answer.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct, UnsetType

from dovetail.errors import DovetailError
from dovetail.server.app import Server
from dovetail.server.definitions import checked_scopes
from dovetail.transport.http.auth import HttpAnswer, Principal, Rejection

__all__ = [
    "AccessToken",
    "BearerAuth",
    "InvalidToken",
    "StaticTokens",
    "TokenVerifier",
    "VerifierUnavailable",
    "checked_url",
]

log = logging.getLogger("dovetail")

# Characters of a token. Those with many groups in them reach some 8 KB, and servers and
# proxies refuse header lines longer than that or twice that anyway.
MAX_TOKEN = 16 * 1024
# Seconds until a client may try again when a verifier cannot tell.
RETRY_AFTER = 5

_B64TOKEN = re.compile(rb"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750, 2.1
_NOT_QUOTABLE = re.compile(r"[^ !#-\[\]-~]")  # RFC 6750, 3: what error_description may hold
_JSON = (b"content-type", b"application/json")
# Anybody may read where to get a token, from a page in a browser too.
_CORS = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, HEAD, OPTIONS"),
    (b"access-control-allow-headers", b"mcp-protocol-version"),
)


class InvalidToken(DovetailError):
    """The token is not to be trusted; the text is told to whoever sent it."""


class VerifierUnavailable(DovetailError):
    """Whether the token is good cannot be known now."""


class AccessToken(Struct, frozen=True, kw_only=True):
    """What a verifier has found out about a token."""

    subject: str
    audience: frozenset[str]  # for whom it was issued
    issuer: str = ""
    scopes: frozenset[str] = frozenset()
    expires_at: float | None = None  # seconds since 1970
    client_id: str | None = None
    claims: Mapping[str, Any] = {}


class TokenVerifier(Protocol):
    """Signatures, introspection, a table: how a token is checked is the verifier's matter."""

    async def verify(self, token: str) -> AccessToken:
        """What the token says; InvalidToken or VerifierUnavailable. Whom it is for and
        whether it has expired is checked once more by whoever asks."""
        ...


class StaticTokens:
    """Tokens that are written down, for tests and for machines that know each other.

    Only their hashes are kept, so a look-up takes as long for a wrong token as for
    one that is nearly right.
    """

    def __init__(self, tokens: Mapping[str, AccessToken]) -> None:
        self._tokens = {_hash(token): found for token, found in tokens.items()}

    async def verify(self, token: str) -> AccessToken:
        found = self._tokens.get(_hash(token))
        if found is None:
            raise InvalidToken("The token is unknown")
        return found


def _hash(token: str) -> bytes:
    return sha256(token.encode()).digest()


class _Metadata(Struct):
    """RFC 9728, 2. The texts are sent as they were given: clients compare them (digest 11)."""

    resource: str
    authorization_servers: list[str]
    bearer_methods_supported: list[str]
    scopes_supported: list[str] | UnsetType = UNSET
    resource_name: str | UnsetType = UNSET
    resource_documentation: str | UnsetType = UNSET


class BearerAuth:
    """Lets in who brings a token for this server, with the scopes that the request needs.

    ``scopes`` are needed by every request, ``@server.tool(scopes=...)`` by the calls of
    one tool, and ``policy(method, name)`` may name those of anything else. ``implies``
    says which scopes contain others (digest S71). ``audiences`` is for authorization
    servers that know this server by another name than its ``resource``.
    """

    def __init__(
        self,
        server: Server,
        verifier: TokenVerifier,
        *,
        resource: str,
        authorization_servers: Sequence[str],
        audiences: Iterable[str] | None = None,
        scopes: Iterable[str] = (),
        scopes_supported: Iterable[str] | None = None,
        implies: Mapping[str, Iterable[str]] | None = None,
        policy: Callable[[str, str | None], Iterable[str]] | None = None,
        principal: Callable[[AccessToken], str] | None = None,
        metadata_url: str | None = None,
        documentation: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not authorization_servers or isinstance(authorization_servers, str):
            raise ValueError("authorization_servers names at least one issuer (RFC 9728)")
        self._server = server
        self._verifier = verifier
        self._audiences = frozenset([resource] if audiences is None else audiences)
        self._scopes = scope_set(scopes)
        self._implied = _closure(implies or {})
        self._policy = policy
        self._principal = principal or _issuer_and_subject
        self._clock = clock
        self._metadata_url = checked_url(metadata_url or _well_known(resource))
        self._metadata_path = urlsplit(self._metadata_url).path
        supported = self._scopes if scopes_supported is None else scope_set(scopes_supported)
        self._metadata = msgspec.json.encode(
            _Metadata(
                resource=checked_url(resource),
                authorization_servers=[checked_url(url) for url in authorization_servers],
                bearer_methods_supported=["header"],
                scopes_supported=sorted(supported) or UNSET,
                resource_name=server.info.title or server.name,
                resource_documentation=documentation or UNSET,
            )
        )

    # -- what the application asks -------------------------------------------------------

    async def authenticate(self, scope: Mapping[str, Any]) -> Principal | Rejection:
        try:
            token = _bearer(scope["headers"])
            if token is None:
                return self._rejection(401)
            found = await self._verifier.verify(token)
            self._check(found)
        except _Malformed as error:
            return self._rejection(400, "invalid_request", str(error))
        except InvalidToken as error:
            return self._rejection(401, "invalid_token", str(error))
        except Exception as error:
            known = isinstance(error, VerifierUnavailable)
            log.error("a token cannot be verified: %s", error, exc_info=None if known else error)
            retry = (b"retry-after", b"%d" % RETRY_AFTER)
            return Rejection(503, (_JSON, retry), b'{"error":"temporarily_unavailable"}')
        if not self._scopes <= self._granted(found.scopes):
            return self._insufficient(frozenset())
        return Principal(self._principal(found), found.scopes, found.claims, found.expires_at)

    def metadata(self, scope: Mapping[str, Any]) -> HttpAnswer | None:
        if scope["type"] != "http" or scope["path"] != self._metadata_path:
            return None
        method = scope["method"]
        if method == "OPTIONS":
            return HttpAnswer(204, _CORS)
        if method not in ("GET", "HEAD"):
            return HttpAnswer(405, ((b"allow", b"GET, HEAD, OPTIONS"),))
        headers = (_JSON, (b"cache-control", b"max-age=3600"), *_CORS)
        return HttpAnswer(200, headers, self._metadata if method == "GET" else b"")

    def allows(self, principal: Principal, method: str, name: str | None) -> Rejection | None:
        needed = self._needed(method, name)
        if not needed or needed <= self._granted(principal.scopes):
            return None
        return self._insufficient(needed)

    # -- deciding ------------------------------------------------------------------------

    def _check(self, token: AccessToken) -> None:
        """Here and not only in the verifier: one that forgets it must open no door (S70)."""
        if token.expires_at is not None and self._clock() >= token.expires_at:
            raise InvalidToken("The token has expired")
        if self._audiences.isdisjoint(token.audience):
            raise InvalidToken("The token was not issued for this server")

    def _needed(self, method: str, name: str | None) -> frozenset[str]:
        needed: Iterable[str] = self._policy(method, name) if self._policy is not None else ()
        if method == "tools/call":
            tool = self._server.tools.get(name or "")
            return frozenset(needed) | (tool.scopes if tool is not None else frozenset())
        return frozenset(needed)

    def _granted(self, scopes: frozenset[str]) -> frozenset[str]:
        if not self._implied:
            return scopes
        return scopes.union(*(self._implied.get(scope, ()) for scope in scopes))

    # -- refusing ------------------------------------------------------------------------

    def _insufficient(self, needed: frozenset[str]) -> Rejection:
        """One challenge names all that the request needs (digest 11)."""
        text = "The token does not have all the scopes that this needs"
        return self._rejection(403, "insufficient_scope", text, self._scopes | needed)

    def _rejection(
        self, status: int, error: str = "", text: str = "", scopes: frozenset[str] = frozenset()
    ) -> Rejection:
        wanted = " ".join(sorted(scopes or self._scopes))
        said = {"error": error, "error_description": _NOT_QUOTABLE.sub("?", text)}
        challenge = {**said, "scope": wanted, "resource_metadata": self._metadata_url}
        listed = ", ".join(f'{key}="{value}"' for key, value in challenge.items() if value)
        headers = (_JSON, (b"www-authenticate", f"Bearer {listed}".encode()))
        return Rejection(status, headers, msgspec.json.encode(said if error else {}))


def scope_set(scopes: Iterable[str]) -> frozenset[str]:
    """Scopes as RFC 6749 writes them; a mistake is found where it is made."""
    checked = checked_scopes(scopes)
    if "offline_access" in checked:
        raise ValueError("offline_access is between client and issuer: no resource needs it")
    return checked


class _Malformed(DovetailError):
    """A request that no token can make right."""


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token of the Authorization header; there is no other place for it (RFC 6750, 2)."""
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) > 1:
        raise _Malformed("There is more than one Authorization header")
    scheme, _, token = given[0].strip().partition(b" ") if given else (b"", b"", b"")
    if scheme.lower() != b"bearer":
        return None
    token = token.strip()
    if len(token) > MAX_TOKEN:
        raise _Malformed(f"The token is longer than {MAX_TOKEN} characters")
    if _B64TOKEN.fullmatch(token) is None:
        raise _Malformed("This is no bearer token")
    return token.decode()


def _issuer_and_subject(token: AccessToken) -> str:
    """A subject is unique at its issuer only. No issuer has a blank in it: it is a URL."""
    return f"{token.issuer} {token.subject}" if token.issuer else token.subject


def _closure(implies: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """All that a scope contains, also through others."""
    direct = {scope: scope_set(others) for scope, others in implies.items()}
    contained = dict(direct)
    for _ in direct:  # the longest chain has one step per scope
        for scope, others in contained.items():
            contained[scope] = others.union(*(direct.get(one, ()) for one in others))
    return contained


def _well_known(resource: str) -> str:
    """Where RFC 9728, 3.1 wants the document: between the host and the path."""
    parts = urlsplit(resource)
    path = "" if parts.path == "/" else parts.path
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{path}{query}"


def checked_url(url: str) -> str:
    """The URL as it is; ValueError unless it is https, or http on this machine."""
    parts = urlsplit(url)
    if parts.fragment or not parts.hostname or _NOT_QUOTABLE.search(url) or " " in url:
        raise ValueError(f"{url!r} is no URL of a resource or an issuer")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname)):
        raise ValueError(f"{url!r} must be https, except on this machine")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
