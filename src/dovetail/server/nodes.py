"""What a server shares with the other nodes of its service: news of changes, and tasks.

A change that this node announces to its own clients is told to all others on the bus, and they
announce it to theirs. After a gap, when news may be missing, everything may have changed: that
is what the clients are told then, since a list read once too often does no harm.
"""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from dovetail.backplane.base import Backplane
from dovetail.backplane.calls import Calls
from dovetail.backplane.keys import KeyRing
from dovetail.backplane.memory import MemoryBackplane
from dovetail.runtime.link import Home

if TYPE_CHECKING:
    from dovetail.server.app import Server
    from dovetail.server.tasks.store import SharedStore

__all__ = ["Nodes"]

# ("list", kind), ("resource", uri) or ("task", id)
_News = tuple[str, str]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_News).decode


class Nodes:
    """This node among the others, while it serves."""

    def __init__(self, server: "Server", backplane: Backplane, ring: KeyRing) -> None:
        self._server = server
        self._home = Home(server.limits)
        self.backplane = backplane
        self.calls = Calls(backplane, ring)
        backplane.bus.subscribe(self._heard, self._gap)

    def tell(self, what: str, name: str) -> None:
        """Let the other nodes know; any thread may say it."""
        self._home.on_loop(self.backplane.bus.publish, _encode((what, name)))

    def _heard(self, data: bytes) -> None:
        what, name = _decode(data)
        if what == "task":
            if self._server.tasks is not None:
                self._home.spawn(self._server.tasks.heard(name), "news of a task")
            return
        for session in self._server.sessions:
            if what == "resource":
                session.resource_updated(name)
            elif self._server.policy.list_changed:
                session.list_has_changed(name)

    def _gap(self) -> None:
        for session in self._server.sessions:
            session.all_may_have_changed()
        if self._server.tasks is not None:
            for task_id in self._server.tasks.concerns():
                self._home.spawn(self._server.tasks.heard(task_id), "news of a task")

    def task_store(self) -> "SharedStore | None":
        """Where the tasks of all nodes are kept; in one process each node has its own."""
        if isinstance(self.backplane, MemoryBackplane):
            return None
        from dovetail.backplane.redis import RedisBackplane
        from dovetail.server.tasks.redis import RedisStore

        return RedisStore(self.backplane) if isinstance(self.backplane, RedisBackplane) else None

    async def close(self) -> None:
        await self.calls.close()
        background = self._home.background
        for task in background:
            task.cancel()
        if background:
            await asyncio.wait(background)
