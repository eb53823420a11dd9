"""Pages of allowed origins: what their browser must hear before they may read an answer.

Only an origin that the gate let through gets here, so it is named, never "*".
"""

from typing import Any

from dovetail.core.exchange import Headers
from dovetail.transport.http.replies import Pairs, Reply, Send

__all__ = ["allowing", "is_preflight", "preflight"]

_WANTED, _ASKED = b"access-control-request-method", b"access-control-request-headers"
_VERBS = b"POST, GET, DELETE"
# What a client reads of an answer, beside its type.
_SHOWN = b"mcp-session-id, www-authenticate, retry-after"


def is_preflight(verb: str, headers: Headers) -> bool:
    """Whether a browser asks if it may ask."""
    return verb == "OPTIONS" and b"origin" in headers and _WANTED in headers


def preflight(headers: Headers) -> Reply:
    asked = headers.get(_ASKED, b"")
    allowed: Pairs = (
        (b"access-control-allow-methods", _VERBS),
        (b"access-control-allow-headers", asked if len(asked) < 1000 else b""),
        (b"access-control-max-age", b"600"),
    )
    return Reply(204, headers=allowed)


def allowing(origin: bytes, send: Send) -> Send:
    """``send``, with the headers that let a page of this origin read the answer."""
    extra = [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _SHOWN),
        (b"vary", b"origin"),
    ]

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *extra]}
        await send(message)

    return sending
