"""The MessagePack-RPC link: framing as a table, and calls to a real Neovim."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nvim_process import editor

from dovetail.servers.neovim.editor import Editor, EditorError, TooOld
from dovetail.servers.neovim.rpc import Framer, Link, LinkClosed, NvimError, text_of, value_of
from support import run

VALUES: list[Any] = [
    None,
    True,
    0,
    127,
    128,
    -1,
    -33,
    2**16,
    2**40,
    -(2**40),
    1.5,
    "",
    "x" * 31,
    "x" * 32,
    "x" * 300,
    "x" * 70_000,
    b"",
    b"x" * 300,
    b"x" * 70_000,
    [],
    [[]],
    list(range(20)),
    list(range(70_000)),
    {},
    {"a": {"b": [1, {"c": None}]}},
    {str(n): n for n in range(20)},
    {str(n): n for n in range(70_000)},
    msgspec.msgpack.Ext(0, b"1"),
    msgspec.msgpack.Ext(1, b"123"),
    msgspec.msgpack.Ext(2, b"x" * 300),
    msgspec.msgpack.Ext(2, b"x" * 16),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30])
def test_a_message_ends_where_it_ends(value: Any) -> None:
    message = msgspec.msgpack.encode([1, 7, None, value])
    framer = Framer()
    assert framer.feed(message + message + message[:1]) == [message, message]
    assert framer.feed(message[1:]) == [message]


def test_the_cuts_of_the_stream_do_not_matter() -> None:
    small = [value for value in VALUES if len(msgspec.msgpack.encode(value)) < 1000]
    messages = [msgspec.msgpack.encode([2, "event", [value]]) for value in small]
    stream = b"".join(messages)
    bytewise = Framer()
    assert [m for i in range(len(stream)) for m in bytewise.feed(stream[i : i + 1])] == messages
    rng = random.Random(7)
    for _ in range(50):
        framer, at, found = Framer(), 0, []
        while at < len(stream):
            size = rng.randint(1, 400)
            found += framer.feed(stream[at : at + size])
            at += size
        assert found == messages


def test_a_long_message_is_walked_once() -> None:
    """Each chunk of a long array goes on where the last one stopped."""
    message = msgspec.msgpack.encode([1, 7, None, list(range(100_000))])
    framer = Framer()
    steps = 0
    for i in range(0, len(message) - 1000, 1000):
        before = framer._at
        assert framer.feed(message[i : i + 1000]) == []
        steps += framer._at - before
    assert steps <= len(message)


def test_endless_messages_are_cut_off() -> None:
    framer = Framer(max_message=1000)
    with pytest.raises(LinkClosed, match="exceeds 1000 bytes"):
        framer.feed(b"\xdb\xff\xff\xff\xff" + b"x" * 2000)


def test_calls_overlap_and_find_their_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            calls = [nvim.link.call("nvim_eval", f"{n}*2") for n in range(500)]
            assert [value_of(raw) for raw in await asyncio.gather(*calls)] == [
                n * 2 for n in range(500)
            ]
            assert nvim.link.pending == 0

    run(main())


def test_text_that_is_not_utf8_arrives_as_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            raw = await nvim.link.call("nvim_exec_lua", "return 'a\\255b'", [])
            assert text_of(raw) == b"a\xffb"
            with pytest.raises(NvimError, match="something else than text"):
                text_of(await nvim.link.call("nvim_eval", "[1]"))

    run(main())


def test_errors_and_the_end_of_the_editor(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            with pytest.raises(NvimError, match="E15"):
                await nvim.link.call("nvim_eval", "1 +")
            with pytest.raises(NvimError, match="Invalid method"):
                await nvim.link.call("no_such_method")
            sleeping = nvim.link.call("nvim_command", "sleep 10")
            assert nvim.process is not None
            nvim.process.kill()
            with pytest.raises(LinkClosed):
                await sleeping
            with pytest.raises(LinkClosed):
                await nvim.link.call("nvim_eval", "1")

    run(main())


def test_what_is_no_messagepack_closes_the_link() -> None:
    async def main() -> None:
        link = Link(lambda method, params: None)
        link.data_received(b"HTTP/1.1 400 Bad Request\r\n")
        assert link.closed.done()

    run(main())


def test_a_call_from_lua_is_refused_not_left_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            address = await nvim.call("nvim_eval", "v:servername")
            attached = await Editor.on_socket(address)
            told = await nvim.lua("return {pcall(vim.rpcrequest, ..., 'x')}", attached.channel)
            assert told[0] is False
            assert "serves no calls" in told[1]
            attached.close()

    run(main())


def old_neovim(version: dict[str, int]) -> Any:
    """A server that says it is a Neovim of this version."""

    class Fake(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.framer = transport, Framer()

        def data_received(self, data: bytes) -> None:
            for message in self.framer.feed(data):
                _, id, *_ = msgspec.msgpack.decode(message)
                answer = [1, id, None, [3, {"version": version}]]
                self.transport.write(msgspec.msgpack.encode(answer))

    return Fake


def test_an_old_neovim_is_refused_in_one_line(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        path = str(tmp_path / "socket")
        fake = old_neovim({"major": 0, "minor": 7, "patch": 2})
        server = await loop.create_unix_server(fake, path)
        with pytest.raises(TooOld, match=r"^Neovim 0\.7\.2 is too old: dovetail needs 0\.10"):
            await Editor.on_socket(path)
        server.close()
        with pytest.raises(EditorError, match="There is no Neovim at"):
            await Editor.on_socket(str(tmp_path / "nothing"))
        with pytest.raises(EditorError, match="There is no Neovim at"):
            await Editor.on_socket("127.0.0.1:1")

    run(main())
