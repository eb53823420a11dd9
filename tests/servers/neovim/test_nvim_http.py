"""Streamable HTTP, as the plugin opens it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from nvim_process import Nvim, editor

from support import run


async def config(nvim: Nvim) -> dict[str, Any]:
    path = await nvim.lua("return require('dovetail').mcp_config()")
    found: dict[str, Any] = json.loads(Path(path).read_text())["mcpServers"]["nvim"]  # noqa: ASYNC240
    return found


def frame(method: str, params: Any, id: int | None = 1) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return message if id is None else {**message, "id": id}


HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


def test_the_generated_file_leads_to_the_tools(tmp_path: Path) -> None:
    async def main() -> None:
        setup = "http = true, write = true, tools = {shout = {run = function(a) return a.x:upper()"
        setup += " end, schema = {type = 'object', properties = {x = {type = 'string'}}}},"
        setup += " ['no name'] = {run = print}, odd = {run = print, schema = {type = 'list'}}},"
        async with editor(tmp_path, setup=setup) as nvim:
            path = nvim.write("a.txt", "one\n")
            await nvim.call("nvim_command", "edit a.txt")
            found = await config(nvim)
            assert found["type"] == "http"
            assert found["url"].startswith("http://127.0.0.1:")
            headers = {**found["headers"], "Accept": "application/json, text/event-stream"}
            async with httpx.AsyncClient(headers=headers, trust_env=False) as http:
                hello = await http.post(found["url"], json=frame("initialize", HELLO))
                assert hello.status_code == 200
                session = {
                    "Mcp-Session-Id": hello.headers["mcp-session-id"],
                    "MCP-Protocol-Version": "2025-11-25",
                }
                await http.post(
                    found["url"],
                    json=frame("notifications/initialized", {}, None),
                    headers=session,
                )

                async def call(name: str, **arguments: Any) -> Any:
                    params = {"name": name, "arguments": arguments}
                    answer = await http.post(
                        found["url"], json=frame("tools/call", params), headers=session
                    )
                    return json.loads(answer.text.split("data: ")[-1])["result"]

                buffers = (await call("list_buffers"))["structuredContent"]["buffers"]
                assert [buffer["path"] for buffer in buffers] == [path]
                edit = {"path": "a.txt", "first_line": 1, "last_line": 1, "text": "ONE"}
                assert (await call("edit_buffer", **edit))["isError"] is False
                assert await nvim.lua("return vim.fn.getline(1)") == "ONE"
                said = await call("shout", x="quiet")
                assert said["content"][0]["text"] == "QUIET"
            async with nvim.client() as client:  # the IDE sees its own tools only
                names = {tool["name"] for tool in (await client.request("tools/list"))["tools"]}
                assert not names & {"list_buffers", "edit_buffer", "shout"}

    run(main())


def test_without_the_token_nobody_comes_in(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup="http = true,") as nvim:
            found = await config(nvim)
            token = found["headers"]["Authorization"]
            assert token.removeprefix("Bearer ") != nvim.lock()[1]["authToken"]
            accept = {"Accept": "application/json, text/event-stream"}
            async with httpx.AsyncClient(headers=accept, trust_env=False) as http:
                for given in (None, "", "Bearer", "Bearer x", "Basic x", token + "x"):
                    headers = {} if given is None else {"Authorization": given}
                    answer = await http.post(
                        found["url"], json=frame("initialize", HELLO), headers=headers
                    )
                    assert answer.status_code == 401, given
                for name, value in (("Origin", "https://evil.example"), ("Host", "evil.example")):
                    answer = await http.post(
                        found["url"],
                        json=frame("initialize", HELLO),
                        headers={"Authorization": token, name: value},
                    )
                    assert answer.status_code == 403, name
            assert (await nvim.call("nvim_get_mode"))["blocking"] is False

    run(main())


def test_it_is_closed_unless_asked_for_and_keeps_its_port(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path / "a") as nvim:
            assert (await config(nvim))["type"] == "stdio"
        async with editor(tmp_path / "b", setup="http = true,") as nvim:
            before = await config(nvim)
            await nvim.lua(
                "vim.api.nvim_create_autocmd('User', {pattern = 'ClaudeCodeServerStarted',"
                " callback = function() _G.again = true end})"
            )
            await nvim.call("nvim_command", "ClaudeCodeRestart")
            await nvim.until("again")
            assert await config(nvim) == before

    run(main())


@pytest.mark.parametrize("era", ["2026-07-28"])
def test_requests_without_a_session_work_too(tmp_path: Path, era: str) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup="http = true,") as nvim:
            found = await config(nvim)
            meta = {
                "io.modelcontextprotocol/protocolVersion": era,
                "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            params = {"name": "list_buffers", "arguments": {}, "_meta": meta}
            headers = {
                **found["headers"],
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": era,
                "Mcp-Method": "tools/call",
                "Mcp-Name": "list_buffers",
            }
            async with httpx.AsyncClient(headers=headers, trust_env=False) as http:
                answer = await http.post(found["url"], json=frame("tools/call", params))
                assert answer.status_code == 200, answer.text
                result = json.loads(answer.text.split("data: ")[-1])["result"]
                assert result["isError"] is False

    run(main())
