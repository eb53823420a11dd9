"""MCP over WebSocket: real sockets, the real `websockets` client, and raw bytes."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol

from dovetail import Limits, Server
from dovetail.runtime.connection import Connection
from dovetail.testing import Recorder, envelope
from dovetail.transport.websocket import Listener, Refusal, SocketLimits, Upgrade, listen

MCP = Subprotocol("mcp")
HANDSHAKE_REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
PATIENCE = 30


class Bench:
    """A server with a listener; every message goes through recorders, asked at the end."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("demo", version="1", **options)
        self.recorders: list[Recorder] = []
        self.principals: list[str | None] = []
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

        @self.server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @self.server.tool
        async def wait() -> str:
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
            return "never"

        @self.server.tool
        async def big(size: int) -> str:
            return "x" * size

    def connect(self, principal: str | None) -> Connection:
        recorder = Recorder()
        self.recorders.append(recorder)
        self.principals.append(principal)
        checked = {"in": "client", "out": "server"}
        connection = self.server.connection(
            tap=lambda way, frame: recorder.sent(checked[way], frame, check=way == "out") and None  # type: ignore[arg-type]
        )
        connection.session.principal = principal
        return connection


def with_listener(
    test: Callable[[Bench, Listener], Coroutine[Any, Any, None]],
    server: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    async def main() -> None:
        bench = Bench(**(server or {}))
        async with asyncio.timeout(PATIENCE), bench.server.running():
            listener = await listen(bench.connect, "127.0.0.1", 0, **options)
            try:
                await test(bench, listener)
            finally:
                await listener.close()
        for recorder in bench.recorders:
            assert not recorder.problems
        assert not listener.clients
        assert not listener.strangers

    asyncio.run(main())


async def turn() -> None:
    await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    """Give the loop as many turns as it needs; the test's own deadline bounds them."""
    while not holds():
        await turn()


@asynccontextmanager
async def client(listener: Listener, **options: Any) -> AsyncIterator[ClientConnection]:
    options.setdefault("subprotocols", [MCP])
    async with connect(f"ws://127.0.0.1:{listener.port}/", proxy=None, **options) as ws:
        yield ws


async def ask(ws: ClientConnection, method: str, id: int = 1, **params: Any) -> Any:
    await ws.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    return json.loads(await ws.recv())


async def initialize(ws: ClientConnection, revision: str) -> Any:
    answer = await ask(
        ws,
        "initialize",
        0,
        protocolVersion=revision,
        capabilities={},
        clientInfo={"name": "t", "version": "1"},
    )
    await ws.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    return answer


async def refused(listener: Listener, **options: Any) -> Any:
    with pytest.raises(InvalidStatus) as caught:
        async with client(listener, **options):
            pass
    return caught.value.response


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
def test_every_handshake_revision(revision: str) -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with client(listener) as ws:
            assert ws.subprotocol == "mcp"
            answer = await initialize(ws, revision)
            assert answer["result"]["protocolVersion"] == revision
            answer = await ask(ws, "tools/call", name="add", arguments={"a": 1, "b": 2})
            assert answer["result"]["content"][0]["text"] == "3"

    with_listener(test)


def test_the_newest_revision() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with client(listener) as ws:
            params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": envelope()}
            answer = await ask(ws, "tools/call", **params)
            assert answer["result"]["structuredContent"] == 3
            assert answer["result"]["resultType"] == "complete"

    with_listener(test)


def test_one_message_per_text_frame_in_both_directions() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with client(listener) as ws:
            await initialize(ws, "2025-11-25")
            for id in range(1, 101):
                await ws.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping"}, indent=2))
            for id in range(1, 101):
                frame = await ws.recv()
                assert isinstance(frame, str)
                assert json.loads(frame)["id"] == id

    with_listener(test)


def test_what_is_no_json_is_answered_and_the_socket_lives() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with client(listener) as ws:
            await initialize(ws, "2025-11-25")
            await ws.send("{nonsense")
            assert json.loads(await ws.recv())["error"]["code"] == -32700
            assert (await ask(ws, "ping"))["result"] == {}

    with_listener(test)


def test_fragments_are_put_together() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with client(listener) as ws:
            await initialize(ws, "2025-11-25")
            await ws.send(iter(['{"jsonrpc":"2.0",', '"id":"é', '","method":"ping"}']))
            assert json.loads(await ws.recv()) == {"jsonrpc": "2.0", "id": "é", "result": {}}

    with_listener(test)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (Frame(Opcode.BINARY, b"{}"), 1003),
        (Frame(Opcode.TEXT, b'"\xff"'), 1007),
        (Frame(Opcode.TEXT, b'"' + b"x" * 70_000 + b'"'), 1009),
        (Frame(Opcode.CONT, b"{}"), 1002),
    ],
)
def test_frames_that_end_the_socket(frame: Frame, code: int) -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with client(listener) as ws:
            ws.transport.write(frame.serialize(mask=True))
            with pytest.raises(ConnectionClosed) as caught:
                await ws.recv()
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == code

    with_listener(test, max_frame=65_536)


def test_a_socket_that_goes_away_cancels_what_it_asked() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with client(listener) as ws:
            await initialize(ws, "2025-11-25")
            params = {"name": "wait", "arguments": {}}
            await ws.send(
                json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
            )
            await bench.started.wait()
        await bench.cancelled.wait()

    with_listener(test)


def test_closing_the_listener_says_goodbye() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with client(listener) as ws:
            await initialize(ws, "2025-11-25")
            closing = asyncio.ensure_future(listener.close())
            with pytest.raises(ConnectionClosed) as caught:
                await ws.recv()
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1001
            await closing

    with_listener(test)


def test_silence_is_asked_and_then_ended() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with client(listener, ping_interval=None) as ws:  # answers our pings
            await initialize(ws, "2025-11-25")
            ws.transport.pause_reading()  # and now it does not
            while listener.clients:
                await asyncio.wait([next(iter(listener.clients))._task])
            ws.transport.abort()

    with_listener(test, limits=SocketLimits(ping_seconds=0.1))


def test_a_client_that_answers_pings_stays() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        pings = asyncio.Semaphore(0)
        async with client(listener, ping_interval=None) as ws:
            await initialize(ws, "2025-11-25")
            received = ws.protocol.recv_frame

            def count(frame: Frame) -> None:
                received(frame)
                if frame.opcode is Opcode.PING:
                    pings.release()

            ws.protocol.recv_frame = count  # type: ignore[method-assign]
            for _ in range(3):
                await pings.acquire()
            assert (await ask(ws, "ping"))["result"] == {}

    with_listener(test, limits=SocketLimits(ping_seconds=0.05))


# -- before the upgrade ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"subprotocols": None}, 400),
        ({"subprotocols": [Subprotocol("other")]}, 400),
        ({"origin": "http://evil.example"}, 403),
        ({"additional_headers": {"Origin": "null"}}, 403),
    ],
)
def test_refused_before_the_engine_knows(options: dict[str, Any], status: int) -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        assert (await refused(listener, **options)).status_code == status
        assert not bench.recorders

    with_listener(test)


def test_another_path_is_not_found() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        response = await refused(listener)
        assert response.status_code == 404
        assert b"/mcp" in response.body

    with_listener(test, path="/mcp")


@pytest.mark.verifies("X43")
def test_the_judge_sees_the_token_before_anything_happens() -> None:
    async def judge(upgrade: Upgrade) -> Refusal | str | None:
        token = upgrade.headers.get("Authorization", "")
        if token == "Bearer good":
            return "ann"
        return Refusal(401, "A token is needed", {"WWW-Authenticate": "Bearer"})

    async def test(bench: Bench, listener: Listener) -> None:
        response = await refused(listener, additional_headers={"Authorization": "Bearer bad"})
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert not bench.recorders
        async with client(listener, additional_headers={"Authorization": "Bearer good"}) as ws:
            await initialize(ws, "2025-11-25")
            assert bench.principals == ["ann"]

    with_listener(test, judge=judge)


@asynccontextmanager
async def raw(
    listener: Listener,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def hung_up(reader: asyncio.StreamReader) -> bool:
    """Whether the other side ends the socket without a word."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mcp\r\n"
)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),  # no subprotocol either
        (UPGRADE.replace(b"Upgrade: websocket\r\n", b"") + b"\r\n", b"426"),
        (UPGRADE.replace(b"localhost", b"evil.example") + b"\r\n", b"403"),
        (UPGRADE.replace(b"Host: localhost\r\n", b"") + b"\r\n", b"403"),
        (UPGRADE + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n", b"101"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b""),
        (b"X" * 20_000, b""),
    ],
)
def test_raw_requests(request_: bytes, status: bytes) -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with raw(listener) as (reader, writer):
            writer.write(request_)
            if status:
                assert (await reader.readline()).split(b" ")[1] == status
            else:
                assert await hung_up(reader)

    with_listener(test)


def test_compression_is_not_taken_up() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with raw(listener) as (reader, writer):
            writer.write(UPGRADE + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"extensions" not in head.lower()

    with_listener(test)


def test_frames_sent_before_the_answer_wait_for_it() -> None:
    message = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'

    async def test(bench: Bench, listener: Listener) -> None:
        async with raw(listener) as (reader, writer):
            writer.write(UPGRADE + b"\r\n" + Frame(Opcode.TEXT, message).serialize(mask=True))
            await reader.readuntil(b"\r\n\r\n")
            assert b'"result":{}' in await reader.readuntil(b"}}")

    with_listener(test)


def test_a_slow_handshake_is_cut() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with raw(listener) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\nHost: local")
            assert await hung_up(reader)

    with_listener(test, limits=SocketLimits(handshake_seconds=0.1))


def test_strangers_are_few_and_clients_counted() -> None:
    async def test(bench: Bench, listener: Listener) -> None:
        async with raw(listener), raw(listener):
            await until(lambda: len(listener.strangers) == 2)
            async with raw(listener) as (reader, _):
                assert await hung_up(reader)
        await until(lambda: not listener.strangers)
        async with client(listener) as first:
            await initialize(first, "2025-11-25")
            async with raw(listener) as (reader, _):
                assert await hung_up(reader)
            assert (await ask(first, "ping"))["result"] == {}

    with_listener(test, limits=SocketLimits(max_handshakes=2, max_clients=1))


def test_a_client_that_does_not_read_is_bounded() -> None:
    """No new request starts while its answers pile up; the socket's memory stays bounded."""

    async def test(bench: Bench, listener: Listener) -> None:
        async with client(listener, max_size=None) as ws:
            await initialize(ws, "2025-11-25")
            ws.transport.pause_reading()
            params = {"name": "big", "arguments": {"size": 100_000}}
            for id in range(1, 301):
                await ws.send(
                    json.dumps(
                        {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
                    )
                )
            (served,) = listener.clients
            assert served._connection is not None
            await until(lambda: served._connection._paused)
            unsent = served._transport.get_write_buffer_size()
            assert unsent < 64 * 100_000
            ws.transport.resume_reading()
            ids = {json.loads(await ws.recv())["id"] for _ in range(300)}
            assert ids == set(range(1, 301))

    with_listener(test, server={"limits": Limits(max_in_flight=8, high_water=65_536)})


# -- the command -----------------------------------------------------------------------


def test_the_command_serves_several_clients_and_ends_on_a_signal(tmp_path: Path) -> None:
    target = tmp_path / "served.py"
    target.write_text(
        "from dovetail import Server\nserver = Server('demo', version='1')\n"
        "@server.tool\ndef add(a: int, b: int) -> int:\n    return a + b\n"
    )
    command = [sys.executable, "-m", "dovetail", "serve", str(target), "--ws", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline().decode()
            found = re.fullmatch(r"demo is at (ws://127\.0\.0\.1:\d+/mcp)\n", line)
            assert found, line

            async def main() -> None:
                async with (
                    asyncio.timeout(PATIENCE),
                    connect(found[1], subprotocols=[MCP], proxy=None) as one,
                    connect(found[1], subprotocols=[MCP], proxy=None) as two,
                ):
                    for ws in (one, two):
                        await initialize(ws, "2025-06-18")
                        call = {"name": "add", "arguments": {"a": 1, "b": 2}}
                        answer = await ask(ws, "tools/call", **call)
                        assert answer["result"]["structuredContent"] == {"result": 3}
                    process.terminate()
                    with pytest.raises(ConnectionClosed):
                        await one.recv()

            asyncio.run(main())
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("address", ["8000", "localhost:", "localhost:http", ":1", "h:70000"])
def test_an_address_that_is_none(address: str) -> None:
    command = [sys.executable, "-m", "dovetail", "serve", "examples/notes.py", "--ws", address]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 2
    assert "HOST:PORT" in done.stderr


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "dovetail", "serve", "examples/notes.py", "--ws", place]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, cwd=Path(__file__).parents[2]
        )
    assert done.returncode == 2
    assert f"cannot listen on {place}" in done.stderr
    assert os.linesep not in done.stderr.strip()
