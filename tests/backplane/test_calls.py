"""Conversations between two nodes: order, ends, and the other side's death."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail.backplane import calls as module
from dovetail.backplane import engine
from dovetail.backplane.calls import Calls, Conversation, NodeGone
from dovetail.backplane.keys import KeyRing
from dovetail.backplane.redis import RedisBackplane
from redis_server import RedisServer
from support import run

Nodes = Callable[..., Any]
RING = KeyRing([b"k" * 32])


@asynccontextmanager
async def two(nodes: Nodes, other: KeyRing = RING) -> AsyncIterator[tuple[Calls, Calls, str]]:
    async with nodes(2) as (one, second):
        first, last = Calls(one, RING), Calls(second, other)
        try:
            yield first, last, second.node
        finally:
            await first.close()
            await last.close()


async def echo(conversation: Conversation, data: bytes) -> None:
    await conversation.send(b"echo " + data)
    while (more := await conversation.receive()) is not None:
        await conversation.send(b"echo " + more)


def test_both_sides_speak_in_order(nodes: Nodes) -> None:
    async def body() -> None:
        async with two(nodes) as (here, there, node):
            there.serve("echo", echo)
            talk = await here.open(node, "echo", b"0")
            for number in range(1, 50):
                await talk.send(b"%d" % number)
            heard = [await talk.receive() for _ in range(50)]
            assert heard == [b"echo %d" % number for number in range(50)]
            await talk.close()

    run(body())


def test_many_conversations_do_not_mix(nodes: Nodes) -> None:
    async def body() -> None:
        async with two(nodes) as (here, there, node):
            there.serve("echo", echo)
            asked = [b"%d" % number for number in range(100)]
            answers = await asyncio.gather(*(here.ask(node, "echo", data) for data in asked))
            assert answers == [b"echo " + data for data in asked]
            assert not here._open

    run(body())


def test_the_end_of_one_side_is_the_end(nodes: Nodes) -> None:
    async def body() -> None:
        async with two(nodes) as (here, there, node):
            ended = asyncio.Event()

            async def once(conversation: Conversation, data: bytes) -> None:
                await conversation.send(b"only this")

            async def waits(conversation: Conversation, data: bytes) -> None:
                assert await conversation.receive() is None
                ended.set()

            there.serve("once", once)
            there.serve("waits", waits)
            talk = await here.open(node, "once", b"")
            assert [await talk.receive(), await talk.receive()] == [b"only this", None]
            await (await here.open(node, "waits", b"")).close()
            await ended.wait()

    run(body())


def test_a_node_that_is_not_there_is_gone(nodes: Nodes) -> None:
    async def body() -> None:
        async with two(nodes) as (here, _, _):
            with pytest.raises(NodeGone):
                await here.open("nonesuch", "echo", b"")
            assert not here._open

    run(body())


def test_what_nobody_serves_is_refused(nodes: Nodes) -> None:
    async def body() -> None:
        async with two(nodes) as (here, _, node):
            with pytest.raises(NodeGone):
                await here.ask(node, "unknown", b"")

    run(body())


def test_a_handler_that_crashes_ends_its_conversation(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async def crashes(conversation: Conversation, data: bytes) -> None:
            raise RuntimeError("oops")

        async with two(nodes) as (here, there, node):
            there.serve("crashes", crashes)
            with pytest.raises(NodeGone):
                await here.ask(node, "crashes", b"")
        assert "oops" in caplog.text

    run(body())


def test_a_node_without_our_keys_is_not_believed(
    nodes: Nodes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PING_SECONDS", 0.01)

    async def body() -> None:
        served: list[bytes] = []

        async def serve(conversation: Conversation, data: bytes) -> None:
            served.append(data)

        async with two(nodes, KeyRing([b"x" * 32])) as (here, there, node):
            there.serve("serve", serve)
            talk = await here.open(node, "serve", b"")
            while "wrong MAC" not in caplog.text:  # noqa: ASYNC110 - logged in the other node
                await asyncio.sleep(0.005)
            assert served == []
            await talk.close()

    run(body())


def test_a_message_for_another_node_is_not_believed(nodes: Nodes) -> None:
    """The MAC covers the receiver: what was said to one cannot be repeated to another."""

    async def body() -> None:
        async with nodes(3) as (one, second, third):
            taken: list[bytes] = []
            second.mailbox.receive(taken.append, lambda: None)
            here = Calls(one, RING)
            talk = await here.open(second.node, "serve", b"")
            while not taken:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            other = Calls(third, RING)
            served: list[bytes] = []

            async def serve(conversation: Conversation, data: bytes) -> None:
                served.append(data)

            other.serve("serve", serve)
            await second.mailbox.send(third.node, taken[0])
            await one.mailbox.send(third.node, b"short")
            await asyncio.sleep(0.05)
            assert served == []
            await talk.close()
            await here.close()
            await other.close()

    run(body())


def test_a_message_repeated_is_not_served_twice(nodes: Nodes) -> None:
    async def body() -> None:
        async with nodes(2) as (one, second):
            taken: list[bytes] = []
            second.mailbox.receive(taken.append, lambda: None)
            here = Calls(one, RING)
            talk = await here.open(second.node, "serve", b"")
            while not taken:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            there = Calls(second, RING)
            served: list[bytes] = []

            async def serve(conversation: Conversation, data: bytes) -> None:
                served.append(data)

            there.serve("serve", serve)
            there.serve("echo", echo)
            for _ in range(3):
                await one.mailbox.send(second.node, taken[0])
            assert await here.ask(second.node, "echo", b"") == b"echo "
            assert served == [b""]
            await talk.close()
            await here.close()
            await there.close()

    run(body())


def test_the_death_of_a_node_is_noticed(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PING_SECONDS", 0.02)

    async def body() -> None:
        async with nodes(2) as (one, second):
            here, there = Calls(one, RING), Calls(second, RING)

            async def silent(conversation: Conversation, data: bytes) -> None:
                await asyncio.Event().wait()

            there.serve("silent", silent)
            talk = await here.open(second.node, "silent", b"")
            await second.close()
            with pytest.raises(NodeGone):
                await talk.receive()
            with pytest.raises(NodeGone):
                await talk.send(b"")
            assert not here._open
            await here.close()
            await there.close()

    run(body())


def test_a_conversation_that_the_other_side_forgot_ends(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PING_SECONDS", 0.02)

    async def body() -> None:
        async with two(nodes) as (here, there, node):

            async def silent(conversation: Conversation, data: bytes) -> None:
                there.forget(conversation)
                await asyncio.Event().wait()

            there.serve("silent", silent)
            talk = await here.open(node, "silent", b"")
            with pytest.raises(NodeGone):
                await talk.receive()

    run(body())


def test_who_does_not_read_loses_the_conversation(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNREAD", 1000)

    async def body() -> None:
        async with two(nodes) as (here, there, node):
            ended = asyncio.Event()

            async def floods(conversation: Conversation, data: bytes) -> None:
                try:
                    while True:
                        await conversation.send(b"x" * 100)
                except NodeGone:
                    ended.set()

            there.serve("floods", floods)
            await here.open(node, "floods", b"")
            await ended.wait()

    run(body())


def test_an_engine_that_dies_ends_what_waits_at_once(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ANSWER_SECONDS", 0.3)

    async def body() -> None:
        one, second = RedisBackplane(redis_server.url), RedisBackplane(redis_server.url)
        await one.open()
        await second.open()
        here, there = Calls(one, RING), Calls(second, RING)

        async def silent(conversation: Conversation, data: bytes) -> None:
            await conversation.receive()

        there.serve("silent", silent)
        talk = await here.open(second.node, "silent", b"")
        redis_server.stop()
        with pytest.raises(NodeGone):
            await talk.receive()
        assert not one.ready
        redis_server.start()
        while not (one.ready and second.ready):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        there.serve("echo", echo)
        assert await here.ask(second.node, "echo", b"again") == b"echo again"
        for node in (here, there, one, second):
            await node.close()

    run(body())
