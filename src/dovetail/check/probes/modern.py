"""2026-07-28: every request speaks for itself."""

import json

from dovetail.check.conversation import code_of, written
from dovetail.check.probes.capabilities import LISTS
from dovetail.check.rules import Broken, NotApplicable, rule
from dovetail.check.trial import Trial
from dovetail.errors import INVALID_PARAMS, METHOD_NOT_FOUND, UNSUPPORTED_VERSION
from dovetail.spec.meta import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    PROTOCOL_VERSION_KEY,
    SUBSCRIPTION_ID_KEY,
)

E = "E"
META = "2026-07-28, Base Protocol, Request Metadata"


def without(frame: bytes, *keys: str) -> bytes:
    message = json.loads(frame)
    for key in keys:
        del message["params"]["_meta"][key]
    return written(message)


@rule(
    "meta-required",
    "A request without one of the required `_meta` keys is answered with -32602.",
    section=META,
    fix="Require protocolVersion and clientCapabilities in the _meta of every request.",
    revisions=E,
    transports=("stdio", "ws"),
    covers=("S5",),
)
async def meta_required(t: Trial) -> None:
    """Sends a request without the capabilities."""
    talk = await t.talk()
    await t.refused(without(talk.frame("server/discover"), CLIENT_CAPABILITIES_KEY), INVALID_PARAMS)


@rule(
    "client-info-optional",
    "A request without client info is served.",
    section=META,
    fix="Do not require clientInfo.",
    revisions=E,
    covers=("S7",),
)
async def client_info_optional(t: Trial) -> None:
    """Sends a request without it."""
    talk = await t.talk()
    found = await t.reactions(without(talk.frame("server/discover"), CLIENT_INFO_KEY))
    if not found or "result" not in found[0]:
        raise Broken(f"it answered {str(found)[:200]}")


@rule(
    "version-unsupported",
    "A revision the server does not serve is -32022, with what it serves and what was asked.",
    section="2026-07-28, Versioning",
    fix="Answer -32022 with data.supported and data.requested.",
    revisions=E,
    transports=("stdio", "ws"),
    covers=("S3", "S4"),
)
async def version_unsupported(t: Trial) -> None:
    """Sends a request of the revision v999.0.0."""
    talk = await t.talk()
    meta = {PROTOCOL_VERSION_KEY: "v999.0.0"}
    answer = await talk.request("server/discover", {"_meta": meta})
    if code_of(answer) != UNSUPPORTED_VERSION:
        raise Broken(f"it answered {str(answer)[:200]}")
    data = answer["error"].get("data")
    if not isinstance(data, dict) or data.get("requested") != "v999.0.0":
        raise Broken(f"data does not repeat the version asked for: {data!r}")
    if t.revision.id not in (data.get("supported") or []):
        raise Broken(f"data.supported is {data.get('supported')!r}")


@rule(
    "removed-methods",
    "Methods that 2026-07-28 has no more are answered with -32601.",
    section="2026-07-28, Changelog",
    fix="Serve ping, logging/setLevel and resources/subscribe only in the handshake era.",
    revisions=E,
    covers=("X13",),
)
async def removed_methods(t: Trial) -> None:
    """Sends them with the envelope of 2026-07-28."""
    talk = await t.talk()
    for method in ("ping", "logging/setLevel", "resources/subscribe"):
        answer = await talk.request(method, {"level": "info", "uri": "x:y"})
        if code_of(answer) != METHOD_NOT_FOUND:
            raise Broken(f"{method} answered {str(answer)[:200]}")


@rule(
    "cache-scope",
    "All pages of one list have the same cacheScope.",
    section="2026-07-28, Caching",
    fix="Choose the scope for the list, not for the page.",
    revisions=E,
    covers=("S41", "S42"),
)
async def cache_scope(t: Trial) -> None:
    """Reads the first two pages of every list that has two."""
    talk = await t.talk()
    tried = False
    for name, (method, _) in LISTS.items():
        if name not in talk.capabilities:
            continue
        first = (await talk.request(method)).get("result") or {}
        if "nextCursor" not in first:
            continue
        tried = True
        second = await talk.request(method, {"cursor": first["nextCursor"]})
        scopes = first.get("cacheScope"), second.get("result", {}).get("cacheScope")
        if scopes[0] != scopes[1]:
            raise Broken(f"{method}: {scopes[0]} on the first page, {scopes[1]} on the second")
    if not tried:
        raise NotApplicable("every list fits on one page")


@rule(
    "lists-stable",
    "A list does not depend on the connection, nor on what was asked before.",
    section="2026-07-28, Base Protocol, Statelessness",
    fix="Build lists from the caller's authorization alone.",
    revisions=E,
    transports=("stdio", "ws"),
    covers=("S14",),
    apart=True,
)
async def lists_stable(t: Trial) -> None:
    """Asks for the first page of every list on two connections."""
    first, second = await t.talk(), await t.fresh(greet=False)
    for name, (method, key) in LISTS.items():
        if name in first.capabilities:
            one = (await first.request(method)).get("result", {}).get(key)
            two = (await second.request(method)).get("result", {}).get(key)
            if one != two:
                raise Broken(f"{method} differs between two connections")


@rule(
    "listen",
    "`subscriptions/listen` is acknowledged first, and everything on it is tagged.",
    section="2026-07-28, Subscriptions",
    fix="Send notifications/subscriptions/acknowledged first, with the subscriptionId in _meta.",
    revisions=E,
    transports=("stdio", "ws"),
    covers=("S22", "S23", "S24"),
)
async def listen(t: Trial) -> None:
    """Listens for changes of the tools, waits for the acknowledgement, and cancels."""
    talk = await t.need("tools")
    if not (talk.capabilities["tools"] or {}).get("listChanged"):
        raise NotApplicable("the server does not declare tools.listChanged")
    talk.take_events()
    message = talk.write.message(
        "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
    )
    await talk.channel.send(written(message))
    stray = await talk.settle()
    if stray:
        raise Broken(f"it was answered at once: {str(stray[0])[:200]}")
    events = talk.take_events()
    if not events or events[0]["method"] != "notifications/subscriptions/acknowledged":
        raise Broken(f"the first thing on it is {str(events[:1])[:200]}")
    for event in events:
        meta = (event.get("params") or {}).get("_meta") or {}
        if meta.get(SUBSCRIPTION_ID_KEY) != message["id"]:
            raise Broken(f"{event['method']} is not tagged with the subscription {message['id']}")
    cancel = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": message["id"]},
    }
    await talk.provoke(written(cancel))
