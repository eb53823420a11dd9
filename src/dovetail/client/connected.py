"""The life of a client: how it connects, what it then knows, how it connects again."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from msgspec import UNSET

from dovetail.client.answer import PING, Answerer, checked_root
from dovetail.client.cache import Cache
from dovetail.client.negotiate import NoCommonRevision, Verdicts, negotiate, verdicts
from dovetail.client.options import Options, default_info
from dovetail.client.session import Session, waits_of
from dovetail.core import state
from dovetail.core.peer import Notification, Peer
from dovetail.errors import ConnectionClosed, LocalProtocolError
from dovetail.runtime.connection import Connection
from dovetail.spec import types
from dovetail.spec.revisions import BY_ID, Revision

if TYPE_CHECKING:
    from dovetail.client.listen import Listener

__all__ = ["Connected", "Transport"]


class Transport(Protocol):
    """A way to a server. ``make`` gives a connection of the class it is called with."""

    key: Hashable

    async def open(self, make: Callable[..., Connection]) -> Connection: ...
    async def close(self) -> None: ...


class Connected:
    """What all that a client does rests on: a session, and how to get one."""

    def __init__(
        self,
        transport: Transport,
        *,
        name: str | None = None,
        version: str = "0.0.0",
        revision: str | None = None,
        revisions: Sequence[str] | None = None,
        cache: Cache | None = None,
        principal: Hashable = None,
        known: Verdicts = verdicts,
        **options: Any,
    ) -> None:
        """``revision`` is the one to ask for (``pin=True``: and no other); by default it is
        found out. ``options`` are those of ``dovetail.client.options.Options``.
        """
        info = default_info() if name is None else types.Implementation(name=name, version=version)
        if revisions is not None:
            options["revisions"] = tuple(_revision(one) for one in revisions)
        if isinstance(options.get("roots"), list):
            options["roots"] = [checked_root(root) for root in options["roots"]]
        self._options = Options(
            info=info, revision=None if revision is None else _revision(revision), **options
        )
        self._transport = transport
        self._endpoint = transport.key
        self._owner: Hashable = self if principal is None else principal
        self._cache = Cache() if cache is None else cache
        self._verdicts = known
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._listeners: set[Listener] = set()
        self.closed = False
        self._waits = waits_of(self._options, UNSET, UNSET)
        self._answerer = Answerer(self._options)

    # -- opening and closing -----------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._live(first=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection. What still waits fails with ConnectionClosed."""
        self.closed = True
        for listener in list(self._listeners):
            await listener.close()
        if self._session is not None:
            self._session.connection.end_reason = "the client is closed"
            self._session.end()
        await self._transport.close()

    async def _live(self, *, first: bool = False) -> Session:
        """The session to use: the one there is, or a new one if that is wished."""
        session = self._session
        if session is not None and not session.dead and not session.lost:
            return session
        if self.closed:
            raise ConnectionClosed("the client is closed")
        if not first:
            if session is None:
                raise LocalProtocolError("the client is not open: use it with `async with`")
            if not self._options.reconnect:
                raise ConnectionClosed(session.connection.end_reason)
        async with self._opening:
            if self._session is session:  # nobody else has opened it meanwhile
                self._session = await self._open()
            assert self._session is not None
            return self._session

    async def _open(self) -> Session:
        try:
            session = await self._connected()
        except NoCommonRevision:
            raise
        except Exception:
            if self._verdicts.get(self._endpoint) is None or self.closed:
                raise
            self._verdicts.drop(self._endpoint)  # what we remembered may have been the reason
            session = await self._connected()
        session.events = self._changed
        self._renewed()
        await self._ready(session)
        session.settle()
        return session

    def _renewed(self) -> None:
        """What was known of the server may not be true any more."""

    def _changed(self, notification: Notification) -> None:
        """The server says that something is another one now."""

    async def _connected(self) -> Session:
        sessions: list[Session] = []

        def make(kind: type[Connection] = Connection) -> Connection:
            connection = kind(
                self._peer(),
                self._options.limits,
                on_notification=lambda note, link: sessions[0].notified(note, link),
                tap=self._options.tap,
            )
            sessions.append(Session(connection, self._options))
            return connection

        try:
            await self._transport.open(make)
            session = sessions[0]
            session.http = hasattr(session.connection, "open_stream")
            await negotiate(session, self._endpoint, self._verdicts)
        except BaseException:
            await self._transport.close()
            raise
        return session

    def _peer(self) -> Peer:
        limits = self._options.limits
        peer = Peer(
            self._answerer.tables(),
            PING,
            answers_malformed=False,
            max_depth=limits.max_depth,
            max_batch=limits.max_batch,
        )
        peer.phase = state.STARTING  # we are about to shake hands, or need not
        return peer

    async def _ready(self, session: Session) -> None:
        """What follows a handshake."""
        if session.revision.modern:
            return
        connection: Any = session.connection
        if session.http:
            await connection.delivered()
            connection.open_stream()
        level = self._options.log_level
        if level is not None and session.capabilities.logging is not UNSET:
            await session.request("logging/setLevel", {"level": level}, self._waits)

    # -- what is known of the server -----------------------------------------------------------

    @property
    def session(self) -> Session:
        if self._session is None:
            raise LocalProtocolError("the client is not open: use it with `async with`")
        return self._session

    @property
    def revision(self) -> str:
        return self.session.revision.id

    @property
    def server(self) -> types.Implementation | None:
        """Who the server says it is; 2026-07-28 does not oblige it to."""
        return self.session.server

    @property
    def capabilities(self) -> types.ServerCapabilities:
        return self.session.capabilities

    @property
    def instructions(self) -> str | None:
        return self.session.instructions


def _revision(id: str) -> Revision:
    if id not in BY_ID:
        raise ValueError(f"no such revision: {id!r}; there are {', '.join(BY_ID)}")
    return BY_ID[id]
