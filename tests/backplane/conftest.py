"""Two nodes of one service, on each backplane."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail.backplane.base import Backplane
from dovetail.backplane.memory import Hub, LogLimits, MemoryBackplane
from dovetail.backplane.redis import RedisBackplane

Nodes = Callable[..., Any]


@pytest.fixture(params=["memory", "redis"])
def nodes(request: pytest.FixtureRequest) -> Nodes:
    """``async with nodes(2) as (a, b):`` opens so many nodes of a service of its own."""
    kind: str = request.param
    url = request.getfixturevalue("redis_url") if kind == "redis" else ""

    @asynccontextmanager
    async def opened(count: int, limits: LogLimits | None = None) -> AsyncIterator[list[Backplane]]:
        namespace, hub = secrets.token_hex(4), Hub(limits)
        made: list[Any] = []
        for _ in range(count):
            if kind == "memory":
                made.append(MemoryBackplane(hub))
            else:
                made.append(RedisBackplane(url, namespace=namespace, log_limits=limits))
            await made[-1].open()
        try:
            yield made
        finally:
            for node in made:
                await node.close()

    return opened
