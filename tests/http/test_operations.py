"""Health, readiness, access log, metrics, and the end of a serving process."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from http_lab import CLIENT, D, E, lab
from test_sessions import make

from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from support import run

TARGET = """
import asyncio, time
from dovetail import Context, Server

server = Server("ops")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

@server.tool
async def slow(seconds: float, ctx: Context) -> str:
    ctx.progress(1)
    await asyncio.sleep(seconds)
    return "finished"

@server.tool
def pid() -> int:
    import os
    return os.getpid()
"""


def test_health_and_readiness() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            foreign = {"host": "10.1.2.3:8000"}  # a probe knows the address of the pod
            assert (await http.send("GET", foreign, path="/health").whole()).body == b"ok\n"
            assert (await http.send("GET", foreign, path="/ready").whole()).status == 200
            http.app.drain()
            assert (await http.send("GET", path="/health").whole()).status == 200
            assert (await http.send("GET", path="/ready").whole()).status == 503

    run(main())


def test_the_access_log_is_off(caplog: pytest.LogCaptureFixture) -> None:
    async def main(**options: Any) -> None:
        async with lab(make(), **options) as http:
            await http.modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}).whole()
            client = await http.session()
            await client.call("add", {"a": 1, "b": 2}).whole()
            await client.request("no/such").whole()
            await http.send("GET", path="/none").whole()

    with caplog.at_level(logging.INFO):
        run(main())
        assert not [r for r in caplog.records if r.name == "dovetail.access"]
        run(main(access_log=True))
    lines = [r.getMessage() for r in caplog.records if r.name == "dovetail.access"]
    kinds = [re.sub(r" \d+\.\dms$", "", line) for line in lines]
    assert kinds == [
        "127.0.0.1 POST /mcp tools/call 200",
        "127.0.0.1 POST /mcp initialize 200",
        "127.0.0.1 POST /mcp - 202",
        "127.0.0.1 POST /mcp tools/call 200",
        "127.0.0.1 POST /mcp - 200",
        "127.0.0.1 GET /none - 404",
    ]


def test_metrics() -> None:
    async def main() -> None:
        async with lab(make(), metrics=True) as http:
            await http.modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}).whole()
            await http.session()
            page = (await http.send("GET", path="/metrics").whole()).body.decode()
            counted = 'dovetail_exchanges_total{method="tools/call",status="200",verb="POST"} 1.0'
            assert counted in page
            assert "dovetail_sessions 1.0" in page
            assert 'dovetail_exchange_seconds_count{method="tools/call"} 1.0' in page
        async with lab(make()) as http:
            assert (await http.send("GET", path="/metrics").whole()).status == 404

    run(main())


@contextmanager
def process(
    folder: Path, *arguments: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``dovetail serve`` as a user starts it, and its URL."""
    target = folder / "target.py"
    target.write_text(TARGET)
    command = [sys.executable, "-m", "dovetail", "serve", str(target), "--http", "127.0.0.1:0"]
    child = subprocess.Popen(
        [*command, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert child.stderr is not None
        line = child.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        yield child, found[0]
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        assert child.stderr is not None
        child.stderr.close()


def ask(url: str, name: str, **arguments: Any) -> str:
    meta = {PROTOCOL_VERSION_KEY: E, CLIENT_CAPABILITIES_KEY: {}, "progressToken": 1}
    params = {"name": name, "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": E,
        "mcp-method": "tools/call",
        "mcp-name": name,
    }
    request = urllib.request.Request(url, msgspec.json.encode(body), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


def ready(url: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url.replace("/mcp", "/ready"), timeout=5) as answer:
                assert answer.status == 200
                return
        except OSError:
            pass
    raise AssertionError("it never was ready")


def test_a_stopped_server_finishes_what_it_has_begun(tmp_path: Path) -> None:
    async def main(child: subprocess.Popen[str], url: str) -> None:
        loop = asyncio.get_running_loop()
        slow = loop.run_in_executor(None, lambda: ask(url, "slow", seconds=0.5))
        port = int(url.split(":")[2].split("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        params = {"protocolVersion": D, "capabilities": {}, "clientInfo": CLIENT}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        body = msgspec.json.encode(message)
        head = "Host: localhost\r\nAccept: application/json, text/event-stream\r\n"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(f"POST /mcp HTTP/1.1\r\n{head}{kind}".encode() + body)
        answer = await reader.readuntil(b"}}}")
        found = re.search(rb"mcp-session-id: (\S+)", answer)
        assert found
        writer.write(
            f"GET /mcp HTTP/1.1\r\n{head}Mcp-Session-Id: {found[1].decode()}\r\n\r\n".encode()
        )
        assert b"text/event-stream" in await reader.readuntil(b"\r\n\r\n")
        child.send_signal(signal.SIGTERM)
        assert b"0\r\n\r\n" in await reader.read()  # the stream is ended, not cut
        writer.close()
        assert "finished" in await slow

    with process(tmp_path) as (child, url):
        ready(url)
        asyncio.run(asyncio.wait_for(main(child, url), 20))
        assert child.wait(10) == 0


def pids(url: str, enough: int, known: set[int]) -> set[int]:
    """Ask who serves until ``enough`` have answered that were not known."""
    seen: set[int] = set()
    deadline = time.monotonic() + 30
    while len(seen) < enough:
        assert time.monotonic() < deadline, seen
        try:
            found = re.search(r'"text":"(\d+)"', ask(url, "pid"))
        except OSError:  # the connection was that of a worker who is gone
            continue
        assert found
        seen |= {int(found[1])} - known
    return seen


def test_several_workers_share_a_port(tmp_path: Path) -> None:
    with process(tmp_path, "--workers", "2", "--stateless") as (child, url):
        ready(url)
        first = pids(url, 2, set())
        os.kill(next(iter(first)), signal.SIGKILL)  # it is replaced
        assert len(pids(url, 1, first)) == 1
        child.send_signal(signal.SIGTERM)
        assert child.wait(15) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--http", "8000"], "is not HOST:PORT"),
        (["--http", "127.0.0.1:x"], "is not HOST:PORT"),
        (["--http", "192.0.2.1:0"], "cannot listen"),
        (["--http", "127.0.0.1:0", "--workers", "2"], "--stateless"),
    ],
)
def test_mistakes_on_the_command_line(tmp_path: Path, arguments: list[str], text: str) -> None:
    (tmp_path / "t.py").write_text(TARGET)
    command = [sys.executable, "-m", "dovetail", "serve", str(tmp_path / "t.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1
