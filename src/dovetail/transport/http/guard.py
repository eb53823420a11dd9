"""Host and Origin of every request, looked at once per value."""

from dovetail.core.exchange import Headers
from dovetail.transport.guard import Guard
from dovetail.transport.http.replies import Reply

__all__ = ["Gate"]

_MAX_KNOWN = 256  # pairs that were found good: a client sends one, but may send any port


class Gate:
    """Lets through whom the guard knows (digest S48)."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._known: set[tuple[bytes | None, bytes | None]] = set()

    def check(self, headers: Headers) -> Reply | None:
        """The refusal, or None."""
        given = headers.get(b"host"), headers.get(b"origin")
        if given in self._known:
            return None
        host, origin = ([] if value is None else [value.decode("latin-1")] for value in given)
        reason = self._guard.refuse(host, origin)
        if reason is not None:
            if b"x-forwarded-for" in headers or b"forwarded" in headers:
                reason += " (the request came through a proxy, which passes this name on)"
            return Reply.text(403, "".join(c for c in reason if c.isprintable()))
        if len(self._known) < _MAX_KNOWN:
            self._known.add(given)
        return None
