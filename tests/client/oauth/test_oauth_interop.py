"""Authorization servers that are not ours: a certified OpenID provider, and FastMCP's own."""

from __future__ import annotations

import asyncio
import http.cookiejar
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.algorithms import ECAlgorithm
from oauth_world import AuthServer, Endpoint, Person, key_pair, post, serving

from dovetail import Client
from dovetail.client.oauth import ClientCredentials, FileStore, OAuth, PrivateKey
from support import run

ROOT = Path(__file__).parents[3]
PEERS = ROOT / ".peers"
PROVIDERS = Path(__file__).parent / "providers"
REVISIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
SECRET = "a secret/with + and %:"


@pytest.fixture(scope="module")
def peers() -> None:
    if not (PEERS / "oidc" / "node_modules").exists():
        subprocess.run([ROOT / "scripts" / "peers"], check=True)


@asynccontextmanager
async def started(*command: Any, **environment: str) -> AsyncIterator[str]:
    """A program that says where it listens."""
    env = {**os.environ, **environment}
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    )
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


class Ann(Person):
    """Her browser keeps cookies."""

    def __init__(self) -> None:
        super().__init__()
        self._cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())

    def __call__(self, url: str) -> bool:
        self.visited.append(url)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), self._cookies)
        with opener.open(url, timeout=10) as page:
            self.page = page.read().decode()
        return True


class Signed(dict[str, dict[str, Any]]):
    """The tokens of a provider that signs them: judged by its keys, for one audience."""

    def __init__(self, issuer: str, endpoint: Endpoint) -> None:
        super().__init__()
        self._keys = jwt.PyJWKClient(issuer + "/jwks")
        self._issuer = issuer
        self._endpoint = endpoint

    def get(self, token: str, default: Any = None) -> Any:
        if not token:
            return None
        # It is a few milliseconds, once.
        key = self._keys.get_signing_key_from_jwt(token)
        claims = jwt.decode(
            token,
            key.key,
            algorithms=[key.algorithm_name],
            audience=self._endpoint.url,
            issuer=self._issuer,
        )
        bound = claims.get("cnf", {}).get("jkt")
        return {"resource": self._endpoint.url, "scope": claims.get("scope", ""), "key": bound}


def openid(robot_keys: str = '{"keys": []}') -> AbstractAsyncContextManager[str]:
    program = (PEERS / "bin" / "node", PROVIDERS / "openid.mjs")
    return started(*program, ROBOT_KEYS=robot_keys, KEEPER_SECRET=SECRET)


@asynccontextmanager
async def guarded(**options: str) -> AsyncIterator[Endpoint]:
    """An endpoint that believes the OpenID provider."""
    async with openid(**options) as issuer:
        provider = AuthServer()
        provider.url = issuer
        endpoint = Endpoint(provider)
        provider.tokens = Signed(issuer, endpoint)
        async with serving(endpoint.handle) as origin:
            endpoint.url = origin + "/mcp"
            endpoint.wants = ["read"]
            yield endpoint


@pytest.mark.parametrize("dpop", [False, True])
def test_a_certified_provider(peers: None, dpop: bool, tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded() as endpoint:
            endpoint.dpop = dpop
            ann = Ann()

            def client() -> OAuth:
                return OAuth(browser=ann.browser(), store=FileStore(tmp_path / "tokens"))

            assert await post(client(), endpoint.url) == (200, b'{"scope": "read"}')
            assert await post(client(), endpoint.url) == (200, b'{"scope": "read"}')
            endpoint.revoke()
            assert await post(client(), endpoint.url) == (200, b'{"scope": "read"}')
            assert len(ann.visited) == 1, "the token was stored, then renewed"
            endpoint.needs = ["write"]
            assert await post(client(), endpoint.url) == (200, b'{"scope": "read write"}')
            assert len(ann.visited) == 2

    run(main())


def test_programs_at_a_certified_provider(peers: None) -> None:
    async def main() -> None:
        private, public = key_pair()
        known = ECAlgorithm.to_jwk(load_pem_public_key(public.encode()), as_dict=True)
        async with guarded(robot_keys=json.dumps({"keys": [known]})) as endpoint:
            issuer = endpoint.server.issuer
            key = PrivateKey(pem=private)
            for auth in (
                ClientCredentials("robot", private_key=key, issuer=issuer),
                ClientCredentials("keeper", client_secret=SECRET, issuer=issuer),
            ):
                assert await post(auth, endpoint.url) == (200, b'{"scope": "read"}')

    run(main())


def test_fastmcp_and_its_own_authorization_server(peers: None) -> None:
    async def main() -> None:
        program = (PEERS / "venv" / "bin" / "python", PROVIDERS / "fastmcp_guarded.py")
        async with started(*program) as origin:
            person = Person()
            for revision in REVISIONS:
                auth = OAuth(browser=person.browser())
                async with Client.http(origin + "/mcp", auth=auth, revision=revision) as client:
                    assert client.revision == revision
                    assert (await client.call("hello")).content[0].text == "hello"
            assert len(person.visited) == 3

    run(main())


def test_our_client_a_certified_provider_and_our_server(peers: None, tmp_path: Path) -> None:
    """All that is ours, with a judge between the two halves."""

    async def main() -> None:
        server = ROOT / "tests" / "conformance" / "protected.py"
        async with openid() as issuer, started(sys.executable, server, issuer) as url:
            ann = Ann()
            for number, revision in enumerate(REVISIONS, 1):
                auth = OAuth(browser=ann.browser(), store=FileStore(tmp_path / revision))
                async with Client.http(url, auth=auth, revision=revision) as client:
                    assert client.revision == revision
                    assert (await client.call("whoami")).value == f"{issuer} ann"
                    assert len(ann.visited) == 2 * number - 1
                    assert (await client.call("write")).value == "written"
                    assert len(ann.visited) == 2 * number, "one step up"

    run(main())
