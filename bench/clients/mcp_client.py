"""The official Python SDK's client: mcp_client.py PLAN"""

import asyncio
import time
from typing import Any

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.server import MCPServer
from visit import plan, visit


def in_memory() -> MCPServer:
    server = MCPServer("bench", version="1.0.0", log_level="ERROR")

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


def target(how: Any) -> Any:
    if how["transport"] == "memory":
        return in_memory()
    if how["transport"] == "http":
        return how["server"]
    command, *arguments = how["server"]
    return stdio_client(StdioServerParameters(command=command, args=arguments))


async def main() -> None:
    how = plan()
    started = time.perf_counter()
    async with Client(target(how)) as opened:

        async def call(a: int, b: int) -> Any:
            result = await opened.call_tool("add", {"a": a, "b": b})
            content = result.structured_content
            return content["result"] if isinstance(content, dict) else content

        await visit(call, started, how)


asyncio.run(main())
