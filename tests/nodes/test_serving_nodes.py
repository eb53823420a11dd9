"""`dovetail serve` as an operator runs it: workers on one port, nodes behind a real nginx."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from nodes_lab import KEYS, Client, Modern, Node, eventually

from dovetail.backplane.memory import LogLimits
from dovetail.backplane.redis import LEASE_SECONDS
from dovetail.runtime.limits import Limits
from dovetail.transport.http.app import HttpApp
from dovetail.transport.http.limits import HttpLimits
from support import run

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "operations.md").read_text()
NAME = "mcp.example.com"
SERVER = """
import asyncio, os
from pathlib import Path
from dovetail import Context, Server

server = Server("served")

@server.tool
async def where() -> int:
    return os.getpid()

@server.resource("note://one")
async def note() -> str:
    return "text"

@server.resource("note://{name}")
async def named(name: str) -> str:
    return name

@server.prompt
def ask() -> str:
    return "?"

@server.tool
async def steps(gate: str, ctx: Context) -> int:
    ctx.progress(1)
    while not Path(gate).exists():
        await asyncio.sleep(0.01)
    return os.getpid()
"""


class Served(Node):
    """What the lab needs of something that has an address."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    started: list[subprocess.Popen[bytes]] = []

    def begin(*options: str, **environment: str) -> Served:
        command = [sys.executable, "-m", "dovetail", "serve", str(file), "--http", "127.0.0.1:0"]
        process = subprocess.Popen(
            [*command, *options],
            stderr=subprocess.PIPE,
            env={**os.environ, "DOVETAIL_KEYS": KEYS, **environment},
        )
        started.append(process)
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        found = re.search(r"serving (http://\S+)/mcp", line)
        assert found, line
        return Served(process, found[1])

    yield begin
    for process in started:
        process.send_signal(signal.SIGTERM)
    for process in started:
        process.wait(20)
        assert process.stderr is not None
        process.stderr.close()


@asynccontextmanager
async def apart(**headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """A connection for each request, so that any worker may get it."""
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=20, limits=limits, headers=headers) as http:
        yield http


@pytest.mark.verifies("N-session")
def test_workers_on_one_port_find_each_others_sessions(
    serve: Callable[..., Served], redis_url: str
) -> None:
    served = serve("--workers", "2", DOVETAIL_BACKPLANE=redis_url)

    async def main() -> None:
        async with apart() as http:
            modern = Modern(http)
            workers: set[int] = set()

            async def both_serve() -> bool:
                workers.add(await modern.call(served, "where"))
                return len(workers) == 2

            await eventually(both_serve)
            for _ in range(4):
                client = await Client(http).open(served)
                where = {await client.call(served, "where") for _ in range(20)}
                assert len(where) == 1
                assert where <= workers

    run(main())


def test_a_worker_that_is_killed_is_replaced_and_its_sessions_live_on(
    serve: Callable[..., Served], redis_url: str
) -> None:
    served = serve("--workers", "2", "--backplane", redis_url)

    async def main() -> None:
        async with apart() as http:
            client = await Client(http).open(served)
            victim = await client.call(served, "where")
            await asyncio.sleep(1.1)  # one that dies sooner ends them all
            os.kill(victim, signal.SIGKILL)

            async def answers() -> bool:
                try:
                    response = await client.post(served, "tools/call", {"name": "where"})
                except httpx.TransportError:  # it had taken the connection
                    return False
                assert response.status_code in (200, 503), response.text
                return response.status_code == 200

            await eventually(answers)
            assert await client.call(served, "where") != victim

    run(main())


@pytest.fixture
def nginx(serve: Callable[..., Served], redis_url: str, tmp_path: Path) -> Iterator[Served]:
    """The configuration of docs/operations.md, with two real nodes behind it."""
    nodes = [serve("--allow-host", NAME, "--backplane", redis_url) for _ in range(2)]
    (fragment,) = re.findall(r"```nginx\n(.*?)```", DOCS, re.DOTALL)
    for number, node in enumerate(nodes, 1):
        fragment = fragment.replace(f"node{number}:8000", node.url.removeprefix("http://"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    fragment = fragment.replace("listen 80;", f"listen 127.0.0.1:{port};")
    paths = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log stderr warn; events {{}}\n"
        f"http {{ access_log off; {paths}\n{fragment}\n}}\n"
    )
    process = subprocess.Popen(["nginx", "-p", str(tmp_path), "-c", str(config)])
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert time.monotonic() < deadline, "nginx does not start"
            time.sleep(0.01)
    yield Served(process, f"http://127.0.0.1:{port}")
    process.terminate()
    process.wait(20)


@pytest.mark.verifies("N-proxy")
def test_two_nodes_behind_nginx(nginx: Served, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def main() -> None:
        async with apart(host=NAME) as http:
            modern = Modern(http)
            assert len({await modern.call(nginx, "where") for _ in range(10)}) == 2
            client = await Client(http).open(nginx)
            assert len({await client.call(nginx, "where") for _ in range(10)}) == 1
            async with client.calling(nginx, "steps", gate=str(gate)) as stream:
                assert (await stream.message())["params"]["progress"] == 1  # nothing is held back
                last = stream.last_id
            gate.touch()
            async with client.listening(nginx, last) as stream:
                (answer,) = await stream.rest()
                assert "result" in answer
            response = await http.delete(f"{nginx.url}/mcp", headers=client.headers)
            assert response.status_code == 204
            response = await client.post(nginx, "tools/list", {})
            assert response.status_code == 404

    run(main())


PYTHON = str(ROOT / ".peers" / "venv" / "bin" / "python")
CLIENTS = ROOT / "tests" / "interop" / "clients"
OFFICIAL = {
    "python": (PYTHON, str(CLIENTS / "mcp_client.py")),
    "typescript": (str(ROOT / ".peers" / "bin" / "node"), str(CLIENTS / "ts_client.mjs")),
}


@pytest.mark.verifies("N-proxy")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("language", OFFICIAL)
def test_official_clients_behind_nginx(nginx: Served, language: str, mode: str) -> None:
    """They know nothing of nodes: a session of theirs is in one place, a plain call in any."""
    plan = {"calls": [["where", {}]] * 12, "reads": [], "gets": [], "completions": []}
    task = {"sdk": "v2", "mode": mode, "url": f"{nginx.url}/mcp", "plan": plan}
    subprocess.run([ROOT / "scripts" / "peers"], check=True)
    done = subprocess.run(
        [*OFFICIAL[language], json.dumps(task)], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    seen = json.loads(done.stdout)
    assert seen["revision"] == ("2025-11-25" if mode == "legacy" else "2026-07-28")
    where = {call["content"][0]["text"] for call in seen["calls"]}
    assert len(where) == (1 if mode == "legacy" else 2)


def test_a_name_that_was_not_allowed_is_explained(nginx: Served) -> None:
    async def main() -> None:
        async with apart(host="other.example.com") as http:
            response = await Modern(http).post(nginx, "tools/list", {})
            assert response.status_code == 403
            assert "--allow-host other.example.com" in response.text

    run(main())


# -- what an operator may get wrong ------------------------------------------------------------


def serve_in_vain(tmp_path: Path, *options: str, **environment: str) -> str:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    command = [sys.executable, "-m", "dovetail", "serve", str(file), "--http", "127.0.0.1:0"]
    without = {k: v for k, v in os.environ.items() if not k.startswith("DOVETAIL_")}
    done = subprocess.run(
        [*command, *options], capture_output=True, timeout=20, env={**without, **environment}
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.decode().splitlines()
    return line


@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        (["--backplane", "redis://x"], {}, "DOVETAIL_KEYS"),
        (["--backplane", "http://x"], {"DOVETAIL_KEYS": KEYS}, "--backplane http://x"),
        (["--backplane", "redis://x"], {"DOVETAIL_KEYS": "short"}, "DOVETAIL_KEYS"),
        (["--backplane", "redis://x"], {"DOVETAIL_KEYS_FILE": "/nonesuch"}, "/nonesuch"),
        (["--workers", "2"], {}, "--backplane"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, options: list[str], environment: dict[str, str], said: str
) -> None:
    assert said in serve_in_vain(tmp_path, *options, **environment)


# -- the page --------------------------------------------------------------------------------------


def test_the_program_of_the_page_makes_an_application() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, "docs/operations.md", "exec"), names)  # noqa: S102
    assert isinstance(names["app"], HttpApp)
    assert names["app"].backplane.namespace == "shop"


def test_the_figures_of_the_page_are_those_of_the_code() -> None:
    text = " ".join(DOCS.split())
    assert LEASE_SECONDS == 10
    assert "until its lease has run out (ten seconds)" in text
    assert LogLimits().seconds == 300
    assert "in Redis for five minutes" in text
    assert HttpLimits().drain_seconds == 10
    assert "within eleven seconds" in text
    assert HttpLimits().keep_alive_seconds == 15
    assert "says something every 15 seconds" in text
    assert Limits().max_frame == 4 * 1024 * 1024
    assert "client_max_body_size 4m" in text


# -- the image -----------------------------------------------------------------------------------


def test_the_dockerfile_names_what_is_there() -> None:
    """No engine to build it with in the tests: at least nothing in it is made up."""
    lines = (ROOT / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.+) \S+$", lines, re.M) for word in line.split()]
    assert copied
    assert all((ROOT / word).exists() for word in copied)
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    for named in re.findall(r"\[([a-z,]+)\]'", lines):
        assert set(named.split(",")) <= extras.keys()
    from dovetail.cli.main import _parser

    (arguments,) = re.findall(r"^CMD \[(.+)\]$", lines, re.M)
    words = ["serve", *re.findall(r'"([^"]+)"', arguments)]
    options = _parser(words).parse_args(words)
    assert options.http == "0.0.0.0:8000"
    for command in re.findall(r"command: (/srv.+)$", DOCS, re.M):
        assert _parser(["serve"]).parse_args(["serve", *command.split()])
