"""`add` on Dovetail, over HTTP, as one of several nodes on the Redis at the URL that is given."""

import sys

from http_listen import listen

from dovetail import Server
from dovetail.backplane.keys import KeyRing
from dovetail.backplane.redis import RedisBackplane

server = Server("bench", version="1.0.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


listen(
    server.asgi(path="/mcp", backplane=RedisBackplane(sys.argv[2]), keys=KeyRing([b"bench" * 8]))
)
