"""Our client: dovetail_client.py PLAN"""

import asyncio
import time
from typing import Any

from visit import plan, visit

from dovetail import Client, Server


def in_memory() -> Server:
    server = Server("bench", version="1.0.0")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


def client(how: Any) -> Client:
    options = {"revision": how["revision"]}
    if how["transport"] == "memory":
        return Client.memory(in_memory(), **options)
    if how["transport"] == "http":
        return Client.http(how["server"], **options)
    return Client.stdio(*how["server"], **options)


async def main() -> None:
    how = plan()
    started = time.perf_counter()
    async with client(how) as opened:

        async def call(a: int, b: int) -> Any:
            return (await opened.call("add", {"a": a, "b": b})).value

        await visit(call, started, how)


asyncio.run(main())
