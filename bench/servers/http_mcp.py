"""`add` on the official Python SDK, over HTTP. `--json` answers by JSON, else by streams."""

import sys

from http_listen import listen
from mcp.server import MCPServer

server = MCPServer("bench", version="1.0.0", log_level="ERROR")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


listen(server.streamable_http_app(json_response="--json" in sys.argv))
