"""The application on a real uvicorn, in this process and loop: sockets, but no mocks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from dovetail import Server
from dovetail.transport.http.app import HttpApp
from dovetail.transport.http.run import bind, configured


class Served:
    def __init__(self, app: HttpApp, listener: socket.socket, runner: uvicorn.Server) -> None:
        self.app = app
        self.runner = runner
        self.port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def raw(self, data: bytes, *, close: bool = True) -> bytes:
        """What comes back for some bytes, to the end of the connection."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            if close:
                writer.write_eof()
            return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def served(server: Server, **options: Any) -> AsyncIterator[Served]:
    options.setdefault("path", "/mcp")
    app = server.asgi(**options)
    listener = bind("127.0.0.1", 0)
    runner = configured(app)
    task = asyncio.create_task(runner._serve([listener]))
    while not runner.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.001)
    try:
        yield Served(app, listener, runner)
    finally:
        runner.should_exit = True
        app.drain()
        await task
