"""Tokens bound to a key, against servers that check every proof."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from oauth_world import Person, Refused, post, world

from dovetail.client.oauth import FileStore, OAuth
from dovetail.client.oauth.dpop import ProofKey
from dovetail.errors import AuthorizationError
from support import run


def signing_in(**options: Any) -> OAuth:
    return OAuth(browser=Person().browser(), **options)


def test_each_request_has_a_proof_of_its_own() -> None:
    async def main() -> None:
        async with world() as (_, endpoint):
            endpoint.dpop = True
            auth = signing_in()
            for _ in range(3):
                assert (await post(auth, endpoint.url))[0] == 200
            assert len(endpoint.proofs) == 3
            assert endpoint.tokens[1].startswith("DPoP ")

    run(main())


def test_both_servers_may_want_a_nonce() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.dpop, server.nonce, endpoint.nonce = True, "n1", "n2"
            auth = signing_in()
            assert (await post(auth, endpoint.url))[0] == 200
            endpoint.nonce = "n3"
            assert (await post(auth, endpoint.url))[0] == 200
            assert len(server.asked("/authorize")) == 1, "a nonce is no reason to sign in"

    run(main())


def test_a_nonce_that_never_fits() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.dpop = True
            auth = signing_in()
            await post(auth, endpoint.url)
            endpoint.nonce = ""  # announced as "", which is never the nonce of a proof
            endpoint._check_proof = _refuse  # type: ignore[method-assign]
            with pytest.raises(AuthorizationError, match="refuses the token"):
                await post(auth, endpoint.url)
            assert len(server.asked("/authorize")) <= 2

    run(main())


def _refuse(request: web.Request, key: str) -> None:
    raise Refused("use_dpop_nonce")


def test_a_key_outlives_the_process(tmp_path: Path) -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.dpop = True
            now = [time.time()]
            options = {"store": FileStore(tmp_path / "tokens"), "clock": lambda: now[0]}
            assert (await post(signing_in(**options), endpoint.url))[0] == 200
            assert (await post(signing_in(**options), endpoint.url))[0] == 200
            endpoint.revoke()
            assert (await post(signing_in(**options), endpoint.url))[0] == 200
            assert server.grants() == ["authorization_code", "refresh_token"]
            assert len({record["key"] for record in server.tokens.values()}) == 1

    run(main())


def test_an_algorithm_that_is_not_ours() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.dpop = True
            server.metadata["dpop_signing_alg_values_supported"] = ["RS512"]
            with pytest.raises(AuthorizationError, match="takes no proofs signed with ES256"):
                await post(signing_in(), endpoint.url)

    run(main())


def test_a_server_that_binds_nothing() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.dpop = True
            plain = {"access_token": "x", "token_type": "Bearer"}
            server.token_answer = lambda _: web.json_response(plain)
            with pytest.raises(AuthorizationError, match="refuses the token"):
                await post(signing_in(), endpoint.url)
            assert endpoint.tokens == ["", "Bearer x"]

    run(main())


def test_a_proof() -> None:
    key = ProofKey()
    url = "https://mcp.example/mcp?secret=1#x"
    one, two = (key.proof("POST", url, 1000.5, "n", "token") for _ in range(2))
    assert one != two
    header = jwt.get_unverified_header(one)
    assert header.keys() == {"alg", "typ", "jwk"}
    assert header["jwk"].keys() == {"kty", "crv", "x", "y"}
    claims = jwt.decode(
        one, jwt.PyJWK(header["jwk"]).key, algorithms=["ES256"], options={"verify_iat": False}
    )
    assert (claims["htm"], claims["htu"]) == ("POST", "https://mcp.example/mcp")
    assert (claims["iat"], claims["nonce"]) == (1000, "n")
    # The hash of "token", as RFC 9449 §4.2 wants it.
    assert claims["ath"] == "PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A"
    again = jwt.get_unverified_header(ProofKey(key.pem).proof("GET", url, 0, None))
    assert again["jwk"] == header["jwk"]


def test_a_stolen_token_is_of_no_use() -> None:
    async def main() -> None:
        async with world() as (_, endpoint):
            endpoint.dpop = True
            assert (await post(signing_in(), endpoint.url))[0] == 200
            thief = _Thief(endpoint.tokens[-1])
            assert (await post(thief, endpoint.url))[0] != 200

    run(main())


class _Thief:
    def __init__(self, token: str) -> None:
        self._token = token

    async def authorize(self, request: Any) -> None:
        request.headers["authorization"] = self._token
        url = request.url
        request.headers["dpop"] = ProofKey().proof("POST", url, time.time(), None, self._token[5:])

    async def challenged(self, request: Any, response: Any) -> bool:
        return False
