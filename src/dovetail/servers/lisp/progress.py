"""Progress of an evaluation: what the code reports, and what it prints meanwhile."""

import time
from contextlib import suppress

from dovetail import Context
from dovetail.errors import LocalProtocolError
from dovetail.servers.lisp.frames import Frame

__all__ = ["Reporter"]

# What output and time add to the number the code reported: enough to increase it, as the
# protocol wants, too little to be seen.
_TICK = 1e-6
_LONGEST = 200


class Reporter:
    """Turns events of the bridge into progress notifications."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.wanted = ctx.wants_progress
        self._started = time.monotonic()
        self._done = 0.0
        self._total: float | None = None

    def progress(self, frame: Frame) -> None:
        """``(mcp:progress done total message)``."""
        if frame.done >= self._done:
            self._done, self._total = frame.done, frame.total
            self._report(frame.done, frame.message)

    def output(self, text: str, total: int) -> None:
        """What the code has printed since the last time, and how many characters in all."""
        seconds = time.monotonic() - self._started
        last = text.strip().rpartition("\n")[2][-_LONGEST:]
        message = f"{seconds:.1f} s, {total} characters printed" + (f": {last}" if last else "")
        self._report(self._done + seconds * _TICK, message)

    def _report(self, done: float, message: str | None) -> None:
        with suppress(LocalProtocolError):  # a number that fell is not worth an error
            self._ctx.progress(done, self._total, message)
