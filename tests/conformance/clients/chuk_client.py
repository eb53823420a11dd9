"""What chuk-mcp sees, a client that shares no code with the official ones.

python chuk_client.py '{"url": …}' or '{"command": […]}'
"""

import asyncio
import json
import sys
from typing import Any

from chuk_mcp import (
    StdioParameters,
    send_initialize,
    send_ping,
    send_prompts_get,
    send_prompts_list,
    send_resources_list,
    send_resources_read,
    send_tools_call,
    send_tools_list,
    stdio_client,
)
from chuk_mcp.transports.http import StreamableHTTPParameters, http_client


def connected(task: dict[str, Any]) -> Any:
    if "url" in task:
        return http_client(StreamableHTTPParameters(url=task["url"]))
    command, *arguments = task["command"]
    return stdio_client(StdioParameters(command=command, args=arguments))


def plain(model: Any) -> Any:
    return model if isinstance(model, dict) else model.model_dump(mode="json", exclude_none=True)


async def main(task: dict[str, Any]) -> None:
    async with connected(task) as line:
        begun = await send_initialize(*line)
        seen = {
            "revision": begun.protocolVersion,
            "ping": await send_ping(*line),
            "tools": len(plain(await send_tools_list(*line))["tools"]),
            "resources": len(plain(await send_resources_list(*line))["resources"]),
            "prompts": len(plain(await send_prompts_list(*line))["prompts"]),
            "text": plain(await send_tools_call(*line, "greet", {"name": "chuk"})),
            "error": plain(await send_tools_call(*line, "test_error_handling", {})),
            "read": plain(await send_resources_read(*line, "test://template/7/data")),
            "prompt": plain(
                await send_prompts_get(
                    *line, "test_prompt_with_arguments", {"arg1": "a", "arg2": "b"}
                )
            ),
        }
    print(json.dumps(seen))


asyncio.run(main(json.loads(sys.argv[1])))
