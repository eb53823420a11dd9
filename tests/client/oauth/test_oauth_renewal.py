"""Tokens once they are there: kept, renewed, and given to nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from oauth_world import AuthServer, Person, post, serving, signing_in, world

from dovetail.client.oauth import FileStore, MemoryStore, OAuth
from dovetail.errors import AuthorizationError
from support import run


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
