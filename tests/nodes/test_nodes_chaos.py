"""Nodes die and are replaced, the engine forgets everything, and clients just go on.

Whatever happens: an answer is the answer to its own request, it comes once, and it comes
whenever the client still knows where to ask for it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from nodes_lab import Client, Node, Stream

from redis_server import RedisServer
from support import run

Start = Callable[..., list[Node]]

CLIENTS = 6
LEASE = 1.5


class Service:
    """The nodes that live now."""

    def __init__(self, nodes: list[Node], chance: random.Random) -> None:
        self.nodes = nodes
        self.chance = chance
        self.is_calm = False  # nothing will happen any more

    def any(self) -> Node:
        return self.chance.choice(self.nodes)


class Caller:
    """One principal with one session, who never gives up on a stream."""

    def __init__(self, http: httpx.AsyncClient, name: str, service: Service) -> None:
        self.client = Client(http, name)
        self.name = name
        self.service = service
        self.seen: Counter[str] = Counter()

    async def work(self) -> None:
        await self._open()
        number = 0
        while not self.service.is_calm or number % 5:
            number += 1
            await self._call(number)
            self.seen["called"] += 1
            await asyncio.sleep(self.service.chance.uniform(0, 0.1))

    async def _open(self) -> None:
        while True:
            try:
                await self.client.open(self.service.any())
                return
            except (httpx.TransportError, AssertionError):  # dead, or 503 without the engine
                await asyncio.sleep(0.1)

    async def _call(self, number: int) -> None:
        text = f"{self.name} {number}"
        params = {"name": "say", "arguments": {"text": text}, "_meta": {"progressToken": "t"}}
        body = self.client.body("tools/call", params, 1000 + number)
        last: str | None = None
        while True:
            messages, place, status = await self._listen(body, last)
            self._check(messages, text, 1000 + number)
            last = place or last
            if any("id" in message for message in messages):
                self.seen["answered"] += 1
                return
            if last is None and status is None:
                self.seen["lost with its connection"] += 1  # before it had an event to resume at
                return
            self.seen["came back"] += 1
            await asyncio.sleep(0.1)

    async def _listen(
        self, body: Any, last: str | None
    ) -> tuple[list[Any], str | None, int | None]:
        """What came, the last event id, and the status; the call itself, or its stream again."""
        client, url = self.client, f"{self.service.any().url}/mcp"
        try:
            if last is None:
                opening = client.http.stream("POST", url, json=body, headers=client.headers)
            else:
                headers = {**client.headers, "last-event-id": last}
                opening = client.http.stream("GET", url, headers=headers)
            async with opening as response:
                if response.status_code != 200:
                    text = await response.aread()
                    assert response.status_code == 503, (response.status_code, text)
                    return [], None, 503
                stream = Stream(response)
                messages = await stream.rest()
                return messages, stream._parser.last_id, 200
        except httpx.TransportError:
            return [], None, None if last is None else 0

    def _check(self, messages: list[Any], text: str, id: int) -> None:
        answers = [message for message in messages if "id" in message]
        assert len(answers) <= 1, answers
        for message in messages:
            if "method" in message and message["method"] == "notifications/progress":
                assert message["params"]["message"] == text
        for answer in answers:
            assert answer["id"] == id
            if "result" in answer:
                assert answer["result"]["structuredContent"] == {"result": text}
            else:
                assert "has ended" in json.dumps(answer["error"]), answer
                self.seen["ended with its node"] += 1


async def _disturb(service: Service, start: Start, redis: RedisServer, lasting: float) -> None:
    """Kill and replace, twice; then an engine that comes back empty."""
    for _ in range(2):
        await asyncio.sleep(lasting)
        victim = service.any()
        (fresh,) = await asyncio.to_thread(start, 1, redis.url, lease=LEASE, auth=True)
        service.nodes.append(fresh)
        service.nodes.remove(victim)
        victim.kill()
    await asyncio.sleep(LEASE * 2)  # what the dead had must have found its way before it is erased
    redis.stop()
    await asyncio.sleep(0.5)
    redis.start()
    await asyncio.sleep(1.0)
    service.is_calm = True


@pytest.mark.verifies("N-killed", "N-back", "N-principal")
@pytest.mark.parametrize("seed", [1, 2])
def test_clients_go_on_whatever_happens(
    start: Start, redis_server: RedisServer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("support.PATIENCE", 90.0)

    async def main() -> None:
        nodes = start(3, redis_server.url, lease=LEASE, auth=True)
        service = Service(nodes, random.Random(seed))
        async with httpx.AsyncClient(timeout=20) as http:
            callers = [Caller(http, f"caller{n}", service) for n in range(CLIENTS)]
            disturbing = asyncio.create_task(_disturb(service, start, redis_server, 1.0))
            await asyncio.gather(*(caller.work() for caller in callers))
            await disturbing
        seen = sum((caller.seen for caller in callers), Counter[str]())
        assert seen["answered"] + seen["lost with its connection"] == seen["called"]
        assert seen["lost with its connection"] <= CLIENTS * 2  # one for each node that died
        assert seen["came back"] > 0

    run(main())
