"""Who is connected, and telling them what has changed: once per burst."""

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.runtime.link import Home, Link
from dovetail.server.session import Session

__all__ = ["Changes"]

# A burst of changes ends when nothing has changed for as long as a person does not
# notice; a plug-in that loads fifty tools makes one message, not fifty.
BURST_SECONDS = 0.01


class Changes:
    """The open sessions of a server, and the lists that changed since they were told."""

    def __init__(self) -> None:
        self.sessions: set[Session] = set()
        self.homes: set[Home] = set()  # loops that serve without a session, as HTTP does
        self.tell: Callable[[str, str], None] | None = None  # the other nodes, if there are any
        self._dirty: set[str] = set()

    def open(self, session: Session) -> None:
        if not self.heeded:  # what was left to say died with the last loop
            self._dirty.clear()
        self.sessions.add(session)
        session.connection.at_end(lambda: self.sessions.discard(session))

    @property
    def heeded(self) -> bool:
        """Whether there is anybody to be told."""
        return bool(self.sessions or self.homes) or self.tell is not None

    def mark(self, kind: str) -> None:
        """The list of ``kind`` has changed; on the loop."""
        if kind not in self._dirty:
            if not self._dirty:
                asyncio.get_running_loop().call_later(BURST_SECONDS, self._announce)
            self._dirty.add(kind)

    def on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call ``function`` on the loop that serves: now if this is it, or if there is none."""
        serving: list[Home | Link] = [
            *self.homes,
            *(session.connection for session in list(self.sessions)),
        ]
        if serving and not any(place.here for place in serving):
            serving[0].on_loop(function, *arguments)
        else:
            function(*arguments)

    def _announce(self) -> None:
        dirty, self._dirty = sorted(self._dirty), set()
        for kind in dirty:
            for session in list(self.sessions):
                session.list_has_changed(kind)
            if self.tell is not None:
                self.tell("list", kind)

    def updated(self, uri: str) -> None:
        for session in list(self.sessions):
            session.connection.on_loop(session.resource_updated, uri)
        if self.tell is not None:
            self.tell("resource", uri)
