"""The checker reports nothing about our own servers, in every revision and transport they offer."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dovetail.check.http import HttpTarget
from dovetail.check.run import Report, check
from dovetail.check.target import StdioTarget, Target
from dovetail.check.ws import WsTarget

ROOT = Path(__file__).resolve().parents[2]
SERVERS = {
    "quickstart": str(ROOT / "examples" / "quickstart.py"),
    "notes": str(ROOT / "examples" / "notes.py"),
    "everything": str(ROOT / "examples" / "everything.py"),
    "sources": "sources",
    "lisp": "lisp",
}


def command(name: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "dovetail", "serve", SERVERS[name], *options]


def examine(target: Target) -> Report:
    report = asyncio.run(check(target))
    assert [(r.revision, r.rule.id, r.detail) for r in report.failures()] == []
    assert any(result.outcome == "pass" for result in report.results)
    return report


@contextmanager
def serving(name: str, option: str) -> Iterator[str]:
    with subprocess.Popen(command(name, option, "127.0.0.1:0"), stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            found = re.search(rb"(ws|http)://\S+", process.stderr.readline())
            assert found
            yield found[0].decode()
        finally:
            process.terminate()
            process.communicate(timeout=30)


@pytest.mark.parametrize("name", SERVERS)
def test_over_stdio(name: str) -> None:
    assert len(examine(StdioTarget(command(name))).revisions) == (4 if name == "sources" else 5)


@pytest.mark.parametrize("name", SERVERS)
def test_over_http(name: str) -> None:
    with serving(name, "--http") as url:
        report = examine(HttpTarget(url, {}, 10, {}))
    assert "2024-11-05" not in report.revisions
    assert "2026-07-28" in report.revisions


@pytest.mark.parametrize("name", SERVERS)
def test_over_websocket(name: str) -> None:
    with serving(name, "--ws") as url:
        report = examine(WsTarget(url, {}, 10, {}))
    assert "2026-07-28" in report.revisions
