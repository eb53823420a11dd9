"""Our client against servers of others, run by their own interpreters, in every revision."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from clientkit import ALL, HANDSHAKE, MODERN

from dovetail import Client, McpError
from dovetail.client.negotiate import Verdicts
from dovetail.errors import LocalProtocolError
from support import T

ROOT = Path(__file__).parents[2]
PYTHON = str(ROOT / ".peers" / "venv" / "bin" / "python")
NODE = str(ROOT / ".peers" / "bin" / "node")
MCP = str(Path(__file__).parent / "servers" / "everything_mcp.py")
TS = {name: str(ROOT / "bench" / "servers" / f"{name}.mjs") for name in ("ts_v1", "ts_v2")}
REFERENCE = str(
    ROOT / ".peers/everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
)
PATIENCE = 120  # a cold start on a busy machine takes many seconds


def patiently(main: Any) -> T:  # type: ignore[type-var]
    """The official SDKs take seconds to start."""
    result: T = asyncio.run(asyncio.wait_for(main, PATIENCE))
    return result


def options(revision: str | None) -> dict[str, Any]:
    return {"revision": revision, "known": Verdicts(), "timeout": 60}


@contextmanager
def on_a_port(command: list[str], **environment: str) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    env = {**os.environ, **{key: str(port) for key in environment}}
    arguments = [*command] if environment else [*command, str(port)]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(arguments, env=env, **quiet) as process:
        try:
            _wait_for(port)
            yield port
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError


async def visit_python(client: Client, revision: str | None) -> None:
    """All that the server on the official Python SDK has."""
    assert client.revision == (revision or MODERN)
    assert client.server is not None
    assert client.server.name == "everything-python"
    asks = client.revision not in HANDSHAKE[:2]
    assert (await client.call("add", {"a": 2, "b": 3})).text == "5"
    weather = await client.call("weather", {"place": "Rome"}, returns=dict[str, Any])
    assert weather.value == {"place": "Rome", "degrees": 21.5}
    picture = await client.call("picture")
    assert picture.content[0].mime_type == "image/png"
    failed = await client.call("fail")
    assert failed.is_error
    assert "fail" in failed.text
    assert (await client.call("partly")).is_error
    seen: list[Any] = []
    assert (await client.call("steps", {"n": 3}, on_progress=seen.append)).text == "done"
    assert [progress.done for progress in seen] == [1, 2, 3]
    if asks and client.revision != MODERN:
        assert (await client.call("ask")).text == "accept"
    assert [r.uri async for r in client.resources()] == ["everything://text"]
    assert (await client.read("everything://text"))[0].text == "hello"
    assert (await client.read("everything://item/7"))[0].text == "item 7"
    with pytest.raises(McpError):
        await client.read("everything://nothing/at/all")
    prompt = await client.prompt("greet", {"name": "Eve"})
    assert prompt.messages[0].content.text == "Hello Eve"
    found = await client.complete("greet", "name", "x")
    assert found.values == ["x1", "x2"]
    results = await asyncio.gather(*(client.call("add", {"a": n, "b": 0}) for n in range(20)))
    assert [result.text for result in results] == [str(n) for n in range(20)]
    await client.ping()


@pytest.mark.parametrize("revision", [None, *ALL])
def test_the_python_sdk_over_stdio(revision: str | None) -> None:
    async def main() -> None:
        client = Client.stdio(PYTHON, MCP, stderr=None, on_elicit=lambda q: {}, **options(revision))
        async with client:
            await visit_python(client, revision)

    patiently(main())


def test_the_python_sdk_over_http() -> None:
    async def main(port: int) -> None:
        for revision in (None, *ALL[1:]):
            url = f"http://127.0.0.1:{port}/mcp"
            async with Client.http(url, on_elicit=lambda q: {}, **options(revision)) as client:
                await visit_python(client, revision)

    with on_a_port([PYTHON, MCP]) as port:
        patiently(main(port))


@pytest.mark.parametrize(
    ("server", "revision"),
    [
        *(("ts_v1", revision) for revision in (None, *HANDSHAKE)),
        *(("ts_v2", revision) for revision in (None, *ALL)),
    ],
)
def test_the_typescript_sdks_over_stdio(server: str, revision: str | None) -> None:
    async def main() -> None:
        async with Client.stdio(NODE, TS[server], **options(revision)) as client:
            newest = "2025-11-25" if server == "ts_v1" else MODERN
            assert client.revision == (revision or newest)
            assert [tool.name async for tool in client.tools()] == ["add"]
            result = await client.call("add", {"a": 2, "b": 3})
            assert result.text == "5"
            assert (await client.call("add", {"a": "x"})).is_error
            results = await asyncio.gather(
                *(client.call("add", {"a": n, "b": 0}) for n in range(50))
            )
            assert [r.text for r in results] == [str(n) for n in range(50)]
            with pytest.raises(LocalProtocolError):
                await client.prompts.all()

    patiently(main())


async def visit_reference(client: Client) -> None:
    """The reference server of the protocol's own authors."""
    names = [tool.name async for tool in client.tools()]
    assert {"echo", "get-sum", "trigger-long-running-operation"} <= set(names)
    assert "hello" in (await client.call("echo", {"message": "hello"})).text
    assert "5" in (await client.call("get-sum", {"a": 2, "b": 3})).text
    seen: list[Any] = []
    long = {"duration": 0.3, "steps": 3}
    await client.call("trigger-long-running-operation", long, on_progress=seen.append)
    assert seen[-1].done == 3
    kinds = [type(b).__name__ for b in (await client.call("get-tiny-image")).content]
    assert "ImageContent" in kinds
    structured = await client.call("get-structured-content", {"location": "New York"})
    if client.revision not in HANDSHAKE[:2]:
        assert set(structured.structured) == {"temperature", "conditions", "humidity"}
    resources = await client.resources.page()
    assert (await client.read(resources[0].uri))[0].uri == resources[0].uri
    prompts = [prompt.name async for prompt in client.prompts()]
    assert "simple-prompt" in prompts
    assert (await client.prompt("simple-prompt")).messages
    await client.ping()


@pytest.mark.parametrize("revision", [None, *HANDSHAKE])
def test_the_reference_server_over_stdio(revision: str | None) -> None:
    async def main() -> None:
        client = Client.stdio(NODE, REFERENCE, "stdio", stderr=None, **options(revision))
        async with client:
            assert client.revision == (revision or "2025-11-25")
            await visit_reference(client)

    patiently(main())


def test_the_reference_server_over_http() -> None:
    async def main(port: int) -> None:
        for revision in (None, *HANDSHAKE[1:]):
            url = f"http://127.0.0.1:{port}/mcp"
            async with Client.http(url, **options(revision)) as client:
                await visit_reference(client)

    with on_a_port([NODE, REFERENCE, "streamableHttp"], PORT="") as port:
        patiently(main(port))


def test_a_proxy_before_a_server_of_others() -> None:
    """An old server on stdio, offered to a client of 2026-07-28 in memory."""
    from dovetail import Server

    async def main() -> None:
        behind = Client.stdio(NODE, REFERENCE, "stdio", stderr=None, **options(None))
        async with Client.memory(Server.proxy(behind), **options(MODERN)) as client:
            assert client.revision == MODERN
            await visit_reference(client)

    patiently(main())
