"""Newline framing: chunks of bytes in, whole frames out, in linear time.

A frame longer than the cap is not buffered. Its beginning is kept so that the
request it carries can still be answered, and a little of its end, because some
write the id of an answer last; the rest is thrown away up to the next
newline, and the frames after it are served as if nothing had happened.
"""

__all__ = ["Frame", "LineFramer", "Oversize"]

# Enough for jsonrpc, id and method, in whichever order they come.
_KEPT_PREFIX = 1024
# Enough for `,"jsonrpc":"2.0","id":…}`.
_KEPT_SUFFIX = 128


class Oversize:
    """Stands in for a frame over the cap. ``suffix`` is only a help to find its id."""

    __slots__ = ("limit", "prefix", "suffix")

    def __init__(self, prefix: bytes, limit: int, suffix: bytes = b"") -> None:
        self.prefix = prefix
        self.limit = limit
        self.suffix = suffix

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Oversize):
            return NotImplemented
        return (self.prefix, self.limit) == (other.prefix, other.limit)

    def __hash__(self) -> int:
        return hash((self.prefix, self.limit))

    def __repr__(self) -> str:
        return f"Oversize({self.prefix!r}, {self.limit})"


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
            self._oversize.suffix = (self._oversize.suffix + part)[-_KEPT_SUFFIX:]
            return
        self._pending.append(part)
        if self._size > self.max_frame:
            self._oversize = self._cut(b"".join(self._pending))
            self._pending.clear()

    def _cut(self, frame: bytes) -> Oversize:
        return Oversize(frame[: self._kept], self.max_frame, frame[-_KEPT_SUFFIX:])

    def _is_over(self, line: bytes) -> bool:
        return len(line) > self.max_frame

    def _capped(self, line: bytes) -> Frame:
        return self._cut(line) if self._is_over(line) else line
