"""No input ends a server, or makes it forget a request."""

from dovetail.check.conversation import StreamConversation, messages, written
from dovetail.check.rules import Broken, rule
from dovetail.check.trial import Trial

MANY = 200
BIG = 8 * 1024 * 1024
DEEP = 20_000


@rule(
    "survives-nonsense",
    "After any nonsense the next request is served.",
    section="JSON-RPC 2.0, 5.1",
    fix="Catch errors per message, not per connection.",
    covers=("INV-002", "R000-13"),
    once=True,
)
async def survives_nonsense(t: Trial) -> None:
    """Sends numbers, strings, empty objects, nulls and odd bytes, then an ordinary request."""
    talk = await t.talk()
    for frame in (b"1", b'"text"', b"null", b"{}", b"[]", b"[1,2]", b"\x00", b"{{{{", b"[[[["):
        try:
            await talk.provoke(frame)
        except Broken as broken:
            raise Broken(f"after {frame!r}: {broken}") from None


@rule(
    "survives-oversize",
    "A message of 8 MiB is served or refused, and the next one is served.",
    section="JSON-RPC 2.0, 5.1",
    fix="Cap the size of a frame, skip what is longer, and answer it with an error.",
    level="SHOULD",
    covers=("INV-002",),
    transports=("stdio",),
    once=True,
)
async def survives_oversize(t: Trial) -> None:
    """Sends an ordinary request with 8 MiB in a member nobody reads."""
    talk = await t.talk()
    message = talk.harmless()
    message["unread"] = "x" * BIG
    await talk.channel.send(written(message))
    await talk.settle()


@rule(
    "survives-nesting",
    "A message nested 20,000 deep is served or refused, and the next one is served.",
    section="JSON-RPC 2.0, 5.1",
    fix="Limit the depth of what you parse, and catch the parser's own limit.",
    level="SHOULD",
    covers=("INV-002",),
    once=True,
)
async def survives_nesting(t: Trial) -> None:
    """Sends an ordinary request with 20,000 brackets in its params."""
    talk = await t.talk()
    frame = talk.frame("no/such/method", {"x": "deep"})
    deep = b"[" * DEEP + b"]" * DEEP
    await talk.provoke(frame.replace(b'"deep"', deep))


@rule(
    "answers-all",
    "Of many requests sent at once each is answered, exactly once.",
    section="Base Protocol, Responses",
    fix="Queue what you cannot serve at once; never drop it.",
    covers=("INV-001", "R001-2"),
    transports=("stdio", "ws"),
    once=True,
)
async def answers_all(t: Trial) -> None:
    """Sends two hundred requests without waiting, half of them for unknown methods."""
    talk: StreamConversation = await t.talk()
    ids = [f"many-{number}" for number in range(MANY)]
    for number, id in enumerate(ids):
        message = talk.harmless() if number % 2 else talk.write.message("no/such/method")
        await talk.channel.send(written(message | {"id": id}))
    open_ids = set(ids)
    while open_ids:
        frame = await talk.channel.receive(t.target.patience)
        if frame is None:
            raise Broken(f"{len(open_ids)} of {MANY} were not answered")
        for message in messages(frame):
            name = str(message.get("id"))
            if "method" in message or not name.startswith("many-"):
                continue
            if name not in open_ids:
                raise Broken(f"{name} was answered twice")
            open_ids.discard(name)


@rule(
    "duplicate-id",
    "A request under an id that is in use neither ends nor confuses the server.",
    section="Base Protocol, Requests",
    fix="Refuse the second request with -32600, or answer both.",
    level="SHOULD",
    covers=("R002-3",),
    transports=("stdio", "ws"),
    once=True,
)
async def duplicate_id(t: Trial) -> None:
    """Sends two requests under one id in one write."""
    talk: StreamConversation = await t.talk()
    message = talk.harmless() | {"id": "same"}
    await talk.channel.send(written(message))
    await talk.channel.send(written(message))
    found = await talk.settle() or await talk.linger(t.target.patience)
    if not any(answer.get("id") == "same" for answer in found):
        raise Broken("neither of the two was answered")
