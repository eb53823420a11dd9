"""Lists: pages, cursors, names, schemas; and what is asked for that no list has."""

import re

from dovetail.check.conversation import Message, code_of
from dovetail.check.probes.capabilities import LISTS
from dovetail.check.rules import Broken, NotApplicable, rule
from dovetail.check.schemas import json_schema_problem
from dovetail.check.trial import Trial
from dovetail.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")


@rule(
    "cursor-unknown",
    "A cursor the server did not give is answered with -32602.",
    section="Utilities, Pagination",
    fix="Check cursors; answer -32602 to one you cannot read.",
    level="SHOULD",
    covers=("R000-8",),
)
async def cursor_unknown(t: Trial) -> None:
    """Asks every list for the page after a cursor of our own making."""
    talk = await t.talk()
    for name, (method, _) in LISTS.items():
        if name in talk.capabilities:
            answer = await talk.request(method, {"cursor": "no-such-cursor!"})
            if code_of(answer) != INVALID_PARAMS:
                raise Broken(f"{method} answered {str(answer)[:200]}")


@rule(
    "names-unique",
    "In a list every name, or URI, is there once.",
    section="Server Features, Tools; Prompts; Resources",
    fix="Check for names given twice when they are registered.",
    covers=("S14",),
)
async def names_unique(t: Trial) -> None:
    """Reads all lists to their end."""
    talk = await t.talk()
    for name, (method, key) in LISTS.items():
        if name in talk.capabilities:
            member = "uri" if key == "resources" else "name"
            names = [str(item.get(member)) for item in await t.items(method, key)]
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice:
                raise Broken(f"{method} has {', '.join(twice)} more than once")


@rule(
    "tool-schema",
    "The schemas of a tool are valid JSON Schema, and the input is an object.",
    section="Server Features, Tools, Tool",
    fix='Give inputSchema {"type": "object", ...}, also for a tool without arguments.',
    should="ABC",
    covers=("S34", "X28"),
)
async def tool_schema(t: Trial) -> None:
    """Checks the input and output schema of every tool against their dialect."""
    for tool in await t.tools():
        schema = tool.get("inputSchema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise Broken(f"{tool.get('name')}: inputSchema is {str(schema)[:200]}")
        for key in ("inputSchema", "outputSchema"):
            if key in tool and (problem := json_schema_problem(tool[key])):
                raise Broken(f"{tool.get('name')}: {key}: {problem}")


@rule(
    "tool-name",
    "The name of a tool has 1 to 128 of the characters A-Z a-z 0-9 _ - .",
    section="2025-11-25, Server Features, Tools, Tool Names",
    fix="Rename the tool; put the readable form into `title`.",
    level="SHOULD",
    revisions="DE",
    covers=("S32",),
)
async def tool_name(t: Trial) -> None:
    """Reads the names of all tools."""
    for tool in await t.tools():
        if not _TOOL_NAME.fullmatch(str(tool.get("name"))):
            raise Broken(f"{tool.get('name')!r}")


@rule(
    "header-annotations",
    "`x-mcp-header` is a header token, used once, on a string, an integer or a boolean.",
    section="2026-07-28, Transports, Streamable HTTP",
    fix="Correct or remove the annotation: clients leave out tools with a wrong one.",
    revisions="E",
    covers=("S35",),
)
async def header_annotations(t: Trial) -> None:
    """Reads the annotations of all tools."""
    found = False
    for tool in await t.tools():
        seen: set[str] = set()
        for path, node in _annotated(tool.get("inputSchema") or {}):
            found = True
            name = node["x-mcp-header"]
            if not isinstance(name, str) or not _TOKEN.fullmatch(name):
                raise Broken(f"{tool['name']}: {path}: {name!r} is no header token")
            if name.lower() in seen:
                raise Broken(f"{tool['name']}: {name!r} is used twice")
            if node.get("type") not in ("string", "integer", "boolean"):
                raise Broken(f"{tool['name']}: {path} is of type {node.get('type')!r}")
            seen.add(name.lower())
    if not found:
        raise NotApplicable("no tool has the annotation")


def _annotated(schema: Message, path: str = "$") -> list[tuple[str, Message]]:
    found = []
    properties = schema.get("properties")
    for name, node in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(node, dict):
            if "x-mcp-header" in node:
                found.append((f"{path}.{name}", node))
            found += _annotated(node, f"{path}.{name}")
    return found


@rule(
    "tool-unknown",
    "A call of a tool that does not exist is a protocol error, -32602.",
    section="Server Features, Tools, Error Handling",
    fix="Answer with a JSON-RPC error; isError is for tools that ran and failed.",
    level="SHOULD",
    covers=("D-unknown-tool",),
)
async def tool_unknown(t: Trial) -> None:
    """Calls a tool nobody has."""
    talk = await t.need("tools")
    answer = await talk.request("tools/call", {"name": "no_such_tool", "arguments": {}})
    if code_of(answer) not in (INVALID_PARAMS, METHOD_NOT_FOUND):
        raise Broken(f"it answered {str(answer)[:200]}")


@rule(
    "call-params",
    "A call without a name, or with arguments that are no object, is answered with -32602.",
    section="Server Features, Tools, Error Handling",
    fix="Check the params of tools/call before you look for the tool.",
    level="SHOULD",
    covers=("S32",),
)
async def call_params(t: Trial) -> None:
    """Calls without a name, and calls the first tool with an array for arguments."""
    talk = await t.need("tools")
    tools = await t.tools()
    tries: list[Message] = [{"arguments": {}}, {"name": 1}]
    if tools:
        tries.append({"name": tools[0]["name"], "arguments": []})
    for params in tries:
        answer = await talk.request("tools/call", params)
        if code_of(answer) is None:
            raise Broken(f"with {params} it answered {str(answer)[:200]}")


@rule(
    "prompt-unknown",
    "A prompt that does not exist is answered with -32602.",
    section="Server Features, Prompts, Error Handling",
    fix="Answer with -32602.",
    level="SHOULD",
    covers=("X38",),
)
async def prompt_unknown(t: Trial) -> None:
    """Gets a prompt nobody has."""
    talk = await t.need("prompts")
    answer = await talk.request("prompts/get", {"name": "no-such-prompt"})
    if code_of(answer) != INVALID_PARAMS:
        raise Broken(f"it answered {str(answer)[:200]}")


@rule(
    "prompt-arguments",
    "A prompt without a required argument is answered with -32602.",
    section="Server Features, Prompts, Error Handling",
    fix="Check required arguments before the prompt runs.",
    level="SHOULD",
    covers=("X38",),
)
async def prompt_arguments(t: Trial) -> None:
    """Gets the first prompt with a required argument, without it."""
    talk = await t.need("prompts")
    for prompt in await t.items("prompts/list", "prompts"):
        if any(a.get("required") for a in prompt.get("arguments") or []):
            answer = await talk.request("prompts/get", {"name": prompt["name"]})
            if code_of(answer) != INVALID_PARAMS:
                raise Broken(f"{prompt['name']} answered {str(answer)[:200]}")
            return
    raise NotApplicable("no prompt has a required argument")


@rule(
    "resource-unknown",
    "A resource that does not exist is -32602 in 2026-07-28, and should be -32002 before.",
    section="Server Features, Resources, Error Handling",
    fix="Answer with the code of the revision, and never with empty contents.",
    should="ABCD",
    covers=("S38",),
)
async def resource_unknown(t: Trial) -> None:
    """Reads a URI nobody has."""
    talk = await t.need("resources")
    answer = await talk.request("resources/read", {"uri": "check-no-such://nothing/at/all"})
    wanted = INVALID_PARAMS if t.revision.modern else RESOURCE_NOT_FOUND
    if code_of(answer) != wanted:
        raise Broken(f"it answered {str(answer)[:200]}, not {wanted}")
