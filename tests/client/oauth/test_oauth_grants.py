"""Programs with credentials, and companies that decide for their people."""

from __future__ import annotations

from typing import Any

import pytest
from oauth_world import AuthServer, company, key_pair, post, serving, world

from dovetail.client.oauth import (
    ClientCredentials,
    EnterpriseManaged,
    MemoryStore,
    PrivateKey,
    WorkloadIdentity,
)
from dovetail.errors import AuthorizationError
from support import run


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_a_program_with_a_secret(method: str) -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.metadata["token_endpoint_auth_methods_supported"] = [method]
            server.clients["robot"] = {
                "client_id": "robot",
                "client_secret": "s3 cret/ü",
                "token_endpoint_auth_method": method,
            }
            server.refresh_tokens = False
            endpoint.wants = ["read"]
            auth = ClientCredentials("robot", client_secret="s3 cret/ü", issuer=server.issuer)
            assert await post(auth, endpoint.url) == (200, b'{"scope": "read"}')
            (asked,) = server.asked("/token")
            assert (asked["scope"], asked["resource"]) == ("read", endpoint.url)
            assert server.asked("/register") == server.asked("/authorize") == []
            endpoint.revoke()
            assert (await post(auth, endpoint.url))[0] == 200, "it simply asks again"
            endpoint.needs = ["write"]
            assert await post(auth, endpoint.url) == (200, b'{"scope": "read write"}')
            assert server.grants() == ["client_credentials"] * 3

    run(main())


def test_a_program_with_a_key() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            private, server.keys["robot"] = key_pair()
            server.metadata["token_endpoint_auth_methods_supported"] = ["private_key_jwt"]
            key = PrivateKey(pem=private, algorithm="ES256", key_id="k1")
            auth = ClientCredentials("robot", private_key=key, issuer=server.issuer)
            assert (await post(auth, endpoint.url))[0] == 200
            endpoint.revoke()
            assert (await post(auth, endpoint.url))[0] == 200
            one, two = (form["client_assertion"] for form in server.asked("/token"))
            assert one != two, "an assertion is used once"

    run(main())


@pytest.mark.verifies("C48", "C56")
def test_a_secret_goes_to_its_issuer_only() -> None:
    """An MCP server that names an authorization server of its own would collect secrets."""

    async def main() -> None:
        async with world() as (server, endpoint), world() as (thief, bait):
            server.clients["robot"] = {"client_id": "robot", "client_secret": "s"}
            named = ClientCredentials("robot", client_secret="s", issuer=server.issuer)
            with pytest.raises(AuthorizationError, match="belongs to"):
                await post(named, bait.url)
            store = MemoryStore()
            met = ClientCredentials("robot", client_secret="s", store=store)
            assert (await post(met, endpoint.url))[0] == 200
            for auth in (met, ClientCredentials("robot", client_secret="s", store=store)):
                with pytest.raises(AuthorizationError, match="belongs to"):
                    await post(auth, bait.url)
            assert thief.asked("/token") == []

    run(main())


def test_a_token_of_another_client_in_the_store_is_not_used() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            store = MemoryStore()
            for name in ("one", "two"):
                server.clients[name] = {"client_id": name, "client_secret": "s"}
                auth = ClientCredentials(name, client_secret="s", store=store)
                assert (await post(auth, endpoint.url))[0] == 200
            assert len(server.tokens) == 2

    run(main())


@pytest.mark.parametrize(
    "options", [{}, {"client_secret": "s", "private_key": PrivateKey(pem="x")}]
)
def test_credentials_are_one_thing_or_the_other(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="client_secret or a private_key"):
        ClientCredentials("robot", **options)


def test_wrong_credentials() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.clients["robot"] = {"client_id": "robot", "client_secret": "s"}
            auth = ClientCredentials("robot", client_secret="wrong")
            with pytest.raises(AuthorizationError, match="wrong secret") as caught:
                await post(auth, endpoint.url)
            assert caught.value.error == "invalid_client"
            assert len(server.asked("/token")) == 1

    run(main())


# -- enterprise-managed authorization --------------------------------------------------------------


def employee(idp: AuthServer, **options: Any) -> EnterpriseManaged:
    async def id_token() -> str:
        return "id token of Ann"

    fields: dict[str, Any] = {
        "id_token": id_token,
        "idp_issuer": idp.issuer,
        "idp_client_id": "app at the provider",
        "client_secret": "s",
        **options,
    }
    return EnterpriseManaged("app", **fields)


@pytest.mark.parametrize("found", [True, False])
def test_the_identity_provider_vouches(found: bool) -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            idp = AuthServer()
            async with serving(idp.handle) as idp.url:
                company(server, idp)
                endpoint.wants = ["read"]
                direct = {} if found else {"idp_token_endpoint": idp.url + "/token"}
                auth = employee(idp, **direct)
                assert await post(auth, endpoint.url) == (200, b'{"scope": "read"}')
                (exchange,) = idp.asked("/token")
                assert exchange["audience"] == server.issuer
                assert exchange["resource"] == endpoint.url
                assert exchange["client_id"] == "app at the provider"
                assert (len(idp.seen) == 1) is not found, "the provider is looked up, or not"
                assert server.grants() == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
                endpoint.revoke()
                server.refresh.clear()
                assert (await post(auth, endpoint.url))[0] == 200

    run(main())


def test_a_refresh_token_of_the_company_is_used() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            idp = AuthServer()
            async with serving(idp.handle) as idp.url:
                company(server, idp)
                auth = employee(idp)
                await post(auth, endpoint.url)
                endpoint.revoke()
                assert (await post(auth, endpoint.url))[0] == 200
                assert server.grants()[1] == "refresh_token"
                assert len(idp.asked("/token")) == 1

    run(main())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda server, idp: idp.id_tokens.clear(), "the identity provider refused"),
        (lambda server, idp: idp.metadata.update(issued="x"), "something else than an ID-JAG"),
        (
            lambda server, idp: server.metadata.update(authorization_grant_profiles_supported=[]),
            "takes no assertions",
        ),
    ],
)
def test_a_company_that_says_no(change: Any, said: str) -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            idp = AuthServer()
            async with serving(idp.handle) as idp.url:
                company(server, idp)
                change(server, idp)
                with pytest.raises(AuthorizationError, match=said):
                    await post(employee(idp), endpoint.url)
                assert server.asked("/token") == []

    run(main())


def test_a_server_that_announces_the_profile() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            idp = AuthServer()
            async with serving(idp.handle) as idp.url:
                company(server, idp)
                profile = "urn:ietf:params:oauth:grant-profile:id-jag"
                server.metadata["authorization_grant_profiles_supported"] = [profile]
                assert (await post(employee(idp), endpoint.url))[0] == 200

    run(main())


# -- workload identity -----------------------------------------------------------------------------


def test_a_platform_vouches_for_a_program() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.trusted_idp = platform = AuthServer()
            server.clients["job"] = {"client_id": "job"}
            issued = iter(("first", "second"))

            async def assertion() -> str:
                platform.codes[token := next(issued)] = {
                    "audience": server.issuer,
                    "resource": endpoint.url,
                }
                return token

            server.refresh_tokens = False
            auth = WorkloadIdentity("job", assertion=assertion, issuer=server.issuer)
            assert (await post(auth, endpoint.url))[0] == 200
            endpoint.revoke()
            assert (await post(auth, endpoint.url))[0] == 200
            assert [form["assertion"] for form in server.asked("/token")] == ["first", "second"]

    run(main())


def test_a_platform_that_is_not_believed_is_not_asked_again() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.trusted_idp = AuthServer()
            server.clients["job"] = {"client_id": "job"}

            async def assertion() -> str:
                return "of somebody else"

            with pytest.raises(AuthorizationError, match="invalid_grant"):
                await post(WorkloadIdentity("job", assertion=assertion), endpoint.url)
            assert len(server.asked("/token")) == 1

    run(main())
