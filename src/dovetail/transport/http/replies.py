"""Whole HTTP answers, and the parts they are made of."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from msgspec import Struct

__all__ = ["Pairs", "Receive", "Reply", "Scope", "Send", "send_json", "send_reply"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Pairs = tuple[tuple[bytes, bytes], ...]

_JSON = (b"content-type", b"application/json")


class Reply(Struct, frozen=True):
    """An answer that is known as a whole."""

    status: int
    body: bytes = b""
    headers: Pairs = ()

    @classmethod
    def text(cls, status: int, text: str, headers: Pairs = ()) -> "Reply":
        """For people: what is refused before there is a JSON-RPC request to answer."""
        kind = (b"content-type", b"text/plain; charset=utf-8")
        return cls(status, text.encode() + b"\n", (kind, *headers))

    @classmethod
    def json(cls, status: int, body: bytes, headers: Pairs = ()) -> "Reply":
        return cls(status, body, (_JSON, *headers))


async def send_reply(send: Send, reply: Reply) -> None:
    length = (b"content-length", b"%d" % len(reply.body))
    headers = [*reply.headers] if reply.status == 204 else [*reply.headers, length]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def send_json(send: Send, status: int, body: bytes, extra: Pairs = ()) -> None:
    headers = [_JSON, (b"content-length", b"%d" % len(body)), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
