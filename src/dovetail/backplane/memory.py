"""The backplane of one process: no engine, the same promises.

Several nodes can share a `Hub`, which is how the test-suite gets two of them and how several
applications of one process can serve one service.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from msgspec import Struct

from dovetail.backplane.base import Event, Receiver
from dovetail.backplane.keys import new_node

__all__ = ["Hub", "LogLimits", "MemoryBackplane", "MemoryLog"]

Clock = Callable[[], float]


class LogLimits(Struct, frozen=True, kw_only=True):
    """How much of a stream can be resumed: a name, a default and a reason each."""

    # Events of one stream. A client that is away for a minute misses hundreds of progress
    # reports at most (they are limited to some ten per second).
    max_events: int = 1_000
    # Bytes of one stream: four of the longest messages, so that an answer always fits.
    max_bytes: int = 16 * 1024 * 1024
    # Bytes of all streams of a node, oldest streams first out.
    max_total_bytes: int = 256 * 1024 * 1024
    # Seconds after its last event that a stream can be resumed: a closed laptop lid.
    seconds: float = 300.0


class _Stream:
    """The events of one stream; `first` is the cursor of the oldest that is kept."""

    __slots__ = ("events", "last", "size", "stored", "until")

    def __init__(self, last: int = 0) -> None:
        self.events: deque[bytes] = deque()
        self.last = last
        self.size = 0
        self.until = 0.0
        self.stored = last  # for an engine behind: the cursor of what it has confirmed

    def after(self, cursor: int) -> list[Event]:
        first = self.last - len(self.events) + 1
        skipped = max(0, cursor + 1 - first)
        kept = list(self.events)[skipped:]
        return [Event(first + skipped + index, data) for index, data in enumerate(kept)]


class MemoryLog:
    """Streams in memory, in the order of their last event, which is that of their expiry."""

    def __init__(self, limits: LogLimits | None = None, clock: Clock = time.monotonic) -> None:
        self.limits = limits or LogLimits()
        self._clock = clock
        self._streams: OrderedDict[str, _Stream] = OrderedDict()
        self._size = 0

    def append(self, stream: str, data: bytes) -> int:
        kept = self._streams.get(stream)
        if kept is None:
            kept = self._streams[stream] = _Stream()
        else:
            self._streams.move_to_end(stream)
        kept.until = self._clock() + self.limits.seconds
        kept.events.append(data)
        kept.last += 1
        self._grow(kept, len(data))
        self._expire()
        return kept.last

    async def read(self, stream: str, after: int = 0) -> list[Event]:
        self._expire()
        kept = self._streams.get(stream)
        return [] if kept is None else kept.after(after)

    async def adopt(self, stream: str) -> int:
        kept = self._streams.get(stream)
        return 0 if kept is None else kept.last

    def drop(self, stream: str) -> None:
        kept = self._streams.pop(stream, None)
        if kept is not None:
            self._size -= kept.size

    def clear(self) -> None:
        self._streams.clear()
        self._size = 0

    def _grow(self, kept: _Stream, size: int) -> None:
        kept.size += size
        self._size += size
        limits = self.limits
        while len(kept.events) > limits.max_events or kept.size > limits.max_bytes:
            oldest = len(kept.events.popleft())
            kept.size -= oldest
            self._size -= oldest

    def _expire(self) -> None:
        now = self._clock()
        while self._streams:
            name, oldest = next(iter(self._streams.items()))
            if oldest.until > now and self._size <= self.limits.max_total_bytes:
                return
            self.drop(name)


class Hub:
    """What the nodes of one process share."""

    def __init__(self, limits: LogLimits | None = None, clock: Clock = time.monotonic) -> None:
        self.log = MemoryLog(limits, clock)
        self.nodes: dict[str, MemoryBackplane] = {}
        self.leases: dict[str, str] = {}
        self._clock = clock
        self._records: dict[str, tuple[float, bytes]] = {}
        self._puts = 0

    def put(self, name: str, data: bytes, seconds: float) -> None:
        self._records[name] = self._clock() + seconds, data
        self._puts += 1
        if self._puts > len(self._records):  # each record is looked at once for each put
            self._puts = 0
            now = self._clock()
            self._records = {n: kept for n, kept in self._records.items() if kept[0] > now}

    def get(self, name: str) -> bytes | None:
        until, data = self._records.get(name, (0.0, b""))
        return data if until > self._clock() else None

    def delete(self, name: str) -> None:
        self._records.pop(name, None)


class MemoryBackplane:
    """One node in this process."""

    def __init__(self, hub: Hub | None = None) -> None:
        self._hub = hub or Hub()
        self.node = new_node()
        self.shared = hub is not None
        self.ready = True
        self.bus = _Bus(self._hub, self.node)
        self.mailbox = _Mailbox(self._hub)
        self.log = self._hub.log
        self.directory = _Directory(self._hub, self.node)
        self.records = _Records(self._hub)

    async def open(self) -> None:
        self._hub.nodes[self.node] = self

    async def close(self) -> None:
        self._hub.nodes.pop(self.node, None)


def _ignore(data: bytes) -> None:
    """Nobody listens yet."""


class _Bus:
    def __init__(self, hub: Hub, node: str) -> None:
        self._hub = hub
        self._node = node
        self.receivers: list[Receiver] = []

    def publish(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        for node in list(self._hub.nodes.values()):
            if node.node != self._node:
                for receive in node.bus.receivers:
                    loop.call_soon(receive, data)

    def subscribe(self, receive: Receiver, gap: Callable[[], None]) -> None:
        self.receivers.append(receive)


class _Mailbox:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.receiver: Receiver = _ignore

    async def send(self, node: str, data: bytes) -> bool:
        there = self._hub.nodes.get(node)
        if there is None:
            return False
        asyncio.get_running_loop().call_soon(there.mailbox.receiver, data)
        await asyncio.sleep(0)  # or who sends in a loop would never let it arrive
        return True

    def receive(self, receive: Receiver, lost: Callable[[], None]) -> None:
        self.receiver = receive


class _Directory:
    """A lease is good as long as its owner is there."""

    def __init__(self, hub: Hub, node: str) -> None:
        self._hub = hub
        self._node = node

    async def claim(self, name: str) -> str:
        owner = await self.owner(name)
        return self._hub.leases.setdefault(name, self._node) if owner is None else owner

    async def owner(self, name: str) -> str | None:
        owner = self._hub.leases.get(name)
        if owner in self._hub.nodes:
            return owner
        self._hub.leases.pop(name, None)
        return None

    async def release(self, name: str) -> None:
        if self._hub.leases.get(name) == self._node:
            del self._hub.leases[name]

    async def alive(self, node: str) -> bool:
        return node in self._hub.nodes


class _Records:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def put(self, name: str, data: bytes, seconds: float) -> None:
        self._hub.put(name, data, seconds)

    async def get(self, name: str) -> bytes | None:
        return self._hub.get(name)

    async def delete(self, name: str) -> None:
        self._hub.delete(name)
