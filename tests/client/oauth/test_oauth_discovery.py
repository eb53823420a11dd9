"""The order of the places, and what is made of what is found there. No network."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.client.oauth.challenge import Challenge
from dovetail.client.oauth.discovery import (
    Place,
    discover,
    find_server,
    resource_urls,
    server_urls,
)
from dovetail.client.oauth.messages import Response
from dovetail.errors import AuthorizationError

SERVER = "https://mcp.example/team/mcp"
AS = "https://as.example"
PRM = "https://mcp.example/.well-known/oauth-protected-resource"
OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
RESOURCE = {"resource": SERVER, "authorization_servers": [AS]}


def document(issuer: str = AS, **more: Any) -> dict[str, Any]:
    return {"issuer": issuer, "token_endpoint": AS + "/token", **more}


def drive(flow: Any, pages: dict[str, Any]) -> tuple[Any, list[str]]:
    """Run a flow against a table of pages: a JSON value, bytes, or a status."""
    asked: list[str] = []
    try:
        request = next(flow)
        while True:
            asked.append(request.url)
            page = pages.get(request.url, 404)
            status = page if isinstance(page, int) else 200
            body = page if isinstance(page, bytes) else msgspec.json.encode(page)
            request = flow.send(Response(status=status, headers={}, body=body))
    except StopIteration as stop:
        return stop.value, asked
    except AuthorizationError as error:
        return error, asked


@pytest.mark.verifies("C45", "C46")
def test_the_places_in_order() -> None:
    assert resource_urls(SERVER, None) == [PRM + "/team/mcp", PRM]
    assert resource_urls("https://mcp.example/", None) == [PRM]
    assert resource_urls(SERVER, "https://x.example/prm") == ["https://x.example/prm"]
    assert server_urls(AS) == [AS + OAUTH, AS + OPENID]
    assert server_urls(AS + "/") == [AS + OAUTH, AS + OPENID]
    tenant = AS + "/tenant/1"
    assert server_urls(tenant) == [
        AS + OAUTH + "/tenant/1",
        AS + OPENID + "/tenant/1",
        tenant + OPENID,
    ]


@pytest.mark.verifies("C45", "C46", "C47")
@pytest.mark.parametrize("status", [404, 401, 403, 405, 410])
def test_it_looks_on_until_it_finds(status: int) -> None:
    pages = {PRM + "/team/mcp": status, PRM: RESOURCE, AS + OAUTH: status, AS + OPENID: document()}
    place, asked = drive(discover(SERVER, Challenge()), pages)
    assert asked == list(pages)
    assert (place.issuer, place.resource) == (AS, SERVER)


def test_a_page_of_html_is_no_metadata() -> None:
    pages = {
        PRM + "/team/mcp": b"<html>",
        PRM: RESOURCE,
        AS + OAUTH: b"[1]",
        AS + OPENID: document(),
    }
    place, asked = drive(discover(SERVER, Challenge()), pages)
    assert (place.issuer, asked) == (AS, list(pages))


def test_the_hint_of_the_header_is_the_only_place() -> None:
    hinted = "https://mcp.example/elsewhere"
    challenge = Challenge(resource_metadata=hinted)
    place, asked = drive(discover(SERVER, challenge), {hinted: RESOURCE, AS + OAUTH: document()})
    assert (place.issuer, asked) == (AS, [hinted, AS + OAUTH])
    error, asked = drive(discover(SERVER, challenge), {PRM: RESOURCE})
    assert (str(error), asked) == (f"there is no resource metadata at {hinted!r}", [hinted])


def test_the_resource_is_sent_as_it_is_written() -> None:
    for written in ("https://mcp.example", "https://mcp.example/", SERVER):
        pages = {PRM: {**RESOURCE, "resource": written}, AS + OAUTH: document()}
        place, _ = drive(discover(SERVER, Challenge()), pages)
        assert place.resource == written


@pytest.mark.verifies("C48")
def test_of_several_servers_one_we_know_is_taken() -> None:
    other = "https://other.example"
    pages = {
        PRM: {**RESOURCE, "authorization_servers": [AS, other]},
        other + OAUTH: document(other),
    }
    place, asked = drive(discover(SERVER, Challenge(), (other,)), pages)
    assert place.issuer == other
    assert not any(url.startswith(AS) for url in asked)


@pytest.mark.verifies("C44")
def test_without_resource_metadata_the_origin_decides() -> None:
    origin = "https://mcp.example"
    own = document(origin, token_endpoint=origin + "/oauth/token")
    for issuer in (origin, origin + "/"):
        place, _ = drive(discover(SERVER, Challenge()), {origin + OAUTH: {**own, "issuer": issuer}})
        assert (place.resource, place.server.token_endpoint) == (None, origin + "/oauth/token")
    place, asked = drive(discover(SERVER, Challenge()), {})
    assert asked == [PRM + "/team/mcp", PRM, origin + OAUTH, origin + OPENID]
    assert isinstance(place, Place)
    assert place.server.authorization_endpoint == origin + "/authorize"
    assert place.server.token_endpoint == origin + "/token"
    assert place.server.registration_endpoint == origin + "/register"


@pytest.mark.verifies("C48", "C54")
@pytest.mark.parametrize(
    ("pages", "said"),
    [
        ({PRM: {**RESOURCE, "resource": "https://other.example"}}, "not about"),
        ({PRM: {**RESOURCE, "resource": "https://mcp.example/other"}}, "not about"),
        ({PRM: {**RESOURCE, "resource": "javascript:x"}}, "not safe"),
        ({PRM: {**RESOURCE, "authorization_servers": []}}, "names no authorization server"),
        ({PRM: {"resource": SERVER}}, "cannot be used"),
        ({PRM: {**RESOURCE, "authorization_servers": "x"}}, "cannot be used"),
        ({PRM: {**RESOURCE, "authorization_servers": ["http://as.example"]}}, "must use https"),
        ({PRM: {**RESOURCE, "authorization_servers": [AS + "?x=1"]}}, "has a query"),
        ({PRM: {**RESOURCE, "authorization_servers": [AS + "#x"]}}, "fragment"),
        ({PRM: RESOURCE}, "publishes no metadata"),
        ({PRM: RESOURCE, AS + OAUTH: document("https://evil.example")}, "says it is of"),
        ({PRM: RESOURCE, AS + OAUTH: document(AS + "/")}, "says it is of"),
        ({PRM: RESOURCE, AS + OAUTH: document("HTTPS://as.example")}, "says it is of"),
        ({PRM: RESOURCE, AS + OAUTH: {"issuer": AS}}, "cannot be used"),
        ({PRM: RESOURCE, AS + OAUTH: document(token_endpoint="http://x.example")}, "https"),
        ({PRM: RESOURCE, AS + OAUTH: document(registration_endpoint="file:///x")}, "not safe"),
        ({PRM: RESOURCE, AS + OAUTH: document(authorization_endpoint="javascript:x")}, "not safe"),
        ({PRM: RESOURCE, AS + OAUTH: 500}, "HTTP 500"),
        ({PRM: 503}, "HTTP 503"),
    ],
)
def test_what_cannot_be_trusted_ends_the_search(pages: dict[str, Any], said: str) -> None:
    error, asked = drive(discover(SERVER, Challenge()), pages)
    assert isinstance(error, AuthorizationError)
    assert said in str(error)
    assert asked[-1] in (*pages, AS + OPENID), "nothing is asked after it"


def test_metadata_may_hold_null_and_unknown_members() -> None:
    page = document(registration_endpoint=None, scopes_supported=None, jwks_uri=7)
    found, _ = drive(find_server(AS), {AS + OAUTH: page})
    assert found.registration_endpoint is None


def test_a_stranger_cannot_write_on_the_terminal() -> None:
    page = {**RESOURCE, "resource": "https://evil.example/?\x1b[31m"}
    error, _ = drive(discover(SERVER, Challenge()), {PRM: page})
    assert "\x1b" not in str(error)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from([AS, SERVER]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    [*RESOURCE, "scopes_supported", "issuer", "token_endpoint", "registration_endpoint"]
)
URLS = st.sampled_from(["", "[", "https://[", "https://a:b", "//", "\x00", AS, SERVER, AS + "//x"])


@given(st.dictionaries(MEMBERS, JSON | URLS | st.lists(URLS, max_size=2)), st.text(max_size=30))
def test_whatever_a_stranger_writes_ends_in_one_error_or_a_place(
    page: dict[str, Any], hint: str
) -> None:
    """The pages are all the same nonsense; the only exception is ours (``drive`` takes it)."""
    for challenge in (Challenge(), Challenge(resource_metadata=hint)):
        pages = _Everywhere({**RESOURCE, **document(), **page})
        outcome, asked = drive(discover(SERVER, challenge), pages)
        assert isinstance(outcome, AuthorizationError | Place)
        assert all(url.startswith("https://") for url in asked)


class _Everywhere(dict[str, Any]):
    def __init__(self, page: dict[str, Any]) -> None:
        super().__init__()
        self._page = page

    def get(self, key: str, default: Any = None) -> Any:
        return self._page
