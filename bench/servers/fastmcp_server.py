"""`add` on FastMCP."""

import sys

from fastmcp import FastMCP

server = FastMCP("bench", version="1.0.0")

if "--sync" in sys.argv:

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

else:

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


server.run(show_banner=False, log_level="ERROR")
