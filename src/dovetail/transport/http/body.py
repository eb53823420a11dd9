"""The body of a request: whole, of a bounded size, in a bounded time."""

import asyncio
from collections.abc import Awaitable
from types import CoroutineType
from typing import Any

from dovetail.backplane.base import BackplaneAway
from dovetail.errors import RemoteProtocolError
from dovetail.runtime.steps import begin, resumed
from dovetail.transport.http.replies import Receive, Reply

__all__ = ["REFUSALS", "Gone", "Refused", "read_body"]


class Gone(Exception):
    """The client hung up."""


class Refused(Exception):
    """The request is answered with ``reply`` and read no further."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        super().__init__(reply.status)


# What ends the serving of a request; each has its answer, but for a client that is gone.
REFUSALS = (Refused, RemoteProtocolError, BackplaneAway, Gone)


async def read_body(receive: Receive, declared: bytes | None, limit: int, seconds: float) -> bytes:
    """The whole body; Refused if it is too long or too slow."""
    if declared is not None and (not declared.isdigit() or int(declared[:20]) > limit):
        raise _too_long(limit)
    reading: Any = receive()
    if type(reading) is not CoroutineType:  # some servers have awaitables of their own kind
        reading = _awaited(reading)
    done, message = begin(reading)
    if done and not message.get("more_body") and message["type"] == "http.request":
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise _too_long(limit)
        return body
    try:
        async with asyncio.timeout(seconds):
            if not done:
                message = await resumed(reading, message)
            return await _rest(receive, message, limit)
    except TimeoutError:
        text = f"The body did not arrive within {seconds:g} seconds"
        raise Refused(Reply.text(408, text, ((b"connection", b"close"),))) from None


async def _awaited(reading: Awaitable[Any]) -> Any:
    return await reading


async def _rest(receive: Receive, message: Any, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] != "http.request":
            raise Gone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_long(limit)
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


def _too_long(limit: int) -> Refused:
    text = f"The body is longer than {limit} bytes"
    return Refused(Reply.text(413, text, ((b"connection", b"close"),)))
