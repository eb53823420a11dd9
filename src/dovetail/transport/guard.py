"""Which Host and Origin headers a listening server accepts: the defence against web pages.

A page in a browser may reach a server on loopback, under a name of its own that
resolves there (DNS rebinding) or across origins, as browsers do for WebSockets.
The first shows in ``Host``, the second in ``Origin`` (digest S48).
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct

__all__ = ["Guard", "is_loopback"]

_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # loopback is among the addresses of such a server
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard(Struct, frozen=True):
    hosts: frozenset[str]  # names without a port; "*" accepts all
    origins: frozenset[str]  # whole origins, "https://app.example"; "*" accepts all
    any_address: bool  # numbers cannot be rebound, so a public server accepts its own

    @classmethod
    def of(cls, bound: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> "Guard":
        """The guard of a server bound to ``bound``, with names and origins of the operator's."""
        names = {name.lower() for name in hosts} | ({bound.lower()} if bound else set())
        if is_loopback(bound) or bound in _EVERYWHERE:
            names |= _LOOPBACK
        allowed = {origin.lower().rstrip("/") for origin in origins}
        return cls(frozenset(names), frozenset(allowed), not is_loopback(bound))

    def refuse(self, hosts: Sequence[str], origins: Sequence[str]) -> str | None:
        """Why a request with these headers is refused, or None."""
        if len(hosts) != 1 or len(origins) > 1:
            return "Send one Host header and at most one Origin"
        if not self._knows_host(name := _host_name(hosts[0])):
            return f"This server is not known as {name!r}. To allow it: --allow-host {name}"
        if origins and not self._knows_origin(origins[0]):
            return (
                f"Pages of {origins[0]} may not use it. To allow them: --allow-origin {origins[0]}"
            )
        return None

    def _knows_host(self, name: str) -> bool:
        return name in self.hosts or "*" in self.hosts or (self.any_address and _is_address(name))

    def _knows_origin(self, origin: str) -> bool:
        """An allowed origin, or a page of a host we are: the same machine, another port."""
        if origin.lower() in self.origins or "*" in self.origins:
            return True
        scheme, _, host = origin.partition("://")
        return scheme.lower() in ("http", "https") and _host_name(host) in self.hosts


def is_loopback(host: str) -> bool:
    return host.lower() == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(header: str) -> str:
    """``Host`` without its port; whatever cannot be read is a name nobody allows."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return header
