"""An SBCL process of ours: started, watched, and ended with all that it started."""

import asyncio
import itertools
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from dovetail.servers.lisp import descendants
from dovetail.servers.lisp.frames import Frame
from dovetail.servers.lisp.image import Image, Lost
from dovetail.servers.lisp.limits import LispLimits
from dovetail.servers.lisp.sbcl import NoLisp, Sbcl

__all__ = ["Isolation", "LispProcess", "isolated", "start_process"]

# Inherited by whatever the Lisp starts, so that it can be found when its parents are gone.
MARK = "DOVETAIL_LISP_PROCESS"
_CHUNK = 65536
_DRAIN_SECONDS = 0.2
_EXIT_SECONDS = 0.5
_numbers = itertools.count(1)

# Address space of SBCL besides its heap: its core, stacks and libraries. Measured: 450 MB.
_RUNTIME_MB = 600

# Of the C runtime, about guard pages: the condition in the answer says it better.
_NOISE = ("INFO: Control stack guard page", "INFO: Binding stack guard page")


class Isolation(Struct, frozen=True, kw_only=True):
    """What the process is denied; without it evaluated code has all rights of the user."""

    network: bool = True
    privileges: bool = True
    # Address space in megabytes; 0 means no limit. SBCL needs the heap and about 450 MB.
    address_space_mb: int = 0

    def wrapper(self) -> list[str]:
        """A network namespace with nothing in it. A process with threads cannot enter one."""
        return [] if self.network else ["unshare", "--map-current-user", "--net", "--"]

    def bridge_arguments(self) -> str:
        words = []
        if self.address_space_mb:
            words.append(f":address-space {self.address_space_mb * 1024 * 1024}")
        if not self.privileges:
            words.append(":no-new-privileges t")
        return " ".join(words)


def isolated(limits: LispLimits) -> Isolation:
    """All of it, for a process of these limits."""
    return Isolation(network=False, privileges=False, address_space_mb=limits.heap_mb + _RUNTIME_MB)


class _Pipe:
    """The reading end of the process's stdout or stderr, always kept empty."""

    def __init__(self, fd: int, keep: int) -> None:
        self._fd = fd
        self._keep = keep
        self._text = bytearray()
        os.set_blocking(fd, False)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        self._poll = poll.poll
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._fd)
        self._text += data
        del self._text[: max(0, len(self._text) - self._keep)]

    def take(self) -> str:
        """All there is now: what was written before an answer is in the pipe by then."""
        if self._poll(0):
            self._read()
        if not self._text:
            return ""
        text = self._text.decode(errors="replace")
        self._text.clear()
        lines = text.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith(_NOISE))

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


class LispProcess(Image):
    """The child and its channel."""

    owned = True

    def __init__(
        self,
        command: list[str],
        arguments: str,
        limits: LispLimits,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.mark = f"{os.getpid()}-{next(_numbers)}"
        ours, theirs = socket.socketpair()
        serve = f"(dovetail-lisp:serve-descriptor {theirs.fileno()} {arguments})"
        with theirs:
            self.popen = subprocess.Popen(
                [*command, "--eval", serve],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **(environment or {}), MARK: self.mark},
                cwd=folder,
                start_new_session=True,  # a Ctrl-C in the terminal is for the server
            )
        self.socket = ours
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        self._pipes = [
            _Pipe(os.dup(stream.fileno()), limits.max_raw)
            for stream in (self.popen.stdout, self.popen.stderr)
        ]
        self.popen.stdout.close()
        self.popen.stderr.close()
        self.exited = asyncio.Event()
        self._at_end = False
        self._killed_for: str | None = None
        threading.Thread(target=self._wait, name="lisp exit", daemon=True).start()

    @property
    def pid(self) -> int:
        return self.popen.pid

    def _wait(self) -> None:
        self.popen.wait()
        with suppress(RuntimeError):  # the loop is gone
            self._loop.call_soon_threadsafe(self._has_exited)

    def _has_exited(self) -> None:
        """Its last frames may still be in the socket, whose end comes after them. A process
        that it forked may hold that end open."""
        self.exited.set()
        if self._at_end:
            self.end("")
        else:
            self._loop.call_later(_DRAIN_SECONDS, self.end, "")

    def _ended(self) -> None:
        """End of the channel: the process is about to be reaped, or closed it and lives on."""
        self._at_end = True
        if self.exited.is_set():
            self.end("")
        else:
            self._loop.call_later(_DRAIN_SECONDS, self.kill, "it closed its channel")

    def announced_exit(self) -> None:
        """SBCL waits up to a minute for threads of the program; nobody waits for that."""
        self._loop.call_later(_EXIT_SECONDS, self.kill)

    def damaged(self) -> bool:
        self.partial = Frame("exiting")  # it has begun nothing
        self.kill("its bridge was damaged by the code")
        return True

    def kill(self, reason: str | None = None) -> None:
        if self._killed_for is None and not self.exited.is_set():
            self._killed_for = reason
        if not self.exited.is_set():
            self.popen.kill()

    def end(self, reason: str) -> None:
        super().end(reason or self._reason())

    def _reason(self) -> str:
        if self._killed_for:
            return self._killed_for
        code = self.popen.returncode
        errors = self._pipes[1].take() if self.lost is None else ""
        self.last_words = "\n".join(errors.strip().splitlines()[-5:])
        if "eap exhausted" in errors or "game over" in errors:
            return "heap exhausted during garbage collection"
        if code is not None and code < 0:
            return f"signal {-code}, {signal.Signals(-code).name}"
        return f"exit code {code}" + (", the code asked for it" if self.partial is not None else "")

    last_words = ""

    def raw_output(self) -> tuple[str, str]:
        if not self._pipes:  # closed meanwhile
            return "", ""
        out, err = self._pipes
        return out.take(), err.take()

    def end_descendants(self, since: float = 0.0) -> int:
        """End what the Lisp started, at or after ``since`` (seconds after boot)."""
        return descendants.end(self.pid, f"{MARK}={self.mark}", since)

    async def close(self) -> None:
        """Gone, with all it started, when this returns."""
        self.end_descendants()
        self.kill("it was closed")
        await self.exited.wait()
        self.end_descendants()  # what it started in between has no parent any more
        self.end("it was closed")
        for pipe in self._pipes:
            pipe.close()
        self._pipes = []

    async def connect(self, seconds: float) -> Frame:
        await self._loop.create_connection(lambda: self.channel, sock=self.socket)
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self.hello)


async def start_process(
    sbcl: Sbcl, limits: LispLimits, isolation: Isolation, **options: Any
) -> LispProcess:
    """A process that has said hello; NoLisp if there is none to be had."""
    try:
        return await _start(sbcl, sbcl.cached_arguments(), limits, isolation, options)
    except Lost:
        pass  # the first start on this machine, or a cache that cannot be used
    loading = await sbcl.compiled_arguments()
    try:
        return await _start(sbcl, loading, limits, isolation, options)
    except Lost:
        pass
    try:
        return await _start(sbcl, sbcl.source_arguments(), limits, isolation, options)
    except Lost as error:
        raise NoLisp(f"SBCL does not start: {error}") from None


async def _start(
    sbcl: Sbcl,
    loading: list[str],
    limits: LispLimits,
    isolation: Isolation,
    options: dict[str, Any],
) -> LispProcess:
    command = [
        *isolation.wrapper(),
        *(sbcl.path(), "--noinform", "--disable-ldb"),
        *("--dynamic-space-size", f"{limits.heap_mb}MB"),
        *("--control-stack-size", f"{limits.stack_mb}MB"),
        *("--no-sysinit", "--no-userinit"),
        *loading,
    ]
    try:
        process = LispProcess(command, isolation.bridge_arguments(), limits, **options)
    except OSError as error:
        raise NoLisp(f"SBCL cannot be started: {error}") from None
    try:
        await process.connect(limits.start)
    except BaseException as error:
        words = process.last_words
        await process.close()
        if isinstance(error, TimeoutError):
            raise NoLisp(f"SBCL did not start within {limits.start:g} seconds") from None
        if isinstance(error, Lost) and words:
            raise Lost(f"{error}\n{words}") from None
        raise
    return process
