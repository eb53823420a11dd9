"""Progress of one request: it only increases, it is limited, and its last is never lost."""

import asyncio
from collections.abc import Callable
from math import isfinite
from typing import Any

from dovetail.errors import LocalProtocolError

__all__ = ["BURST", "RATE", "Progress", "checked"]

# A bar of a hundred steps should move; a loop of a million must not fill the pipe.
BURST = 20
RATE = 20.0  # per second, after the burst


def checked(done: float, total: float | None, last: float | None) -> float:
    """``done``, if it may follow ``last`` (digest X22); JSON has no infinity and no NaN."""
    for number in (done, 0 if total is None else total):
        if type(number) not in (int, float):
            raise LocalProtocolError(f"progress is counted in numbers, not in {number!r}")
    if not isfinite(done) or not (total is None or isfinite(total)):
        raise LocalProtocolError(f"progress must be finite, not {done} of {total}")
    if last is not None and done < last:
        raise LocalProtocolError(f"progress fell from {last} to {done}")
    return done


class Progress:
    """A token bucket in front of ``send``. Reporting costs an append, never a wait."""

    __slots__ = ("_held", "_last", "_loop", "_send", "_since", "_timer", "_tokens")

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._tokens = float(BURST)
        self._since = self._loop.time()
        self._last: float | None = None
        self._held: dict[str, Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def report(self, progress: float, rest: dict[str, Any]) -> None:
        """Send now, or hold it until there is room; a newer report replaces a held one."""
        if self._last is not None and progress <= self._last:
            if progress < self._last:
                raise LocalProtocolError(f"progress fell from {self._last} to {progress}")
            return  # the same again says nothing new, and may not be sent (digest X22)
        self._last = progress
        self._held = {"progress": progress, **rest}
        self._release()

    def finish(self) -> None:
        """The answer is next: say the last word now, nothing may follow (digest X23)."""
        self.drop_timer()
        held, self._held = self._held, None
        if held is not None:
            self._send(held)

    def drop(self) -> None:
        """The request was cancelled: nothing more is said."""
        self.drop_timer()
        self._held = None

    def drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self) -> None:
        if self._held is None or self._timer is not None:
            return
        now = self._loop.time()
        self._tokens = min(float(BURST), self._tokens + (now - self._since) * RATE)
        self._since = now
        if self._tokens >= 1:
            self._tokens -= 1
            held, self._held = self._held, None
            self._send(held)
        else:
            self._timer = self._loop.call_later((1 - self._tokens) / RATE, self._due)

    def _due(self) -> None:
        self._timer = None
        self._release()
