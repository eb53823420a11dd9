"""Robustness: a good conversation mutated again and again, and what breaks shrunk.

A server fails when it dies, no longer answers an ordinary request, or answers a
request twice. The smallest conversation that still shows it is what is told.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from dovetail.check.channel import Closed
from dovetail.check.conversation import Conversation, messages, written
from dovetail.check.mutate import mutate
from dovetail.check.rules import Broken
from dovetail.check.target import Target
from dovetail.check.trial import read_list
from dovetail.spec.revisions import Revision

__all__ = ["Failure", "fuzz"]

# Frames of one round. After each the server must still answer.
_ROUND = 5
# Tries to make a failing conversation smaller; each starts the server anew.
_SHRINKING = 60


class Failure(Struct, frozen=True):
    """What the server did, the round of the seed that showed it, and the frames that do."""

    what: str
    round: int
    frames: tuple[bytes, ...]


async def fuzz(
    target: Target,
    revision: Revision,
    rounds: int,
    seed: int,
    on_round: Callable[[int], None] = lambda number: None,
) -> Failure | None:
    """The first failure in so many rounds, shrunk; None if there was none."""
    corpus = await _corpus(target, revision)
    talk = await _open(target, revision)
    said: list[bytes] = []
    try:
        for number in range(rounds):
            rng = random.Random(f"{seed}/{number}")
            frames = [mutate(rng.choice(corpus), rng) for _ in range(_ROUND)]
            said += frames
            problem = await _problem(talk, frames)
            on_round(number)
            if problem is not None:
                small = await _shrink(target, revision, said)
                return Failure(problem, number, tuple(small))
    finally:
        await talk.close()
    return None


async def _corpus(target: Target, revision: Revision) -> list[bytes]:
    """Good frames: what a client of this server would send."""
    talk = await _open(target, revision)
    try:
        frames = [
            written(talk.write.harmless()),
            talk.frame("no/such/method", {"a": [1, {"b": None}]}),
        ]
        for name, key in (("tools", "name"), ("prompts", "name"), ("resources", "uri")):
            if name not in talk.capabilities:
                continue
            frames.append(talk.frame(f"{name}/list", {"cursor": "x"}))
            for item in (await read_list(talk, f"{name}/list", name))[:3]:
                frames += _uses(talk, name, key, item, target.calls)
        for method, params in (
            ("notifications/cancelled", {"requestId": 1, "reason": "no"}),
            ("notifications/progress", {"progressToken": "x", "progress": 1}),
        ):
            frames.append(written({"jsonrpc": "2.0", "method": method, "params": params}))
        return frames
    finally:
        await talk.close()


def _uses(
    talk: Conversation, kind: str, key: str, item: dict[str, Any], calls: dict[str, Any]
) -> list[bytes]:
    """How one listed thing is used; a tool only if it reads or was named by the user."""
    method = {"tools": "tools/call", "prompts": "prompts/get", "resources": "resources/read"}[kind]
    reads = (item.get("annotations") or {}).get("readOnlyHint") is True
    if kind == "tools" and not reads and item[key] not in calls:
        return []
    params = {key: item[key]}
    if kind == "tools":
        params["arguments"] = calls.get(item[key], {})
    return [talk.frame(method, params)]


async def _open(target: Target, revision: Revision) -> Conversation:
    talk = await target.open(revision)
    await talk.greet()
    return talk


async def _problem(talk: Conversation, frames: Sequence[bytes]) -> str | None:
    """Say the frames; what went wrong, or None."""
    start = len(talk.log)
    try:
        for frame in frames:
            await talk.provoke(frame)
    except (Broken, Closed) as error:
        return str(error)
    asked = Counter(
        str(m.get("id")) for e in talk.log[:] if e.way == "sent" for m in messages(e.frame)
    )
    answers = Counter(
        str(message["id"])
        for entry in talk.log[start:]
        if entry.way == "received"
        for message in messages(entry.frame)
        if "method" not in message and isinstance(message.get("id"), int | str)
    )
    twice = next((id for id, count in answers.items() if count > max(1, asked[id])), None)
    return None if twice is None else f"request {twice} was answered twice"


async def _shrink(target: Target, revision: Revision, frames: list[bytes]) -> list[bytes]:
    """Leave out halves, quarters and so on of the frames, as long as it still fails."""
    tries = 0
    size = max(1, len(frames) // 2)
    while tries < _SHRINKING:
        at = 0
        while at < len(frames) and tries < _SHRINKING:
            fewer = frames[:at] + frames[at + size :]
            tries += 1
            if fewer and await _fails(target, revision, fewer):
                frames = fewer
            else:
                at += size
        if size == 1:
            break
        size = max(1, size // 2)
    return frames


async def _fails(target: Target, revision: Revision, frames: list[bytes]) -> bool:
    talk = await _open(target, revision)
    try:
        return await _problem(talk, frames) is not None
    finally:
        await talk.close()
