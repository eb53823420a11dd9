"""A server as a real process, spoken to in lines, with a deadline on every wait.

Every line of either side goes through a ``Recorder``, which is asked at the
end. One poll loop moves the bytes of all descriptors, so that neither side
can block the other, and leaving the ``with`` block kills whatever is left of
the process and of its children.
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from dovetail.testing import Recorder, envelope

SUBJECT = Path(__file__).with_name("subject.py")
PATIENCE = 60.0  # for a machine that is busy; nothing waits that long when all is well
CHUNK = 1 << 20

_ID = re.compile(rb'"id":\d+')


class Late(AssertionError):
    """What was waited for did not come in time."""


class Process:
    """One server. The descriptors not given by the test are pipes to it."""

    def __init__(
        self,
        command: Sequence[str | Path] = (SUBJECT,),
        *,
        stdin: int = subprocess.PIPE,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        env: dict[str, str] | None = None,
        checked: bool = True,
        **options: Any,
    ) -> None:
        self.recorder = Recorder()
        self.inbox: list[Any] = []
        self.errors = bytearray()
        self.reading = True
        self._checked = checked
        self._seen: set[tuple[str, bytes]] = set()
        self._last_id = 0
        self._unsent = bytearray()
        self._partial = bytearray()
        self._open: dict[str, int] = {}
        self._popen = subprocess.Popen(
            [sys.executable, *map(str, command)],
            bufsize=0,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**_environment(), **(env or {})},
            start_new_session=True,
            **options,
        )
        self._exit = os.pidfd_open(self.pid)
        for name in ("stdin", "stdout", "stderr"):
            stream = getattr(self._popen, name)
            if stream is not None:
                self.use(name, os.dup(stream.fileno()))
                stream.close()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def use(self, name: str, fd: int) -> None:
        """Speak through ``fd``, which becomes ours, instead of a pipe."""
        os.set_blocking(fd, False)
        self._open[name] = fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        for fd in (*self._open.values(), self._exit):
            os.close(fd)
        if kind is None and self._checked:
            self.recorder.check()

    # -- the poll loop -----------------------------------------------------------------

    def until(self, condition: Callable[[], Any], what: str = "", patience: float = 0) -> None:
        """Move bytes until ``condition`` holds."""
        deadline = time.monotonic() + (patience or PATIENCE)
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                raise Late(f"{what or condition} did not come; stderr: {self.errors.decode()!r}")
            self._turn(left)

    def _turn(self, seconds: float) -> None:
        poll = select.poll()
        for name, fd in self._open.items():
            if name != "stdin" and (self.reading or name == "stderr"):
                poll.register(fd, select.POLLIN)
        if self._unsent and "stdin" in self._open:
            poll.register(self._open["stdin"], select.POLLOUT)
        if self._popen.returncode is None:
            poll.register(self._exit, select.POLLIN)
        names = {fd: name for name, fd in self._open.items()}
        for fd, _ in poll.poll(min(seconds, 0.02) * 1000):
            if fd == self._exit:
                self._popen.poll()
            elif names[fd] == "stdin":
                self._write(fd)
            else:
                self._read(names[fd], fd)

    def _write(self, fd: int) -> None:
        try:
            del self._unsent[: os.write(fd, self._unsent[:CHUNK])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._unsent.clear()

    def _read(self, name: str, fd: int) -> None:
        try:
            chunk = os.read(fd, CHUNK)  # a pipe holds less
        except BlockingIOError:
            return
        except OSError:  # a pty says EIO when the other side is gone
            chunk = b""
        if not chunk:
            self.close(name)
        elif name == "stderr":
            self.errors += chunk
        else:
            self._partial += chunk
            *lines, rest = self._partial.split(b"\n")
            self._partial = bytearray(rest)
            for line in lines:
                self._take(bytes(line))

    def _take(self, line: bytes) -> None:
        self._record("server", line)
        self.inbox.append(msgspec.json.decode(line))

    def _record(self, sender: Any, line: bytes, check: bool = True) -> None:
        """Ten thousand lines that differ in their id only are validated once."""
        shape = (sender, _ID.sub(b'"id":0', line))
        with contextlib.nullcontext() if check else contextlib.suppress(RecursionError):
            self.recorder.sent(sender, line, check=check and shape not in self._seen)
        if check:
            self._seen.add(shape)

    def close(self, name: str) -> None:
        os.close(self._open.pop(name))

    # -- speaking --------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Bytes as they are; the recorder does not see them."""
        self._unsent += data

    def send(self, frame: bytes, *, check: bool = False) -> None:
        """One line. ``check``: it is meant to be a legal message."""
        self._record("client", frame, check)
        self.write(frame + b"\n")

    def start(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request, without waiting for the answer."""
        self._last_id += 1
        given = {} if params is None else {"params": params}
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, **given}
        self.send(msgspec.json.encode(message), check=True)
        return self._last_id

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        given = {} if params is None else {"params": params}
        message = {"jsonrpc": "2.0", "method": method, **given}
        self.send(msgspec.json.encode(message), check=True)

    def call(self, name: str, **arguments: Any) -> int:
        return self.start("tools/call", {"name": name, "arguments": arguments})

    # -- listening -------------------------------------------------------------------

    def answer(self, id: int) -> dict[str, Any]:
        """The whole answer to the request ``id``; what comes before it stays in the inbox."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            for index, message in enumerate(self.inbox):
                if isinstance(message, dict) and message.get("id") == id:
                    found.append(self.inbox.pop(index))
                    return True
            return "stdout" not in self._open

        self.until(look, f"the answer to {id}")
        assert found, f"the server ended without answering {id}: {self.errors.decode()}"
        return found[0]

    def request(self, method: str, params: dict[str, Any] | None = None) -> Any:
        message = self.answer(self.start(method, params))
        assert "result" in message, message
        return message["result"]

    def text(self, name: str, **arguments: Any) -> str:
        """Call a tool and return the text it answers with."""
        result = self.request("tools/call", {"name": name, "arguments": arguments})
        assert result["isError"] is False, result
        return str(result["content"][0]["text"])

    def receive(self) -> Any:
        """The next message, whatever it is."""
        self.until(lambda: self.inbox or "stdout" not in self._open, "a message")
        assert self.inbox, f"the server ended without a word: {self.errors.decode()}"
        return self.inbox.pop(0)

    def initialize(self, revision: str = "2025-11-25") -> Any:
        params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": CLIENT}
        result = self.request("initialize", params)
        self.notify("notifications/initialized")
        return result

    def says(self, text: str) -> None:
        """Wait until the server has written ``text`` to stderr."""
        self.until(lambda: text.encode() in self.errors, f"{text!r} on stderr")

    # -- the end -----------------------------------------------------------------------

    def end_input(self) -> None:
        """Close the server's stdin once all is written."""
        self.until(lambda: not self._unsent, "room for the input")
        self.close("stdin")

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def wait(self, patience: float = 0) -> int:
        """The exit code, when process and output have ended."""
        self.until(
            lambda: (
                self._popen.returncode is not None and not self._open.keys() & {"stdout", "stderr"}
            ),
            "the end of the process",
            patience,
        )
        assert not self._partial, f"the last line is not whole: {bytes(self._partial[-200:])!r}"
        return self._popen.returncode

    def wait_exit(self) -> int:
        """The exit code, whoever still holds the output open."""
        self.until(lambda: self._popen.returncode is not None, "the end of the process")
        return self._popen.returncode

    def finish(self) -> int:
        """End the input, take the rest of the output, and return the exit code."""
        self.end_input()
        return self.wait()

    def resident(self) -> int:
        """Resident memory, in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise LookupError("VmRSS")


def _environment() -> dict[str, str]:
    """Ours, without what would change how Python treats the descriptors."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}


CLIENT = {"name": "process", "version": "1.0.0"}


def line(method: str, params: dict[str, Any] | None = None, id: int | None = 1) -> bytes:
    """A message of 2026-07-28, which needs no handshake."""
    head = {"jsonrpc": "2.0"} if id is None else {"jsonrpc": "2.0", "id": id}
    given = {**(params or {}), "_meta": envelope()}
    return msgspec.json.encode({**head, "method": method, "params": given}) + b"\n"


def call_line(id: int, name: str, **arguments: Any) -> bytes:
    return line("tools/call", {"name": name, "arguments": arguments}, id)
