"""`add` on Dovetail, over HTTP. `--sse` answers sessions by streams, `--idle S` expires them."""

import gc
import sys

from http_listen import listen

from dovetail import Server
from dovetail.transport.http.limits import HttpLimits

server = Server("bench", version="1.0.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def blocks() -> bytes:
    """How much memory is in use: RSS also counts what the allocator keeps for later."""
    gc.collect()
    return b"%d" % sys.getallocatedblocks()


idle = float(sys.argv[sys.argv.index("--idle") + 1]) if "--idle" in sys.argv else 1800.0
application = server.asgi(
    path="/mcp",
    answers="sse" if "--sse" in sys.argv else "auto",
    limits=HttpLimits(idle_seconds=idle, max_sessions=20_000),
)


async def with_blocks(scope, receive, send) -> None:
    if scope.get("path") != "/blocks":
        await application(scope, receive, send)
        return
    body = blocks()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


listen(with_blocks if "--idle" in sys.argv else application)
