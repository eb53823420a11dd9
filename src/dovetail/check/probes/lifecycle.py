"""The handshake of 2024-11-05 to 2025-11-25, and what may come before it is done."""

from typing import Any

from dovetail.check.conversation import CLIENT_INFO, code_of, written
from dovetail.check.rules import REVISIONS, Broken, NotApplicable, rule
from dovetail.check.trial import Trial
from dovetail.errors import INVALID_PARAMS, INVALID_REQUEST

LIFECYCLE = "Lifecycle, Initialization"
HANDSHAKE = "ABCD"


def offer(version: Any) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT_INFO}


@rule(
    "version-unknown",
    "A revision that the server does not know is answered with one that it speaks.",
    section="Lifecycle, Version Negotiation",
    fix="Answer with your newest revision; never repeat a version you do not know.",
    revisions=HANDSHAKE,
    covers=("S2", "R002-11"),
    apart=True,
)
async def version_unknown(t: Trial) -> None:
    """Offers 1999-01-01 in a new conversation."""
    talk = await t.fresh(greet=False)
    answer = await talk.request("initialize", offer("1999-01-01"))
    if code_of(answer) == INVALID_PARAMS:
        return  # the specification shows this answer as an example
    version = answer.get("result", {}).get("protocolVersion")
    if version not in REVISIONS.values():
        raise Broken(f"the server agreed to {version!r}" if version else f"it answered {answer}")


@rule(
    "initialize-params",
    "`initialize` without its required params is refused with -32602.",
    section=LIFECYCLE,
    fix="Check protocolVersion, capabilities and clientInfo; answer with -32602.",
    level="SHOULD",
    revisions=HANDSHAKE,
    covers=("R002-7",),
    apart=True,
)
async def initialize_params(t: Trial) -> None:
    """Sends `initialize` without params, then without a version, in a new conversation."""
    talk = await t.fresh(greet=False)
    for params in ({}, {"capabilities": {}, "clientInfo": CLIENT_INFO}):
        answer = await talk.request("initialize", params)
        if code_of(answer) not in (INVALID_PARAMS, INVALID_REQUEST):
            raise Broken(f"with params {params} it answered {str(answer)[:200]}")


@rule(
    "before-initialize",
    "Before `initialize` no request but ping is served.",
    section="Lifecycle, Initialization",
    fix="Answer requests before the handshake with -32600.",
    level="SHOULD",
    revisions=HANDSHAKE,
    transports=("stdio", "ws"),
    covers=("R000-9", "D-before-initialize"),
    apart=True,
)
async def before_initialize(t: Trial) -> None:
    """Asks for a list in a new conversation, without a handshake."""
    known = (await t.talk()).capabilities
    name = next((n for n in ("tools", "resources", "prompts") if n in known), None)
    if name is None:
        raise NotApplicable("the server has nothing to list")
    talk = await t.fresh(greet=False)
    answer = await talk.request(f"{name}/list")
    if code_of(answer) is None:
        raise Broken(f"{name}/list was served")


@rule(
    "ping-early",
    "`ping` is answered before `notifications/initialized`.",
    section="Utilities, Ping",
    fix="Answer ping in every state, with an empty result.",
    revisions=HANDSHAKE,
    transports=("stdio", "ws"),
    covers=("X20",),
    apart=True,
)
async def ping_early(t: Trial) -> None:
    """Pings between the answer to `initialize` and `notifications/initialized`."""
    talk = await t.fresh(greet=False)
    await talk.request("initialize", offer(t.revision.id))
    answer = await talk.request("ping")
    if not isinstance(answer.get("result"), dict):
        raise Broken(f"it answered {str(answer)[:200]}")


@rule(
    "initialize-twice",
    "A second `initialize` is refused with -32600.",
    section="Lifecycle, Initialization",
    fix="Initialization happens once per session: refuse it afterwards.",
    level="SHOULD",
    revisions=HANDSHAKE,
    transports=("stdio", "ws"),
    covers=("R000-2",),
    apart=True,
)
async def initialize_twice(t: Trial) -> None:
    """Sends `initialize` again in a conversation that has been opened."""
    talk = await t.fresh()
    answer = await talk.request("initialize", offer(t.revision.id))
    if code_of(answer) is None:
        raise Broken("it was served again")


@rule(
    "quiet-start",
    "Until `notifications/initialized` the server sends no requests but ping, and only logs.",
    section=LIFECYCLE,
    fix="Wait for notifications/initialized before asking or telling the client anything.",
    level="SHOULD",
    revisions=HANDSHAKE,
    transports=("stdio", "ws"),
    covers=("R002-10", "D-quiet-start"),
    apart=True,
)
async def quiet_start(t: Trial) -> None:
    """Opens a conversation but does not finish the handshake, and listens."""
    talk = await t.fresh(greet=False)
    await talk.request("initialize", offer(t.revision.id))
    await talk.settle()
    early = [
        message["method"]
        for message in talk.take_events()
        if message["method"] not in ("ping", "notifications/message")
    ]
    if early:
        raise Broken(f"it sent {', '.join(early)}")


@rule(
    "late-cancel",
    "A cancellation of a request that is done or was never made does no harm.",
    section="Utilities, Cancellation",
    fix="Ignore cancellations that name nothing in progress.",
    covers=("X19",),
)
async def late_cancel(t: Trial) -> None:
    """Cancels the request before the last one, one that never was, and none at all."""
    talk = await t.talk()
    answer = await talk.request("server/discover" if t.revision.modern else "ping")
    for params in ({"requestId": answer["id"]}, {"requestId": "never"}, {"requestId": None}, {}):
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        await t.ignored(written(message))
