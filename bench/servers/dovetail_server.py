"""`add` on Dovetail; `--tools N` registers N further tools that nobody calls."""

import sys

from dovetail import Server

server = Server("bench", version="1.0.0")

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


def register_extra(number: int) -> None:
    async def extra(a: int, b: int) -> int:
        return a + b

    extra.__name__ = f"extra_{number}"
    server.tool(extra)


if "--tools" in sys.argv:
    for number in range(int(sys.argv[-1])):
        register_extra(number)

if __name__ == "__main__":
    server.run()
