"""The client's side of stdio: a server as a child process, and its end.

The child leads a process group of its own, so that a Ctrl-C meant for us does not
reach it and so that we can end all it started. It is ended by a ladder: its stdin is
closed, then SIGTERM, then SIGKILL (digest 10.1). Whatever is left of its group when it
has gone is ended in the same way, and the child is reaped last: until then its number
cannot be given to a stranger.
"""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from dovetail.errors import ConnectionClosed
from dovetail.runtime.connection import Connection

__all__ = ["Process", "Stderr", "own_stderr"]

log = logging.getLogger("dovetail")

# Where the lines a server writes on stderr go: a function, a binary file, or nowhere.
Stderr = Callable[[bytes], object] | IO[bytes] | None

_CHUNK = 65536  # what a Linux pipe holds
# Kept of stderr, to be shown when the server dies: a traceback or two.
LAST_WORDS = 4096
# Seconds for each step of the ladder. The first is short: whoever reads stdin sees its end
# at once, and a user waits for us.
STEP_SECONDS = 2.0
# Seconds between the end of a server's output and its death, until we stop waiting for the
# exit code that would explain it.
EXIT_CODE_SECONDS = 0.5


class Process:
    """One server process. ``open`` starts it, ``close`` leaves nothing of it behind."""

    def __init__(
        self,
        command: str,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = True,
        cwd: str | Path | None = None,
        stderr: Stderr = None,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        self.command = [command, *arguments]
        self.key: Any = ("stdio", *self.command)
        self._env = {**(os.environ if inherit_env else {}), **(env or {})}
        self._cwd = cwd
        self._stderr = stderr
        self._step = step_seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._exited: asyncio.Future[None] | None = None
        self._words = b""
        self._pipes: list[asyncio.BaseTransport] = []
        self._connection: Connection | None = None
        self._report: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    # -- the start -------------------------------------------------------------------

    async def open(self, make: Callable[[], Connection]) -> Connection:
        """Start the server and connect to its pipes. ConnectionClosed if it cannot start."""
        await self.close()  # what is left of an earlier life
        loop = asyncio.get_running_loop()
        connection = self._connection = make()
        self._words = b""
        self._closing = self._report = None
        child = self._child = self._spawn()
        self._exited = loop.create_future()
        self._watch(child.pid)
        connection.end_reason = f"{self.name} has ended"
        try:
            self._pipes = await _connect(child, connection, self._heard, self._output_ended)
        except BaseException:
            await self.close()
            raise
        return connection

    @property
    def name(self) -> str:
        return f"the server {Path(self.command[0]).name!r}"

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def _spawn(self) -> "subprocess.Popen[bytes]":
        # A relative name is looked up on the PATH the child will have, as a shell would.
        found = shutil.which(self.command[0], path=self._env.get("PATH"))
        if found is None:
            raise ConnectionClosed(f"there is no command {self.command[0]!r}")
        try:
            return subprocess.Popen(
                [found, *self.command[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ConnectionClosed(f"{self.name} could not be started: {error}") from error

    def _watch(self, pid: int) -> None:
        """Learn of the exit without reaping the child."""
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(pid)
        except (AttributeError, OSError):  # not Linux: a thread waits instead
            loop.run_in_executor(None, self._wait_in_thread, loop, pid)
            return

        def readable() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._has_exited()

        loop.add_reader(descriptor, readable)

    def _wait_in_thread(self, loop: asyncio.AbstractEventLoop, pid: int) -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._has_exited)

    def _has_exited(self) -> None:
        assert self._exited is not None
        if not self._exited.done():
            self._exited.set_result(None)
        self._output_ended()

    # -- what the server says, and when it stops ---------------------------------------

    def _heard(self, data: bytes) -> None:
        """Something on stderr: keep its end, pass it on."""
        self._words = (self._words + data)[-LAST_WORDS:]
        if self._stderr is None:
            return
        try:
            if callable(self._stderr):
                self._stderr(data)
            else:
                self._stderr.write(data)
                self._stderr.flush()
        except Exception:
            log.exception("the stderr of %s cannot be passed on", self.name)
            self._stderr = None

    def _output_ended(self) -> None:
        """Nothing more will come. Say so to all who wait, with the reason if there is one."""
        if self._report is None and self._closing is None:
            self._report = asyncio.get_running_loop().create_task(self._tell_why())

    async def _tell_why(self) -> None:
        assert self._connection is not None
        assert self._exited is not None
        await asyncio.wait([self._exited], timeout=EXIT_CODE_SECONDS)
        await asyncio.sleep(0)  # its last words may be in the pipe
        self._connection.end_reason = self.last_words()
        self._connection.end_of_input()
        self._connection.stop()

    def last_words(self) -> str:
        """How the server ended and what it said last."""
        text = self._words.decode(errors="replace").strip()
        said = f"; it said last:\n{text}" if text else ""
        return f"{self.name} {self._exit_status()}{said}"

    def _exit_status(self) -> str:
        """Read, not reaped: the group behind it may still be there."""
        assert self._child is not None
        if self._child.returncode is not None:
            code = self._child.returncode
        else:
            with suppress(ChildProcessError):
                flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
                if (state := os.waitid(os.P_PID, self._child.pid, flags)) is not None:
                    by_signal = state.si_code != os.CLD_EXITED
                    code = -state.si_status if by_signal else state.si_status
                    return _shown(code)
            return "has closed its output"
        return _shown(code)

    # -- the end -----------------------------------------------------------------------

    async def close(self) -> None:
        """End the server, by force if need be. May be called twice, from any task."""
        if self._child is None:
            return
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._end())
        await asyncio.shield(self._closing)

    async def _end(self) -> None:
        assert self._child is not None
        assert self._exited is not None
        assert self._connection is not None
        await self._connection.close()
        for pipe in self._pipes:  # among them its stdin: the polite word
            pipe.close()
        group = self._child.pid
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                _kill_group(group, number)
            await asyncio.wait([self._exited], timeout=self._step)
            if self._exited.done():
                break
        await _end_group(group, self._step)
        with suppress(subprocess.TimeoutExpired):  # it is dead already
            self._child.wait(self._step)
        if self._report is not None:
            self._report.cancel()


def _shown(code: int) -> str:
    if code >= 0:
        return f"has exited with code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def _kill_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


async def _end_group(group: int, seconds: float) -> None:
    """End what the server started and left behind. Its own number is not free yet."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _others(group):
            return
        _kill_group(group, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while _others(group):  # noqa: ASYNC110 - the dead send no word
                    await asyncio.sleep(0.01)


def _others(group: int) -> bool:
    """Whether anybody but the leader is alive in a process group."""
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # no /proc: SIGTERM and SIGKILL are sent on suspicion
        return True
    for number in numbers:
        with suppress(OSError, ValueError, IndexError):
            if int(number) == group:
                continue
            stat = Path("/proc", number, "stat").read_bytes()
            state, _, its_group = stat.rpartition(b")")[2].split()[:3]
            if int(its_group) == group and state not in (b"Z", b"X"):
                return True
    return False


# -- pipes -----------------------------------------------------------------------------


async def _connect(
    child: "subprocess.Popen[bytes]",
    connection: Connection,
    heard: Callable[[bytes], None],
    ended: Callable[[], None],
) -> list[asyncio.BaseTransport]:
    loop = asyncio.get_running_loop()
    writer, _ = await loop.connect_write_pipe(lambda: _Input(connection, ended), child.stdin)
    writer.set_write_buffer_limits(high=connection.limits.high_water)
    reader, _ = await loop.connect_read_pipe(lambda: _Output(connection.feed, ended), child.stdout)
    errors, _ = await loop.connect_read_pipe(lambda: _Output(heard, None), child.stderr)
    for pipe in (reader, errors):  # see transport/stdio.py: asyncio's own size costs half a call
        with suppress(AttributeError):
            pipe.max_size = _CHUNK  # type: ignore[attr-defined]
    connection.attach(reader, writer)
    return [writer, reader, errors]


class _Output(asyncio.Protocol):
    def __init__(self, received: Callable[[bytes], None], ended: Callable[[], None] | None) -> None:
        self.data_received = received  # type: ignore[assignment, method-assign]
        self._ended = ended

    def connection_lost(self, error: Exception | None) -> None:
        if self._ended is not None:
            self._ended()


class _Input(asyncio.BaseProtocol):
    def __init__(self, connection: Connection, ended: Callable[[], None]) -> None:
        self.pause_writing = connection.pause_writing  # type: ignore[method-assign]
        self.resume_writing = connection.resume_writing  # type: ignore[method-assign]
        self._ended = ended

    def connection_lost(self, error: Exception | None) -> None:
        self._ended()


def own_stderr(data: bytes) -> None:
    """Where a server's stderr goes unless the caller says otherwise: to ours."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.buffer.write(data)
        sys.stderr.flush()
