"""Raw frames to and from a server: what both directions carried, kept for the report.

A channel owns the bytes. It adds nothing, mends nothing and understands no
more than where a frame ends.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, Protocol

from msgspec import Struct

__all__ = ["Channel", "Closed", "Entry", "StdioChannel"]

_CHUNK = 65536
# What is kept of stderr: enough for a traceback.
_STDERR_KEPT = 8192
# A line longer than this is not a message that any client would take.
_LINE_LIMIT = 64 * 1024 * 1024


class Closed(Exception):
    """The server is gone, or has closed its side."""


class Entry(Struct, frozen=True):
    """One frame on the wire."""

    way: Literal["sent", "received"]
    frame: bytes


class Channel(Protocol):
    """Frames in order, both ways."""

    log: list[Entry]

    async def send(self, frame: bytes) -> None: ...
    async def receive(self, seconds: float) -> bytes | None:
        """The next frame; None if none came in time. `Closed` when none can come."""
        ...

    async def close(self) -> None: ...
    def last_words(self) -> str:
        """What the server said for people before it went."""
        ...


class StdioChannel:
    """A process, a line per frame."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log: list[Entry] = []
        self._lines: deque[bytes] = deque()
        self._partial = bytearray()
        self._came = asyncio.Event()
        self._ended = False
        self._stderr = bytearray()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._read_stderr())]

    @classmethod
    async def open(cls, command: Sequence[str], cwd: str | None = None) -> "StdioChannel":
        """Start the command in a process group of its own, so that all of it can be ended."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, start_new_session=True
        )
        return cls(process)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while chunk := await self.process.stdout.read(_CHUNK):
            *lines, rest = (bytes(self._partial) + chunk).split(b"\n")
            self._partial = bytearray(rest)
            for line in lines:
                self._arrived(line)
            if len(self._partial) > _LINE_LIMIT:
                break
        if self._partial:
            self._arrived(bytes(self._partial))
        self._ended = True
        self._came.set()

    def _arrived(self, line: bytes) -> None:
        self.log.append(Entry("received", line))
        self._lines.append(line)
        self._came.set()

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(_CHUNK):
            self._stderr += chunk
            del self._stderr[:-_STDERR_KEPT]

    async def send(self, frame: bytes) -> None:
        await self.write(frame + b"\n", frame)

    async def write(self, data: bytes, *frames: bytes) -> None:
        """Bytes as they are; the log shows the frames that they begin."""
        assert self.process.stdin is not None
        self.log += [Entry("sent", frame) for frame in frames]
        try:
            self.process.stdin.write(data)
            await self.process.stdin.drain()
        except (ConnectionError, OSError):
            raise Closed("the server closed its stdin") from None

    async def receive(self, seconds: float) -> bytes | None:
        if not self._lines:
            if self._ended:
                raise Closed(await self._why())
            self._came.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._came.wait()
        if self._lines:
            return self._lines.popleft()
        if self._ended:
            raise Closed(await self._why())
        return None

    async def _why(self) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self.process.wait()
        code = self.process.returncode
        if code is None:
            return "the server closed its stdout"
        if code < 0:
            return f"the server was ended by {signal.Signals(-code).name}"
        return f"the server ended with status {code}"

    async def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def exited(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.process.wait()
        return self.process.returncode is not None

    def group_alive(self) -> bool:
        """Whether any process of the server's group is left."""
        try:
            os.killpg(self.process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def last_words(self) -> str:
        return self._stderr.decode(errors="replace").strip()

    async def close(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.stdin is not None:
            self.process.stdin.close()
        await self.process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
