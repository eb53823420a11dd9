"""A running Lisp as seen through its channel: requests out, answers and events in."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.servers.lisp.frames import Channel, Frame, decode
from dovetail.servers.lisp.sexp import sexp

__all__ = ["Call", "Image", "Lost"]


class Lost(Exception):
    """The Lisp is gone; the text says why."""


class Call:
    """A request on its way. Its ``future`` gets the next ``done`` or ``suspended`` frame."""

    __slots__ = ("future", "id", "on_progress")

    def __init__(self, id: int, on_progress: Callable[[Frame], None] | None) -> None:
        self.id = id
        self.on_progress = on_progress
        self.future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

    def again(self) -> None:
        """Wait for one more frame: the call was suspended, or nobody waits for it any more."""
        self.future = asyncio.get_running_loop().create_future()

    def settle(self, frame: Frame) -> None:
        if not self.future.done():
            self.future.set_result(frame)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # a suspended call has nobody who looks


class Image:
    """What sessions know of a Lisp, be it a process of ours or a developer's."""

    # Whether it is ours to kill.
    owned = False

    def __init__(self) -> None:
        self.channel = Channel(self._received, self._ended)
        self.hello: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.lost: str | None = None
        self.on_lost: Callable[[], None] = lambda: None
        self.partial: Frame | None = None  # what it said before it exited
        self._ids = itertools.count(1)
        self._calls: dict[int, Call] = {}

    def start(
        self,
        operation: str,
        arguments: dict[str, Any],
        on_progress: Callable[[Frame], None] | None = None,
    ) -> Call:
        """Send a request."""
        call = self.expect(on_progress)
        self.send(call, operation, arguments)
        return call

    def expect(self, on_progress: Callable[[Frame], None] | None = None) -> Call:
        """A call whose request is sent in some other way."""
        if self.lost is not None:
            raise Lost(self.lost)
        call = Call(next(self._ids), on_progress)
        self._calls[call.id] = call
        return call

    def send(self, call: Call, operation: str, arguments: dict[str, Any]) -> None:
        self.channel.send(f'(:id {call.id} :operation "{operation}" :arguments {sexp(arguments)})')

    async def ask(self, operation: str, arguments: dict[str, Any]) -> Frame:
        """An immediate operation, answered whatever the Lisp is busy with."""
        return await self.start(operation, arguments).future

    def _received(self, data: bytes) -> None:
        try:
            frame = decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self.end("its channel was corrupted")
        call = self._calls.get(frame.id)
        if frame.event == "hello" and not self.hello.done():
            self.hello.set_result(frame)
        elif frame.event == "exiting":
            self.partial = frame
            self.announced_exit()
        elif call is not None:
            self._deliver(call, frame)
        return None

    def _deliver(self, call: Call, frame: Frame) -> None:
        if frame.event == "progress":
            if call.on_progress is not None:
                call.on_progress(frame)
            return
        if frame.status == "unknown" and self.damaged():
            return
        if frame.event == "done":
            del self._calls[call.id]
        call.settle(frame)

    def damaged(self) -> bool:
        """The bridge does not know an operation: evaluated code has broken it. True if that
        can be helped."""
        return False

    def never_began(self, call: Call) -> bool:
        """Whether the Lisp said that it exits without having looked at a request."""
        return self.partial is not None and call.id not in self.partial.begun

    def announced_exit(self) -> None:
        """The Lisp says that it is about to exit."""

    def _ended(self) -> None:
        self.end("it closed the connection")

    def end(self, reason: str) -> None:
        """No more answers: whoever waits for one hears why."""
        if self.lost is not None:
            return
        self.lost = reason
        self.channel.close()
        error = Lost(reason)
        if not self.hello.done():
            self.hello.set_exception(error)
            self.hello.exception()
        for call in self._calls.values():
            call.fail(error)
        self._calls.clear()
        self.on_lost()

    async def close(self) -> None:
        self.end("it was closed")

    def raw_output(self) -> tuple[str, str]:
        """What came out of the process's own stdout and stderr since the last time."""
        return "", ""
