"""The server's side of stdio: one message per line on descriptors nobody else has.

``claim`` takes the process's stdin and stdout away from everybody else: the
protocol runs on private copies, descriptor 0 becomes the null device and
descriptor 1 becomes stderr. A stray ``print``, a C library or a child process
can then neither corrupt the output nor eat the input (digest S45).
"""

import asyncio
import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from dovetail.runtime.connection import Connection, Reader, Writer
from dovetail.transport.ending import SIGNALS, end_tasks, stop_on_signals

__all__ = ["claim", "release", "reserve", "serve"]

log = logging.getLogger("dovetail")

_CHUNK = 65536  # what a Linux pipe holds


_used_by: str | None = None


def reserve(why: str) -> None:
    """Take the right to serve on stdio, once per process; RuntimeError for the second taker."""
    global _used_by
    if _used_by is not None:
        raise RuntimeError(_used_by)
    _used_by = why


def release() -> None:
    """Give the right back: whoever loaded a server's code now serves it."""
    global _used_by
    _used_by = None


@cache
def claim() -> tuple[int, int]:
    """Private descriptors of stdin and stdout; the public ones are made harmless.

    Once per process: whoever loads a server's code may claim before that code
    has a chance to print.
    """
    _fill_gaps()
    own_in = _own(0, os.O_RDONLY)
    own_out = _own(1, os.O_WRONLY)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    with suppress(AttributeError, OSError, ValueError):  # no stdout, or not Python's own
        sys.stdout.flush()  # what was printed before waits in the buffer: to stderr with it
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # A child by fork shares every descriptor, and would hold the pipe open after our end.
    os.register_at_fork(after_in_child=lambda: _forget(own_in, own_out))
    return own_in, own_out


def _forget(*descriptors: int) -> None:
    """In a child by fork: neither our pipe nor our signals are its own."""
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def _fill_gaps() -> None:
    """Open those of 0, 1 and 2 that are closed, or a copy made here would take their place."""
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(null, True)
    os.close(null)


def _own(fd: int, flags: int) -> int:
    """A private descriptor for what ``fd`` is open on.

    Non-blocking mode belongs to the open file, which a pipe may share with the
    shell or with our own stderr, so a pipe or terminal is opened anew. Not so
    the reading end of a named pipe: opened after its writer is gone, it would
    never report the end.
    """
    copy = os.dup(fd)
    own = f"/proc/self/fd/{copy}"
    is_pipe = stat.S_ISFIFO(os.fstat(copy).st_mode)
    with suppress(OSError):
        is_named = is_pipe and not os.readlink(own).startswith("pipe:")
        if os.isatty(copy) or (is_pipe and not (is_named and flags == os.O_RDONLY)):
            fresh = os.open(own, flags | os.O_NONBLOCK | os.O_NOCTTY)
            os.close(copy)
            return fresh
    return copy


async def serve(connect: Callable[[], Connection], own_in: int, own_out: int) -> None:
    """Serve one connection until its input ends, its reader is gone, or a signal comes."""
    loop = asyncio.get_running_loop()
    connection = connect()
    writer = await _open_writer(own_out, connection)
    if _same_file(own_in, own_out):  # one socket for both, as inetd has it
        loop.remove_reader(own_out)  # the writer takes any input for the end of its peer
    reader = await _open_reader(own_in, connection)
    connection.attach(reader, writer)
    restore = stop_on_signals(loop, connection.stop, connection.limits.stop_seconds * 3)
    try:
        await connection.ended
    finally:
        await connection.close()
        await end_tasks(connection.limits.stop_seconds)
        restore()


def _same_file(a: int, b: int) -> bool:
    return os.path.samestat(os.fstat(a), os.fstat(b))


# -- reading ---------------------------------------------------------------------------


async def _open_reader(fd: int, connection: Connection) -> Reader:
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)):
        return _ThreadReader(fd, connection)  # a file cannot be polled
    loop = asyncio.get_running_loop()
    pipe = open(fd, "rb", buffering=0)  # noqa: SIM115, ASYNC230 - closed by the transport
    transport, _ = await loop.connect_read_pipe(lambda: _ReadProtocol(connection), pipe)
    # asyncio asks for 256 KiB per read, and malloc maps and unmaps so much each time:
    # half of the time of a single call. A pipe never holds more than this.
    with suppress(AttributeError):
        transport.max_size = _CHUNK  # type: ignore[attr-defined]
    return transport


class _ReadProtocol(asyncio.Protocol):
    def __init__(self, connection: Connection) -> None:
        self.data_received = connection.feed  # type: ignore[assignment, method-assign]
        self._connection = connection

    def eof_received(self) -> None:
        self._connection.end_of_input()

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.end_of_input()


class _ThreadReader:
    """Reads what cannot be polled: regular files, and everything where there is no epoll."""

    def __init__(self, fd: int, connection: Connection) -> None:
        self._fd = fd
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._fed = threading.Event()
        self._may_read = threading.Event()
        self._may_read.set()
        threading.Thread(target=self._read, name="dovetail-stdin", daemon=True).start()

    def _read(self) -> None:
        """One chunk at a time: a file is read faster than it is served."""
        with suppress(RuntimeError, OSError):  # the loop or the descriptor is closed
            while chunk := os.read(self._fd, _CHUNK):
                self._fed.clear()
                self._loop.call_soon_threadsafe(self._feed, chunk)
                self._fed.wait()
                self._may_read.wait()
            self._loop.call_soon_threadsafe(self._connection.end_of_input)

    def _feed(self, chunk: bytes) -> None:
        self._connection.feed(chunk)
        self._fed.set()

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def close(self) -> None:
        self._fed.set()
        self._may_read.set()


# -- writing ---------------------------------------------------------------------------


async def _open_writer(fd: int, connection: Connection) -> Writer:
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)):
        return _FileWriter(fd)
    loop = asyncio.get_running_loop()
    pipe = open(fd, "wb", buffering=0)  # noqa: SIM115, ASYNC230 - closed by the transport
    transport, _ = await loop.connect_write_pipe(lambda: _WriteProtocol(connection), pipe)
    transport.set_write_buffer_limits(high=connection.limits.high_water)
    return transport


class _WriteProtocol(asyncio.BaseProtocol):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.pause_writing = connection.pause_writing  # type: ignore[method-assign]
        self.resume_writing = connection.resume_writing  # type: ignore[method-assign]

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.lost(error)


class _FileWriter:
    """A regular file takes everything at once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: Any) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        os.close(self._fd)
