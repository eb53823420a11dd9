"""Streamable HTTP: statuses, headers, sessions, streams."""

import asyncio
import re

from dovetail.check.conversation import Message, code_of, is_answer
from dovetail.check.http import HttpConversation, Reply
from dovetail.check.probes.content import only_reads
from dovetail.check.probes.envelope import harmless
from dovetail.check.rules import Broken, NotApplicable, rule
from dovetail.check.trial import Trial
from dovetail.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
)
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY

HTTP = ("http",)
SESSIONS = "BCD"
STREAMABLE = "Transports, Streamable HTTP"
AT_ONCE = 10


async def http(t: Trial) -> HttpConversation:
    talk = await t.talk()
    assert isinstance(talk, HttpConversation)
    return talk


def expect(reply: Reply, *statuses: int) -> None:
    if reply.status not in statuses:
        wanted = " or ".join(map(str, statuses))
        raise Broken(f"the status is {reply.status}, not {wanted}: {str(reply.messages)[:200]}")


def expect_error(reply: Reply, status: int, code: int) -> None:
    expect(reply, status)
    if not reply.messages or code_of(reply.messages[0]) != code:
        raise Broken(f"the body is {str(reply.messages)[:200]}, not an error {code}")


@rule(
    "http-accepted",
    "A notification is answered with status 202 and no body.",
    section=f"{STREAMABLE}, Sending Messages",
    fix="Answer 202 without a body as soon as the notification is accepted.",
    transports=HTTP,
    covers=("S49",),
)
async def http_accepted(t: Trial) -> None:
    """Posts a cancellation of a request that never was."""
    talk = await http(t)
    params = {"requestId": "never-sent"}
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    reply = await talk.post(message)
    expect(reply, 202)
    if reply.messages:
        raise Broken(f"the body is {str(reply.messages)[:200]}")


@rule(
    "http-content-type",
    "A request is answered with application/json or text/event-stream.",
    section=f"{STREAMABLE}, Sending Messages",
    fix="Set the Content-Type of the answer.",
    transports=HTTP,
    covers=("S50", "R002-25"),
)
async def http_content_type(t: Trial) -> None:
    """Posts an ordinary request."""
    talk = await http(t)
    reply = await talk.post(talk.write.message(harmless(t)))
    kind = reply.headers.get("content-type", "").partition(";")[0].strip()
    if kind not in ("application/json", "text/event-stream"):
        raise Broken(f"the Content-Type is {kind!r}")


@rule(
    "http-get",
    "GET opens an event stream, or is answered with 405.",
    section=f"{STREAMABLE}, Listening for Messages",
    fix="Answer GET with text/event-stream, or with 405 if you have nothing to say.",
    revisions=SESSIONS,
    transports=HTTP,
    covers=("S51", "S47", "R002-24"),
)
async def http_get(t: Trial) -> None:
    """Opens the stream and reads its headers."""
    talk = await http(t)
    headers = talk.headers_for({}) | {"accept": "text/event-stream"}
    reply = await talk.open_stream(headers)
    kind = reply.headers.get("content-type", "")
    if reply.status != 405 and not (reply.status == 200 and kind.startswith("text/event-stream")):
        raise Broken(f"the status is {reply.status}, the Content-Type {kind!r}")


@rule(
    "http-get-modern",
    "GET is answered with 405 in 2026-07-28.",
    section="2026-07-28, Transports, Streamable HTTP",
    fix="Answer 405 to GET that names 2026-07-28.",
    level="SHOULD",
    revisions="E",
    transports=HTTP,
    covers=("S47",),
)
async def http_get_modern(t: Trial) -> None:
    """Sends GET with the version header."""
    talk = await http(t)
    expect(await talk.open_stream({"accept": "text/event-stream", **_version(talk)}), 405)


def _version(talk: HttpConversation) -> dict[str, str]:
    return {"mcp-protocol-version": talk.revision.id}


@rule(
    "http-origin",
    "A request from a foreign web origin is refused with 403.",
    section=f"{STREAMABLE}, Security Warning",
    fix="Check Origin on every request; answer 403 unless it is one you allow.",
    should="BC",
    revisions="BCDE",
    transports=HTTP,
    covers=("S48",),
)
async def http_origin(t: Trial) -> None:
    """Posts an ordinary request with the Origin of a page on the web."""
    talk = await http(t)
    reply = await talk.post(talk.write.message(harmless(t)), {"origin": "https://evil.example.com"})
    if t.revision.letter in "DE":
        expect(reply, 403)
    elif reply.status < 400:
        raise Broken("it was served")


@rule(
    "http-version-header",
    "A version header that names no revision of the server's is answered with 400.",
    section=f"{STREAMABLE}, Protocol Version Header",
    fix="Check MCP-Protocol-Version on every request after the handshake.",
    revisions="CD",
    transports=HTTP,
    covers=("S58", "R002-23"),
)
async def http_version_header(t: Trial) -> None:
    """Posts an ordinary request with the version 1999-01-01 in the header."""
    talk = await http(t)
    message = talk.write.message(harmless(t))
    expect(await talk.post(message, {"mcp-protocol-version": "1999-01-01"}), 400)


@rule(
    "http-session-id",
    "A session id has only visible ASCII characters.",
    section=f"{STREAMABLE}, Session Management",
    fix="Make session ids of random letters and digits.",
    revisions=SESSIONS,
    transports=HTTP,
    covers=("S56",),
)
async def http_session_id(t: Trial) -> None:
    """Reads the id that came with the handshake."""
    session = await _session(t)
    if not re.fullmatch(r"[\x21-\x7e]+", session):
        raise Broken(f"it is {session!r}")


async def _session(t: Trial) -> str:
    session = (await http(t)).session
    if session is None:
        raise NotApplicable("the server assigns no session id")
    return session


@rule(
    "http-session-needed",
    "With sessions, a request without its id is answered with 400, and with an unknown one 404.",
    section=f"{STREAMABLE}, Session Management",
    fix="Answer 400 where the id is missing, 404 where it is not known.",
    level="SHOULD",
    revisions=SESSIONS,
    transports=HTTP,
    covers=("S57", "R002-22"),
)
async def http_session_needed(t: Trial) -> None:
    """Posts an ordinary request without the id, then with an id of our own making."""
    await _session(t)
    talk = await http(t)
    expect(await talk.post(talk.write.message("ping"), {"mcp-session-id": None}), 400)
    expect(await talk.post(talk.write.message("ping"), {"mcp-session-id": "no-such-session"}), 404)


@rule(
    "http-session-ended",
    "A session that was ended is answered with 404.",
    section=f"{STREAMABLE}, Session Management",
    fix="Forget the session at DELETE, and answer its id with 404 from then on.",
    revisions=SESSIONS,
    transports=HTTP,
    covers=("S57",),
    apart=True,
)
async def http_session_ended(t: Trial) -> None:
    """Ends a session of its own with DELETE, then uses its id."""
    await _session(t)
    talk = await http(t)
    reply = await talk.exchange("DELETE", talk.headers_for({}))
    if reply.status == 405:
        raise NotApplicable("the server does not let clients end sessions")
    expect(await talk.post(talk.write.message("ping")), 404)


@rule(
    "http-event-ids",
    "Within a session no two events have the same id.",
    section=f"{STREAMABLE}, Resumability and Redelivery",
    fix="Make event ids from the stream and a counter.",
    revisions=SESSIONS,
    transports=HTTP,
    covers=("S54",),
)
async def http_event_ids(t: Trial) -> None:
    """Posts some requests and collects the ids of the events that came."""
    talk = await http(t)
    ids: list[str] = []
    for _ in range(5):
        ids += (await talk.post(talk.write.message("ping"))).event_ids
    if not ids:
        raise NotApplicable("the server gives its events no ids")
    if len(set(ids)) != len(ids):
        raise Broken(f"some come twice: {ids}")


@rule(
    "http-parallel",
    "Requests posted at the same time are each answered, on their own stream.",
    section=f"{STREAMABLE}, Multiple Connections",
    fix="Bind an answer to the HTTP request it belongs to.",
    transports=HTTP,
    covers=("S53", "INV-001"),
    once=True,
)
async def http_parallel(t: Trial) -> None:
    """Posts ten requests at the same time."""
    talk = await http(t)
    sent = [talk.write.message(harmless(t)) for _ in range(AT_ONCE)]
    replies = await asyncio.gather(*(talk.post(message) for message in sent))
    for message, reply in zip(sent, replies, strict=True):
        answers = [m for m in reply.messages if "method" not in m]
        if len(answers) != 1 or not is_answer(answers[0], message["id"]):
            raise Broken(f"request {message['id']} got {str(answers)[:200]}")


@rule(
    "http-unknown-method",
    "A method that does not exist is answered with status 404 and -32601.",
    section="2026-07-28, Transports, Streamable HTTP",
    fix="Answer 404 with the error as the body.",
    revisions="E",
    transports=HTTP,
    covers=("S60",),
)
async def http_unknown_method(t: Trial) -> None:
    """Posts a request for a method nobody has."""
    talk = await http(t)
    expect_error(await talk.post(talk.write.message("no/such/method")), 404, METHOD_NOT_FOUND)


@rule(
    "http-header-mismatch",
    "Headers that differ from the body, or are missing, are answered with 400 and -32020.",
    section="2026-07-28, Transports, Streamable HTTP, Header Validation",
    fix="Compare MCP-Protocol-Version, Mcp-Method and Mcp-Name with the body.",
    revisions="E",
    transports=HTTP,
    covers=("S59", "S62", "X31"),
)
async def http_header_mismatch(t: Trial) -> None:
    """Posts a request with another method in the header, with none, and with another version in
    the body."""
    talk = await http(t)
    message = talk.write.message("server/discover")
    expect_error(await talk.post(message, {"mcp-method": "tools/list"}), 400, HEADER_MISMATCH)
    expect_error(await talk.post(message, {"mcp-method": None}), 400, HEADER_MISMATCH)
    message["params"]["_meta"][PROTOCOL_VERSION_KEY] = "v999.0.0"
    expect_error(await talk.post(message), 400, HEADER_MISMATCH)


@rule(
    "http-name-header",
    "Mcp-Name is compared with the name in the body, also when it comes as base64.",
    section="2026-07-28, Transports, Streamable HTTP, Header Validation",
    fix="Require Mcp-Name for calls, prompts and resources; decode =?base64?...?= first.",
    revisions="E",
    transports=HTTP,
    covers=("S62",),
)
async def http_name_header(t: Trial) -> None:
    """Calls a tool nobody has: without the header, with another name, and with one in base64."""
    await t.need("tools")
    talk = await http(t)
    message = talk.write.message("tools/call", {"name": "no_such_tool", "arguments": {}})
    expect_error(await talk.post(message, {"mcp-name": None}), 400, HEADER_MISMATCH)
    expect_error(await talk.post(message, {"mcp-name": "other"}), 400, HEADER_MISMATCH)
    reply = await talk.post(message, {"mcp-name": "=?base64?bm9fc3VjaF90b29s?="})
    if reply.messages and code_of(reply.messages[0]) == HEADER_MISMATCH:
        raise Broken("the name in base64 was not decoded")


@rule(
    "http-version-status",
    "A revision the server does not serve is answered with 400 and -32022.",
    section="2026-07-28, Versioning",
    fix="Answer 400 with the error as the body.",
    revisions="E",
    transports=HTTP,
    covers=("S4",),
)
async def http_version_status(t: Trial) -> None:
    """Posts a request of the revision v999.0.0, in header and body."""
    talk = await http(t)
    message = talk.write.message("server/discover")
    message["params"]["_meta"][PROTOCOL_VERSION_KEY] = "v999.0.0"
    reply = await talk.post(message, {"mcp-protocol-version": "v999.0.0"})
    expect_error(reply, 400, UNSUPPORTED_VERSION)


@rule(
    "http-meta-status",
    "A request without a required `_meta` key is answered with 400 and -32602.",
    section="2026-07-28, Base Protocol, Request Metadata",
    fix="Answer 400 with the error as the body.",
    revisions="E",
    transports=HTTP,
    covers=("S5",),
)
async def http_meta_status(t: Trial) -> None:
    """Posts a request without the capabilities, and one without any `_meta`."""
    talk = await http(t)
    message: Message = talk.write.message("server/discover")
    del message["params"]["_meta"][CLIENT_CAPABILITIES_KEY]
    expect_error(await talk.post(message), 400, INVALID_PARAMS)
    message["params"] = {}
    expect_error(await talk.post(message), 400, INVALID_PARAMS)


@rule(
    "http-no-session",
    "A server of 2026-07-28 gives out no session id.",
    section="2026-07-28, Transports, Streamable HTTP",
    fix="Leave out Mcp-Session-Id in answers to 2026-07-28.",
    revisions="E",
    transports=HTTP,
    covers=("S7", "S8"),
)
async def http_no_session(t: Trial) -> None:
    """Reads the headers of an answer."""
    talk = await http(t)
    reply = await talk.post(talk.write.message("server/discover"))
    if "mcp-session-id" in reply.headers:
        raise Broken(f"it gave the session id {reply.headers['mcp-session-id']!r}")


@rule(
    "http-header-case",
    "Header names are compared without regard to case.",
    section="2026-07-28, Transports, Streamable HTTP",
    fix="Turn header names into lower case before you look for them.",
    revisions="E",
    transports=HTTP,
    covers=("X41",),
)
async def http_header_case(t: Trial) -> None:
    """Posts an ordinary request with header names in capitals."""
    talk = await http(t)
    message = talk.write.message("server/discover")
    plain = talk.headers_for(message)
    capitals = {name.upper(): value for name, value in plain.items()}
    none: dict[str, str | None] = dict.fromkeys(plain)
    expect(await talk.post(message, none | capitals), 200)


@rule(
    "http-no-version",
    "A request of 2026-07-28 without the version header is refused.",
    section="2026-07-28, Transports, Streamable HTTP, Protocol Version Header",
    fix="Answer 400 where MCP-Protocol-Version is missing.",
    revisions="E",
    transports=HTTP,
    covers=("S61",),
)
async def http_no_version(t: Trial) -> None:
    """Posts an ordinary request without it."""
    talk = await http(t)
    message = talk.write.message("server/discover")
    reply = await talk.post(message, {"mcp-protocol-version": None})
    if reply.status < 400:
        raise Broken(f"it was served with status {reply.status}")


@rule(
    "http-param-header",
    "An argument with `x-mcp-header` must come in its header as well.",
    section="2026-07-28, Transports, Streamable HTTP, Custom Headers",
    fix="Compare Mcp-Param-* with the arguments; answer 400 with -32020 where one is missing.",
    revisions="E",
    transports=HTTP,
    covers=("S63",),
)
async def http_param_header(t: Trial) -> None:
    """Calls a read-only tool with such an argument, without the header."""
    talk = await http(t)
    for tool in await t.tools():
        schema = tool.get("inputSchema") or {}
        for name, node in (schema.get("properties") or {}).items():
            if "x-mcp-header" in node and only_reads(tool):
                sample = {"string": "x", "integer": 1, "boolean": True}.get(node.get("type"))
                params = {"name": tool["name"], "arguments": {name: sample}}
                reply = await talk.post(talk.write.message("tools/call", params))
                expect_error(reply, 400, HEADER_MISMATCH)
                return
    raise NotApplicable("no read-only tool has an argument with x-mcp-header")


@rule(
    "http-unauthorized",
    "Without a token the answer is 401, and it shows where to get one.",
    section="Authorization",
    fix="Answer 401 with WWW-Authenticate: Bearer, and name resource_metadata in it.",
    revisions="BCDE",
    transports=HTTP,
    covers=("S65", "S67", "S68"),
    once=True,
)
async def http_unauthorized(t: Trial) -> None:
    """Posts an ordinary request without the token that the user gave."""
    talk = await http(t)
    token = next((n for n in talk.target.headers if n.lower() == "authorization"), None)
    if token is None:
        raise NotApplicable("no token was given with --header 'Authorization: ...'")
    reply = await talk.post(talk.write.message(harmless(t)), {token: None})
    expect(reply, 401)
    if not reply.headers.get("www-authenticate", "").lower().startswith("bearer"):
        raise Broken(f"WWW-Authenticate is {reply.headers.get('www-authenticate')!r}")


@rule(
    "http-resume",
    "A stream whose events have ids can be resumed with GET and Last-Event-ID.",
    section=f"{STREAMABLE}, Resumability and Redelivery",
    fix="Keep what a stream carried for a while, and send what came after the id.",
    level="SHOULD",
    revisions=SESSIONS,
    transports=HTTP,
    covers=("R002-26",),
)
async def http_resume(t: Trial) -> None:
    """Posts a request, and asks for what came after the first event of its stream."""
    talk = await http(t)
    message = talk.write.message("ping")
    reply = await talk.post(message)
    if not reply.event_ids:
        raise NotApplicable("the server gives its events no ids")
    if len(reply.event_ids) < 2 and reply.messages:
        raise NotApplicable("the answer is the first event of its stream")
    headers = talk.headers_for({}) | {
        "accept": "text/event-stream",
        "last-event-id": reply.event_ids[0],
    }
    again = await talk.exchange("GET", headers, id=message["id"])
    if not any(is_answer(found, message["id"]) for found in again.messages):
        raise Broken(f"status {again.status}, and the answer was not sent again")
