"""The ``Backplane``: everything that one node of a service needs of the others.

A node is one process that serves. It has a tag, made anew at each start, and five
things of the backplane:

- ``bus``: news for all nodes (a list has changed). Nothing is kept.
- ``mailbox``: messages for one node, by its tag. Nothing is kept either.
- ``log``: the events of a stream, kept for a while, so that a client can resume it.
- ``directory``: who owns what, for as long as the owner renews its lease.
- ``records``: small values with a time to live: sessions.

A 2026-07-28 call needs none of them. ``memory.py`` is the default: one node, or several in
one process. ``redis.py`` is for many. Both pass one test-suite (tests/backplane).

An engine that cannot be reached is `BackplaneAway`, at once and never a hang: the transport
answers 503. What the methods without ``await`` are given is kept and sent when the engine
is back (``log``), or dropped with a ``gap`` (``bus``); no engine ever falls back to memory.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from dovetail.errors import DovetailError

__all__ = ["Backplane", "BackplaneAway", "Bus", "Directory", "Event", "Log", "Mailbox", "Records"]


class BackplaneAway(DovetailError):
    """The engine cannot be reached now. ``retry_after`` is a guess, in seconds."""

    def __init__(self, text: str, retry_after: int = 1) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Event(NamedTuple):
    """One entry of a log. Cursors of a stream count up from 1, without a hole."""

    cursor: int
    data: bytes


Receiver = Callable[[bytes], None]


class Bus(Protocol):
    """News for every node, in the order of each sender, at most once."""

    def publish(self, data: bytes) -> None:
        """Tell all *other* nodes; the sender knows already."""

    def subscribe(self, receive: Receiver, gap: Callable[[], None]) -> None:
        """Call ``receive`` with what others publish.

        ``gap`` is called when the engine is back after an outage: news may be missing, and
        the engine may have forgotten everything.
        """


class Mailbox(Protocol):
    """Messages between two nodes, in the order of the sender, at most once."""

    async def send(self, node: str, data: bytes) -> bool:
        """Whether somebody was there to take it. Raises `BackplaneAway`."""

    def receive(self, receive: Receiver, lost: Callable[[], None]) -> None:
        """Call ``receive`` with what is sent to this node, ``lost`` when some of it may be."""


class Log(Protocol):
    """Events of many streams, each written by one node: the owner of its session.

    The writer keeps what it wrote, so that it needs no engine to read it again.
    """

    def append(self, stream: str, data: bytes) -> int:
        """Keep an event; the cursor is right at once, the engine has it soon."""

    async def read(self, stream: str, after: int = 0) -> list[Event]:
        """What follows ``after``, as far as it is still kept. Raises `BackplaneAway`."""

    async def adopt(self, stream: str) -> int:
        """Go on with a stream of a node that is gone; the cursor of its last event."""

    def drop(self, stream: str) -> None:
        """Nobody will read this stream again."""


class Directory(Protocol):
    """Leases on names, renewed while the node lives. All methods raise `BackplaneAway`."""

    async def claim(self, name: str) -> str:
        """The owner: this node if it was free or ours, else whoever has it."""

    async def owner(self, name: str) -> str | None:
        """Who holds the lease now."""

    async def release(self, name: str) -> None:
        """Give a lease back, if it is ours."""

    async def alive(self, node: str) -> bool:
        """Whether a node lives, as far as we may judge: in doubt, yes."""


class Records(Protocol):
    """Small values with a time to live. All methods raise `BackplaneAway`."""

    async def put(self, name: str, data: bytes, seconds: float) -> None: ...

    async def get(self, name: str) -> bytes | None: ...

    async def delete(self, name: str) -> None: ...


class Backplane(Protocol):
    """One node's view. ``open`` it before use, ``close`` it at the end."""

    @property
    def node(self) -> str:
        """The tag of this node: URL-safe, eight characters, new in each process."""

    @property
    def shared(self) -> bool:
        """Whether there can be other nodes."""

    @property
    def ready(self) -> bool:
        """Whether the engine answers now."""

    @property
    def bus(self) -> Bus: ...

    @property
    def log(self) -> Log: ...

    @property
    def mailbox(self) -> Mailbox: ...

    @property
    def directory(self) -> Directory: ...

    @property
    def records(self) -> Records: ...

    async def open(self) -> None:
        """Connect; a wrong address or password raises, an engine that is away does not."""

    async def close(self) -> None:
        """Give back the leases, and end."""
