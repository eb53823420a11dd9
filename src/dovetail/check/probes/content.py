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
    "A listed resource can be read, and its contents are text or base64 with their URI.",
    section="Server Features, Resources, Reading Resources",
    fix="Return contents with uri and text, or blob in standard base64.",
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
            _check_contents(resource["uri"], content)
    if not resources:
        raise NotApplicable("the server lists no resource")


def _check_contents(uri: str, content: Any) -> None:
    if not isinstance(content, dict) or "uri" not in content:
        raise Broken(f"{uri}: contents without a URI: {str(content)[:100]}")
    if ("text" in content) == ("blob" in content):
        raise Broken(f"{uri}: contents have one of text and blob, not {sorted(content)}")
    if "blob" in content and not _is_base64(content["blob"]):
        raise Broken(f"{uri}: the blob is no base64")


def _is_base64(value: Any) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return False
    return True


@rule(
    "prompts-work",
    "A prompt without required arguments can be got, and its messages have role and content.",
    section="Server Features, Prompts, Getting a Prompt",
    fix="Return messages with a role of user or assistant and one content block.",
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
        if answer.get("result", {}).get("resultType") == "input_required":
            continue
        messages = answer.get("result", {}).get("messages")
        if not isinstance(messages, list):
            raise Broken(f"{prompt['name']}: {str(answer)[:200]}")
        for message in messages:
            _check_block(prompt["name"], message.get("content"))
    if not got:
        raise NotApplicable("every prompt needs an argument")


def _check_block(where: str, block: Any) -> None:
    if not isinstance(block, dict) or "type" not in block:
        raise Broken(f"{where}: a content block is {str(block)[:100]}")
    if block["type"] in ("image", "audio") and not _is_base64(block.get("data")):
        raise Broken(f"{where}: the data of its {block['type']} is no base64")


async def callable_tools(t: Trial) -> list[tuple[Message, Message]]:
    """Tools that may be called, with arguments: those the user named, and those that say they
    only read and need no argument."""
    found = []
    for tool in await t.tools():
        if tool["name"] in t.target.calls:
            found.append((tool, t.target.calls[tool["name"]]))
        elif _only_reads(tool) and not (tool.get("inputSchema") or {}).get("required"):
            found.append((tool, {}))
    if not found:
        raise NotApplicable(
            "no tool says it only reads and needs no argument; name some with --call"
        )
    return found[:MAX_READ]


def _only_reads(tool: Message) -> bool:
    return (tool.get("annotations") or {}).get("readOnlyHint") is True


@rule(
    "tool-result",
    "A call is answered with a list of content blocks.",
    section="Server Features, Tools, Tool Result",
    fix="Return content as a list, also for an error or no output.",
    covers=("R001-4",),
)
async def tool_result(t: Trial) -> None:
    """Calls the tools it may call."""
    talk = await t.need("tools")
    for tool, arguments in await callable_tools(t):
        answer = await talk.request("tools/call", {"name": tool["name"], "arguments": arguments})
        result = answer.get("result")
        if not isinstance(result, dict):
            raise Broken(f"{tool['name']}: {str(answer)[:200]}")
        if result.get("resultType", "complete") != "complete":
            continue
        if not isinstance(result.get("content"), list):
            raise Broken(f"{tool['name']}: content is {str(result.get('content'))[:100]}")
        for block in result["content"]:
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
        result = answer.get("result", {})
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
        if not _only_reads(tool) and tool["name"] not in t.target.calls:
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
