"""Standard input and output: lines, the end of input, signals, children."""

import signal

from dovetail.check.channel import StdioChannel
from dovetail.check.conversation import StreamConversation, written
from dovetail.check.rules import Broken, rule
from dovetail.check.trial import Trial

STDIO = ("stdio",)
PATIENCE_END = 5.0  # how long a server may take to end


@rule(
    "line-split",
    "A message that arrives in pieces is put together.",
    section="Transports, stdio",
    fix="Read until the newline, however many reads that takes.",
    transports=STDIO,
    covers=("R000-1",),
    once=True,
)
async def line_split(t: Trial) -> None:
    """Writes a request in pieces of seven bytes, and three requests in one write."""
    talk: StreamConversation = await t.talk()
    channel = _stdio(talk)
    frame = written(talk.harmless() | {"id": "split"})
    await channel.write(frame[:7], frame)
    for start in range(7, len(frame), 7):
        await channel.write(frame[start : start + 7])
    await channel.write(b"\n")
    await talk.answer_to("split")
    joined = [written(talk.harmless() | {"id": f"joined-{number}"}) for number in range(3)]
    await channel.write(b"\n".join([*joined, b""]), *joined)
    for number in range(3):
        await talk.answer_to(f"joined-{number}")


@rule(
    "end-of-input",
    "When its input ends the server ends.",
    section="Lifecycle, Shutdown, stdio",
    fix="Leave the read loop at end of file, and let no thread keep the process.",
    level="SHOULD",
    transports=STDIO,
    covers=("R002-13",),
    apart=True,
)
async def end_of_input(t: Trial) -> None:
    """Closes the server's stdin and waits five seconds."""
    channel = _stdio(await t.fresh())
    await channel.end_input()
    if not await channel.exited(PATIENCE_END):
        raise Broken(f"it still ran {PATIENCE_END:g} s later")


@rule(
    "sigterm",
    "SIGTERM ends the server.",
    section="Lifecycle, Shutdown, stdio",
    fix="Do not block SIGTERM, and finish within a second or two.",
    level="SHOULD",
    transports=STDIO,
    covers=("R002-13",),
    apart=True,
)
async def sigterm(t: Trial) -> None:
    """Sends SIGTERM and waits five seconds."""
    channel = _stdio(await t.fresh())
    channel.process.send_signal(signal.SIGTERM)
    if not await channel.exited(PATIENCE_END):
        raise Broken(f"it still ran {PATIENCE_END:g} s later")


@rule(
    "no-orphans",
    "A server that has ended leaves no process behind.",
    section="Lifecycle, Shutdown, stdio",
    fix="End the processes you started before you end.",
    level="SHOULD",
    transports=STDIO,
    covers=("R002-13",),
    apart=True,
)
async def no_orphans(t: Trial) -> None:
    """Closes stdin, waits for the end, and looks for processes of its group."""
    channel = _stdio(await t.fresh())
    await channel.end_input()
    if await channel.exited(PATIENCE_END) and channel.group_alive():
        raise Broken("processes of its group are still running")


@rule(
    "answers-before-end",
    "What was asked before the input ended is answered.",
    section="Lifecycle, Shutdown, stdio",
    fix="Finish what is running when the input ends, for a bounded time.",
    level="SHOULD",
    transports=STDIO,
    covers=("R001-14",),
    apart=True,
)
async def answers_before_end(t: Trial) -> None:
    """Sends a request and closes stdin at once, as `echo ... | server` does."""
    talk: StreamConversation = await t.fresh()
    channel = _stdio(talk)
    await channel.send(written(talk.harmless() | {"id": "last"}))
    await channel.end_input()
    await talk.answer_to("last")


def _stdio(talk: StreamConversation) -> StdioChannel:
    assert isinstance(talk.channel, StdioChannel)
    return talk.channel
