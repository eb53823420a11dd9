"""The backplane on Redis (6.2 or later) or Valkey, for many nodes.

    pub/sub     the bus, and a mailbox for each node
    streams     logs, with our own cursors as ids, so that a cursor is known before it is sent
    strings     leases and records, with a time to live

A node has a lease on its own tag and renews it with each beat. Others may bury a node whose
lease has run out, but only if they have had a link for as long as a lease lasts themselves:
after an outage everybody gets the time to come back.

What this node has written is also in its memory. When the engine comes back, empty or not, the
node brings it up to date: its leases here, the events it has missed right after that; and who
put records is told of the gap, and puts them again.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

import redis.exceptions

from dovetail.backplane.base import Event, Receiver
from dovetail.backplane.engine import Command, Engine
from dovetail.backplane.keys import new_node
from dovetail.backplane.memory import LogLimits, MemoryLog

__all__ = ["RedisBackplane"]

# Seconds that a node may be silent before others take over what it had. Shorter would bury
# nodes that only collect garbage or wait for a slow disk.
LEASE_SECONDS = 10.0
# Beats in a lease: two may be lost.
BEATS = 4

# What stands in place of the owner of a tag when its node has ended in order, and how long: as
# long as a client may take to notice.
_GONE = "-"
_GONE_MS = 60 * 60 * 1000

# Claim or renew: the owner afterwards.
_CLAIM = """local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return owner end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]"""
_RELEASE = """if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"""


class RedisBackplane:
    """One node on the engine at ``url`` (redis://, rediss:// or unix://).

    Services that share an engine need a ``namespace`` each.
    """

    shared = True

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "dovetail",
        lease_seconds: float = LEASE_SECONDS,
        log_limits: LogLimits | None = None,
    ) -> None:
        self.node = new_node()
        self.namespace = namespace
        self.engine = Engine(url, beat_seconds=lease_seconds / BEATS)
        self.engine.beat = self._beat
        self.engine.resync = self._resync
        self.bus = _Bus(self.engine, f"{namespace}:bus", self.node)
        self.mailbox = _Mailbox(self.engine, f"{namespace}:node:", self.node)
        self.log = _Log(self.engine, f"{namespace}:log:", log_limits)
        self.directory = _Directory(self.engine, f"{namespace}:lease:", self.node, lease_seconds)
        self.records = _Records(self.engine, f"{namespace}:record:")
        self._epoch = b""
        self.engine.gaps.append(self.log.catch_up)  # the first: before anybody appends

    @property
    def ready(self) -> bool:
        return self.engine.up

    async def open(self) -> None:
        await self.engine.open(f"{self.namespace}:echo:{self.node}")

    async def close(self) -> None:
        if self.engine.up:
            await self.engine.calls(self.directory.releases())
        await self.engine.close()

    async def _beat(self) -> None:
        await self.directory.renew()
        self.log.catch_up()

    async def _resync(self) -> None:
        """The engine is (back) there, perhaps with everything forgotten."""
        key, mine = f"{self.namespace}:epoch", secrets.token_bytes(8)
        _, epoch = await self.engine.direct([("SET", key, mine, "NX"), ("GET", key)])
        if epoch != self._epoch:
            self._epoch = epoch
            self.log.forgotten()
        await self.engine.direct(self.directory.claims())


def _lease(node: str) -> str:
    return f"node {node}"


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


class _Bus:
    """One channel. A message starts with the tag of its sender, who does not want it back."""

    def __init__(self, engine: Engine, channel: str, node: str) -> None:
        self._engine = engine
        self._channel = channel
        self._node = node.encode()
        self._receivers: list[Receiver] = []
        engine.subscribe(channel, self._received)

    def publish(self, data: bytes) -> None:
        self._engine.post(("PUBLISH", self._channel, self._node + data))

    def subscribe(self, receive: Receiver, gap: Callable[[], None]) -> None:
        self._receivers.append(receive)
        self._engine.gaps.append(gap)

    def _received(self, data: bytes) -> None:
        size = len(self._node)
        if data[:size] != self._node:
            for receive in self._receivers:
                receive(data[size:])


class _Mailbox:
    """A channel for each node; an engine that counts no receiver knows that it is gone."""

    def __init__(self, engine: Engine, prefix: str, node: str) -> None:
        self._engine = engine
        self._prefix = prefix
        self._receive: Receiver = _ignore
        engine.subscribe(prefix + node, self._received)

    async def send(self, node: str, data: bytes) -> bool:
        return int(await self._engine.call("PUBLISH", self._prefix + node, data)) > 0

    def receive(self, receive: Receiver, lost: Callable[[], None]) -> None:
        self._receive = receive
        self._engine.losses.append(lost)

    def _received(self, data: bytes) -> None:
        self._receive(data)


def _ignore(data: bytes) -> None:
    """Nobody receives yet."""


class _Log:
    """Events in our memory first, and in the engine for those who come after us."""

    def __init__(self, engine: Engine, prefix: str, limits: LogLimits | None) -> None:
        self._engine = engine
        self._prefix = prefix
        self._own = _OwnLog(limits)
        self._limits = self._own.limits
        # Streams of which the engine lacks something; they are sent again in order.
        self._behind: set[str] = set()

    def append(self, stream: str, data: bytes) -> int:
        cursor = self._own.append(stream, data)
        if stream not in self._behind:
            self._send(stream, cursor, data)
        return cursor

    def _send(self, stream: str, cursor: int, data: bytes) -> None:
        def stored(answer: Any) -> None:
            if _is_stored(answer):
                self._own.confirm(stream, cursor)
            else:
                self._behind.add(stream)

        add, keep = self._commands(stream, cursor, data)
        self._engine.post(add, stored)
        self._engine.post(keep)

    def _commands(self, stream: str, cursor: int, data: bytes) -> tuple[Command, Command]:
        key, limits = self._prefix + stream, self._limits
        size = ("MAXLEN", "~", limits.max_events)
        keep = ("PEXPIRE", key, _milliseconds(limits.seconds))
        return ("XADD", key, *size, f"0-{cursor}", "d", data), keep

    async def read(self, stream: str, after: int = 0) -> list[Event]:
        if self._own.has(stream):
            return await self._own.read(stream, after)
        start = f"(0-{after}" if after else "-"
        entries = await self._engine.call("XRANGE", self._prefix + stream, start, "+")
        return [Event(int(id.split(b"-")[1]), fields[1]) for id, fields in entries]

    async def adopt(self, stream: str) -> int:
        if not self._own.has(stream):
            self._own.fill(stream, await self.read(stream))
        return await self._own.adopt(stream)

    def drop(self, stream: str) -> None:
        self._own.drop(stream)
        self._behind.discard(stream)
        self._engine.post(("DEL", self._prefix + stream))

    def forgotten(self) -> None:
        """The engine has lost everything: all that we have is to be sent again."""
        self._behind.update(self._own.unconfirm())

    def catch_up(self) -> None:
        """Send again what the engine refused, in order."""
        behind, self._behind = self._behind, set()
        for stream in behind:
            for event in self._own.unconfirmed(stream):
                self._send(stream, event.cursor, event.data)


class _OwnLog(MemoryLog):
    """What this node has written, and how much of it the engine has confirmed."""

    def has(self, stream: str) -> bool:
        return stream in self._streams

    def confirm(self, stream: str, cursor: int) -> None:
        kept = self._streams.get(stream)
        if kept is not None:
            kept.stored = max(kept.stored, cursor)

    def unconfirm(self) -> list[str]:
        for kept in self._streams.values():
            kept.stored = 0
        return list(self._streams)

    def unconfirmed(self, stream: str) -> list[Event]:
        kept = self._streams.get(stream)
        return [] if kept is None else kept.after(kept.stored)

    def fill(self, stream: str, events: list[Event]) -> None:
        """Take over what another node has written."""
        for event in events:
            self.append(stream, event.data)
        if events:
            kept = self._streams[stream]
            kept.last = kept.stored = events[-1].cursor


def _is_stored(answer: Any) -> bool:
    """An id that is not new was stored before, by a try whose answer was lost."""
    if isinstance(answer, redis.exceptions.ResponseError):
        return "equal or smaller" in str(answer)
    return not isinstance(answer, Exception)


class _Directory:
    """Leases, one of them on the node's own tag; the beat renews them all."""

    def __init__(self, engine: Engine, prefix: str, node: str, seconds: float) -> None:
        self._engine = engine
        self._prefix = prefix
        self._node = node
        self._seconds = seconds
        self._held = {_lease(node)}

    async def claim(self, name: str) -> str:
        owner: bytes = await self._engine.call(*self._claiming(name))
        if owner.decode() == self._node:
            self._held.add(name)
        return owner.decode()

    async def owner(self, name: str) -> str | None:
        owner: bytes | None = await self._engine.call("GET", self._prefix + name)
        return None if owner is None else owner.decode()

    async def release(self, name: str) -> None:
        self._held.discard(name)
        await self._engine.call(*self._releasing(name))

    async def alive(self, node: str) -> bool:
        owner = await self.owner(_lease(node))
        if owner is not None:
            return owner != _GONE
        now = asyncio.get_running_loop().time()
        return now - self._engine.up_since < self._seconds

    async def renew(self) -> None:
        """What another node has got meanwhile is not ours any more."""
        names = list(self._held)
        owners = await self._engine.calls([self._claiming(name) for name in names])
        mine = self._node.encode()
        lost = [name for name, owner in zip(names, owners, strict=True) if owner != mine]
        self._held.difference_update(lost)

    def claims(self) -> list[Command]:
        return [self._claiming(name) for name in self._held]

    def releases(self) -> list[Command]:
        """Everything is given back. Our own tag says that we are gone, so that nobody waits."""
        own = self._prefix + _lease(self._node)
        gone: Command = ("SET", own, _GONE, "PX", _GONE_MS)
        return [*(self._releasing(name) for name in self._held), gone]

    def _claiming(self, name: str) -> Command:
        return "EVAL", _CLAIM, 1, self._prefix + name, self._node, _milliseconds(self._seconds)

    def _releasing(self, name: str) -> Command:
        return "EVAL", _RELEASE, 1, self._prefix + name, self._node


class _Records:
    def __init__(self, engine: Engine, prefix: str) -> None:
        self._engine = engine
        self._prefix = prefix

    async def put(self, name: str, data: bytes, seconds: float) -> None:
        await self._engine.call("SET", self._prefix + name, data, "PX", _milliseconds(seconds))

    async def get(self, name: str) -> bytes | None:
        data: bytes | None = await self._engine.call("GET", self._prefix + name)
        return data

    async def delete(self, name: str) -> None:
        await self._engine.call("DEL", self._prefix + name)
