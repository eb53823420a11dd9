"""What a function can know about the request it serves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET

from dovetail import Context, Server
from dovetail.testing import TestClient, connect
from dovetail.testing.client import CLIENT_INFO

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
INFO = "io.modelcontextprotocol/clientInfo"


def make(seen: list[Any]) -> Server:
    server = Server("s", version="1")

    @server.tool
    def look(ctx: Context, n: int = 0) -> None:
        capabilities = ctx.capabilities
        seen.append(
            {
                "id": ctx.request_id,
                "method": ctx.method,
                "revision": ctx.revision,
                "client": ctx.client and ctx.client.name,
                "roots": capabilities.roots is not UNSET,
                "sampling": capabilities.sampling is not UNSET,
                "meta": ctx.meta,
                "n": n,
            }
        )

    @server.tool
    async def needs(what: str, ctx: Context) -> str:
        ctx.require(what)
        return "served"

    return server


def run(
    server: Server, revision: str, scenario: Callable[[TestClient], Any], **options: Any
) -> Any:
    async def main() -> Any:
        async with connect(server, revision, **options) as client:
            return await scenario(client)

    return asyncio.run(main())


@every_revision
def test_the_fields_of_a_context(revision: str) -> None:
    seen: list[Any] = []

    async def scenario(client: TestClient) -> int:
        id, future = client.start(
            "tools/call",
            {"name": "look", "arguments": {"n": 2}, "_meta": {"progressToken": "t"}},
        )
        await future
        return id

    capabilities: dict[str, Any] = {"roots": {}}
    id = run(make(seen), revision, scenario, capabilities=capabilities)
    envelope = {VERSION: E, CAPABILITIES: capabilities, INFO: CLIENT_INFO} if revision == E else {}
    assert seen == [
        {
            "id": id,
            "method": "tools/call",
            "revision": revision,
            "client": CLIENT_INFO["name"],
            "roots": True,
            "sampling": False,
            "meta": {**envelope, "progressToken": "t"},
            "n": 2,
        }
    ]


@every_revision
def test_the_context_is_no_argument(revision: str) -> None:
    async def scenario(client: TestClient) -> tuple[Any, Any]:
        tools = (await client.request("tools/list"))["tools"]
        refused = await client.call("look", {"ctx": {}})
        return tools[0]["inputSchema"], refused

    schema, refused = run(make([]), revision, scenario)
    assert schema["properties"] == {"n": {"type": "integer", "default": 0}}
    said = "Unknown argument 'ctx'; known: 'n'"
    assert refused["content"] == [{"type": "text", "text": said}]


@pytest.mark.parametrize("revision", REVISIONS[:4])
def test_a_request_without_params_or_meta(revision: str) -> None:
    server = Server("s", version="1")

    @server.prompt
    def look(ctx: Context) -> str:
        return repr(ctx.meta)

    async def scenario(client: TestClient) -> Any:
        return await client.request("prompts/get", {"name": "look"})

    assert run(server, revision, scenario)["messages"][0]["content"]["text"] == "{}"


@every_revision
@pytest.mark.parametrize("id", [0, -1, 2**53, "", "a", "é", "1"])
@pytest.mark.verifies("X5", "X2")
def test_the_id_is_the_clients(revision: str, id: int | str) -> None:
    seen: list[Any] = []

    async def scenario(client: TestClient) -> Any:
        params: dict[str, Any] = {"name": "look"}
        if revision == E:
            params["_meta"] = {VERSION: E, CAPABILITIES: {}}
        request = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        client.send(json.dumps(request).encode())
        return await client.receive()

    message = run(make(seen), revision, scenario)
    assert message["id"] == seen[0]["id"] == id
    assert type(message["id"]) is type(id)


@pytest.mark.verifies("S7", "SH-identity", "F-one-pipe")
def test_nothing_is_remembered_from_one_enveloped_request_to_the_next() -> None:
    seen: list[Any] = []

    async def scenario(client: TestClient) -> None:
        async def ask(meta: dict[str, Any]) -> Any:
            return await client.request("tools/call", {"name": "look", "_meta": meta})

        rich = {
            VERSION: E,
            CAPABILITIES: {"roots": {}, "sampling": {}},
            INFO: {"name": "a", "version": "1"},
        }
        first = await ask(rich)
        second = await ask({VERSION: E, CAPABILITIES: {}})
        assert first == second, "who asks makes no difference to the answer"
        # Nor do they learn from a handshake on the same pipe, or it from them.
        await client.initialize()
        await ask({VERSION: E, CAPABILITIES: {}})
        await client.request("tools/call", {"name": "look"})

    options: dict[str, Any] = {"handshake": False, "capabilities": {"sampling": {}}}
    run(make(seen), D, scenario, **options)
    known = [(one["revision"], one["client"], one["roots"], one["sampling"]) for one in seen]
    assert known == [
        (E, "a", True, True),
        (E, None, False, False),
        (E, None, False, False),
        (D, CLIENT_INFO["name"], False, True),
    ]


@every_revision
@pytest.mark.parametrize("capability", ["roots", "sampling", "elicitation"])
@pytest.mark.verifies("S6", "X14", "R002-14", "X31")
def test_requiring_what_the_client_did_not_declare(revision: str, capability: str) -> None:
    if capability == "elicitation" and revision in (A, B):
        declared: dict[str, Any] = {}  # not in these revisions, so nobody can declare it
    else:
        declared = {capability: {}}

    async def scenario(client: TestClient) -> Any:
        params = {"name": "needs", "arguments": {"what": capability}}
        return await client.answer("tools/call", params)

    refused = run(make([]), revision, scenario)
    if revision == E:
        assert refused["error"] == {
            "code": -32021,
            "message": "Missing required client capability",
            "data": {"requiredCapabilities": {capability: {}}},
        }
    else:
        text = f"The client does not support {capability}"
        block = {"type": "text", "text": text}
        assert refused["result"] == {"content": [block], "isError": True}
    if declared:
        served = run(make([]), revision, scenario, capabilities=declared)
        assert served["result"]["content"] == [{"type": "text", "text": "served"}]


@pytest.mark.parametrize("revision", REVISIONS[:4])
def test_requiring_something_outside_a_tool_is_no_crash(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No model reads the answer to these, so it is an error; but not an internal one."""
    server = Server("s", version="1")

    @server.resource("x://y")
    def read(ctx: Context) -> str:
        ctx.require("sampling")
        return ""

    @server.prompt
    def get(ctx: Context) -> str:
        ctx.require("sampling")
        return ""

    async def scenario(client: TestClient) -> list[Any]:
        return [
            await client.answer("resources/read", {"uri": "x://y"}),
            await client.answer("prompts/get", {"name": "get"}),
        ]

    for message in run(server, revision, scenario):
        assert message["error"]["data"] == "The client does not support sampling"
    assert not caplog.records
