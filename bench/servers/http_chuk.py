"""`add` on chuk-mcp-server, over HTTP."""

import logging

from chuk_mcp_server import ChukMCPServer
from chuk_mcp_server.http_server import create_server
from http_listen import listen

logging.disable(logging.WARNING)
server = ChukMCPServer("bench", version="1.0.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


listen(create_server(server.protocol).app)
