"""A real redis-server for the tests: on a socket of its own, with nothing on disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path


class RedisServer:
    """One server; it can be stopped, started again (empty) and frozen."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self._process = subprocess.Popen(
            ["redis-server", *arguments, "--appendonly", "no", "--dir", str(self.directory)],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.01)
        raise TimeoutError("redis-server does not start")

    def stop(self) -> None:
        """As a crash does: nothing is kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """As a cut cable does: connections stay, nothing comes back."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()
