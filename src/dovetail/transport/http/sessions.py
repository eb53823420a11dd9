"""Sessions of 2025-03-26 to 2025-11-25, and the event streams they own.

A message of ours travels on one stream: what belongs to a request on that of its
POST, everything else on the GET stream that was opened last. Without one it waits.
Every event is kept in the log of its stream first, so that a client that lost the
connection can resume it (digest 10.3).
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw

from dovetail.core.peer import Cancelled, Event, Notification, Peer, Request, Response
from dovetail.errors import ConnectionClosed
from dovetail.runtime.connection import compact
from dovetail.runtime.limits import Limits
from dovetail.runtime.link import Asking
from dovetail.transport.http.events import EventStream
from dovetail.wire.jsonrpc import Id, encode
from dovetail.wire.sse import encode_event

if TYPE_CHECKING:
    from dovetail.transport.http.app import HttpApp

__all__ = ["NOTE", "HttpSession", "LoggedStream", "Sessions", "event_place"]

# How an entry of a log begins that is for other nodes, not for the client.
NOTE = b"\0"


class LoggedStream:
    """One stream of a session: a log, and the response that shows it now, if there is one."""

    __slots__ = ("_session", "name", "shown")

    def __init__(self, session: "HttpSession", name: str) -> None:
        self._session = session
        self.name = name
        self.shown: EventStream | None = None

    @property
    def key(self) -> str:
        return f"{self._session.id}/{self.name}"

    def emit(self, frame: bytes, retry_ms: int | None = None) -> None:
        """Keep a message, and show it. An empty one primes: it only gives an id to resume at."""
        frame = compact(frame) if b"\n" in frame else frame
        cursor = self._session.app.log.append(self.key, frame)
        if self.shown is not None:
            self.shown.put(self.event(cursor, frame, retry_ms))

    def begin(self, requests: list[Id], retry_ms: int | None) -> None:
        """The first entry: whose answers will come, should another node have to end it.

        With ``retry_ms`` it primes as well (since 2025-11-25).
        """
        if self._session.app.nodes is None:
            if retry_ms is not None:
                self.emit(b"", retry_ms)
            return
        cursor = self._session.app.log.append(self.key, NOTE + encode(requests))
        if self.shown is not None and retry_ms is not None:
            self.shown.put(self.event(cursor, b"", retry_ms))

    def event(self, cursor: int, frame: bytes, retry_ms: int | None = None) -> bytes:
        kind = "message" if frame else None
        return encode_event(frame, id=f"{self.name}-{cursor}", retry_ms=retry_ms, event=kind)

    async def replay(self, shown: EventStream, cursor: int) -> None:
        """Show again what followed ``cursor``, at the pace of the client."""
        log = self._session.app.log
        while missed := await log.read(self.key, cursor):
            for event in missed:
                if event.data and event.data[:1] != NOTE and not shown.closed:
                    shown.put(self.event(event.cursor, event.data))
                    await shown.drained()
            cursor = missed[-1].cursor

    def finish(self) -> None:
        """The stream grows no more. Whoever shows it ends the response."""
        self._session.live.pop(self.name, None)
        shown, self.shown = self.shown, None
        if shown is not None:
            shown.finish()


def event_place(event_id: str) -> tuple[str, int] | None:
    """The stream and the cursor that an event id names."""
    name, dash, cursor = event_id.partition("-")
    numbered = name[:1] in ("p", "g") and name[1:].isdecimal() and name.isascii()
    if not dash or not numbered or not cursor.isdecimal() or not cursor.isascii():
        return None
    return (name, int(cursor)) if len(cursor) < 16 and len(name) < 16 else None


class HttpSession:
    """What we know of one client, between its requests: a `Link` to its GET stream."""

    __slots__ = (
        "_asking",
        "_callbacks",
        "_inherited",
        "_last",
        "_standing",
        "_waiting",
        "app",
        "ended",
        "id",
        "limits",
        "live",
        "peer",
        "principal",
        "running",
        "session",
        "used",
    )

    def __init__(self, app: "HttpApp", id: str, principal: str | None) -> None:
        self.app = app
        self.id = id
        self.principal = principal
        self.limits: Limits = app.limits
        self.peer: Peer = app.host.new_peer()
        self._asking = Asking(self.peer)
        self._callbacks: list[Callable[[], None]] = []
        self._waiting: deque[bytes] = deque()
        self._standing: list[LoggedStream] = []  # GET streams that are open, the newest last
        self._last = 0
        self._inherited: set[str] | None = None
        self.live: dict[str, LoggedStream] = {}  # streams that may still grow
        self.running = 0  # requests and open streams: a session with any is not idle
        self.used = app.loop.time()
        self.ended = False
        self.session: Any = app.host.new_session(self)
        self.session.principal = principal

    # -- streams ---------------------------------------------------------------------------

    def new_stream(self, kind: str) -> LoggedStream:
        """``p`` for the answer to a POST, ``g`` for a GET."""
        self._last += 1
        stream = self.live[f"{kind}{self._last}"] = LoggedStream(self, f"{kind}{self._last}")
        return stream

    def issued(self, name: str) -> bool:
        """Whether there was ever a stream of this name."""
        return 0 < int(name[1:]) <= self._last

    @property
    def streams(self) -> int:
        """How many it has had."""
        return self._last

    def inherit(self, streams: int) -> None:
        """Another node had this session, and so many streams of it."""
        self._last = streams
        self._inherited = set()

    def inherits(self, name: str) -> bool:
        """True once for each stream that another node may have begun."""
        if self._inherited is None or name in self.live or name in self._inherited:
            return False
        self._inherited.add(name)
        return True

    def stand(self, stream: LoggedStream) -> None:
        """From now on this GET stream gets what belongs to no request."""
        self._standing.append(stream)
        while self._waiting:
            stream.emit(self._waiting.popleft())

    def end_standing(self) -> None:
        """Let the client go; it will come back to whoever serves then."""
        for stream in self._standing:
            if stream.shown is not None:
                stream.shown.finish()

    def unstand(self, stream: LoggedStream) -> None:
        if stream in self._standing:
            self._standing.remove(stream)

    def send(self, frame: bytes) -> None:
        """Say something that belongs to no request."""
        if self.ended:
            return
        if self.app.tap is not None:
            self.app.tap("out", frame)
        if self._standing:
            self._standing[-1].emit(frame)
            return
        if len(self._waiting) >= self.app.http.max_waiting:
            self._waiting.popleft()
        self._waiting.append(frame)

    # -- what comes in beside requests -------------------------------------------------------

    def take(self, event: Event) -> None:
        """A notification, an answer or a cancellation."""
        if isinstance(event, Response):
            self._asking.answered(event)
        elif isinstance(event, Notification):
            self.app.host.notified(event, self)
        elif isinstance(event, Cancelled):
            _cancel(event.request)

    # -- the link --------------------------------------------------------------------------

    def serves(self, request: Request) -> bool:
        return self.peer.in_flight.get(request.id) is request

    def notify(self, method: str, params: Any = UNSET) -> None:
        self.send(self.peer.notify(method, params))

    async def request(self, method: str, params: Any = UNSET) -> Raw:
        return await self.ask(method, params, self.send)

    async def ask(self, method: str, params: Any, send: Callable[[bytes], None]) -> Raw:
        """Ask on a certain stream; the answer comes by a POST of its own."""
        if self.ended:
            raise ConnectionClosed("the session has ended")
        return await self._asking.ask(method, params, send)

    def hang_up(self, retry_ms: int | None = None) -> None:
        """A GET stream carries no answers that one could come back for."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        self.app.home.spawn(coroutine, what)

    @property
    def here(self) -> bool:
        return self.app.home.here

    def on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        self.app.home.on_loop(function, *arguments)

    def at_end(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    # -- the end ---------------------------------------------------------------------------

    def end(self, keep_logs: bool = False) -> None:
        """Nobody will use it again here: whoever waits for it hears so."""
        if self.ended:
            return
        self.ended = True
        self._asking.fail()
        for request in list(self.peer.in_flight.values()):
            _cancel(request)
        for stream in list(self.live.values()):
            if stream.shown is not None:
                stream.shown.cut()
            if not keep_logs:
                self.app.log.drop(stream.key)
        self.live.clear()
        callbacks, self._callbacks = self._callbacks, []
        self.app.run_callbacks(callbacks)
        self.peer.close()
        # Each holds the other; ten thousand that expire at once should not wait for the collector.
        self.session = None


def _cancel(request: Request) -> None:
    request.cancelled = True
    if request.progress is not None:
        request.progress.drop()
    if request.task is not None:
        request.task.cancel("cancelled")


class Sessions:
    """The sessions of this node, by id."""

    def __init__(self, app: "HttpApp") -> None:
        self._app = app
        self._by_id: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, id: str) -> bool:
        return id in self._by_id

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(list(self._by_id.values()))

    @property
    def full(self) -> bool:
        return len(self._by_id) >= self._app.http.max_sessions

    def open(self, principal: str | None) -> HttpSession:
        """A new session. It is found by others once it is kept."""
        return HttpSession(self._app, self._app.ids.new(), principal)

    def keep(self, session: HttpSession) -> None:
        self._by_id[session.id] = session

    def get(self, id: str, principal: str | None) -> HttpSession | None:
        """None also for the session of somebody else: an id proves nothing (digest S74)."""
        session = self._by_id.get(id)
        if session is None or session.principal != principal:
            return None
        session.used = self._app.loop.time()
        return session

    def drop(self, session: HttpSession) -> None:
        """The session has ended."""
        self._by_id.pop(session.id, None)
        session.end()
        if self._app.nodes is not None:
            self._app.nodes.expired(session)

    def lose(self, session: HttpSession) -> None:
        """The session goes on, on another node."""
        self._by_id.pop(session.id, None)
        session.end(keep_logs=True)

    def expire(self, now: float) -> None:
        limit = now - self._app.http.idle_seconds
        idle = [s for s in self._by_id.values() if s.used < limit and not s.running]
        for session in idle:
            self.drop(session)
        if len(idle) > len(self._by_id):  # a dict never shrinks by itself
            self._by_id = dict(self._by_id)
