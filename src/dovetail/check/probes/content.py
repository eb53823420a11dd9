"""What reading, getting and calling give; tools only where it is safe to call them."""

import base64
import binascii
from typing import Any

from dovetail.check.conversation import Message, code_of
from dovetail.check.rules import Broken, NotApplicable, rule
from dovetail.check.schemas import value_problem
from dovetail.check.trial import Trial
from dovetail.errors import INVALID_PARAMS

MAX_READ = 20  # of each kind: enough to find what is wrong in all of them


@rule(
    "resources-readable",
    "A listed resource can be read, and what is binary in it is base64.",
    section="Server Features, Resources, Reading Resources",
    fix="Serve every resource you list; encode blobs in standard base64 with padding.",
    covers=("S36",),
)
async def resources_readable(t: Trial) -> None:
    """Reads the first twenty resources."""
    talk = await t.need("resources")
    resources = (await t.items("resources/list", "resources"))[:MAX_READ]
    for resource in resources:
        answer = await talk.request("resources/read", {"uri": resource["uri"]})
        result = answer.get("result")
        if not isinstance(result, dict):
            raise Broken(f"{resource['uri']}: {str(answer)[:200]}")
        for content in result.get("contents", []):
            if "blob" in content and not _is_base64(content["blob"]):
                raise Broken(f"{resource['uri']}: the blob is no base64")
    if not resources:
        raise NotApplicable("the server lists no resource")


def _is_base64(value: Any) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return False
    return True


@rule(
    "prompts-work",
    "A prompt without required arguments can be got, and what is binary in it is base64.",
    section="Server Features, Prompts, Getting a Prompt",
    fix="Serve every prompt you list; encode data in standard base64 with padding.",
    covers=("S40",),
)
async def prompts_work(t: Trial) -> None:
    """Gets the first twenty prompts that need no argument."""
    talk = await t.need("prompts")
    got = 0
    for prompt in await t.items("prompts/list", "prompts"):
        if got >= MAX_READ or any(a.get("required") for a in prompt.get("arguments") or []):
            continue
        answer = await talk.request("prompts/get", {"name": prompt["name"]})
        got += 1
        if "result" not in answer:
            raise Broken(f"{prompt['name']}: {str(answer)[:200]}")
        for message in answer["result"].get("messages", []):
            _check_block(prompt["name"], message.get("content"))
    if not got:
        raise NotApplicable("every prompt needs an argument")


def _check_block(where: str, block: Any) -> None:
    if (
        isinstance(block, dict)
        and block.get("type") in ("image", "audio")
        and not _is_base64(block.get("data"))
    ):
        raise Broken(f"{where}: the data of its {block['type']} is no base64")


async def callable_tools(t: Trial) -> list[tuple[Message, Message]]:
    """Tools that may be called, with arguments: those the user named, and those that say they
    only read and need no argument."""
    found = []
    for tool in await t.tools():
        if tool["name"] in t.target.calls:
            found.append((tool, t.target.calls[tool["name"]]))
        elif only_reads(tool) and not (tool.get("inputSchema") or {}).get("required"):
            found.append((tool, {}))
    if not found:
        raise NotApplicable(
            "no tool says it only reads and needs no argument; name some with --call"
        )
    return found[:MAX_READ]


def only_reads(tool: Message) -> bool:
    return (tool.get("annotations") or {}).get("readOnlyHint") is True


@rule(
    "tool-result",
    "A call that fits the tool is answered with a result, and what is binary in it is base64.",
    section="Server Features, Tools, Tool Result",
    fix="Report what goes wrong in a tool with isError; JSON-RPC errors are for wrong requests.",
    covers=("R001-4",),
)
async def tool_result(t: Trial) -> None:
    """Calls the tools it may call."""
    talk = await t.need("tools")
    for tool, arguments in await callable_tools(t):
        answer = await talk.request("tools/call", {"name": tool["name"], "arguments": arguments})
        if "result" not in answer:
            raise Broken(f"{tool['name']}: {str(answer)[:200]}")
        for block in answer["result"].get("content", []):
            _check_block(tool["name"], block)


@rule(
    "structured-output",
    "A tool with an output schema returns structured content that keeps it.",
    section="Server Features, Tools, Structured Content",
    fix="Return structuredContent, and make it fit the schema or the schema fit it.",
    revisions="CDE",
    covers=("S33",),
)
async def structured_output(t: Trial) -> None:
    """Calls the tools it may call that have an output schema."""
    talk = await t.need("tools")
    tried = False
    for tool, arguments in await callable_tools(t):
        if "outputSchema" not in tool:
            continue
        answer = await talk.request("tools/call", {"name": tool["name"], "arguments": arguments})
        result = answer.get("result") or {"isError": True}
        if result.get("isError") or result.get("resultType", "complete") != "complete":
            continue
        tried = True
        if "structuredContent" not in result:
            raise Broken(f"{tool['name']} has an output schema but returned no structured content")
        if problem := value_problem(tool["outputSchema"], result["structuredContent"]):
            raise Broken(f"{tool['name']}: {problem}")
    if not tried:
        raise NotApplicable("no tool that may be called has an output schema")


@rule(
    "argument-check",
    "Arguments that do not fit a tool's schema are refused: isError, or -32602.",
    section="Server Features, Tools, Security Considerations",
    fix="Check arguments against the input schema before the tool runs.",
    covers=("S32",),
)
async def argument_check(t: Trial) -> None:
    """Calls read-only tools without a required argument."""
    talk = await t.need("tools")
    tried = False
    for tool in (await t.tools())[:MAX_READ]:
        if not only_reads(tool) and tool["name"] not in t.target.calls:
            continue
        if not (tool.get("inputSchema") or {}).get("required"):
            continue
        tried = True
        answer = await talk.request("tools/call", {"name": tool["name"], "arguments": {}})
        refused = answer.get("result", {}).get("isError") is True
        if not refused and code_of(answer) != INVALID_PARAMS:
            raise Broken(f"{tool['name']} ran without its required arguments: {str(answer)[:200]}")
    if not tried:
        raise NotApplicable("no tool that may be called has a required argument")


@rule(
    "progress-order",
    "Progress names the token of an open request, and its value only grows.",
    section="Utilities, Progress",
    fix="Send progress only for tokens you were given, growing, and none after the answer.",
    covers=("X21", "X22", "X23"),
)
async def progress_order(t: Trial) -> None:
    """Calls the tools it may call with a progress token, and follows what comes."""
    talk = await t.need("tools")
    told = False
    for number, (tool, arguments) in enumerate(await callable_tools(t)):
        token = f"check-{number}"
        talk.take_events()
        params = {"name": tool["name"], "arguments": arguments, "_meta": {"progressToken": token}}
        await talk.request("tools/call", params)
        seen = _progress(talk.take_events(), token, tool["name"])
        told = told or bool(seen)
        await talk.request("server/discover" if t.revision.modern else "ping")
        if late := _progress(talk.take_events(), token, tool["name"]):
            raise Broken(f"{tool['name']}: progress {late} came after the answer")
    if not told:
        raise NotApplicable("no tool that may be called reports progress")


def _progress(events: list[Message], token: str, tool: str) -> list[float]:
    values: list[float] = []
    for event in events:
        if event["method"] != "notifications/progress":
            continue
        params = event.get("params") or {}
        if params.get("progressToken") != token:
            raise Broken(f"{tool}: progress for the token {params.get('progressToken')!r}")
        if values and params["progress"] <= values[-1]:
            raise Broken(f"{tool}: progress {params['progress']} after {values[-1]}")
        values.append(params["progress"])
    return values
