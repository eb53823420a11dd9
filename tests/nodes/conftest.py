"""Nodes that live as long as a test, or as all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nodes_lab import Node

Pair = tuple[Node, Node]


@pytest.fixture(scope="module")
def pair(redis_url: str) -> Iterator[Pair]:
    """Two nodes for tests that leave them alive."""
    nodes = [Node(redis_url), Node(redis_url)]
    yield nodes[0].ready(), nodes[1].ready()
    for node in nodes:
        node.stop()


@pytest.fixture
def start() -> Iterator[Callable[..., list[Node]]]:
    """Start nodes for a test that maltreats them."""
    started: list[Node] = []

    def several(count: int, redis: str, **options: Any) -> list[Node]:
        nodes = [Node(redis, **options) for _ in range(count)]
        started.extend(nodes)
        return [node.ready() for node in nodes]

    yield several
    for node in started:
        if node.process.poll() is None:
            node.process.kill()
        node.end()
