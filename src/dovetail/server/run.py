"""A server as a process of its own: on stdin and stdout, or on a WebSocket."""

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from dovetail.runtime.connection import Connection, Tap
from dovetail.transport import ending, stdio

if TYPE_CHECKING:
    from dovetail.server.app import Server
    from dovetail.transport.guard import Guard

__all__ = ["run_stdio", "run_websocket"]


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
    _run(server, lambda: stdio.serve(lambda: server.connection(tap=tap), own_in, own_out))


def run_websocket(
    server: "Server", host: str, port: int, guard: "Guard", path: str, tap: Tap | None
) -> None:
    """Serve any number of clients until a signal comes."""
    from dovetail.transport.websocket import listen

    def connect(principal: str | None) -> Connection:
        connection = server.connection(tap=tap)
        connection.session.principal = principal
        return connection

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        listener = await listen(
            connect, host, port, guard=guard, path=path, max_frame=server.limits.max_frame
        )
        name = f"[{host}]" if ":" in host else host
        print(f"{server.name} is at ws://{name}:{listener.port}{path}", file=sys.stderr, flush=True)
        restore = ending.stop_on_signals(loop, stopped.set, server.limits.stop_seconds * 5)
        try:
            await stopped.wait()
        finally:
            await listener.close()
            await ending.end_tasks(server.limits.stop_seconds)
            restore()

    _run(server, serve)


def _run(server: "Server", serve: Callable[[], Awaitable[None]]) -> None:
    # What was made so far stays for good: collecting it again and again is in
    # vain. A call leaves no cycles, so young objects need few collections too.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)

    async def live() -> None:
        async with server.running():
            await serve()
        await server.close_stores()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(live())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()  # unlike asyncio.run, without waiting for threads that may be stuck
        ending.abandon_threads(server.limits.stop_seconds * 3)
