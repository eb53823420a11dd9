"""Two connections joined in memory, always through encoded bytes.

Nothing is handed over as an object, so what works here works on a pipe. Each
side's bytes arrive in a later turn of the loop, as they would from a socket.
"""

import asyncio
from collections.abc import Callable

from dovetail.runtime.connection import Connection

__all__ = ["join"]

# Cuts what one side wrote into the chunks the other side receives.
Split = Callable[[bytes], list[bytes]]


def join(left: Connection, right: Connection, split: Split | None = None) -> None:
    """Connect two connections: what one writes the other is fed."""
    to_left, to_right = _Pipe(left, split), _Pipe(right, split)
    left.attach(to_left, to_right)
    right.attach(to_right, to_left)


class _Pipe:
    """One direction: a writer for its sender, a reader for its receiver."""

    def __init__(self, receiver: Connection, split: Split | None) -> None:
        self._receiver = receiver
        self._split = split
        self._loop = asyncio.get_running_loop()
        self._held: list[bytes] = []
        self._paused = False
        self._closed = False

    def write(self, data: bytes | bytearray) -> None:
        if not self._closed:
            self._held.append(bytes(data))
            self._loop.call_soon(self._deliver)

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._held))

    def _deliver(self) -> None:
        while self._held and not self._paused:
            data = self._held.pop(0)
            for chunk in [data] if self._split is None else self._split(data):
                self._receiver.feed(chunk)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._deliver()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.call_soon(self._receiver.end_of_input)
