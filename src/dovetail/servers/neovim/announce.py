"""What IDE clients are told unasked, and when they are ready to hear it.

Claude Code registers its handlers some time after the handshake and drops what
comes before, so a client is ready 600 ms after the last of its first messages.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail import Server, Session
from dovetail.servers.neovim.model import Model, Selection
from dovetail.servers.neovim.places import raw_uri

__all__ = ["Announcer"]

READY_SECONDS = 0.6
MENTION_GAP_SECONDS = 0.025  # the client inserts them one after the other
MENTION_PATIENCE_SECONDS = 5.0  # for a client to come; then the mention is dropped
MAX_MENTIONS = 100  # waiting ones; more are a mistake of somebody's script
QUIET_SECONDS = 0.2  # of diagnostics: language servers report in bursts
MAX_QUIET_SECONDS = 1.0


class Announcer:
    """Sends ``selection_changed``, ``at_mentioned``, ``diagnostics_changed``, ``log_event``."""

    def __init__(self, server: Server, model: Model) -> None:
        self._server = server
        self._model = model
        self._loop = asyncio.get_running_loop()
        self._timers: dict[Session, asyncio.TimerHandle] = {}
        self._ready: dict[Session, dict[str, Any] | None] = {}  # what each heard last
        self._mentions: list[tuple[float, dict[str, Any]]] = []
        self._sending = False
        self._changed: dict[int, None] = {}
        self._quiet: asyncio.TimerHandle | None = None
        self._changed_since = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_mention_dropped: Callable[[], None] = lambda: None
        model.on_selection.append(self._selected)
        model.on_diagnostics.append(self._diagnosed)
        server.notification("notifications/initialized")(self._initialized)
        server.notification("ide_connected")(self._ide_connected)

    # -- who is ready --------------------------------------------------------------------

    async def _initialized(self, session: Session) -> None:
        self._soon_ready(session)

    async def _ide_connected(self, session: Session, pid: int = 0) -> None:
        self._soon_ready(session)

    def _soon_ready(self, session: Session) -> None:
        if session in self._timers:
            self._timers.pop(session).cancel()
        elif session not in self._ready:
            session.connection.at_end(lambda: self._left(session))
        self._timers[session] = self._loop.call_later(READY_SECONDS, self._is_ready, session)

    def _is_ready(self, session: Session) -> None:
        del self._timers[session]
        self._ready[session] = None  # a client that connects again hears everything again
        self._spawn(self._greet(session))
        self._send_mentions()

    async def _greet(self, session: Session) -> None:
        selection = (await self._model.selection()).value
        if selection is not None:
            self._tell_selection(session, selection.wire())

    def _left(self, session: Session) -> None:
        self._ready.pop(session, None)
        if session in self._timers:
            self._timers.pop(session).cancel()

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- selection -----------------------------------------------------------------------

    def _selected(self, selection: Selection) -> None:
        params = selection.wire()
        for session in list(self._ready):
            self._tell_selection(session, params)

    def _tell_selection(self, session: Session, params: dict[str, Any]) -> None:
        if session in self._ready and self._ready[session] != params:
            self._ready[session] = params
            session.notify("selection_changed", params)

    # -- mentions ------------------------------------------------------------------------

    def mention(self, path: str, first: int | None = None, last: int | None = None) -> None:
        """Lines count from 0; without them the whole file or directory is meant."""
        params: dict[str, Any] = {"filePath": path}
        if first is not None:
            params |= {"lineStart": first, "lineEnd": first if last is None else last}
        if len(self._mentions) < MAX_MENTIONS:
            self._mentions.append((self._loop.time(), params))
        self._send_mentions()
        if self._mentions and not self._ready:
            self._loop.call_later(MENTION_PATIENCE_SECONDS + 0.01, self._drop_old)

    def _send_mentions(self) -> None:
        if self._ready and self._mentions and not self._sending:
            self._sending = True
            self._spawn(self._mention_all())

    async def _mention_all(self) -> None:
        try:
            while self._mentions and self._ready:
                _, params = self._mentions.pop(0)
                for session in list(self._ready):
                    session.notify("at_mentioned", params)
                await asyncio.sleep(MENTION_GAP_SECONDS)
        finally:
            self._sending = False

    def _drop_old(self) -> None:
        oldest = self._loop.time() - MENTION_PATIENCE_SECONDS
        kept = [(born, params) for born, params in self._mentions if born > oldest]
        if len(kept) < len(self._mentions):
            self._mentions = kept
            self.on_mention_dropped()

    # -- diagnostics and events ------------------------------------------------------------

    def _diagnosed(self, buffer: int) -> None:
        if not self._ready:
            return
        now = self._loop.time()
        if self._quiet is None:
            self._changed_since = now
        else:
            self._quiet.cancel()
        self._changed[buffer] = None
        wait = min(QUIET_SECONDS, self._changed_since + MAX_QUIET_SECONDS - now)
        self._quiet = self._loop.call_later(max(0.0, wait), self._tell_diagnostics)

    def _tell_diagnostics(self) -> None:
        self._quiet = None
        buffers, self._changed = list(self._changed), {}
        self._spawn(self._name_changed(buffers))

    async def _name_changed(self, buffers: list[int]) -> None:
        """A file whose last diagnostic is gone has changed too, so names of before count."""
        before = [self._model.path_of_buffer(buffer) for buffer in buffers]
        await self._model.diagnostics()
        after = [self._model.path_of_buffer(buffer) for buffer in buffers]
        paths = dict.fromkeys(path for path in before + after if path)
        if paths:
            self.broadcast("diagnostics_changed", {"uris": [raw_uri(path) for path in paths]})

    def log_event(self, name: str, data: dict[str, Any]) -> None:
        if self._model.settings.get("log_events"):
            self.broadcast("log_event", {"eventName": name, "eventData": data})

    def broadcast(self, method: str, params: dict[str, Any]) -> None:
        for session in list(self._ready):
            session.notify(method, params)

    @property
    def clients(self) -> int:
        return len(self._ready) + len(self._timers)
