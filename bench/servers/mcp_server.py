"""`add` on the official Python SDK."""

import sys

from mcp.server import MCPServer

server = MCPServer("bench", version="1.0.0", log_level="ERROR")

if "--sync" in sys.argv:

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

else:

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


server.run()
