"""Signing in: the whole way against a strict authorization server, over real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.client.oauth import MemoryStore, OAuth
from dovetail.errors import AuthorizationError
from oauth_world import Person, post, world
from support import run


def signed_in(person: Person, **options: Any) -> OAuth:
    return OAuth("a test", browser=person.browser(), **options)


def test_a_401_leads_to_a_token() -> None:
    async def main() -> None:
        async with world() as (server, endpoint):
            endpoint.scopes_supported = ["notes:read"]
            person = Person()
            auth = signed_in(person)
            assert await post(auth, endpoint.url) == (200, b'{"scope": "notes:read"}')
            assert endpoint.tokens[0] == ""
            assert endpoint.seen == ["/.well-known/oauth-protected-resource/mcp"]
            assert "Thank you" in person.page
            (registered,) = server.asked("/register")
            assert registered["application_type"] == "native"
            assert await post(auth, endpoint.url) == (200, b'{"scope": "notes:read"}')
            assert len(person.visited) == 1, "the token is kept"

    run(main())
