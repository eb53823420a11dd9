"""`add` on Dovetail; `--tools N` registers N further tools that nobody calls."""

import argparse

from dovetail import Server

parser = argparse.ArgumentParser()
parser.add_argument("--sync", action="store_true")
parser.add_argument("--tools", type=int, default=0)
options = parser.parse_args()

server = Server("bench", version="1.0.0")

if options.sync:

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


for number in range(options.tools):
    register_extra(number)

server.run()
