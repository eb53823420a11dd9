"""From a 401 to the authorization server (RFC 9728, RFC 8414, OpenID Connect Discovery).

The order of the places and the comparisons are those of MCP 2025-11-25 and 2026-07-28;
a server without protected resource metadata is one of 2025-03-26, where the server's own
origin is the authorization server.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from dovetail.client.oauth.challenge import Challenge
from dovetail.client.oauth.messages import Flow, convert, get, json_object, printable
from dovetail.client.oauth.urls import checked, covers, origin_text, split
from dovetail.errors import AuthorizationError

_RESOURCE = "/.well-known/oauth-protected-resource"
_OAUTH = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"


class ProtectedResource(Struct, frozen=True):
    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str] | None = None


class AuthorizationServer(Struct, frozen=True, kw_only=True):
    """The metadata of an authorization server that a client needs."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    authorization_grant_profiles_supported: list[str] | None = None
    client_id_metadata_document_supported: bool | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    dpop_signing_alg_values_supported: list[str] | None = None


class Place(Struct, frozen=True, kw_only=True):
    """Where a token for a server comes from, and what it has to be for."""

    server: AuthorizationServer
    resource: str | None  # None in the manner of 2025-03-26, which has no `resource`
    scopes_supported: tuple[str, ...] = ()
    dpop: bool = False  # the server wants tokens bound to a key

    @property
    def issuer(self) -> str:
        return self.server.issuer


def resource_urls(server: str, hinted: str | None) -> list[str]:
    """Where the protected resource metadata may be: the header decides, if it says anything."""
    if hinted is not None:
        return [hinted]
    path = urlsplit(server).path.rstrip("/")
    root = origin_text(server) + _RESOURCE
    return [root + path, root] if path else [root]


def server_urls(issuer: str) -> list[str]:
    """Where the metadata of an issuer may be, in the order MCP prescribes."""
    base, path = origin_text(issuer), urlsplit(issuer).path.rstrip("/")
    if not path:
        return [base + _OAUTH, base + _OPENID]
    return [base + _OAUTH + path, base + _OPENID + path, base + path + _OPENID]


def discover(server: str, challenge: Challenge, known: Collection[str] = ()) -> Flow[Place]:
    """The whole way. ``known`` are issuers we hold credentials of; one of them is preferred."""
    dpop = challenge.scheme == "dpop"
    resource = yield from find_resource(server, challenge.resource_metadata)
    if resource is None:
        found = yield from find_at_origin(server)
        return Place(server=found, resource=None, dpop=dpop)
    issuer = next((i for i in resource.authorization_servers if i in known), None)
    issuer = issuer or resource.authorization_servers[0]
    found = yield from find_server(issuer)
    scopes = tuple(resource.scopes_supported or ())
    return Place(server=found, resource=resource.resource, scopes_supported=scopes, dpop=dpop)


def find_resource(server: str, hinted: str | None) -> Flow[ProtectedResource | None]:
    for url in resource_urls(server, hinted):
        if (document := (yield from _document(url, "resource metadata"))) is not None:
            return judge_resource(convert(document, ProtectedResource, "resource metadata"), server)
    if hinted is not None:
        raise AuthorizationError(f"there is no resource metadata at {printable(hinted)!r}")
    return None


def judge_resource(found: ProtectedResource, server: str) -> ProtectedResource:
    """RFC 9728 §3.3: metadata of another resource is not this server's."""
    split(found.resource, "resource")
    if not covers(found.resource, server):
        raise AuthorizationError(
            f"the metadata is about {printable(found.resource)!r}, not about {server!r}"
        )
    if not found.authorization_servers:
        raise AuthorizationError("the resource metadata names no authorization server")
    return found


def find_server(issuer: str) -> Flow[AuthorizationServer]:
    check_issuer(issuer)
    found = yield from _first_server(issuer, (issuer,))
    if found is None:
        raise AuthorizationError(f"the authorization server {issuer!r} publishes no metadata")
    return found


def find_at_origin(server: str) -> Flow[AuthorizationServer]:
    """2025-03-26: metadata at the origin, else the default endpoints there."""
    base = origin_text(server)
    # Nobody named this issuer, we made it from the URL; both spellings have one document.
    found = yield from _first_server(base, (base, base + "/"))
    return found or AuthorizationServer(
        issuer=base,
        authorization_endpoint=base + "/authorize",
        token_endpoint=base + "/token",
        registration_endpoint=base + "/register",
        code_challenge_methods_supported=["S256"],
        token_endpoint_auth_methods_supported=["none", "client_secret_post", "client_secret_basic"],
    )


def check_issuer(issuer: str) -> None:
    """RFC 8414 §2: an issuer is an https URL without query and fragment."""
    if split(issuer, "issuer").query or issuer.endswith("?"):
        raise AuthorizationError(f"the issuer {issuer!r} has a query")


def judge_server(found: AuthorizationServer, issuers: Sequence[str]) -> AuthorizationServer:
    """Whether a document is that of the issuer (byte by byte, RFC 8414 §3.3) and safe to use."""
    if found.issuer not in issuers:
        raise AuthorizationError(
            f"the metadata of {issuers[0]!r} says it is of {printable(found.issuer)!r}"
        )
    checked(found.token_endpoint, "token_endpoint")
    for name in ("authorization_endpoint", "registration_endpoint"):
        if (url := getattr(found, name)) is not None:
            checked(url, name)
    return found


def _first_server(issuer: str, accepted: Sequence[str]) -> Flow[AuthorizationServer | None]:
    for url in server_urls(issuer):
        if (document := (yield from _document(url, "server metadata"))) is not None:
            found = convert(document, AuthorizationServer, "authorization server metadata")
            return judge_server(found, accepted)
    return None


def _document(url: str, what: str) -> Flow[dict[str, object] | None]:
    """The JSON object at ``url``; None if there is none, which sends us to the next place."""
    response = yield get(checked(url, what))
    if response.status >= 500:
        raise AuthorizationError(f"{what} at {url!r}: HTTP {response.status}")
    return json_object(response.body) if response.status == 200 else None
