"""Streamable HTTP for other agents: loopback, a bearer token, the same editor."""

import asyncio
import hmac
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from dovetail import Server
from dovetail.transport.http.auth import HttpAnswer, Principal, Rejection

__all__ = ["Door", "open_door"]

HOST = "127.0.0.1"
PATH = "/mcp"

_REFUSED = Rejection(401, ((b"www-authenticate", b"Bearer"),), b"The bearer token is needed\n")


class _Bearer:
    """One token, that of the file which the plugin writes for clients."""

    def __init__(self, token: str) -> None:
        self._expected = b"bearer " + token.encode()

    async def authenticate(self, scope: Mapping[str, Any]) -> Principal | Rejection:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        shown = scheme.lower() + b" " + token.strip()
        return Principal("user") if hmac.compare_digest(shown, self._expected) else _REFUSED

    def metadata(self, scope: Mapping[str, Any]) -> HttpAnswer | None:
        return None

    def allows(self, principal: Principal, method: str, name: str | None) -> Rejection | None:
        return None


class Door:
    """The listening server; ``close`` ends it."""

    def __init__(self, server: Server, token: str, port: int) -> None:
        from dovetail.transport.http.run import bind, configured

        self._socket = bind(HOST, port)
        self.port = int(self._socket.getsockname()[1])
        self._app = server.asgi(path=PATH, auth=_Bearer(token))
        self._runner = configured(self._app)
        # Signals are the host's business: it has more to end than this.
        self._runner.capture_signals = nullcontext  # type: ignore[assignment, method-assign]
        self._task = asyncio.get_running_loop().create_task(self._runner.serve([self._socket]))

    async def close(self) -> None:
        self._app.drain()
        self._runner.should_exit = True
        await asyncio.wait([self._task], timeout=2.0)
        self._socket.close()


def open_door(server: Server, token: str, port: int) -> Door:
    """On the port of before if it is free, else on any; OSError if there is none."""
    try:
        return Door(server, token, port)
    except OSError:
        if not port:
            raise
        return Door(server, token, 0)
