"""Processes that a Lisp has started: found through /proc, also when their parents are gone.

SBCL gives each a process group of its own, so that a signal to the Lisp's group misses it.
Where there is no /proc, none is found.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["adopt_orphans", "end", "now"]

_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 20  # against a program that starts others faster than we end them
_TICK = 0.02  # /proc counts in hundredths of a second


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent dies, so that they can still be found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def now() -> float:
    """The clock of /proc: seconds since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else 0.0


def end(root: int, mark: str, since: float) -> int:
    """Kill what descends from ``root``, and what we adopted that carries ``mark``."""
    ended: set[int] = set()
    for _ in range(_ROUNDS):
        found = [pid for pid in _found(root, mark.encode()) if _started(pid) >= since - _TICK]
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


def _found(root: int, mark: bytes) -> Iterator[int]:
    """Alive, and not ``root`` itself."""
    children: dict[int, list[int]] = {}
    for pid, parent, state in _processes():
        if state not in "ZX":
            children.setdefault(parent, []).append(pid)
    waiting = list(children.get(root, ()))
    waiting += [pid for pid in children.get(os.getpid(), ()) if pid != root and _marked(pid, mark)]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, ())


def _processes() -> Iterator[tuple[int, int, str]]:
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = entry.read_text(errors="replace").rpartition(")")[2].split()[:2]
            yield int(entry.parent.name), int(parent), state


def _marked(pid: int, mark: bytes) -> bool:
    with suppress(OSError):
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _started(pid: int) -> float:
    """When, in seconds since boot; -1 if it is gone."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return -1.0
