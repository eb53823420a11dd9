"""What FastMCP's client sees: ``python fastmcp_client.py '{"mode": …, "command": …}'``."""

import asyncio
import json
import sys
from collections.abc import Awaitable
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp import MCPError
from mcp_types import PromptReference, ResourceTemplateReference


def plain(model: Any) -> Any:
    if isinstance(model, list):
        return [plain(item) for item in model]
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def reference(ref: dict[str, str]) -> Any:
    kind = PromptReference if ref["type"] == "ref/prompt" else ResourceTemplateReference
    return kind.model_validate(ref)


async def outcome(asking: Awaitable[Any]) -> Any:
    try:
        return plain(await asking)
    except MCPError as error:
        return {"error": {"code": error.code, "message": error.message}}


async def completed(client: Client, ref: Any, name: str, value: str, given: Any) -> Any:
    argument = {"name": name, "value": value}
    return {"completion": await outcome(client.complete(reference(ref), argument, given))}


async def typed_data(client: Client) -> Any:
    """By the method its users call, which types the data by the output schema.

    Before 2026-07-28 a number comes in an object, and that is what is seen.
    """
    data = (await client.call_tool("add", {"a": 20, "b": 22})).data
    return getattr(data, "result", data)


async def visit(client: Client, plan: dict[str, Any]) -> dict[str, Any]:
    return {
        "revision": client.protocol_version,
        "server": plain(client.server_info),
        "instructions": client.instructions,
        "capabilities": plain(client.server_capabilities),
        "tools": plain(await client.list_tools()),
        "resources": plain(await client.list_resources()),
        "templates": plain(await client.list_resource_templates()),
        "prompts": plain(await client.list_prompts()),
        "calls": [await outcome(client.call_tool_mcp(name, args)) for name, args in plan["calls"]],
        "reads": [await outcome(client.read_resource_mcp(uri)) for uri in plan["reads"]],
        "gets": [await outcome(client.get_prompt_mcp(name, args)) for name, args in plan["gets"]],
        "completions": [await completed(client, *one) for one in plan["completions"]],
        "data": await typed_data(client),
    }


def target(task: dict[str, Any]) -> Any:
    if "url" in task:
        return task["url"]
    command, *arguments = task["command"]
    return StdioTransport(command, arguments, keep_alive=False)


async def main(task: dict[str, Any]) -> None:
    async with Client(target(task), mode=task["mode"]) as client:
        seen = await visit(client, task["plan"])
    print(json.dumps(seen))


asyncio.run(main(json.loads(sys.argv[1])))
