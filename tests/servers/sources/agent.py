"""An agent's visit through the official client: ``python agent.py MODE COMMAND...``."""

import asyncio
import json
import sys
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp_types import ResourceTemplateReference


def plain(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def visit(client: Client) -> dict[str, Any]:
    async def call(tool: str, **arguments: Any) -> Any:
        return plain(await client.call_tool(tool, arguments))

    async def failure(tool: str, **arguments: Any) -> int:
        try:
            await client.call_tool(tool, arguments)
        except MCPError as error:
            return int(error.code)
        return 0

    category = ResourceTemplateReference(type="ref/resource", uri="sources://category/{slug}")
    return {
        "revision": client.protocol_version,
        "instructions": client.instructions,
        "tools": [tool.name for tool in (await client.list_tools()).tools],
        "found": await call("get_sources", query="how do I undo a git comit"),
        "nothing": await call("get_sources", query="best pizza recipe"),
        "categories": await call("list_categories"),
        "provenance": await call("get_provenance"),
        "endorsements": await call("get_endorsements"),
        "unknown": await failure("get_more_sources"),
        "wrong": await failure("get_sources", query="git", limit=1),
        "registry": plain(await client.read_resource("sources://registry/embedded.json")),
        "slugs": plain(await client.complete(category, {"name": "slug", "value": "gi"})),
        "prompt": plain(await client.get_prompt("research", {"topic": "css grid"})),
    }


async def main(mode: str, command: str, *arguments: str) -> None:
    server = StdioServerParameters(command=command, args=list(arguments))
    async with Client(server, mode=mode) as client:
        print(json.dumps(await visit(client)))


asyncio.run(main(*sys.argv[1:]))
