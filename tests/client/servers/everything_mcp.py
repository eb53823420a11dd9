"""Something of everything on the official Python SDK: everything_mcp.py [PORT]"""

import sys
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.types import CallToolResult, Completion, TextContent
from pydantic import BaseModel

server = MCPServer("everything-python", version="1.0.0", log_level="ERROR")
PIXEL = bytes.fromhex("89504e470d0a1a0a")


class Weather(BaseModel):
    place: str
    degrees: float


class Sure(BaseModel):
    sure: bool = True


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def weather(place: str) -> Weather:
    return Weather(place=place, degrees=21.5)


@server.tool()
async def picture() -> Image:
    return Image(data=PIXEL, format="png")


@server.tool()
async def fail() -> str:
    raise ValueError("on purpose")


@server.tool()
async def partly(ctx: Context[Any, Any]) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text="so so")], is_error=True)


@server.tool()
async def steps(n: int, ctx: Context[Any, Any]) -> str:
    for step in range(n):
        await ctx.report_progress(step + 1, n, f"step {step + 1}")
    return "done"


@server.tool()
async def ask(ctx: Context[Any, Any]) -> str:
    answer = await ctx.elicit("Are you sure?", Sure)
    return answer.action


@server.resource("everything://text")
def text() -> str:
    return "hello"


@server.resource("everything://item/{id}")
def item(id: str) -> str:
    return f"item {id}"


@server.prompt()
def greet(name: str) -> str:
    return f"Hello {name}"


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> Completion:
    return Completion(values=[argument.value + "1", argument.value + "2"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
