"""FastMCP's client, asked and told: ``python asked_fastmcp.py '{"mode": …, "plan": …}'``."""

from typing import Any

from asked import Steps, Tasks, Witness, start
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp_types import ErrorData, SamplingCapability, SamplingToolsCapability


class FastmcpSteps(Steps):
    async def call(self, tool: str, arguments: Any, level: str | None = None) -> Any:
        meta = await self.meta_for(level)
        heard = self.witness.progress
        return await self.client.call_tool_mcp(tool, arguments, progress_handler=heard, meta=meta)

    async def read(self, uri: str) -> Any:
        return await self.client.read_resource_mcp(uri)

    async def get(self, prompt: str, arguments: Any) -> Any:
        return await self.client.get_prompt_mcp(prompt, arguments)

    async def set_level(self, level: str) -> Any:
        return await self.client.set_logging_level(level)

    async def tools(self) -> Any:
        return [tool.name for tool in await self.client.list_tools()]

    async def roots_changed(self) -> Any:
        await self.client.send_roots_list_changed()


class Handlers:
    """The witness in the shapes that FastMCP calls."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    async def elicit(self, message: str, kind: Any, params: Any, ctx: Any) -> Any:
        return await self._witness.elicit(ctx, params)

    async def sample(self, messages: Any, params: Any, ctx: Any) -> Any:
        answer = await self._witness.sample(ctx, params)
        if isinstance(answer, ErrorData):
            raise ValueError(answer.message)
        return answer

    async def roots(self, ctx: Any) -> Any:
        return (await self._witness.roots(ctx)).roots


def target(task: dict[str, Any], number: int) -> Any:
    if "urls" in task:
        return task["urls"][number]
    command, *arguments = task["command"]
    return StdioTransport(command, arguments, keep_alive=False)


async def main(task: dict[str, Any]) -> dict[str, Any]:
    witness = Witness(task["plan"])
    handlers = Handlers(witness)
    tasks = Tasks(witness)
    able = Client(
        target(task, 0),
        mode=task["mode"],
        elicitation_handler=handlers.elicit,
        sampling_handler=handlers.sample,
        sampling_capabilities=SamplingCapability(tools=SamplingToolsCapability()),
        roots=handlers.roots,
        log_handler=witness.log,
        message_handler=witness.message,
        extensions=[tasks],
    )
    async with able as client:
        revision = client.protocol_version
        seen = await FastmcpSteps(client, witness, tasks).run(task["plan"]["steps"])
    bare_client = Client(target(task, 1), mode=task["mode"], log_handler=witness.log)
    async with bare_client as client:
        bare = await FastmcpSteps(client, witness, tasks).run(task["plan"]["bare"])
    return {"revision": revision, "steps": seen, "bare": bare}


start(main)
