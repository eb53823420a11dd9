"""Signing in: the whole way against a strict authorization server, over real sockets."""

from __future__ import annotations

import asyncio
import http.client
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from oauth_world import AuthServer, Person, post, serving, world

from dovetail.client.oauth import FileStore, MemoryStore, OAuth, OwnBrowser
from dovetail.errors import AuthorizationError
from support import run

RESOURCE = "/.well-known/oauth-protected-resource"


def signing_in(person: Person, **options: Any) -> OAuth:
    return OAuth("a test", browser=person.browser(), **options)


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


# -- keeping and renewing ------------------------------------------------------------------------


@pytest.mark.verifies("C56", "C58")
def test_a_restart_needs_no_user(tmp_path: Path) -> None:
    async def main() -> None:
        async with world() as (_, endpoint):
            person = Person()
            for _ in range(3):
                auth = signing_in(person, store=FileStore(tmp_path / "tokens"))
                assert (await post(auth, endpoint.url))[0] == 200
            assert len(person.visited) == 1
            assert endpoint.tokens[1] == endpoint.tokens[2] == endpoint.tokens[3]

    run(main())


@pytest.mark.verifies("C58")
def test_a_token_near_its_end_is_renewed_before_it_is_sent(tmp_path: Path) -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            person, now = Person(), [1000.0]
            store = FileStore(tmp_path / "tokens")
            auth = signing_in(person, store=store, clock=lambda: now[0])
            await post(auth, endpoint.url)
            now[0] += 3600
            before = len(endpoint.tokens)
            assert (await post(auth, endpoint.url))[0] == 200
            assert len(endpoint.tokens) == before + 1, "no 401 in between"
            assert server.grants() == ["authorization_code", "refresh_token"]
            now[0] += 3600
            again = signing_in(person, store=store, clock=lambda: now[0])
            server.seen.clear()
            assert (await post(again, endpoint.url))[0] == 200
            # After a restart too, and at the endpoint of its own issuer without a search.
            assert [path for path, _ in server.seen] == ["/token"]
            assert server.asked("/token")[0]["resource"] == endpoint.url
            assert len(person.visited) == 1

    run(main())


@pytest.mark.verifies("C58")
def test_a_token_refused_is_renewed_without_the_user() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            person = Person()
            auth = signing_in(person)
            await post(auth, endpoint.url)
            endpoint.revoke()
            assert (await post(auth, endpoint.url))[0] == 200
            assert server.grants() == ["authorization_code", "refresh_token"]
            endpoint.revoke()
            server.refresh.clear()
            assert (await post(auth, endpoint.url))[0] == 200
            assert server.grants()[2:] == ["refresh_token", "authorization_code"]
            assert len(person.visited) == 2

    run(main())


@pytest.mark.verifies("C58")
def test_a_server_that_gives_no_refresh_tokens() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.refresh_tokens, person, now = False, Person(), [0.0]
            auth = signing_in(person, clock=lambda: now[0])
            await post(auth, endpoint.url)
            now[0] += 4000
            endpoint.revoke()
            assert (await post(auth, endpoint.url))[0] == 200
            assert server.grants() == ["authorization_code"] * 2

    run(main())


def test_an_old_refresh_token_stays_if_no_new_one_comes() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            now = [0.0]
            auth = signing_in(Person(), clock=lambda: now[0])
            await post(auth, endpoint.url)
            ((old, record),) = server.refresh.items()
            for _ in range(2):
                now[0] += 4000
                server.refresh[old] = record  # it does not rotate
                server.refresh_tokens = False
                assert (await post(auth, endpoint.url))[0] == 200
            sent = [form["refresh_token"] for form in server.asked("/token")[1:]]
            assert sent == [old, old]

    run(main())


def test_a_renewal_that_fails_in_passing_asks_nobody() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            person = Person()
            auth = signing_in(person)
            await post(auth, endpoint.url)
            endpoint.revoke()
            server.token_answer = lambda _: web.Response(status=503)
            with pytest.raises(AuthorizationError, match="HTTP 503"):
                await post(auth, endpoint.url)
            assert len(person.visited) == 1

    run(main())


def test_an_early_renewal_that_fails_leaves_it_to_the_server() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            person, now = Person(), [0.0]
            auth = signing_in(person, clock=lambda: now[0])
            await post(auth, endpoint.url)
            now[0] += 4000
            server.token_answer = lambda _: web.Response(status=503)
            assert (await post(auth, endpoint.url))[0] == 200, "our clock may be wrong"
            server.refresh.clear()
            server.token_answer = None
            assert (await post(auth, endpoint.url))[0] == 200
            asked = len(server.asked("/token"))
            assert (await post(auth, endpoint.url))[0] == 200
            assert len(server.asked("/token")) == asked, "a dead refresh token is not tried again"
            endpoint.revoke()
            assert (await post(auth, endpoint.url))[0] == 200
            assert len(person.visited) == 2

    run(main())


@pytest.mark.verifies("C56")
def test_a_refresh_token_of_another_client_is_not_used() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            store, person = MemoryStore(), Person()
            await post(signing_in(person, store=store), endpoint.url)
            endpoint.revoke()
            stored = await store.load(f"client {server.issuer}")
            assert stored is not None
            (old,) = server.clients
            server.clients["new"] = {**server.clients[old], "client_id": "new"}
            await store.save(f"client {server.issuer}", stored.replace(old.encode(), b"new"))
            assert (await post(signing_in(person, store=store), endpoint.url))[0] == 200
            assert server.grants() == ["authorization_code"] * 2

    run(main())


def test_two_processes_share_one_store(tmp_path: Path) -> None:
    """Refresh tokens rotate: who comes second takes what the first got."""

    async def main() -> None:
        async with world() as (server, endpoint):
            person, now = Person(), [0.0]
            one, two = (
                signing_in(person, store=FileStore(tmp_path / "tokens"), clock=lambda: now[0])
                for _ in range(2)
            )
            for auth in (one, two):
                assert (await post(auth, endpoint.url))[0] == 200
            now[0] += 4000
            for auth in (one, two):
                assert (await post(auth, endpoint.url))[0] == 200
            endpoint.revoke()
            for auth in (one, two):
                assert (await post(auth, endpoint.url))[0] == 200
            assert server.grants() == ["authorization_code", "refresh_token", "refresh_token"]

    run(main())


def test_many_requests_one_login() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            person = Person()
            auth = signing_in(person)
            answers = await asyncio.gather(*(post(auth, endpoint.url) for _ in range(20)))
            assert {status for status, _ in answers} == {200}
            assert len(person.visited) == 1
            endpoint.revoke()
            await asyncio.gather(*(post(auth, endpoint.url) for _ in range(20)))
            assert server.grants() == ["authorization_code", "refresh_token"]

    run(main())


def test_a_login_that_is_cancelled_leaves_the_way_free() -> None:
    async def main() -> None:
        async with world() as (_, endpoint):
            started = asyncio.Event()
            loop = asyncio.get_running_loop()
            person = Person()

            def closed_at_once(url: str) -> bool:
                loop.call_soon_threadsafe(started.set)
                return True

            browser = person.browser()
            browser._opener = closed_at_once
            auth = OAuth(browser=browser)
            first = asyncio.create_task(post(auth, endpoint.url))
            await started.wait()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            browser._opener = person
            assert (await post(auth, endpoint.url))[0] == 200

    run(main())


@pytest.mark.verifies("C56")
def test_a_client_the_server_forgot_is_registered_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
            person = Person()
            auth = signing_in(person)
            await post(auth, endpoint.url)
            (client,) = server.clients.values()
            client["client_secret"] = "changed"  # so the browser sees nothing of it
            endpoint.revoke()
            assert (await post(auth, endpoint.url))[0] == 200
            assert len(server.asked("/register")) == 2

    run(main())


@pytest.mark.verifies("C48", "C56")
def test_another_authorization_server_sees_nothing_of_the_first() -> None:
    async def main() -> None:
        async with world() as (first, endpoint):
            second = AuthServer()
            async with serving(second.handle) as second.url:
                store, person = MemoryStore(), Person()
                auth = signing_in(person, store=store)
                await post(auth, endpoint.url)
                token = endpoint.tokens[-1].removeprefix("Bearer ")
                endpoint.server = second
                assert (await post(auth, endpoint.url))[0] == 200
                said = repr([form for _, form in second.seen])
                mine = (next(iter(first.clients)), token, next(iter(first.refresh)))
                assert not any(secret in said for secret in mine)
                assert len(second.asked("/register")) == 1
                assert endpoint.tokens[-1].removeprefix("Bearer ") in second.tokens

    run(main())


@pytest.mark.verifies("C56")
def test_a_client_known_everywhere_carries_no_refresh_token_along() -> None:
    """The id of a document is the same at every issuer; what they issued is not."""

    async def main() -> None:
        async with world() as (first, endpoint):
            second = AuthServer()
            async with serving(second.handle) as second.url:
                browser = Person().browser()
                async with browser.visit(()) as visit:
                    uri = visit.redirect_uri
                browser._port = urlsplit(uri).port
                for server in (first, second):
                    server.metadata["client_id_metadata_document_supported"] = True
                    server.metadata["document_redirects"] = [uri]
                url = "https://app.example/client.json"
                auth = OAuth(client_metadata_url=url, browser=browser)
                assert (await post(auth, endpoint.url))[0] == 200
                endpoint.server = second
                assert (await post(auth, endpoint.url))[0] == 200
                assert second.grants() == ["authorization_code"]

    run(main())


@pytest.mark.verifies("C48")
def test_two_servers_with_one_authorizer_get_their_own_tokens() -> None:
    async def main() -> None:
        async with world() as (_, one), world() as (_, two):
            auth = signing_in(Person())
            for endpoint in (one, two, one, two):
                assert (await post(auth, endpoint.url))[0] == 200
            assert len(set(one.tokens[1:])) == len(set(two.tokens[1:])) == 1
            assert set(one.tokens) & set(two.tokens) == {""}

    run(main())


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
