"""One suite for every backplane: what a node may rely on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dovetail.backplane.base import Event
from dovetail.backplane.memory import Hub, LogLimits, MemoryBackplane
from support import run

Nodes = Callable[..., Any]


async def until(condition: Callable[[], Awaitable[bool] | bool]) -> None:
    while True:
        outcome = condition()
        if outcome if isinstance(outcome, bool) else await outcome:
            return
        await asyncio.sleep(0.005)


def never() -> None:
    raise AssertionError("there was no gap")


def test_nodes_have_tags_of_their_own(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(2) as (one, two):
            assert one.node != two.node
            assert len(one.node) == 8
            assert one.shared
            assert one.ready

    run(body())


def test_one_node_in_memory_shares_nothing() -> None:
    assert not MemoryBackplane().shared


# -- the bus -----------------------------------------------------------------------------


@pytest.mark.verifies("N-one-suite")
def test_news_reach_all_others_in_order(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(3) as (one, two, three):
            heard: dict[str, list[bytes]] = {node.node: [] for node in (one, two, three)}
            for node in (one, two, three):
                node.bus.subscribe(heard[node.node].append, never)
            for number in range(50):
                one.bus.publish(b"%d" % number)
            expected = [b"%d" % number for number in range(50)]
            await until(lambda: heard[two.node] == expected and heard[three.node] == expected)
            assert heard[one.node] == []

    run(body())


# -- the mailbox -------------------------------------------------------------------------


@pytest.mark.verifies("N-one-suite")
def test_a_message_reaches_one_node(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(3) as (one, two, three):
            at_two: list[bytes] = []
            at_three: list[bytes] = []
            two.mailbox.receive(at_two.append, lambda: None)
            three.mailbox.receive(at_three.append, lambda: None)
            sent = [b"\x00%d" % number for number in range(50)]
            for message in sent:
                assert await one.mailbox.send(two.node, message)
            await until(lambda: at_two == sent)
            assert at_three == []

    run(body())


def test_a_node_that_is_gone_takes_no_message(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(2) as (one, two):
            await two.close()
            assert not await one.mailbox.send(two.node, b"hello")
            assert not await one.mailbox.send("nonesuch", b"hello")

    run(body())


# -- logs ----------------------------------------------------------------------------------


@pytest.mark.verifies("N-one-suite")
def test_a_log_is_read_after_a_cursor_on_any_node(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(2) as (one, two):
            assert [one.log.append("s", b"%d" % n) for n in range(4)] == [1, 2, 3, 4]
            expected = [Event(3, b"2"), Event(4, b"3")]
            assert await one.log.read("s", 2) == expected
            await until(lambda: _equals(two.log.read("s", 2), expected))
            assert len(await two.log.read("s")) == 4
            assert await two.log.read("s", 4) == []
            assert await two.log.read("other") == []

    run(body())


async def _equals(reading: Awaitable[Any], expected: Any) -> bool:
    return bool(await reading == expected)


def test_streams_are_apart(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(1) as (one,):
            assert one.log.append("a", b"x") == 1
            assert one.log.append("b", b"y") == 1
            assert await one.log.read("a") == [Event(1, b"x")]

    run(body())


def test_another_node_goes_on_with_a_log(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(2) as (one, two):
            one.log.append("s", b"1")
            one.log.append("s", b"2")
            await until(lambda: _length(two, 2))
            assert await two.log.adopt("s") == 2
            assert two.log.append("s", b"3") == 3
            assert await two.log.read("s", 1) == [Event(2, b"2"), Event(3, b"3")]
            assert await two.log.adopt("nothing there") == 0
            assert two.log.append("nothing there", b"1") == 1

    async def _length(node: Any, length: int) -> bool:
        return len(await node.log.read("s")) == length

    run(body())


def test_a_dropped_log_is_gone_everywhere(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(2) as (one, two):
            one.log.append("s", b"1")
            await until(lambda: _is_there(two))
            one.log.drop("s")
            assert await one.log.read("s") == []
            await until(lambda: _is_gone(two))

    async def _is_there(node: Any) -> bool:
        return await node.log.read("s") != []

    async def _is_gone(node: Any) -> bool:
        return await node.log.read("s") == []

    run(body())


def test_a_log_is_bounded_in_events_and_bytes(nodes: Nodes) -> None:
    async def body() -> None:
        limits = LogLimits(max_events=10, max_bytes=100)
        async with nodes(1, limits) as (one,):
            for _ in range(25):
                last = one.log.append("many", b"x")
            assert last == 25
            assert [event.cursor for event in await one.log.read("many")] == list(range(16, 26))
            assert await one.log.read("many", 24) == [Event(25, b"x")]
            for _ in range(4):
                one.log.append("large", b"x" * 40)
            assert [event.cursor for event in await one.log.read("large")] == [3, 4]

    run(body())


def test_the_oldest_stream_leaves_when_all_are_too_large() -> None:
    async def body() -> None:
        node = MemoryBackplane()
        node.log.limits = LogLimits(max_total_bytes=100)
        node.log.append("first", b"x" * 60)
        node.log.append("second", b"x" * 60)
        assert await node.log.read("first") == []
        assert len(await node.log.read("second")) == 1

    run(body())


def test_a_log_expires(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(1, LogLimits(seconds=0.05)) as (one,):
            one.log.append("s", b"1")
            assert len(await one.log.read("s")) == 1
            await until(lambda: _equals(one.log.read("s"), []))

    run(body())


# -- leases ----------------------------------------------------------------------------------


@pytest.mark.verifies("N-one-suite")
def test_a_name_has_one_owner(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(2) as (one, two):
            assert await one.directory.owner("x") is None
            assert await one.directory.claim("x") == one.node
            assert await one.directory.claim("x") == one.node
            assert await two.directory.claim("x") == one.node
            assert await two.directory.owner("x") == one.node
            await two.directory.release("x")
            assert await two.directory.owner("x") == one.node
            await one.directory.release("x")
            assert await two.directory.claim("x") == two.node

    run(body())


def test_a_node_that_ends_gives_its_leases_back(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(2) as (one, two):
            await one.directory.claim("x")
            assert await two.directory.alive(one.node)
            await one.close()
            assert await two.directory.owner("x") is None

    run(body())


def test_of_many_who_claim_one_wins(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(4) as several:
            claims = [node.directory.claim("x") for node in several for _ in range(5)]
            assert len(set(await asyncio.gather(*claims))) == 1

    run(body())


# -- records -----------------------------------------------------------------------------------


@pytest.mark.verifies("N-one-suite")
def test_a_record_is_seen_by_all(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(2) as (one, two):
            assert await two.records.get("r") is None
            await one.records.put("r", b"\x00\xff", 60)
            assert await two.records.get("r") == b"\x00\xff"
            await two.records.put("r", b"new", 60)
            assert await one.records.get("r") == b"new"
            await one.records.delete("r")
            assert await two.records.get("r") is None

    run(body())


def test_a_record_expires_unless_it_is_put_again(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(1) as (one,):
            await one.records.put("short", b"1", 0.05)
            await one.records.put("long", b"1", 0.05)
            await one.records.put("long", b"1", 60)
            await until(lambda: _equals(one.records.get("short"), None))
            assert await one.records.get("long") == b"1"

    run(body())


def test_expired_records_leave_the_memory() -> None:
    async def body() -> None:
        now = 0.0
        hub = Hub(clock=lambda: now)
        for number in range(1000):
            hub.put(str(number), b"x", 10)
        now = 11.0
        for _ in range(1001):
            hub.put("again", b"x", 10)
        assert len(hub._records) == 1

    run(body())


@pytest.mark.parametrize("size", [0, 1, 4 * 1024 * 1024])
def test_sizes(nodes: Nodes, size: int) -> None:
    async def body() -> None:
        async with nodes(2) as (one, two):
            got: list[bytes] = []
            two.mailbox.receive(got.append, lambda: None)
            data = b"\r\n" * (size // 2) + b"\x00" * (size % 2)
            assert await one.mailbox.send(two.node, data)
            await until(lambda: got == [data])

    run(body())
