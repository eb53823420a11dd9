"""Stands between a client and its server, and writes down every line of both.

    python tee.py LOGS COMMAND ARGUMENT...

LOGS is a directory; each start adds ``<pid>.wire`` (one line per message, "client " or
"server " before it) and ``<pid>.stderr``. A line is written down before it is handed on, so the
order in the file is one both sides could have seen.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import IO

CHUNK = 65536


class Wire:
    """The file of one conversation."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._lock = threading.Lock()

    def note(self, sender: bytes, line: bytes) -> None:
        with self._lock:
            self._file.write(sender + b" " + line + b"\n")
            self._file.flush()


def copy(wire: Wire, sender: bytes, source: int, target: IO[bytes]) -> None:
    rest = b""
    while chunk := os.read(source, CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            wire.note(sender, line)
        try:
            target.write(chunk)
            target.flush()
        except BrokenPipeError:
            return
    if rest:
        wire.note(sender, rest)
    target.close()


def main(logs: str, *command: str) -> int:
    name = Path(logs, str(os.getpid()))
    with name.with_suffix(".stderr").open("wb") as errors:
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )

    def pass_on(number: int, frame: FrameType | None) -> None:
        server.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    assert server.stdin is not None
    assert server.stdout is not None
    wire = Wire(name.with_suffix(".wire"))
    arguments = (wire, b"client", 0, server.stdin)
    threading.Thread(target=copy, args=arguments, daemon=True).start()
    copy(wire, b"server", server.stdout.fileno(), sys.stdout.buffer)
    code = server.wait()
    name.with_suffix(".exit").write_text(str(code))
    sys.stdout = None  # closed by copy
    return code


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]) & 0xFF)
