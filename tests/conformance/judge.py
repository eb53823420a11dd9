"""Runs the official conformance suite and reads what it found.

The suite judges a server at a URL. It writes ``checks.json`` per scenario; those are
what the tests look at, because its exit code does not tell of warnings and skips.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NODE = ROOT / ".peers" / "bin" / "node"
MODULES = ROOT / ".peers" / "judges" / "node_modules"
PYTHON = ROOT / ".peers" / "judges-venv" / "bin" / "python"
SUITE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
PUBLISHED = MODULES / "conformance-published" / "dist" / "index.js"
GATEWAY = MODULES / "supergateway" / "dist" / "index.js"
SERVER = HERE / "server.py"
BASELINE = HERE / "expected-failures.yml"
# Longer than any run takes on a busy machine; only what hangs meets it.
PATIENCE = 240

FOLDER = re.compile(r"(?:server-)?(?P<scenario>.+)-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d+Z")


@dataclass(frozen=True)
class Verdict:
    """What one run of the suite found."""

    exit_code: int
    output: str
    checks: dict[str, list[dict[str, Any]]]  # by scenario

    @property
    def counts(self) -> Counter[str]:
        return Counter(check["status"] for checks in self.checks.values() for check in checks)

    def having(self, *statuses: str) -> dict[str, str]:
        """``scenario:check (STATUS)``, and what the suite says about it."""
        return {
            f"{scenario}:{check['id']} ({check['status']})": check.get("errorMessage", "")
            for scenario, checks in sorted(self.checks.items())
            for check in checks
            if check["status"] in statuses
        }

    @property
    def empty(self) -> list[str]:
        """Scenarios that have shown nothing."""
        return sorted(
            scenario
            for scenario, checks in self.checks.items()
            if not any(check["status"] == "SUCCESS" for check in checks)
        )


def judged(url: str, *arguments: str, into: Path, suite: Path = SUITE) -> Verdict:
    """Let the suite judge the server at ``url``."""
    command = [NODE, suite, "server", "--url", url, "-o", into, *arguments]
    if suite is SUITE:
        command += ["--expected-failures", BASELINE]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=into.parent
    )
    checks: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(into.glob("*/checks.json")):
        found = FOLDER.fullmatch(path.parent.name)
        assert found is not None, path
        assert found["scenario"] not in checks, "a scenario ran twice"
        checks[found["scenario"]] = json.loads(path.read_text("utf-8"))
    return Verdict(run.returncode, run.stdout + run.stderr, checks)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(command: list[Any], errors: Path) -> Iterator[subprocess.Popen[str]]:
    # The bridge starts a process per request, and the suite gives it half a second.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


@contextmanager
def http_server(errors: Path, *arguments: str) -> Iterator[str]:
    """Our server over HTTP; it says its URL when it listens."""
    with running([sys.executable, SERVER, "--port", "0", *arguments], errors) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), errors.read_text()
        yield url
        assert process.poll() is None, "the server has died"


@contextmanager
def bridged_server(errors: Path) -> Iterator[str]:
    """Our server over stdio, with supergateway before it."""
    port = free_port()
    target = f"{sys.executable} {SERVER} --stdio"
    command = [NODE, GATEWAY, "--stdio", target, "--outputTransport", "streamableHttp"]
    command += ["--stateful", "--port", str(port), "--logLevel", "none"]
    with running(command, errors) as process:
        wait_for(port, process)
        yield f"http://localhost:{port}/mcp"


def wait_for(port: int, process: subprocess.Popen[str]) -> None:
    """Supergateway says nothing when it is ready, so we knock."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        assert process.poll() is None, "the bridge has died"
        try:
            socket.create_connection(("localhost", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the bridge does not listen")
