"""What the Python SDK 1.x sees: ``python mcp1_client.py '{"url": …}'`` or ``'{"command": …}'``."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import Any

import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

heard: dict[str, list[Any]] = {"progress": [], "log": [], "sampling": [], "elicitation": []}


async def on_log(params: types.LoggingMessageNotificationParams) -> None:
    heard["log"].append([params.level, params.data])


async def on_progress(progress: float, total: float | None, message: str | None) -> None:
    heard["progress"].append([progress, total])


async def on_sampling(context: Any, params: Any) -> types.CreateMessageResult:
    heard["sampling"].append(params.messages[0].content.text)
    content = types.TextContent(type="text", text="42")
    return types.CreateMessageResult(role="assistant", content=content, model="m")


async def on_elicitation(context: Any, params: Any) -> types.ElicitResult:
    heard["elicitation"].append(sorted(params.requestedSchema["properties"]))
    return types.ElicitResult(action="accept", content={"username": "ann", "email": "a@b.c"})


@asynccontextmanager
async def connected(task: dict[str, Any]) -> Any:
    if "url" in task:
        async with streamablehttp_client(task["url"]) as (read, write, _):
            yield read, write
    else:
        command, *arguments = task["command"]
        async with stdio_client(StdioServerParameters(command=command, args=arguments)) as streams:
            yield streams


def kinds(result: Any) -> list[str]:
    return [block.type for block in result.content]


async def visit(session: ClientSession) -> dict[str, Any]:
    call = session.call_tool
    await session.send_ping()
    await session.set_logging_level("debug")
    await session.subscribe_resource("test://watched-resource")
    await session.unsubscribe_resource("test://watched-resource")
    reference = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    prompted = await session.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
    return {
        "tools": len((await session.list_tools()).tools),
        "resources": [str(one.uri) for one in (await session.list_resources()).resources],
        "templates": len((await session.list_resource_templates()).resourceTemplates),
        "prompts": len((await session.list_prompts()).prompts),
        "text": (await call("test_simple_text")).content[0].text,
        "content": [kinds(await call(f"test_{one}_content")) for one in ("image", "audio")],
        "embedded": kinds(await call("test_embedded_resource")),
        "mixed": kinds(await call("test_multiple_content_types")),
        "error": (await call("test_error_handling")).isError,
        "progress": kinds(await call("test_tool_with_progress", progress_callback=on_progress)),
        "logging": kinds(await call("test_tool_with_logging")),
        "sampling": (await call("test_sampling", {"prompt": "6 x 7?"})).content[0].text,
        "elicitation": (await call("test_elicitation", {"message": "Who?"})).content[0].text,
        "read": (await session.read_resource("test://static-text")).contents[0].text,
        "binary": (await session.read_resource("test://static-binary")).contents[0].mimeType,
        "template": (await session.read_resource("test://template/7/data")).contents[0].text,
        "prompt": prompted.messages[0].content.text,
        "completion": (
            await session.complete(reference, {"name": "arg1", "value": "par"})
        ).completion.values,
        "concurrent": len(
            await asyncio.gather(*(call("greet", {"name": str(n)}) for n in range(50)))
        ),
    }


async def main(task: dict[str, Any]) -> None:
    async with connected(task) as (read, write):
        callbacks = {
            "logging_callback": on_log,
            "sampling_callback": on_sampling,
            "elicitation_callback": on_elicitation,
        }
        async with ClientSession(read, write, **callbacks) as session:
            revision = (await session.initialize()).protocolVersion
            seen = await visit(session)
    print(json.dumps({"revision": revision, **seen, "heard": heard}))


asyncio.run(main(json.loads(sys.argv[1])))
