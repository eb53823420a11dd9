"""WebSockets: against our own server and against servers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from clientkit import ALL, MODERN, TEXT, demo, stamped
from websockets.asyncio.server import ServerConnection, serve

from dovetail import Client
from dovetail.client.negotiate import Verdicts
from dovetail.errors import ConnectionClosed, HttpError
from dovetail.transport.http.run import bind, configured
from support import run


@asynccontextmanager
async def ours(**options: Any) -> AsyncIterator[str]:
    """Our own server on HTTP and WebSocket; the address without a scheme."""
    listener = bind("127.0.0.1", 0)
    server = configured(demo().asgi(path="/mcp", **options))
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await serving


@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_our_own_server_in_every_revision(scheme: str) -> None:
    async def main() -> None:
        make = Client.ws if scheme == "ws" else Client.http
        async with ours() as place:
            for revision in ALL if scheme == "ws" else ALL[1:]:
                async with make(f"{scheme}://{place}", revision=revision) as client:
                    assert client.revision == revision
                    result = await client.call("add", {"a": 1, "b": 2})
                    assert result.text == "3"
                    seen: list[Any] = []
                    await client.call("steps", {"n": 3}, on_progress=seen.append)
                    assert seen[-1].done == 3
                    assert (await client.read("demo://text"))[0].text == "hello"
                    results = await asyncio.gather(
                        *(client.call("add", {"a": n, "b": 0}) for n in range(50))
                    )
                    assert [r.text for r in results] == [str(n) for n in range(50)]
            async with make(f"{scheme}://{place}", known=Verdicts()) as client:
                assert client.revision == MODERN

    run(main())


@asynccontextmanager
async def unruly(answer: Any) -> AsyncIterator[str]:
    async def handle(socket: ServerConnection) -> None:
        async for text in socket:
            message = msgspec.json.decode(text)
            if message.get("method") == "server/discover":
                about = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
                await reply(socket, message, {**stamped(), **about})
            elif message.get("method") == "tools/list":
                await reply(socket, message, {**stamped(), "tools": []})
            else:
                await answer(socket, message)

    async with serve(handle, "127.0.0.1", 0, subprotocols=["mcp"]) as server:  # type: ignore[list-item]
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def reply(socket: ServerConnection, message: Any, result: Any) -> None:
    text = msgspec.json.encode({"jsonrpc": "2.0", "id": message["id"], "result": result})
    await socket.send(text.decode())


def test_a_socket_that_closes_fails_the_calls_with_its_reason() -> None:
    async def answer(socket: ServerConnection, message: Any) -> None:
        await socket.close(1011, "out of coffee")

    async def main() -> None:
        async with unruly(answer) as url, Client.ws(url, timeout=5) as client:
            with pytest.raises(ConnectionClosed, match="out of coffee"):
                await client.call("x")

    run(main())


def test_garbage_and_binary_frames() -> None:
    async def answer(socket: ServerConnection, message: Any) -> None:
        await socket.send("not json")
        await socket.send(b"\xff\x00")
        await socket.send('{"jsonrpc":"2.0","method":"notifications/x"}\n\n{"jsonrpc":')
        text = {"jsonrpc": "2.0", "id": message["id"], "result": TEXT}
        await socket.send(msgspec.json.encode(text))

    async def main() -> None:
        async with unruly(answer) as url, Client.ws(url, timeout=5) as client:
            assert (await client.call("x")).text == "ok"

    run(main())


def test_reconnecting() -> None:
    left = [1]

    async def answer(socket: ServerConnection, message: Any) -> None:
        if left:
            left.pop()
            await socket.close()
        else:
            await reply(socket, message, {**TEXT, **stamped()})

    async def main() -> None:
        async with unruly(answer) as url, Client.ws(url, timeout=5, reconnect=True) as client:
            with pytest.raises(ConnectionClosed):
                await client.call("x")
            assert (await client.call("x")).text == "ok"

    run(main())


def test_nobody_there_and_nobody_lets_us_in() -> None:
    async def main() -> None:
        with pytest.raises(ConnectionClosed, match="no WebSocket to"):
            async with Client.ws("ws://127.0.0.1:1/"):
                pass
        async with ours() as place:
            with pytest.raises(HttpError):
                async with Client.ws(f"ws://{place}", headers={"Origin": "https://evil.example"}):
                    pass

    run(main())
