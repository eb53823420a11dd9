"""Enterprise-managed authorization: the employer's identity provider decides, nobody is asked.

The user's ID token is exchanged at the identity provider for an assertion made for one
authorization server (an ID-JAG, RFC 8693), and that one for a token of it (RFC 7523).
"""

from __future__ import annotations

from msgspec import Struct

from dovetail.client.oauth.clients import Registration
from dovetail.client.oauth.discovery import AuthorizationServer, Place
from dovetail.client.oauth.messages import Flow, convert, json_object, post_form, refusal
from dovetail.client.oauth.tokens import Identity, authentication
from dovetail.errors import AuthorizationError

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"


class _Answer(Struct, frozen=True, kw_only=True):
    access_token: str  # RFC 8693 §2.2.1: so named whatever it is
    issued_token_type: str


def check_profile(server: AuthorizationServer) -> None:
    """A server that lists profiles and not this one would refuse after the exchange."""
    profiles = server.authorization_grant_profiles_supported
    if profiles is not None and PROFILE not in profiles:
        raise AuthorizationError(f"{server.issuer!r} takes no assertions of an identity provider")


def exchange(
    provider: AuthorizationServer,
    client: Registration,
    id_token: str,
    place: Place,
    scopes: tuple[str, ...],
    now: float,
) -> Flow[str]:
    """The ID-JAG for the authorization server of ``place`` and for the MCP server it guards."""
    headers, fields = authentication(provider, Identity(client=client), now)
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ID_JAG,
        "subject_token": id_token,
        "subject_token_type": ID_TOKEN,
        "audience": place.issuer,
        **fields,
    }
    if place.resource is not None:
        form["resource"] = place.resource
    if scopes:
        form["scope"] = " ".join(scopes)
    response = yield post_form(provider.token_endpoint, form, headers)
    if response.status != 200:
        raise refusal("the identity provider", response)
    answer = convert(json_object(response.body) or {}, _Answer, "the assertion")
    if answer.issued_token_type != ID_JAG:
        raise AuthorizationError("the identity provider gave something else than an ID-JAG")
    return answer.access_token
