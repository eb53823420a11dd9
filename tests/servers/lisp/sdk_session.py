"""A whole programming session with the official Python client, as a user would have it.

``python sdk_session.py MODE COMMAND…`` prints what each step answered, as JSON.
"""

import asyncio
import json
import sys
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

asked: list[Any] = []
heard: list[Any] = []


async def elicit(ctx: Any, params: Any) -> Any:
    """Choose the first restart, with the value 21; answer "Ada" to a question for a line."""
    shown = params.model_dump(mode="json", by_alias=True, exclude_none=True)
    asked.append(shown["message"])
    fields = shown["requestedSchema"]["properties"]
    if "line" in fields:
        return ElicitResult(action="accept", content={"line": "Ada"})
    choice = next(one for one in fields["restart"]["enum"] if "value" in one)
    return ElicitResult(action="accept", content={"restart": choice, "value": "21"})


async def progress(done: float, total: float | None, message: str | None) -> None:
    heard.append([done, total, message])


class Steps:
    def __init__(self, client: Client) -> None:
        self._client = client
        self.answers: dict[str, Any] = {}

    async def step(self, name: str, code: str, **arguments: Any) -> None:
        await self.tool(name, "evaluate-lisp", code=code, **arguments)

    async def tool(self, name: str, tool: str, **arguments: Any) -> None:
        result = await self._client.call_tool(tool, arguments, progress_callback=progress)
        self.answers[name] = [result.content[0].text, result.is_error]

    async def cancelled(self, code: str) -> None:
        with anyio.move_on_after(0.5) as scope:
            await self._client.call_tool("evaluate-lisp", {"code": code})
        self.answers["cancelled"] = scope.cancelled_caught


async def work(client: Client) -> dict[str, Any]:
    steps = Steps(client)
    await steps.step("define", "(defun area (r) (* 3 r r))")
    await steps.step("use", "(area 2)")
    await steps.step("redefine", "(defun area (r) (* 22/7 r r))")
    await steps.step("use again", "(area 7)")
    await steps.step("error", "(area :round)")
    await steps.step("restart", "(* 2 missing)", debug=True)
    await steps.step("input", "(string-upcase (read-line))")
    await steps.step("progress", '(dotimes (i 3) (mcp:progress i 3 "step") (sleep 0.05)) :done')
    await steps.cancelled("(loop)")
    await steps.step("after cancel", "(area 7)")
    await steps.step("lose", "(exit :code 9)")
    await steps.step("gone", "(area 7)")
    await steps.tool("replay", "replay-session")
    await steps.step("back", "(area 7)")
    await steps.tool("create", "create-session", session="second")
    await steps.step("elsewhere", "(fboundp 'area)", session="second")
    await steps.tool("close", "close-session", session="second")
    return {**steps.answers, "asked": asked, "heard": heard, "revision": client.protocol_version}


async def main(mode: str, command: str, *arguments: str) -> None:
    server = StdioServerParameters(command=command, args=list(arguments))
    async with Client(server, mode=mode, elicitation_callback=elicit) as client:
        print(json.dumps(await work(client)))


asyncio.run(main(*sys.argv[1:]))
