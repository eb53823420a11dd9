"""JSON-RPC: what is a message, what is not, and how each is answered."""

import json
from typing import Any

from dovetail.check.conversation import code_of, written
from dovetail.check.rules import Broken, rule
from dovetail.check.trial import Trial
from dovetail.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR

JSONRPC = "JSON-RPC 2.0, 5"
BASE = "Base Protocol, Messages"


@rule(
    "parse-error",
    "A frame that is not JSON is answered with -32700.",
    section=f"{JSONRPC}.1",
    fix="Answer with -32700; give the id as null up to 2025-06-18 and leave it out afterwards.",
    covers=("X1", "E-bad-json", "INV-002"),
)
async def parse_error(t: Trial) -> None:
    """Sends a request that is cut off in the middle."""
    await t.refused(b'{"jsonrpc":"2.0","id":1,"method":', PARSE_ERROR)


@rule(
    "not-utf8",
    "A frame that is not UTF-8 is answered with -32700.",
    section=f"{BASE}; {JSONRPC}.1",
    fix="Decode strictly, and answer with -32700 what cannot be decoded.",
    level="SHOULD",
    revisions="BCDE",
    transports=("stdio", "http"),
    covers=("X12", "E-bad-utf8"),
)
async def not_utf8(t: Trial) -> None:
    """Sends a request whose method contains the byte FF."""
    await t.refused(b'{"jsonrpc":"2.0","id":"utf","method":"\xff"}', PARSE_ERROR, INVALID_REQUEST)


@rule(
    "jsonrpc-member",
    'A message without `"jsonrpc": "2.0"` is refused with -32600.',
    section=f"{BASE}; {JSONRPC}.1",
    fix="Check the member before anything else.",
    level="SHOULD",
    covers=("X1", "R002-1", "E-jsonrpc-missing", "E-jsonrpc-wrong"),
)
async def jsonrpc_member(t: Trial) -> None:
    """Sends an ordinary request without the member, and one that says 1.0."""
    talk = await t.talk()
    message = json.loads(talk.frame(harmless(t)))
    message["jsonrpc"] = "1.0"
    await t.refused(written(message), INVALID_REQUEST)
    del message["jsonrpc"]
    await t.refused(written(message), INVALID_REQUEST)


@rule(
    "id-type",
    "A request whose id is null, a boolean, a fraction or an object is refused with -32600.",
    section=f"{BASE}, Requests",
    fix="Ids are strings and integers: refuse all others.",
    level="SHOULD",
    covers=("X2", "R002-3", "D-null-id"),
)
async def id_type(t: Trial) -> None:
    """Sends ordinary requests with each such id."""
    talk = await t.talk()
    ids: list[Any] = [None, True, 1.5, {}, []]
    for id in ids:
        message = json.loads(talk.frame(harmless(t)))
        message["id"] = id
        try:
            await t.refused(written(message), INVALID_REQUEST)
        except Broken as broken:
            raise Broken(f"with the id {json.dumps(id)}: {broken}") from None


@rule(
    "method-member",
    "A request without a method, or with one that is no string, is refused with -32600.",
    section=f"{JSONRPC}.1",
    fix="Answer with -32600 under the id of the request.",
    level="SHOULD",
    covers=("R002-2", "E-method-missing"),
)
async def method_member(t: Trial) -> None:
    """Sends a request without a method, and one whose method is 1."""
    await t.refused(b'{"jsonrpc":"2.0","id":"m1","params":{}}', INVALID_REQUEST)
    await t.refused(b'{"jsonrpc":"2.0","id":"m2","method":1}', INVALID_REQUEST)


@rule(
    "params-type",
    "Params that are no object are refused with -32600 or -32602.",
    section=f"{BASE}, Requests",
    fix="The params of every MCP method are an object: refuse arrays and scalars.",
    level="SHOULD",
    covers=("X1",),
)
async def params_type(t: Trial) -> None:
    """Sends ordinary requests whose params are an array and a string."""
    talk = await t.talk()
    tries: list[Any] = [[], "text"]
    for params in tries:
        message = json.loads(talk.frame(harmless(t)))
        message["params"] = params
        await t.refused(written(message), INVALID_REQUEST, INVALID_PARAMS)


@rule(
    "unknown-method",
    "A request for a method that does not exist is answered with -32601.",
    section=f"{JSONRPC}.1",
    fix="Answer with -32601 under the id of the request.",
    covers=("X1", "R000-8"),
)
async def unknown_method(t: Trial) -> None:
    """Asks for a method nobody has."""
    answer = await (await t.talk()).request("no/such/method")
    if code_of(answer) != METHOD_NOT_FOUND:
        raise Broken(f"the answer is {str(answer)[:200]}")


@rule(
    "id-echo",
    "An answer repeats the id of its request, value and type.",
    section=f"{BASE}, Responses",
    fix="Keep the id as it came: do not turn numbers into text or text into numbers.",
    covers=("X5",),
)
async def id_echo(t: Trial) -> None:
    """Asks under ids that are easily mistaken for others."""
    talk = await t.talk()
    for id in (0, -1, 2**53 - 1, "0", "", "naïve ☃", "a" * 200):
        await talk.request(harmless(t), id=id)


@rule(
    "notification-silence",
    "A notification is never answered, also when it is unknown or wrong.",
    section=f"{BASE}, Notifications",
    fix="Send nothing for a message without an id; log it instead.",
    covers=("X10", "INV-001", "R002-5"),
)
async def notification_silence(t: Trial) -> None:
    """Sends notifications that are unknown, badly formed, or name a request as if they were one."""
    for body in (
        {"method": "notifications/no_such"},
        {"method": "notifications/cancelled", "params": {"requestId": "never-sent"}},
        {"method": "notifications/progress", "params": {}},
        {"method": "tools/call", "params": {"name": "no_such_tool"}},
    ):
        await t.ignored(written({"jsonrpc": "2.0", **body}))


@rule(
    "stray-response",
    "A response to a request that was never made is ignored.",
    section=f"{BASE}, Responses",
    fix="Drop responses whose id is not waited for.",
    level="SHOULD",
    revisions="ABCD",
    covers=("X1",),
)
async def stray_response(t: Trial) -> None:
    """Sends a result and an error under ids the server has not used."""
    await t.ignored(b'{"jsonrpc":"2.0","id":"nobody-asked","result":{}}')
    await t.ignored(b'{"jsonrpc":"2.0","id":987654,"error":{"code":-32603,"message":"no"}}')


@rule(
    "batch",
    "An array of messages is taken apart: requests are answered, notifications are not.",
    section="2025-03-26, Base Protocol, Batching",
    fix="Accept arrays in 2025-03-26, and answer with one array.",
    revisions="B",
    covers=("X11",),
)
async def batch(t: Trial) -> None:
    """Sends two requests and a notification in one array."""
    batch = b"[%s]" % b",".join(
        [
            b'{"jsonrpc":"2.0","id":"b1","method":"ping"}',
            b'{"jsonrpc":"2.0","method":"notifications/no_such"}',
            b'{"jsonrpc":"2.0","id":"b2","method":"no/such/method"}',
        ]
    )
    found = await t.reactions(batch)
    ids = sorted(str(message.get("id")) for message in found)
    if ids != ["b1", "b2"]:
        raise Broken(f"of the requests b1 and b2 these were answered: {ids}")


@rule(
    "no-batch",
    "An array of messages is refused, not served and not dropped.",
    section="2025-06-18, Changelog",
    fix="Answer an array with -32600 in revisions without batches.",
    level="SHOULD",
    revisions="CDE",
    covers=("D-batches",),
)
async def no_batch(t: Trial) -> None:
    """Sends an array with one ordinary request."""
    talk = await t.talk()
    await t.refused(b"[" + talk.frame(harmless(t)) + b"]", INVALID_REQUEST, PARSE_ERROR)


def harmless(t: Trial) -> str:
    """A method every server has."""
    return "server/discover" if t.revision.modern else "ping"
