"""Servers that mean harm: each ends in one clear error, and nothing inside is touched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from oauth_world import Person, post, serving, world

from dovetail.client.oauth import ClientCredentials, OAuth, fetch
from dovetail.client.oauth.discovery import find_server
from dovetail.client.oauth.fetch import MAX_BODY
from dovetail.client.oauth.grants import MAX_PROMPTS
from dovetail.client.oauth.messages import Flow, Response, get
from dovetail.client.oauth.urls import Depth
from dovetail.errors import AuthorizationError
from support import run

PRM = "/.well-known/oauth-protected-resource/mcp"


def reading(url: str) -> Flow[Response]:
    return (yield get(url))


class Trap:
    """Something inside our network that nobody outside should reach."""

    def __init__(self) -> None:
        self.connections = 0

    async def handle(self, request: Any) -> web.Response:
        self.connections += 1
        return web.json_response({})


@pytest.mark.verifies("C42")
def test_a_server_outside_cannot_send_us_inside() -> None:
    async def main() -> None:
        trap = Trap()
        async with serving(trap.handle) as url:
            port = url.rpartition(":")[2]
            for host in (
                "127.0.0.1",
                "localhost",  # looked up, and judged by what comes back
                "[::1]",
                "[::ffff:127.0.0.1]",
                "2130706433",  # the same as a number, which resolvers read
                "127.1",
                "0.0.0.0",
                "0",
            ):
                for allowed in (Depth.PUBLIC, Depth.PRIVATE):
                    with pytest.raises(AuthorizationError, match=r"not safe|not a canonical"):
                        await fetch.run(reading(f"https://{host}:{port}/"), allowed)
            assert trap.connections == 0
            for host in ("127.0.0.1", "localhost"):
                await fetch.run(reading(f"http://{host}:{port}/"), Depth.LOOPBACK)
            assert trap.connections == 2, "but a server on this machine may"

    run(main())


def test_a_proxy_of_the_user_may_stand_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the guard judges is where the metadata points, not the way there."""

    async def main() -> None:
        asked = []

        async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((await reader.readline()).split()[:2])
            writer.write(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://localhost:{port}")
        with pytest.raises(AuthorizationError, match="no answer"):
            await fetch.run(reading("https://as.example/"), Depth.PUBLIC)
        assert asked == [[b"CONNECT", b"as.example:443"]]
        monkeypatch.setenv("no_proxy", "localhost")
        with pytest.raises(AuthorizationError, match="not safe"):
            await fetch.run(reading(f"https://localhost:{port}/"), Depth.PUBLIC)
        assert len(asked) == 1, "which is no reason to be sent to it"
        server.close()

    run(main())


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "[fe80::1]",
        "[::ffff:169.254.169.254]",
        "0.0.0.0",
        "224.0.0.1",
        "10.0.0.1",
    ],
)
def test_nobody_may_send_us_there(host: str) -> None:
    async def main() -> None:
        with pytest.raises(AuthorizationError, match="further inside"):
            await fetch.run(reading(f"https://{host}/latest"), Depth.PUBLIC)

    run(main())


def test_metadata_that_points_to_the_cloud_machine() -> None:
    """The whole way, from a server on loopback: link-local is refused even there."""

    async def main() -> None:
        evil = "https://169.254.169.254/latest"
        async with world() as (server, endpoint):
            endpoint.challenge = f'Bearer resource_metadata="{evil}"'
            with pytest.raises(AuthorizationError, match="further inside"):
                await post(OAuth(browser=Person().browser()), endpoint.url)
            endpoint.challenge = None
            endpoint.servers = [evil]
            with pytest.raises(AuthorizationError, match="further inside"):
                await post(OAuth(browser=Person().browser()), endpoint.url)
            endpoint.servers = None
            for name in ("registration_endpoint", "token_endpoint"):
                server.metadata = {name: evil}
                with pytest.raises(AuthorizationError, match="further inside"):
                    await post(OAuth(browser=Person().browser()), endpoint.url)

    run(main())


@pytest.mark.verifies("C42")
@pytest.mark.parametrize(
    "evil",
    ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "http://evil.example/"],
)
def test_odd_schemes_never_reach_the_browser(evil: str) -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.metadata["authorization_endpoint"] = evil
            person = Person()
            with pytest.raises(AuthorizationError, match="not safe"):
                await post(OAuth(browser=person.browser()), endpoint.url)
            assert (person.visited, server.asked("/register")) == ([], [])

    run(main())


def redirecting(location: str, status: int = 302) -> Any:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": location})

    return handle


def test_metadata_is_not_fetched_elsewhere() -> None:
    async def main() -> None:
        trap = Trap()
        async with serving(trap.handle) as inside:
            for location in (inside + "/x", "//" + inside[7:], "http://169.254.169.254/"):
                async with serving(redirecting(location)) as url:
                    with pytest.raises(AuthorizationError, match=r"another origin|must use https"):
                        await fetch.run(find_server(url), Depth.LOOPBACK)
        assert trap.connections == 0

    run(main())


def test_a_redirect_without_end() -> None:
    async def main() -> None:
        async with serving(redirecting("/again")) as url:
            with pytest.raises(AuthorizationError, match="again and again"):
                await fetch.run(find_server(url), Depth.LOOPBACK)

    run(main())


def test_a_redirect_within_the_origin_is_followed() -> None:
    async def main() -> None:
        async def handle(request: web.Request) -> web.Response:
            if request.path.endswith("/"):
                return web.json_response({"issuer": url, "token_endpoint": url + "/t"})
            return web.Response(status=308, headers={"Location": request.path + "/"})

        async with serving(handle) as url:
            found = await fetch.run(find_server(url), Depth.LOOPBACK)
            assert found.token_endpoint == url + "/t"

    run(main())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_token_request_is_never_redirected(status: int) -> None:
    """307 and 308 would carry the code and the secret to wherever they point."""

    async def main() -> None:
        trap = Trap()
        async with world() as (server, endpoint), serving(trap.handle) as inside:
            server.clients["robot"] = {"client_id": "robot", "client_secret": "s"}
            for location in (inside, "/elsewhere"):
                headers = {"Location": location}
                server.token_answer = lambda _, h=headers: web.Response(status=status, headers=h)
                with pytest.raises(AuthorizationError, match="must not be redirected"):
                    await post(ClientCredentials("robot", client_secret="s"), endpoint.url)
        assert trap.connections == 0

    run(main())


def test_a_document_without_end() -> None:
    async def main() -> None:
        sent = [0]

        async def handle(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            try:
                while True:
                    await response.write(b" " * 65536)
                    sent[0] += 65536
            except (ConnectionError, asyncio.CancelledError):
                return response

        async with serving(handle) as url:
            with pytest.raises(AuthorizationError, match=f"longer than {MAX_BODY}"):
                await fetch.run(find_server(url), Depth.LOOPBACK)
            assert sent[0] < 64 * MAX_BODY

    run(main())


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        never = asyncio.Event()

        async def handle(request: web.Request) -> web.Response:
            await never.wait()
            return web.Response()

        async with serving(handle) as url:
            with pytest.raises(AuthorizationError, match=r"did not answer within 0\.05 s"):
                await fetch.run(find_server(url), Depth.LOOPBACK)
            never.set()

    monkeypatch.setattr(fetch, "SECONDS", 0.05)
    run(main())


def test_nobody_is_there() -> None:
    async def main() -> None:
        async with serving(redirecting("/")) as url:
            pass
        with pytest.raises(AuthorizationError, match="no answer from"):
            await fetch.run(find_server(url), Depth.LOOPBACK)
        with pytest.raises(AuthorizationError):
            await fetch.run(find_server("https://as.invalid"), Depth.LOOPBACK)

    run(main())


def test_a_server_that_refuses_every_token() -> None:
    async def main() -> None:
        async with world() as (_, endpoint):
            endpoint.always = 401
            person = Person()
            auth = OAuth(browser=person.browser())
            with pytest.raises(AuthorizationError, match="refuses the token"):
                await post(auth, endpoint.url)
            assert len(person.visited) == 1

    run(main())


def test_a_user_is_not_asked_without_end() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.always, server.refresh_tokens = 401, False
            person, now = Person(), [0.0]
            auth = OAuth(browser=person.browser(), clock=lambda: now[0])
            for _ in range(3 * MAX_PROMPTS):
                with pytest.raises(AuthorizationError):
                    await post(auth, endpoint.url)
            assert len(person.visited) == MAX_PROMPTS
            now[0] += 1000
            with pytest.raises(AuthorizationError, match="refuses the token"):
                await post(auth, endpoint.url)
            assert len(person.visited) == MAX_PROMPTS + 1

    run(main())


@pytest.mark.verifies("C48", "C54")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda server, endpoint: setattr(endpoint, "resource", "https://bank.example"),
            "not about",
        ),
        (
            lambda server, endpoint: server.metadata.update(issuer="https://as.example"),
            "says it is",
        ),
        (lambda server, endpoint: setattr(endpoint, "servers", []), "names no authorization"),
        (
            lambda server, endpoint: server.metadata.update(code_challenge_methods_supported=None),
            "PKCE",
        ),
    ],
)
def test_metadata_that_lies_ends_before_the_browser(change: Any, said: str) -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            change(server, endpoint)
            person = Person()
            with pytest.raises(AuthorizationError, match=said):
                await post(OAuth(browser=person.browser()), endpoint.url)
            assert person.visited == server.asked("/register") == server.asked("/token") == []

    run(main())


def test_a_header_that_cannot_be_read_is_no_hint() -> None:
    async def main() -> None:
        async with world() as (_, endpoint):
            endpoint.challenge = 'Bearer resource_metadata="never closed'
            assert (await post(OAuth(browser=Person().browser()), endpoint.url))[0] == 200
            assert endpoint.seen == [PRM]

    run(main())


def test_a_token_that_would_split_the_header() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.clients["robot"] = {"client_id": "robot", "client_secret": "s"}
            bad = {"access_token": "a\r\nX: y", "token_type": "Bearer"}
            server.token_answer = lambda _: web.json_response(bad)
            with pytest.raises(AuthorizationError, match="header cannot carry"):
                await post(ClientCredentials("robot", client_secret="s"), endpoint.url)
            assert endpoint.tokens == [""]

    run(main())
