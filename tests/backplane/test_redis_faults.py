"""An engine that stops, comes back empty, freezes, refuses: what its users see."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.backplane import engine
from dovetail.backplane.base import BackplaneAway, Event
from dovetail.backplane.redis import RedisBackplane
from redis_server import RedisServer
from support import run


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the engine is another process
        await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ANSWER_SECONDS", 0.3)


def node(server: RedisServer, **options: Any) -> RedisBackplane:
    return RedisBackplane(server.url, **{"lease_seconds": 0.8, **options})


def test_a_stopped_engine_is_away_at_once_and_found_again(redis_server: RedisServer) -> None:
    async def body() -> None:
        one = node(redis_server)
        gaps: list[str] = []
        one.bus.subscribe(print, lambda: gaps.append("bus"))
        await one.open()
        redis_server.stop()
        await until(lambda: not one.ready)
        for call in (
            one.records.get("x"),
            one.records.put("x", b"", 1),
            one.directory.claim("x"),
            one.mailbox.send("x", b""),
            one.log.read("of another node"),
        ):
            with pytest.raises(BackplaneAway) as caught:
                await call
            assert caught.value.retry_after > 0
        one.bus.publish(b"lost")
        assert gaps == []
        redis_server.start()
        await until(lambda: one.ready)
        assert gaps == ["bus"]
        await one.records.put("x", b"1", 60)
        assert await one.records.get("x") == b"1"
        await one.close()

    run(body())


def test_what_waits_is_answered_when_the_engine_freezes(redis_server: RedisServer) -> None:
    async def body() -> None:
        one = node(redis_server)
        await one.open()
        await one.records.put("x", b"1", 60)
        redis_server.freeze()
        calls = [asyncio.create_task(one.records.get("x")) for _ in range(20)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(outcome, BackplaneAway) for outcome in outcomes)
        redis_server.thaw()
        await until(lambda: one.ready)
        assert await one.records.get("x") == b"1"
        await one.close()

    run(body())


def test_a_frozen_engine_is_noticed_without_a_call(redis_server: RedisServer) -> None:
    async def body() -> None:
        one = node(redis_server)
        await one.open()
        redis_server.freeze()
        await until(lambda: not one.ready)
        redis_server.thaw()
        await until(lambda: one.ready)
        await one.close()

    run(body())


def test_an_engine_that_lost_everything_is_told_again(redis_server: RedisServer) -> None:
    async def body() -> None:
        one, two = node(redis_server), node(redis_server)
        await one.open()
        await two.open()
        await one.directory.claim("mine")
        one.log.append("s", b"before")
        while not await two.log.read("s"):
            pass
        redis_server.stop()
        await until(lambda: not one.ready and not two.ready)
        assert one.log.append("s", b"meanwhile") == 2
        assert len(await one.log.read("s")) == 2  # our own needs no engine
        redis_server.start()
        await until(lambda: one.ready and two.ready)
        assert one.log.append("s", b"after") == 3
        while len(await two.log.read("s")) < 3:
            pass
        expected = [Event(1, b"before"), Event(2, b"meanwhile"), Event(3, b"after")]
        assert await two.log.read("s") == expected
        assert await two.directory.owner("mine") == one.node
        await one.close()
        await two.close()

    run(body())


def test_events_are_kept_once_when_only_their_answer_was_lost(redis_server: RedisServer) -> None:
    async def body() -> None:
        one, two = node(redis_server), node(redis_server)
        await one.open()
        await two.open()
        redis_server.freeze()
        one.log.append("s", b"1")  # on its way: the engine reads it when it wakes up
        await until(lambda: not one.ready)
        one.log.append("s", b"2")
        redis_server.thaw()
        await until(lambda: one.ready and two.ready)
        while len(await two.log.read("s")) < 2:
            pass
        assert await two.log.read("s") == [Event(1, b"1"), Event(2, b"2")]
        await one.close()
        await two.close()

    run(body())


def test_nobody_is_buried_after_an_outage(redis_server: RedisServer) -> None:
    """Leases run out while the engine is frozen; the node that is first back must wait."""

    async def body() -> None:
        one, two = node(redis_server, lease_seconds=0.5), node(redis_server, lease_seconds=0.5)
        await one.open()
        await two.open()
        redis_server.freeze()
        await until(lambda: not one.ready and not two.ready)
        await asyncio.sleep(0.6)  # longer than a lease
        redis_server.thaw()
        await until(lambda: two.ready)
        assert await two.directory.alive(one.node)
        await until(lambda: one.ready)
        await one.close()
        await asyncio.sleep(0.5)  # two has had its link for a lease now
        assert not await two.directory.alive(one.node)
        await two.close()

    run(body())


def test_leases_are_renewed_while_a_node_lives(redis_server: RedisServer) -> None:
    async def body() -> None:
        one, two = node(redis_server, lease_seconds=0.3), node(redis_server, lease_seconds=0.3)
        await one.open()
        await two.open()
        await one.directory.claim("x")
        sent = one.engine.commands
        await until(lambda: one.engine.commands > sent + 12)  # several beats
        assert await two.directory.claim("x") == one.node
        assert await two.directory.alive(one.node)
        await one.close()
        await two.close()

    run(body())


def test_an_engine_that_is_away_at_the_start_is_awaited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        server = RedisServer(tmp_path)
        one = node(server)
        with caplog.at_level(logging.ERROR, "dovetail"):
            await one.open()
        assert "the backplane is away" in caplog.text
        assert not one.ready
        with pytest.raises(BackplaneAway):
            await one.records.get("x")
        server.start()
        try:
            await until(lambda: one.ready)
            assert await one.records.get("x") is None
            await one.close()
        finally:
            server.stop()

    run(body())


def test_a_wrong_password_is_said_at_the_start(redis_server: RedisServer) -> None:
    async def body() -> None:
        url = redis_server.url.replace("redis://", "redis://:wrong@")
        with pytest.raises(ValueError, match="refuses us"):
            await RedisBackplane(url).open()

    run(body())


def test_a_command_that_is_refused_is_away_and_the_link_lives(redis_server: RedisServer) -> None:
    async def body() -> None:
        one = node(redis_server)
        await one.open()
        await one.engine.call("LPUSH", "dovetail:record:x", "a list")
        with pytest.raises(BackplaneAway):
            await one.records.get("x")
        assert one.ready
        assert await one.records.get("y") is None
        await one.close()

    run(body())


def test_what_a_full_engine_refuses_is_kept_for_later(redis_server: RedisServer) -> None:
    async def body() -> None:
        one, two = node(redis_server, lease_seconds=0.4), node(redis_server)
        await one.open()
        await two.open()
        one.log.append("s", b"1")
        while not await two.log.read("s"):
            pass
        await one.engine.call("CONFIG", "SET", "maxmemory", 1)
        assert [one.log.append("s", b"2"), one.log.append("s", b"3")] == [2, 3]
        with pytest.raises(BackplaneAway):
            await one.records.put("x", b"1", 60)
        assert one.ready
        await one.engine.call("CONFIG", "SET", "maxmemory", 0)
        while len(await two.log.read("s")) < 3:
            pass
        assert await two.log.read("s", 1) == [Event(2, b"2"), Event(3, b"3")]
        await one.close()
        await two.close()

    run(body())


def test_commands_of_one_turn_are_one_write(redis_server: RedisServer) -> None:
    async def body() -> None:
        one = node(redis_server, lease_seconds=60)
        await one.open()
        batches: list[int] = []
        original = one.engine._batch

        async def counting(commands: list[Any]) -> list[Any]:
            batches.append(len(commands))
            return await original(commands)

        one.engine._batch = counting  # type: ignore[method-assign]
        await asyncio.gather(*(one.records.get(str(n)) for n in range(100)))
        assert batches == [100]
        await one.close()

    run(body())


def test_too_many_waiting_commands_are_refused(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MAX_WAITING", 10)

    async def body() -> None:
        one = node(redis_server)
        await one.open()
        calls = [one.records.get(str(n)) for n in range(15)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(o, BackplaneAway) for o in outcomes] == [False] * 10 + [True] * 5
        await one.close()

    run(body())


def test_services_on_one_engine_are_apart(redis_server: RedisServer) -> None:
    async def body() -> None:
        one, two = node(redis_server, namespace="a"), node(redis_server, namespace="b")
        await one.open()
        await two.open()
        await one.records.put("x", b"1", 60)
        assert await two.records.get("x") is None
        assert await one.directory.claim("x") == one.node
        assert await two.directory.claim("x") == two.node
        await one.close()
        await two.close()

    run(body())
