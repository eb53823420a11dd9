"""OAuth where it is used: ``Client.http(url, auth=...)``."""

from __future__ import annotations

import asyncio
import threading

import pytest
from oauth_world import Person, world

from dovetail import Client
from dovetail.client.negotiate import Verdicts
from dovetail.client.oauth import OAuth
from dovetail.errors import AuthorizationError
from support import run


@pytest.mark.verifies("C43", "C45")
def test_a_client_signs_in_on_its_way() -> None:
    async def main() -> None:
        async with world() as (_, endpoint):
            person = Person()
            auth = OAuth(browser=person.browser())
            async with Client.http(endpoint.url, auth=auth) as client:
                assert client.revision == "2026-07-28"
                calls = (client.call("hello") for _ in range(10))
                assert all(not result.is_error for result in await asyncio.gather(*calls))
                endpoint.needs = ["more"]
                assert not (await client.call("hello")).is_error
            assert len(person.visited) == 2
            assert all(token.startswith("Bearer ") for token in endpoint.tokens[1:])

    run(main())


def test_a_user_may_take_longer_than_a_server() -> None:
    """While somebody signs in, neither the probe nor the deadline of the request runs."""

    async def main() -> None:
        async with world() as (server, endpoint):
            person, thought = Person(), threading.Event()

            def slowly(url: str) -> bool:
                thought.wait(10)
                return person(url)

            browser = person.browser()
            browser._opener = slowly
            waits = {"timeout": 0.2, "probe_seconds": 0.02, "known": Verdicts()}
            client = Client.http(endpoint.url, auth=OAuth(browser=browser), **waits)
            asyncio.get_running_loop().call_later(0.6, thought.set)
            async with client:
                assert client.revision == "2026-07-28"
            assert len(server.asked("/authorize")) == 1, "nobody was asked twice"
            assert len(endpoint.tokens) == 2, "and no handshake was tried beside it"

    run(main())


def test_a_refusal_is_one_plain_exception() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.denies = True
            with pytest.raises(AuthorizationError, match="the user said no"):
                async with Client.http(endpoint.url, auth=OAuth(browser=Person().browser())):
                    pass

    run(main())
