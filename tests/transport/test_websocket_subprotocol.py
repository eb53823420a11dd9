"""Clients that offer no subprotocol, where they are welcome."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from dovetail import Server
from dovetail.transport.websocket import listen
from support import INITIALIZED, initialize, run


@pytest.mark.parametrize(
    ("needed", "offered", "taken"),
    [
        (True, None, False),
        (True, ["mcp"], True),
        (False, None, True),
        (False, ["mcp"], True),
        (False, ["other"], False),
    ],
)
def test_who_is_taken(needed: bool, offered: Any, taken: bool) -> None:
    async def main() -> None:
        server = Server("s")
        server.tool(name="t")(lambda: "x")
        listener = await listen(
            lambda _: server.connection(), "127.0.0.1", 0, subprotocol_needed=needed
        )
        place = f"ws://127.0.0.1:{listener.port}/"
        async with server.running():
            if taken:
                async with connect(place, subprotocols=offered, proxy=None) as client:
                    assert client.subprotocol == ("mcp" if offered else None)
                    await client.send(initialize().decode())
                    assert "serverInfo" in await asyncio.wait_for(client.recv(), 5)
                    await client.send(INITIALIZED.decode())
            else:
                with pytest.raises(InvalidStatus, match="HTTP 400"):
                    await connect(place, subprotocols=offered, proxy=None)
        await listener.close()

    run(main())
