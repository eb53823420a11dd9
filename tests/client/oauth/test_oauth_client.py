"""OAuth where it is used: ``Client.http(url, auth=...)``."""

from __future__ import annotations

import asyncio
import threading

import pytest
from oauth_world import Person, world

from dovetail import Client
from dovetail.client.negotiate import Verdicts
from dovetail.client.oauth import LoopbackBrowser, OAuth
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
            loop = asyncio.get_running_loop()
            real, later = loop.time, [0.0]
            loop.time = lambda: real() + later[0]  # type: ignore[method-assign]

            def hesitate() -> None:
                later[0] += 1000  # every timer that is set goes off now
                loop.call_later(0.01, thought.set)

            def slowly(url: str) -> bool:
                loop.call_soon_threadsafe(hesitate)
                thought.wait(10)
                return person(url)

            browser = LoopbackBrowser(opener=slowly, seconds=10_000)
            auth = OAuth(browser=browser)
            async with Client.http(endpoint.url, auth=auth, known=Verdicts()) as client:
                assert client.revision == "2026-07-28"
            assert len(server.asked("/authorize")) == 1, "nobody was asked twice"
            assert len(endpoint.tokens) == 2, "and no handshake was tried beside it"

    # Without its own deadline, which would go off as well.
    asyncio.run(main())


def test_a_refusal_is_one_plain_exception() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            server.denies = True
            with pytest.raises(AuthorizationError, match="the user said no"):
                async with Client.http(endpoint.url, auth=OAuth(browser=Person().browser())):
                    pass

    run(main())
