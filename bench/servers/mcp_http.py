"""`add` on the official Python SDK, over Streamable HTTP: mcp_http.py PORT."""

import sys

from mcp.server import MCPServer

server = MCPServer("bench", version="1.0.0", log_level="ERROR")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


server.run("streamable-http", port=int(sys.argv[1]))
