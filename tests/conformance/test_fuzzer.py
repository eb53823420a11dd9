"""mcp-fuzzer against a server over HTTP.

What it counts as findings is mostly valid input, and its exit code is always 0. What we look
at: the fuzzer came to its end, the server is alive, and nothing broke that was not meant to.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from judge import PATIENCE, PYTHON, ROOT, running

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"still there?","version":"1"}}}'
)


def served_at(errors: Path) -> str:
    """The server says it on the first line of its stderr."""
    until = time.monotonic() + PATIENCE
    while "\n" not in errors.read_text():
        assert time.monotonic() < until, "the server does not listen"
        time.sleep(0.05)
    return errors.read_text().splitlines()[0].split()[-1]


@pytest.mark.parametrize("seed", [1])
def test_a_fuzzed_server_lives_on(seed: int, judges: None, tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    everything = ROOT / "examples" / "everything.py"
    command = [sys.executable, "-m", "dovetail.cli.main", "serve", everything]
    with running([*command, "--http", "127.0.0.1:0"], errors) as process:
        url = served_at(errors)
        fuzzer = [PYTHON.with_name("mcp-fuzzer"), "--mode", "all", "--seed", str(seed)]
        fuzzer += ["--phase", "aggressive", "--protocol-phase", "aggressive"]
        fuzzer += ["--runs", "3", "--runs-per-type", "5"]
        fuzzer += ["--protocol", "streamablehttp", "--endpoint", url]
        fuzzer += ["--no-network", "--allow-host", "127.0.0.1"]
        fuzzer += ["--fs-root", tmp_path, "--output-dir", tmp_path / "reports"]
        run = subprocess.run(
            fuzzer,
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert "Status: completed" in run.stdout, run.stdout + run.stderr
        assert "14 tool(s) fuzzed" in run.stdout
        assert "1 crashes" not in run.stdout
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        with urllib.request.urlopen(urllib.request.Request(url, INITIALIZE, headers)) as answer:
            assert answer.status == 200
        assert process.poll() is None
    said = errors.read_text()
    assert said.count("Traceback") == said.count("RuntimeError: a secret") > 0  # the tool `crash`
