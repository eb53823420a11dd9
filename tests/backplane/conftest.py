"""Two nodes of one service, on each backplane."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.backplane.base import Backplane
from dovetail.backplane.memory import Hub, LogLimits, MemoryBackplane
from dovetail.backplane.redis import RedisBackplane
from redis_server import RedisServer

Nodes = Callable[..., Any]


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """One for a test that maltreats it."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


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
