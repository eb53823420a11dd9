"""What is declared works, and what is not declared is refused."""

from dovetail.check.conversation import code_of
from dovetail.check.rules import Broken, NotApplicable, rule
from dovetail.check.trial import Trial
from dovetail.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, TASKS_EXTENSION

LISTS = {
    "tools": ("tools/list", "tools"),
    "resources": ("resources/list", "resources"),
    "prompts": ("prompts/list", "prompts"),
}


@rule(
    "declared-works",
    "What the server declares it also serves.",
    section="Lifecycle, Capability Negotiation",
    fix="Declare only what you handle, or handle what you declare.",
    covers=("S12", "S13", "R002-15"),
)
async def declared_works(t: Trial) -> None:
    """Asks for the list of everything that is declared."""
    talk = await t.talk()
    for name, (method, key) in LISTS.items():
        if name in talk.capabilities:
            await t.items(method, key)
    if "resources" in talk.capabilities:
        answer = await talk.request("resources/templates/list")
        if code_of(answer) not in (None, METHOD_NOT_FOUND):
            raise Broken(f"resources/templates/list: {str(answer)[:200]}")


@rule(
    "undeclared-refused",
    "What the server does not declare it refuses with -32601.",
    section="Lifecycle, Capability Negotiation",
    fix="Declare the capability if you serve it; else answer -32601.",
    level="SHOULD",
    covers=("S12", "X14", "R002-14"),
)
async def undeclared_refused(t: Trial) -> None:
    """Asks for the lists of what is not declared."""
    talk = await t.talk()
    for name, (method, _) in LISTS.items():
        if name not in talk.capabilities:
            answer = await talk.request(method)
            if code_of(answer) is None:
                raise Broken(f"{method} is served, but {name} is not declared")


@rule(
    "logging-level",
    "A server that declares logging accepts every level, and refuses others with -32602.",
    section="Utilities, Logging",
    fix="Accept the eight syslog levels; answer -32602 to anything else.",
    level="SHOULD",
    revisions="ABCD",
    covers=("R002-16",),
)
async def logging_level(t: Trial) -> None:
    """Sets each level, then one that does not exist."""
    talk = await t.need("logging")
    levels = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    for level in [*levels, "warning"]:
        answer = await talk.request("logging/setLevel", {"level": level})
        if "result" not in answer:
            raise Broken(f"{level}: {str(answer)[:200]}")
    answer = await talk.request("logging/setLevel", {"level": "loud"})
    if code_of(answer) != INVALID_PARAMS:
        raise Broken(f"the level 'loud' was answered with {str(answer)[:200]}")


@rule(
    "completion-works",
    "A server that declares completions answers them, with at most 100 values.",
    section="Utilities, Completion",
    fix="Answer completion/complete for your prompts and templates; cut the values at 100.",
    covers=("S44", "X37"),
)
async def completion_works(t: Trial) -> None:
    """Asks to complete the arguments of every prompt and template, up to twenty."""
    talk = await t.talk()
    if t.revision.letter != "A" and "completions" not in talk.capabilities:
        raise NotApplicable("the server does not declare completions")
    asked = 0
    for prompt in (
        await t.items("prompts/list", "prompts") if "prompts" in talk.capabilities else []
    ):
        for argument in (prompt.get("arguments") or [])[:5]:
            params = {
                "ref": {"type": "ref/prompt", "name": prompt["name"]},
                "argument": {"name": argument["name"], "value": ""},
            }
            answer = await talk.request("completion/complete", params)
            if t.revision.letter == "A" and code_of(answer) == METHOD_NOT_FOUND:
                raise NotApplicable("the server completes nothing")
            completion = answer.get("result", {}).get("completion", {})
            if not isinstance(completion.get("values"), list):
                raise Broken(f"{prompt['name']}.{argument['name']}: {str(answer)[:200]}")
            if len(completion["values"]) > 100:
                raise Broken(
                    f"{prompt['name']}.{argument['name']}: {len(completion['values'])} values"
                )
            asked += 1
            if asked >= 20:
                return
    if not asked:
        raise NotApplicable("no prompt has an argument")


@rule(
    "subscribe-works",
    "A server that declares resources.subscribe takes subscriptions and gives them up.",
    section="Server Features, Resources, Subscriptions",
    fix="Answer resources/subscribe and resources/unsubscribe with an empty result.",
    revisions="ABCD",
    covers=("R002-17",),
)
async def subscribe_works(t: Trial) -> None:
    """Subscribes to the first resource, and unsubscribes."""
    talk = await t.need("resources")
    if not (talk.capabilities["resources"] or {}).get("subscribe"):
        raise NotApplicable("the server does not declare resources.subscribe")
    resources = await t.items("resources/list", "resources")
    if not resources:
        raise NotApplicable("the server lists no resource")
    for method in ("resources/subscribe", "resources/unsubscribe"):
        answer = await talk.request(method, {"uri": resources[0]["uri"]})
        if "result" not in answer:
            raise Broken(f"{method}: {str(answer)[:200]}")


@rule(
    "tasks-unknown",
    "A task that does not exist is answered with -32602.",
    section="2025-11-25, Tasks; 2026-07-28, Tasks Extension",
    fix="Answer tasks/get and tasks/cancel for an unknown id with -32602.",
    revisions="DE",
    covers=("S93", "S95", "S102", "S103", "R002-18"),
)
async def tasks_unknown(t: Trial) -> None:
    """Gets and cancels a task nobody made, as a client that declares tasks."""
    talk = await t.talk()
    declared = talk.capabilities.get("extensions") if t.revision.modern else talk.capabilities
    if (TASKS_EXTENSION if t.revision.modern else "tasks") not in (declared or {}):
        raise NotApplicable("the server does not declare tasks")
    params: dict[str, object] = {"taskId": "no-such-task"}
    if t.revision.modern:
        params["_meta"] = {CLIENT_CAPABILITIES_KEY: {"extensions": {TASKS_EXTENSION: {}}}}
    for method in ("tasks/get", "tasks/cancel"):
        answer = await talk.request(method, params)
        if code_of(answer) != INVALID_PARAMS:
            raise Broken(f"{method} answered {str(answer)[:200]}")


@rule(
    "completion-unknown",
    "Completion for a prompt that does not exist is answered with -32602.",
    section="Utilities, Completion",
    fix="Look the reference up first; answer -32602 if it names nothing.",
    level="SHOULD",
    revisions="BCDE",
    covers=("X37",),
)
async def completion_unknown(t: Trial) -> None:
    """Asks to complete an argument of a prompt nobody has."""
    talk = await t.need("completions")
    params = {
        "ref": {"type": "ref/prompt", "name": "no-such-prompt"},
        "argument": {"name": "x", "value": ""},
    }
    answer = await talk.request("completion/complete", params)
    if code_of(answer) != INVALID_PARAMS:
        raise Broken(f"it answered {str(answer)[:200]}")
