"""A server as a process of its own, on stdin and stdout."""

import asyncio
import gc
import os
import sys
from typing import TYPE_CHECKING

from dovetail.runtime.connection import Tap
from dovetail.transport import stdio

if TYPE_CHECKING:
    from dovetail.server.app import Server

__all__ = ["run_stdio"]


def run_stdio(server: "Server", tap: Tap | None) -> None:
    """Serve until the client is gone, then leave nothing behind that keeps the process."""
    stdio.reserve("stdin and stdout can be served once: a server ran here already")
    own_in, own_out = stdio.claim()
    if os.isatty(own_in):
        print(
            f"{server.name} speaks MCP on stdin and stdout: add this command to an MCP client, "
            "or paste a JSON-RPC message here. Ctrl-D ends it.",
            file=sys.stderr,
        )
    # What was made so far stays for good: collecting it again and again is in
    # vain. A call leaves no cycles, so young objects need few collections too.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)

    async def serve() -> None:
        async with server.running():
            await stdio.serve(lambda: server.connection(tap=tap), own_in, own_out)
        await server.close_stores()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(serve())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()  # unlike asyncio.run, without waiting for threads that may be stuck
        stdio.abandon_threads(server.limits.stop_seconds * 3)
