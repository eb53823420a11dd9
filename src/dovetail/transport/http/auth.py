"""Who may come in: what the ASGI application asks before it reads anything else.

``server.asgi(auth=...)`` takes any object with these methods. What it says holds
for one request: a session, a task and a stream belong to the principal that
opened them, and nobody else finds them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

__all__ = ["Authenticator", "HttpAnswer", "Principal", "Rejection"]

# As ASGI has them: names in lower case.
Headers = Iterable[tuple[bytes, bytes]]


class Principal(Struct, frozen=True):
    """Who asks. ``id`` is what sessions, tasks and sealed states are bound to."""

    id: str
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = {}
    expires_at: float | None = None  # seconds since 1970; a WebSocket lives no longer


class HttpAnswer(Struct, frozen=True):
    """A whole HTTP answer."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""


class Rejection(HttpAnswer, frozen=True):
    """The answer to somebody who may not come in: 400, 401, 403 or 503."""


class Authenticator(Protocol):
    """Decides who a request comes from."""

    async def authenticate(self, scope: Mapping[str, Any]) -> Principal | Rejection:
        """Called with the ASGI scope of every HTTP request and WebSocket, before all else."""
        ...

    def metadata(self, scope: Mapping[str, Any]) -> HttpAnswer | None:
        """The answer for a well-known path (RFC 9728), or None if this is none of them."""
        ...

    def allows(self, principal: Principal, method: str, name: str | None) -> Rejection | None:
        """May the principal make this request of this tool, resource or prompt? 403 if not.

        ``name`` is the tool, the prompt or the URI. Called once the body is read.
        """
        ...
