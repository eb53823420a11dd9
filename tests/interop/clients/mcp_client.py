"""What the official Python client sees: ``python mcp_client.py '{"mode": …, "command": …}'``."""

import asyncio
import json
import sys
from collections.abc import Awaitable
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp_types import PromptReference, ResourceTemplateReference


def plain(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def reference(ref: dict[str, str]) -> Any:
    kind = PromptReference if ref["type"] == "ref/prompt" else ResourceTemplateReference
    return kind.model_validate(ref)


async def outcome(asking: Awaitable[Any]) -> Any:
    try:
        return plain(await asking)
    except MCPError as error:
        return {"error": {"code": error.code, "message": error.message}}


async def visit(client: Client, plan: dict[str, Any]) -> dict[str, Any]:
    info = client.server_info
    return {
        "revision": client.protocol_version,
        "server": plain(info) if info else None,
        "instructions": client.instructions,
        "capabilities": plain(client.server_capabilities),
        "tools": plain(await client.list_tools())["tools"],
        "resources": plain(await client.list_resources())["resources"],
        "templates": plain(await client.list_resource_templates())["resourceTemplates"],
        "prompts": plain(await client.list_prompts())["prompts"],
        "calls": [await outcome(client.call_tool(name, args)) for name, args in plan["calls"]],
        "reads": [await outcome(client.read_resource(uri)) for uri in plan["reads"]],
        "gets": [await outcome(client.get_prompt(name, args)) for name, args in plan["gets"]],
        "completions": [
            await outcome(client.complete(reference(ref), {"name": name, "value": value}, given))
            for ref, name, value, given in plan["completions"]
        ],
    }


def target(task: dict[str, Any]) -> Any:
    if "url" in task:
        return task["url"]
    command, *arguments = task["command"]
    return StdioServerParameters(command=command, args=arguments)


async def main(task: dict[str, Any]) -> None:
    async with Client(target(task), mode=task["mode"]) as client:
        seen = await visit(client, task["plan"])
    print(json.dumps(seen))


asyncio.run(main(json.loads(sys.argv[1])))
