"""Host and Origin: who this server is addressed as, and by which web pages.

A page in the user's browser can reach every local server, and by pointing its own
name at 127.0.0.1 it can even be of the same origin (DNS rebinding). So both are
checked on every request, in every revision (digest S48).
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

from dovetail.core.exchange import Headers
from dovetail.transport.http.replies import Reply

__all__ = ["Guard"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_MAX_KNOWN = 256  # values that were found good; a client sends one, but may send any port


class Guard:
    """The names a server answers to, and the origins it answers."""

    def __init__(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        """``hosts`` are names, with a port if only that one is meant; "*" means any."""
        self._hosts = _LOOPBACK | {host.lower() for host in hosts}
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._known_hosts: set[bytes] = set()
        self._known_origins: set[bytes] = set()

    def check(self, headers: Headers) -> Reply | None:
        """The refusal, or None. What was good once is good again without a second look."""
        host = headers.get(b"host", b"")
        if host not in self._known_hosts:
            if not self._serves(host):
                return _unknown_host(host, headers)
            _remember(self._known_hosts, host)
        origin = headers.get(b"origin")
        if origin is None or origin in self._known_origins:
            return None
        if not self.allows_origin(origin):
            return _unknown_origin(origin)
        _remember(self._known_origins, origin)
        return None

    def _serves(self, host: bytes) -> bool:
        text = host.decode("latin-1").lower()
        return "*" in self._hosts or text in self._hosts or _without_port(text) in self._hosts

    def allows_origin(self, origin: bytes) -> bool:
        """Listed, or a page of this very service: one under a name we answer to."""
        text = origin.decode("latin-1").lower()
        if "*" in self._origins or text in self._origins:
            return True
        try:
            parts = urlsplit(text)
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path:
            return False
        return parts.netloc in self._hosts or _without_port(parts.netloc) in self._hosts


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _remember(known: set[bytes], value: bytes) -> None:
    if len(known) < _MAX_KNOWN:
        known.add(value)


def _unknown_host(host: bytes, headers: Headers) -> Reply:
    name = _shown(host)
    text = f"This server is not known as {name!r}. "
    text += f"If that is its name, allow it: --allow-host {name}, or asgi(hosts=[{name!r}])."
    if b"x-forwarded-for" in headers or b"forwarded" in headers:
        text += " The request came through a proxy, which passes this name on in the Host header."
    return Reply.text(421, text)


def _unknown_origin(origin: bytes) -> Reply:
    name = _shown(origin)
    text = f"Pages of {name!r} may not use this server. "
    text += f"If they should: --allow-origin {name}, or asgi(origins=[{name!r}])."
    return Reply.text(403, text)


def _shown(value: bytes) -> str:
    return "".join(c for c in value[:200].decode("latin-1") if c.isprintable() and c.isascii())
