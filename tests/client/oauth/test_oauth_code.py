"""Signing in: the whole way against a strict authorization server, over real sockets."""

from __future__ import annotations

import asyncio
import http.client
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from oauth_world import Person, post, serving, signing_in, world

from dovetail.client.oauth import OAuth, OwnBrowser
from dovetail.errors import AuthorizationError
from support import run

RESOURCE = "/.well-known/oauth-protected-resource"


@pytest.mark.verifies("C43", "C45", "C47", "C50", "C53", "C57")
def test_a_401_leads_to_a_token() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.scopes_supported = ["notes:read"]
            person = Person()
            auth = signing_in(person)
            assert await post(auth, endpoint.url) == (200, b'{"scope": "notes:read"}')
            assert endpoint.tokens[0] == ""
            assert endpoint.seen == [RESOURCE + "/mcp"]
            assert "Thank you" in person.page
            (registered,) = server.asked("/register")
            assert registered["application_type"] == "native"
            (asked,), (token,) = server.asked("/authorize"), server.asked("/token")
            assert asked["resource"] == token["resource"] == endpoint.url
            assert registered["redirect_uris"] == [asked["redirect_uri"]]
            assert await post(auth, endpoint.url) == (200, b'{"scope": "notes:read"}')
            assert endpoint.tokens[2] == endpoint.tokens[1]
            assert len(person.visited) == 1, "the token is kept"

    run(main())


@pytest.mark.verifies("C51")
@pytest.mark.parametrize(
    ("challenge", "user", "listed", "asked"),
    [
        (["a"], ["b"], ["c"], "a"),
        ([], ["b"], ["c"], "b"),
        ([], [], ["c", "d"], "c d"),
        ([], [], None, None),
        (["offline_access", "a"], [], None, "a"),
    ],
)
def test_which_scopes_are_asked_for(
    challenge: list[str], user: list[str], listed: list[str] | None, asked: str | None
) -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.wants, endpoint.scopes_supported = challenge, listed
            await post(signing_in(Person(), scopes=user), endpoint.url)
            assert server.asked("/authorize")[0].get("scope") == asked

    run(main())


@pytest.mark.verifies("C58")
def test_offline_access_only_where_it_is_offered() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.wants = ["a"]
            server.metadata["scopes_supported"] = ["a", "offline_access"]
            await post(signing_in(Person()), endpoint.url)
            assert server.asked("/authorize")[0]["scope"] == "a offline_access"

    run(main())


@pytest.mark.verifies("C46")
def test_an_issuer_with_a_path_and_openid() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.path = "/tenant1"
            server.where = "/tenant1/.well-known/openid-configuration"
            assert (await post(signing_in(Person()), endpoint.url))[0] == 200
            assert [path for path, _ in server.seen[:3]] == [
                "/.well-known/oauth-authorization-server/tenant1",
                "/.well-known/openid-configuration/tenant1",
                "/tenant1/.well-known/openid-configuration",
            ]

    run(main())


@pytest.mark.verifies("C44")
def test_a_server_of_the_year_before() -> None:
    """2025-03-26: no resource metadata; the server's origin is the authorization server."""

    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.hint, endpoint.where = False, None

            async def both(request: Any) -> Any:
                mine = request.path == "/mcp" or request.path.startswith(RESOURCE)
                return await (endpoint if mine else server).handle(request)

            async with serving(both) as server.url:
                endpoint.url = server.url + "/mcp"
                assert (await post(signing_in(Person()), endpoint.url))[0] == 200
                assert "resource" not in server.asked("/authorize")[0]
                server.where, server.iss = "/nowhere", None
                assert (await post(signing_in(Person()), endpoint.url))[0] == 200, "default paths"
                assert "resource" not in server.asked("/token")[1]

    run(main())


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
def test_the_ways_a_registered_client_authenticates(method: str) -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.metadata["token_endpoint_auth_methods_supported"] = [method]
            assert (await post(signing_in(Person()), endpoint.url))[0] == 200

    run(main())


@pytest.mark.verifies("C52", "C53")
def test_a_client_that_is_a_document() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            person, url = Person(), "https://app.example/client.json"
            # Picks a free port; RFC 8252 §7.3 lets it vary, and so does this server.
            browser = person.browser("http://127.0.0.1:0/cb")
            auth = OAuth(client_metadata_url=url, browser=browser)
            server.metadata["client_id_metadata_document_supported"] = True
            async with browser.visit(()) as visit:
                uri = visit.redirect_uri
            server.metadata["document_redirects"] = [uri]
            browser._port = urlsplit(uri).port
            assert (await post(auth, endpoint.url))[0] == 200
            assert server.asked("/authorize")[0]["client_id"] == url
            assert server.asked("/register") == []
            server.metadata["client_id_metadata_document_supported"] = False
            again = OAuth(client_metadata_url=url, browser=browser)
            assert (await post(again, endpoint.url))[0] == 200
            assert len(server.asked("/register")) == 1, "where documents are not supported"

    run(main())


@pytest.mark.verifies("C53", "C56")
def test_a_client_that_was_registered_before() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            uri = "https://app.example/cb"
            server.clients["me"] = {"client_id": "me", "client_secret": "s", "redirect_uris": [uri]}
            server.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_basic"]
            server.metadata["registration_endpoint"] = None

            async def ask(url: str) -> str:
                person = Person()
                await asyncio.to_thread(_stop_at_redirect, person, url)
                return person.page

            own = OwnBrowser(uri, ask)
            options: dict[str, Any] = {"client_id": "me", "client_secret": "s", "browser": own}
            assert (await post(OAuth(issuer=server.issuer, **options), endpoint.url))[0] == 200
            assert (await post(OAuth(**options), endpoint.url))[0] == 200
            elsewhere = OAuth(issuer="https://as.example", **options)
            with pytest.raises(AuthorizationError, match=r"belongs to 'https://as\.example'"):
                await post(elsewhere, endpoint.url)
            assert len(server.asked("/authorize")) == 2

    run(main())


def _stop_at_redirect(person: Person, url: str) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    connection.request("GET", f"{parts.path}?{parts.query}")
    person.page = connection.getresponse().headers["Location"]
    connection.close()


# -- step up -------------------------------------------------------------------------------------


@pytest.mark.verifies("SH-step-up")
def test_more_scopes_are_added_to_the_old_ones() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.wants = ["read"]
            auth = signing_in(Person())
            assert (await post(auth, endpoint.url))[0] == 200
            endpoint.needs = ["write"]
            assert (await post(auth, endpoint.url))[0] == 200
            assert [form["scope"] for form in server.asked("/authorize")] == ["read", "read write"]

    run(main())


@pytest.mark.verifies("SH-step-up")
def test_a_first_login_and_a_step_up_for_one_request() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.wants, endpoint.needs = ["read"], ["write"]
            assert (await post(signing_in(Person()), endpoint.url))[0] == 200
            assert len(server.asked("/authorize")) == 2

    run(main())


@pytest.mark.verifies("SH-step-up")
def test_scopes_that_are_there_already_are_not_asked_for_again() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.wants = endpoint.needs = ["admin"]
            endpoint.always = 403
            with pytest.raises(AuthorizationError, match="names none that is missing") as caught:
                await post(signing_in(Person()), endpoint.url)
            assert caught.value.error == "insufficient_scope"
            assert len(server.asked("/authorize")) == 1

    run(main())


@pytest.mark.verifies("SH-step-up")
def test_a_server_that_always_wants_more() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.grants_fewer = {"moon"}
            endpoint.wants, endpoint.needs = ["read"], ["moon"]
            with pytest.raises(AuthorizationError, match="still more scopes: moon"):
                await post(signing_in(Person()), endpoint.url)
            assert len(server.asked("/authorize")) == 2

    run(main())


def test_a_403_of_another_kind_is_the_callers() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            auth = signing_in(Person())
            await post(auth, endpoint.url)
            endpoint.always, endpoint.challenge = 403, ""
            assert (await post(auth, endpoint.url))[0] == 403
            endpoint.challenge = 'Bearer error="invalid_token"'
            assert (await post(auth, endpoint.url))[0] == 403
            assert len(server.asked("/authorize")) == 1

    run(main())


def test_a_401_that_wants_no_token_is_the_callers() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.challenge = 'Basic realm="x"'
            assert (await post(signing_in(Person()), endpoint.url))[0] == 401
            assert server.seen == []

    run(main())


# -- no ------------------------------------------------------------------------------------------


def test_the_user_says_no() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.denies = True
            with pytest.raises(AuthorizationError, match="the user said no") as caught:
                await post(signing_in(Person()), endpoint.url)
            assert caught.value.error == "access_denied"
            assert server.asked("/token") == []

    run(main())


@pytest.mark.verifies("C55")
@pytest.mark.parametrize(
    ("promised", "iss"),
    [(True, None), (True, "https://evil.example"), (None, "https://evil.example"), (True, "/")],
)
def test_a_wrong_issuer_never_sees_the_code(promised: bool | None, iss: str | None) -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.metadata["authorization_response_iss_parameter_supported"] = promised
            server.iss = server.issuer + "/" if iss == "/" else iss
            with pytest.raises(AuthorizationError, match="issuer"):
                await post(signing_in(Person()), endpoint.url)
            assert len(server.asked("/authorize")) == 1
            assert server.asked("/token") == []

    run(main())


@pytest.mark.verifies("X42", "C43")
def test_no_token_travels_in_the_clear() -> None:
    async def main() -> None:
        with pytest.raises(AuthorizationError, match="must use https"):
            await post(OAuth(), "http://mcp.example/mcp")

    run(main())


def test_the_question_has_no_secret_in_it() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            person = Person()
            await post(signing_in(person), endpoint.url)
            asked = parse_qs(urlsplit(person.visited[0]).query)
            (token,) = server.asked("/token")
            assert token["code_verifier"] not in repr(asked)
            assert "client_secret" not in asked

    run(main())
