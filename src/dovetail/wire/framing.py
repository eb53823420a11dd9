"""Newline framing: chunks of bytes in, whole frames out, in linear time.

A frame longer than the cap is not buffered. Its beginning is kept so that the
request it carries can still be answered, the rest is thrown away up to the
next newline, and the frames after it are served as if nothing had happened.
"""

from typing import NamedTuple

__all__ = ["Frame", "LineFramer", "Oversize"]

# Enough for jsonrpc, id and method, in whichever order they come.
_KEPT_PREFIX = 1024


class Oversize(NamedTuple):
    """Stands in for a frame over the cap."""

    prefix: bytes
    limit: int


Frame = bytes | Oversize


class LineFramer:
    """Splits a byte stream at newlines. CR before it is JSON white space and stays."""

    __slots__ = ("_kept", "_oversize", "_pending", "_size", "max_frame")

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self._kept = min(_KEPT_PREFIX, max_frame)  # the same however the frame arrives
        self._pending: list[bytes] = []
        self._size = 0
        self._oversize: Oversize | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that ``chunk`` completes, blank lines left out."""
        *lines, rest = chunk.split(b"\n")
        frames: list[Frame] = []
        if lines and self._size:
            self._keep(lines.pop(0))
            frames = self.finish()
        if len(chunk) <= self.max_frame:
            frames += filter(bytes.strip, lines)  # type: ignore[arg-type]
        else:
            frames += [self._capped(line) for line in lines if line.strip() or self._is_over(line)]
        if rest:
            self._keep(rest)
        return frames

    def finish(self) -> list[Frame]:
        """The frame under way: at a newline, or when the stream ended without one."""
        frame: Frame = self._oversize or b"".join(self._pending)
        self._pending.clear()
        self._size = 0
        self._oversize = None
        return [frame] if isinstance(frame, Oversize) or frame.strip() else []

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._oversize is not None:
            return
        self._pending.append(part)
        if self._size > self.max_frame:
            self._oversize = Oversize(b"".join(self._pending)[: self._kept], self.max_frame)
            self._pending.clear()

    def _is_over(self, line: bytes) -> bool:
        return len(line) > self.max_frame

    def _capped(self, line: bytes) -> Frame:
        return Oversize(line[: self._kept], self.max_frame) if self._is_over(line) else line
