"""One ``text/event-stream`` response.

What is put into it leaves in order, written by a task that lives only while there
is something to write: a thousand quiet streams cost no task of ours. The ticker of
the application keeps them alive, and cuts off those who do not read.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from dovetail.transport.http.replies import Pairs, Receive, Send
from dovetail.wire.sse import KEEP_ALIVE

if TYPE_CHECKING:
    from dovetail.transport.http.app import HttpApp

__all__ = ["EventStream", "until_hung_up"]

# Proxies that buffer would hold back what is meant for now (digest 13.5).
_HEADERS: Pairs = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class EventStream:
    """The writing side. ``closed`` once nothing more can reach the client on it."""

    __slots__ = (
        "_app",
        "_began",
        "_pending",
        "_send",
        "_size",
        "_soon",
        "_stalled",
        "_started",
        "_writer",
        "closed",
        "lost",
        "said",
    )

    def __init__(
        self,
        app: "HttpApp",
        send: Send,
        lost: Callable[[], None] | None = None,
    ) -> None:
        """``lost`` is called once, when the stream is cut off or told to finish."""
        self.lost = lost
        self._app = app
        self._send = send
        self._pending: list[bytes] = []
        self._size = 0
        self._started = False
        self._stalled = False
        self._soon: asyncio.Handle | None = None  # starts the writer in the next turn
        self._writer: asyncio.Task[None] | None = None
        self._began = 0.0  # when the write that is under way began
        self.said = app.loop.time()
        self.closed = False
        app.streams.add(self)

    def put(self, chunk: bytes) -> bool:
        """Send soon. False: the client does not read, and what it is told is too much."""
        if self.closed:
            return False
        if self._size and self._size + len(chunk) > self._app.http.max_unsent:
            self._stalled = True
            self.cut()
            return False
        self._pending.append(chunk)
        self._size += len(chunk)
        if self._writer is None and self._soon is None:
            self._soon = self._app.loop.call_soon(self._start)
        return True

    def _start(self) -> None:
        self._soon = None
        self._writer = self._app.loop.create_task(self._write())

    async def drained(self) -> None:
        """Wait until the client has taken what was put."""
        if self._soon is not None:
            self._soon.cancel()
            self._start()
        if self._writer is not None:
            await asyncio.wait([self._writer])

    async def open(self, extra: Pairs = ()) -> None:
        """Send the head now, so that the client knows that it is heard."""
        if not self._started:
            self._started = True
            headers = [*_HEADERS, *extra]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _write(self) -> None:
        try:
            await self.open()
            while self._pending:
                data = b"".join(self._pending)
                self._pending.clear()
                self._began = self.said = self._app.loop.time()
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
                self._size -= len(data)
        except OSError:  # what ASGI servers raise when the client is gone
            self.cut()
        finally:
            self._writer = None

    def tick(self, now: float) -> None:
        """Say that we are alive; give up on those who have taken nothing for long."""
        if self._writer is not None:
            if self._began and now - self._began > self._app.http.write_seconds:
                self._stalled = True
                self.cut()
        elif now - self.said > self._app.http.keep_alive_seconds:
            self.put(KEEP_ALIVE)

    def cut(self) -> None:
        """No more of this: what is unsent is dropped."""
        self._close()
        self.finish()

    def finish(self) -> None:
        """Tell who holds the response open that it can be ended."""
        lost, self.lost = self.lost, None
        if lost is not None:
            lost()

    def _close(self) -> None:
        self.closed = True
        self._pending.clear()
        self._app.streams.discard(self)
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._stalled and self._writer is not None:
            self._writer.cancel()

    async def end(self) -> None:
        """Send what is left, and the end of the response."""
        if self._soon is not None and not self._started:
            await self._send_at_once()  # all of it was said in this turn
            return
        await self.drained()
        if self._stalled:
            return  # it takes not even the end
        self._close()
        with suppress(OSError):
            await self.open()
            await self._send({"type": "http.response.body", "body": b""})

    async def _send_at_once(self) -> None:
        data = b"".join(self._pending)
        self._close()
        with suppress(OSError):
            await self.open(((b"content-length", b"%d" % len(data)),))
            await self._send({"type": "http.response.body", "body": data})


async def until_hung_up(receive: Receive, then: Callable[[], None]) -> None:
    """Watch a client whose body has been read, and call ``then`` when it is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    then()
