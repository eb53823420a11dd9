"""Processes that a Lisp has started: found through /proc, also when their parents are gone.

SBCL gives each a process group of its own, so that a signal to the Lisp's group misses it.
Where there is no /proc, none is found.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

__all__ = ["adopt_orphans", "end", "now"]

_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 20  # against a program that starts others faster than we end them
_TICK = 0.02  # /proc counts in hundredths of a second


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent dies, so that they can still be found."""
    if sys.platform == "linux":
        import ctypes  # loaded late: it takes longer than the rest of the module

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def now() -> float:
    """The clock of /proc: seconds since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else 0.0


def end(root: int, mark: str, since: float) -> int:
    """Kill what descends from ``root``, and what we adopted that carries ``mark``."""
    ended: set[int] = set()
    for _ in range(_ROUNDS):
        found = [pid for pid in _found(root, mark) if _started(pid) >= since - _TICK]
        if ended.issuperset(found):
            break
        for pid in found:
            _kill(pid)
        ended.update(found)
    return len(ended)


def _kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # adopted ones are ours to reap


def _found(root: int, mark: str) -> Iterator[int]:
    """What descends from ``root``, and what of it became ours; not ``root`` itself."""
    waiting = _children(root)
    waiting += [pid for pid in _children(os.getpid()) if pid != root and _marked(pid, mark)]
    while waiting:
        pid = waiting.pop()
        if _alive(pid):
            yield pid
        waiting += _children(pid)


def _children(pid: int) -> list[int]:
    """Each thread has a list of its own."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _read(path: str) -> str:
    with suppress(OSError), open(path, errors="replace") as file:
        return file.read()
    return ""


def _status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; none if there is no such process."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _alive(pid: int) -> bool:
    return _status(pid)[:1] not in ([], ["Z"], ["X"])


def _marked(pid: int, mark: str) -> bool:
    return mark in _read(f"/proc/{pid}/environ").split("\0")


def _started(pid: int) -> float:
    """When, in seconds since boot; -1 if it is gone."""
    fields = _status(pid)
    return int(fields[19]) / os.sysconf("SC_CLK_TCK") if fields else -1.0
