"""The official Python client, asked and told: ``python asked_mcp.py '{"mode": …, "plan": …}'``."""

from typing import Any

from asked import Steps, Tasks, Witness, start
from mcp import Client, StdioServerParameters
from mcp_types import SamplingCapability, SamplingToolsCapability


class McpSteps(Steps):
    async def call(self, tool: str, arguments: Any, level: str | None = None) -> Any:
        meta = await self.meta_for(level)
        heard = self.witness.progress
        return await self.client.call_tool(tool, arguments, progress_callback=heard, meta=meta)

    async def read(self, uri: str) -> Any:
        return await self.client.read_resource(uri)

    async def get(self, prompt: str, arguments: Any) -> Any:
        return await self.client.get_prompt(prompt, arguments)

    async def set_level(self, level: str) -> Any:
        return await self.client.set_logging_level(level)

    async def tools(self) -> Any:
        return [tool.name for tool in (await self.client.list_tools()).tools]


def target(task: dict[str, Any], number: int) -> Any:
    if "urls" in task:
        return task["urls"][number]
    command, *arguments = task["command"]
    return StdioServerParameters(command=command, args=arguments)


async def main(task: dict[str, Any]) -> dict[str, Any]:
    witness = Witness(task["plan"])
    tasks = Tasks(witness)
    able = Client(
        target(task, 0),
        mode=task["mode"],
        elicitation_callback=witness.elicit,
        sampling_callback=witness.sample,
        sampling_capabilities=SamplingCapability(tools=SamplingToolsCapability()),
        list_roots_callback=witness.roots,
        logging_callback=witness.log,
        message_handler=witness.message,
        extensions=[tasks],
    )
    async with able as client:
        revision = client.protocol_version
        seen = await McpSteps(client, witness, tasks).run(task["plan"]["steps"])
    bare_client = Client(target(task, 1), mode=task["mode"], logging_callback=witness.log)
    async with bare_client as client:
        bare = await McpSteps(client, witness, tasks).run(task["plan"]["bare"])
    return {"revision": revision, "steps": seen, "bare": bare}


start(main)
