"""The WebSocket side of the ASGI application, on a real uvicorn with a real client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from http_lab import CLIENT, D, E
from test_sessions import Tokens, make
from uvicorn_lab import Served, served
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from dovetail import Limits, Server
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from support import run, until

MCP = [Subprotocol("mcp")]


def socket(http: Served, **options: Any) -> Any:
    return connect(http.url.replace("http:", "ws:"), **{"subprotocols": MCP, **options})


async def say(ws: ClientConnection, **message: Any) -> Any:
    await ws.send(json.dumps({"jsonrpc": "2.0", **message}))
    return json.loads(await ws.recv()) if "id" in message else None


async def initialize(ws: ClientConnection) -> Any:
    params = {"protocolVersion": D, "capabilities": {}, "clientInfo": CLIENT}
    answer = await say(ws, id=0, method="initialize", params=params)
    await say(ws, method="notifications/initialized")
    return answer


def test_both_eras() -> None:
    async def main() -> None:
        async with served(make()) as http, socket(http) as ws:
            assert ws.subprotocol == "mcp"
            assert (await initialize(ws))["result"]["protocolVersion"] == D
            call = {"name": "add", "arguments": {"a": 1, "b": 2}}
            answer = await say(ws, id=1, method="tools/call", params=call)
            assert answer["result"]["content"][0]["text"] == "3"
            meta = {PROTOCOL_VERSION_KEY: E, CLIENT_CAPABILITIES_KEY: {}}
            answer = await say(ws, id=2, method="tools/call", params={**call, "_meta": meta})
            assert answer["result"]["structuredContent"] == 3
            await ws.send("no json")
            assert json.loads(await ws.recv())["error"]["code"] == -32700

    run(main())


@pytest.mark.verifies("X43")
def test_the_upgrade_is_judged_first() -> None:
    async def refused(http: Served, **options: Any) -> int:
        with pytest.raises(InvalidStatus) as caught:
            async with socket(http, **options):
                pass
        return caught.value.response.status_code

    async def main() -> None:
        async with served(make(), auth=Tokens()) as http:
            assert await refused(http, origin="http://evil.example.com") == 403
            named = f"ws://evil.example.com:{http.port}/mcp"
            with pytest.raises(InvalidStatus, match="403"):
                await connect(named, subprotocols=MCP, host="127.0.0.1", port=http.port)
            assert await refused(http, subprotocols=None) == 400
            assert await refused(http, subprotocols=[Subprotocol("other")]) == 400
            assert await refused(http) == 401
            http.url = http.url.replace("/mcp", "/elsewhere")
            assert await refused(http) == 404

    run(main())


def test_the_principal_reaches_the_session_and_its_scopes_count() -> None:
    async def main() -> None:
        server = make()
        async with (
            served(server, auth=Tokens()) as http,
            socket(http, additional_headers={"Authorization": "Bearer ada"}) as ws,
        ):
            await initialize(ws)
            assert [session.principal for session in server.sessions] == ["ada"]
            steps = {"name": "steps", "arguments": {"n": 1}}
            answer = await say(ws, id=1, method="tools/call", params=steps)
            assert answer["error"]["code"] == -32600
            assert "Forbidden" in answer["error"]["data"]

    run(main())


@pytest.mark.parametrize(("frame", "code"), [(b"{}", 1003), ('"' + "x" * 3000 + '"', 1009)])
def test_what_ends_a_socket(frame: Any, code: int) -> None:
    async def main() -> None:
        server = Server("small", limits=Limits(max_frame=1000))
        async with served(server) as http, socket(http) as ws:
            await ws.send(frame)
            with pytest.raises(ConnectionClosed) as caught:
                await ws.recv()
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == code
            await until(lambda: not server.sessions)

    run(main())


def test_the_server_ends_and_so_does_the_client() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        server = make(gate)
        async with served(server) as http:
            async with socket(http) as ws:
                await initialize(ws)
                await ws.send(
                    json.dumps(
                        {
                            "jsonrpc": "2.0",
                            "id": 1,
                            "method": "tools/call",
                            "params": {"name": "wait"},
                        }
                    )
                )
                await until(lambda: server.sessions and http.app.sockets)
            await until(lambda: not http.app.sockets)  # the client has gone, its call with it
            async with socket(http) as ws:
                await initialize(ws)
                http.app.drain()
                with pytest.raises(ConnectionClosed) as caught:
                    await ws.recv()
                assert caught.value.rcvd is not None
                assert caught.value.rcvd.code == 1001

    run(main())
