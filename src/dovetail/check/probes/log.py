"""Rules about everything the server said: read from the logs when all else was tried."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from dovetail.check.channel import Entry
from dovetail.check.conversation import messages
from dovetail.check.rules import Broken, rule
from dovetail.check.trial import Trial
from dovetail.testing.recorder import Recorder
from dovetail.testing.schema import SchemaViolation, UnknownMember


@rule(
    "only-messages",
    "The server writes nothing but messages to stdout, a line each.",
    section="Transports, stdio",
    fix="Send logs and prints to stderr; write JSON without line breaks.",
    transports=("stdio",),
    covers=("S45", "X15", "R002-21", "R000-7"),
    afterwards=True,
)
async def onlymessages(t: Trial) -> None:
    """Reads every line that came."""
    for entry in _received(t):
        try:
            value = msgspec.json.decode(entry.frame)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Broken(f"this line is no JSON: {entry.frame[:200]!r}") from None
        if not isinstance(value, dict | list):
            raise Broken(f"this line is no message: {entry.frame[:200]!r}")


@rule(
    "schema",
    "Every message fits the schema of its revision.",
    section="Schema",
    fix="Compare the message with the schema of the revision that was agreed.",
    covers=(
        "X1",
        "X6",
        "X7",
        "X8",
        "X9",
        "X33",
        "S1",
        "S10",
        "INV-005",
        "R002-4",
        "R002-6",
        "R002-8",
    ),
    afterwards=True,
)
async def schema(t: Trial) -> None:
    """Checks every message that came against the official schema."""
    for problem in _problems(t):
        if not isinstance(problem, UnknownMember):
            raise Broken(str(problem))


@rule(
    "no-leaks",
    "No message has a member that its revision does not know.",
    section="Lifecycle, Operation",
    fix="Leave out what the agreed revision does not have.",
    level="SHOULD",
    covers=("X14",),
    afterwards=True,
)
async def no_leaks(t: Trial) -> None:
    """Checks every message against a copy of the schema that allows no other members."""
    for problem in _problems(t):
        if isinstance(problem, UnknownMember):
            raise Broken(str(problem))


@rule(
    "answered-once",
    "A request is answered once.",
    section="Base Protocol, Responses",
    fix="Send exactly one response for each request, whatever happens in between.",
    covers=("INV-001", "X5"),
    afterwards=True,
)
async def answered_once(t: Trial) -> None:
    """Counts requests and answers by id in every conversation."""
    for log in [*t.logs, *t.others]:
        asked: Counter[Any] = Counter()
        for entry in log:
            for message in messages(entry.frame):
                id = _key(message.get("id"))
                if id is None:
                    continue
                if "method" not in message and entry.way == "received" and id in asked:
                    asked[id] -= 1
                    if asked[id] < 0:
                        raise Broken(f"a second answer: {str(message)[:200]}")
                elif "method" in message and entry.way == "sent":
                    asked[id] += 1


@rule(
    "no-server-requests",
    "A server of 2026-07-28 sends no requests.",
    section="2026-07-28, Base Protocol, Message Patterns",
    fix="Ask by returning input_required.",
    revisions="E",
    covers=("S9", "S11"),
    afterwards=True,
)
async def no_server_requests(t: Trial) -> None:
    """Reads every message that came."""
    for entry in _received(t):
        for message in messages(entry.frame):
            if "method" in message and "id" in message:
                raise Broken(f"it asked {message['method']}")


@rule(
    "codes",
    "Only the error codes that 2026-07-28 defines are used in the range it reserves.",
    section="2026-07-28, Base Protocol, Error Codes",
    fix="Use -32020 to -32022 for their causes alone, and never -32002 or -32042.",
    revisions="E",
    covers=("X30", "X31", "X32"),
    afterwards=True,
)
async def codes(t: Trial) -> None:
    """Reads the code of every error that came."""
    for entry in _received(t):
        for message in messages(entry.frame):
            error = message.get("error")
            code = error.get("code") if isinstance(error, dict) else None
            if code in (-32002, -32042):
                raise Broken(f"{code} is of older revisions: {str(message)[:200]}")
            if (
                isinstance(code, int)
                and -32099 <= code <= -32000
                and code not in (-32020, -32021, -32022)
            ):
                raise Broken(f"{code} is reserved: {str(message)[:200]}")


@rule(
    "logs-asked",
    "Log messages are sent only for requests that ask for them.",
    section="2026-07-28, Utilities, Logging",
    fix="Send notifications/message only for requests that carry a logLevel.",
    revisions="E",
    covers=("S26",),
    afterwards=True,
)
async def logs_asked(t: Trial) -> None:
    """Reads every message that came; none of our requests asks for logs."""
    for entry in _received(t):
        for message in messages(entry.frame):
            if message.get("method") == "notifications/message":
                raise Broken(f"it logged {str(message.get('params'))[:200]}")


def _received(t: Trial) -> Iterator[Entry]:
    return (entry for log in [*t.logs, *t.others] for entry in log if entry.way == "received")


def _key(id: Any) -> Any:
    return (type(id), id) if isinstance(id, int | str) and not isinstance(id, bool) else None


def _problems(t: Trial) -> Iterator[SchemaViolation]:
    for log in [*t.logs, *t.others]:
        recorder = Recorder()
        for entry in log:
            if entry.way == "sent":
                recorder.sent("client", entry.frame, check=False)
            else:
                frame = _forgiven(entry.frame, null=t.revision.null_error_id)
                recorder.sent("server", frame, check=_is_to_be_checked(frame))
        yield from recorder.problems


def _is_to_be_checked(frame: bytes) -> bool:
    """Not where a server repeats an id that we made wrong on purpose: another rule tells of it."""
    found = messages(frame)
    return bool(found) and not any("result" in m and _key(m.get("id")) is None for m in found)


def _forgiven(frame: bytes, *, null: bool) -> bytes:
    """An error for an unreadable id says null, as JSON-RPC wants, or leaves it out, as the schemas
    since 2025-11-25 want: neither is held against a server."""
    found = messages(frame)
    if len(found) != 1 or "error" not in found[0] or found[0].get("id") is not None:
        return frame
    without = {key: value for key, value in found[0].items() if key != "id"}
    return msgspec.json.encode({**without, "id": None} if null else without)
