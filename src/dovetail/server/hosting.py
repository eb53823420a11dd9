"""What an HTTP application sees of a server: its tables, its sessions, its other nodes."""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from dovetail.backplane.base import Backplane
from dovetail.backplane.calls import Calls
from dovetail.backplane.keys import KeyRing
from dovetail.core.peer import Notification, Peer
from dovetail.runtime.connection import Connection, Judge, Tap
from dovetail.runtime.link import Handler, Home, Link
from dovetail.server.changes import Changes
from dovetail.server.dispatch import KNOWN_METHODS, Dispatch
from dovetail.server.nodes import Nodes
from dovetail.server.session import Session
from dovetail.spec.headers import Mirror
from dovetail.spec.revisions import MODERN

if TYPE_CHECKING:
    from dovetail.server.app import Server

__all__ = ["Hosting"]


class Hosting:
    """A server as the transport knows it."""

    def __init__(self, server: "Server", changes: Changes, dispatch: Dispatch) -> None:
        self._server = server
        self._changes = changes
        self._dispatch = dispatch
        self.limits = server.limits
        self.revisions = server.revisions

    # -- clients -----------------------------------------------------------------------

    def new_peer(self) -> Peer:
        return self._server.new_peer()

    def new_session(self, link: Link) -> Session:
        return self._server.new_session(link)

    def connection(self, *, tap: Tap | None = None, judge: Judge | None = None) -> Connection:
        return self._server.connection(tap=tap, judge=judge)

    def notified(self, notification: Notification, link: Link) -> None:
        self._server.notified(notification, link)

    def end_streams(self) -> None:
        """Answer every ``subscriptions/listen``: there will be no more news (digest 8.9)."""
        for session in self._server.sessions:
            session.end_streams()

    # -- methods -----------------------------------------------------------------------

    @property
    def modern_methods(self) -> dict[str, Handler]:
        """The handlers of 2026-07-28: always this very table, whatever it holds."""
        return self._dispatch.tables.setdefault(MODERN, {})

    @property
    def mirrored(self) -> dict[str, tuple[Mirror, ...]]:
        """Arguments that travel as headers, by tool; always this very table."""
        return self._dispatch.mirrored

    def knows(self, method: str) -> bool:
        """Whether a revision has this method, or the author does."""
        return method in KNOWN_METHODS or method in self._server.methods

    # -- serving -----------------------------------------------------------------------

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._server.running()

    def serve_on(self, home: Home) -> None:
        """A loop serves from now on, even while no client has a session."""
        self._changes.homes.add(home)
        self._dispatch.rebuild()

    def leave(self, home: Home) -> None:
        self._changes.homes.discard(home)

    def use_keys(self, ring: KeyRing) -> None:
        self._server.use_keys(ring.keys)

    def share(self, backplane: Backplane, keys: KeyRing) -> Calls:
        """Serve as one of several nodes from now on; the conversations with the others."""
        nodes = self._server.nodes = Nodes(self._server, backplane, keys)
        self._changes.tell = nodes.tell
        return nodes.calls

    async def unshare(self) -> None:
        """Serve alone again, if at all."""
        nodes, self._server.nodes = self._server.nodes, None
        self._changes.tell = None
        if nodes is not None:
            await nodes.close()
