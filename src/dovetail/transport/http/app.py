"""The ASGI application: one endpoint for every revision, and what stands before it.

It needs no lifespan: whatever it is mounted in, it starts with the first request, in
the event loop of that request. Given a lifespan it starts and ends with that.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol, Unpack

from dovetail.backplane.base import Backplane, BackplaneAway
from dovetail.backplane.calls import Calls
from dovetail.backplane.keys import KeyRing, SessionIds
from dovetail.backplane.memory import MemoryBackplane
from dovetail.core.exchange import Handshake, Headers, Intake, one_of_each, status
from dovetail.core.peer import Notification, Peer, Request
from dovetail.errors import INVALID_REQUEST, McpError, RemoteProtocolError, Unavailable
from dovetail.runtime.connection import Connection, Judge, Tap
from dovetail.runtime.limits import Limits
from dovetail.runtime.link import Home, Link
from dovetail.spec.headers import Mirror, name_of
from dovetail.spec.revisions import MODERN, Revision
from dovetail.transport.guard import Guard
from dovetail.transport.http.auth import Principal, Rejection
from dovetail.transport.http.body import REFUSALS, Gone, Refused, read_body
from dovetail.transport.http.cors import allowing, is_preflight, preflight
from dovetail.transport.http.events import EventStream
from dovetail.transport.http.guard import Gate
from dovetail.transport.http.legacy import Legacy
from dovetail.transport.http.limits import HttpLimits
from dovetail.transport.http.modern import Exchange
from dovetail.transport.http.nodes import HttpNodes
from dovetail.transport.http.observe import CALLED, AccessLog, Metrics, Observer, observed
from dovetail.transport.http.options import HttpOptions, Options
from dovetail.transport.http.replies import (
    Pairs,
    Receive,
    Reply,
    Scope,
    Send,
    send_reply,
)
from dovetail.transport.http.sessions import HttpSession, Sessions
from dovetail.transport.http.websocket import SUBPROTOCOL, serve_websocket

__all__ = ["Host", "HttpApp"]

log = logging.getLogger("dovetail")

_TICK_SECONDS = 1.0
_MAX_NOTES = 10_000  # clients without a session that middleware remembers; some 200 bytes each


class Host(Protocol):
    """What the transport needs of a ``Server``."""

    limits: Limits
    revisions: tuple[Revision, ...]

    @property
    def modern_methods(self) -> dict[str, Any]: ...
    @property
    def mirrored(self) -> dict[str, tuple[Mirror, ...]]: ...
    def new_peer(self) -> Peer: ...
    def new_session(self, link: Link) -> Any: ...
    def connection(self, *, tap: Tap | None = None, judge: Judge | None = None) -> Connection: ...
    def notified(self, notification: Notification, link: Link) -> None: ...
    def running(self) -> AbstractAsyncContextManager[None]: ...
    def serve_on(self, home: Home) -> None: ...
    def leave(self, home: Home) -> None: ...
    def end_streams(self) -> None: ...
    def knows(self, method: str) -> bool: ...
    def use_keys(self, ring: KeyRing) -> None: ...
    def share(self, backplane: Backplane, keys: KeyRing) -> Calls: ...
    async def unshare(self) -> None: ...


class HttpApp:
    """An ASGI 3 application. Make it with ``server.asgi()``."""

    loop: asyncio.AbstractEventLoop
    home: Home
    peer: Peer  # for 2026-07-28, which has no state: it writes messages
    nodes: HttpNodes | None = None  # the others, if there can be any

    def __init__(self, host: Host, **given: Unpack[HttpOptions]) -> None:
        options = Options(**given)
        self.host = host
        self.limits = host.limits
        self.http = options.limits or HttpLimits()
        self.backplane: Backplane = options.backplane or MemoryBackplane()
        self.keys = options.keys or KeyRing()
        if options.keys is not None:
            host.use_keys(options.keys)
        self.stateless = options.stateless
        self.answers = options.answers
        self.tap = options.tap
        self.streams: set[EventStream] = set()
        self.sockets: set[Connection] = set()
        self._notes: dict[Any, dict[Any, Any]] = {}
        self.active = 0
        self.draining = False
        self._path = options.path
        guard = options.guard or Guard.of("127.0.0.1", options.hosts, options.origins)
        self._gate = Gate(guard)
        self._metrics = Metrics() if options.metrics else None
        log_access: list[Observer] = [AccessLog()] if options.access_log else []
        self._observers = (*log_access, *([] if self._metrics is None else [self._metrics]))
        self._auth = options.auth
        self._legacy = Legacy(self)
        self._started = False
        self._starting: asyncio.Lock | None = None
        self._good_accepts: set[bytes] = set()
        self.with_sessions = [r for r in host.revisions if r.http and not r.modern]
        # Without a version header a request is taken for 2025-03-26 (digest S61).
        self.oldest = self.with_sessions[0] if self.with_sessions else MODERN

    # -- the application -------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._lifespan(receive, send)
            return
        if not self._started or self.loop.is_closed():
            await self._start()
        if self._observers and CALLED not in scope:
            await observed(self._observers, self, scope, receive, send)
        elif kind == "http":
            await self._http(scope, receive, send)
        elif kind == "websocket":
            await serve_websocket(self, scope, receive, send)

    async def _refuse(self, error: Exception, send: Send) -> None:
        if not isinstance(error, Gone):
            await send_reply(send, self.answer_to(error))

    def answer_to(self, error: Exception) -> Reply:
        """The answer to a request that is not served."""
        if isinstance(error, Refused):
            return error.reply
        if isinstance(error, RemoteProtocolError):
            return self.refusal(status(error.error.code), error.error, error.id)
        retry = error.retry_after if isinstance(error, BackplaneAway) else 1
        return self.unavailable(Unavailable(str(error), retry))

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            pairs = scope["headers"]
            headers: dict[bytes, bytes] = dict(pairs)
            if len(headers) != len(pairs):
                headers = one_of_each(pairs)
            if scope["path"] != self._path and self._is_elsewhere(scope):
                raise Refused(self._elsewhere(scope))
            refusal = self._gate.check(headers)
            if refusal is not None:
                raise Refused(refusal)
            if b"origin" in headers:
                send = allowing(headers[b"origin"], send)
            if scope["method"] == "POST":
                principal = None if self._auth is None else await self._authenticated(scope)
                await self._post(scope, headers, receive, send, principal)
            else:
                await self._other(scope, headers, receive, send)
        except REFUSALS as error:
            await self._refuse(error, send)

    async def _other(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """What is no POST."""
        method = scope["method"]
        if is_preflight(method, headers):
            raise Refused(preflight(headers))
        principal = None if self._auth is None else await self._authenticated(scope)
        if not self.with_sessions or _names_modern(headers):
            raise Refused(self.not_allowed())
        if self.nodes is None or not await self.nodes.routed(
            method, headers, b"", receive, send, principal
        ):
            await self._verb(method, headers, receive, send, principal)

    async def brought(
        self,
        method: str,
        headers: Headers,
        body: bytes,
        receive: Receive,
        send: Send,
        principal: Principal | None,
    ) -> None:
        """A request for a session of ours that came to another node, which has checked it."""
        try:
            if method == "POST":
                found = self._intake.post(headers, body)
                await self._posted({}, found, headers, receive, send, principal)
            else:
                await self._verb(method, headers, receive, send, principal)
        except REFUSALS as error:
            await self._refuse(error, send)

    async def _verb(
        self,
        method: str,
        headers: Headers,
        receive: Receive,
        send: Send,
        principal: Principal | None,
    ) -> None:
        who = None if principal is None else principal.id
        if method == "GET":
            await self._legacy.get(headers, receive, send, who)
        elif method == "DELETE":
            await self._legacy.delete(headers, send, who)
        else:
            raise Refused(self.not_allowed())

    async def _post(
        self,
        scope: Scope,
        headers: Headers,
        receive: Receive,
        send: Send,
        principal: Principal | None,
    ) -> None:
        if headers.get(b"accept") not in self._good_accepts:
            self._check_accept(headers.get(b"accept"))
        if headers.get(b"content-type") != b"application/json":
            _check_content_type(headers.get(b"content-type", b""))
        declared = headers.get(b"content-length")
        body = await read_body(receive, declared, self.limits.max_frame, self.http.body_seconds)
        if self.tap is not None:
            self.tap("in", body)
        found = self._intake.post(headers, body)
        if self._observers:
            scope[CALLED] = self._called(found)
        if (
            self.nodes is None
            or type(found) is not Handshake
            or not await self.nodes.routed("POST", headers, body, receive, send, principal)
        ):
            await self._posted(scope, found, headers, receive, send, principal)

    async def _posted(
        self,
        scope: Scope,
        found: Request | Notification | Handshake | None,
        headers: Headers,
        receive: Receive,
        send: Send,
        principal: Principal | None,
    ) -> None:
        if self.active >= self.http.max_in_flight:
            id = found.id if isinstance(found, Request | Handshake) else None
            raise Refused(self.busy(f"{self.active} requests are running", id))
        self.active += 1
        try:
            if type(found) is Request:
                if principal is not None:
                    self.check_allowed(principal, found.method, found.params)
                await Exchange(self, found, receive, send, principal, scope).serve()
            elif type(found) is Handshake:
                await self._legacy.post(found, headers, send, principal)
            else:
                if isinstance(found, Notification):
                    with Exchange(self, None, receive, send, principal, scope) as link:
                        self.host.notified(found, link)
                await send_reply(send, Reply(202))
        finally:
            self.active -= 1

    def _called(self, found: Any) -> str:
        """The method of a request, if it is one that exists: names are the client's to choose."""
        if isinstance(found, Request):
            return found.method
        envelope = found.envelope if isinstance(found, Handshake) else None
        method = "" if envelope is None else envelope.method
        return str(method) if self.host.knows(str(method)) else ""

    def _check_accept(self, accept: bytes | None) -> None:
        """Both forms of an answer must be welcome (digest 10.3, 10.4)."""
        if accept is None:  # whoever says nothing takes anything (RFC 9110, 12.5.1)
            return
        offered = {part.split(b";")[0].strip().lower() for part in accept.split(b",")}
        json_ok = offered & {b"application/json", b"application/*", b"*/*"}
        events_ok = offered & {b"text/event-stream", b"text/*", b"*/*"}
        if not json_ok or not events_ok:
            text = "Accept must list application/json and text/event-stream"
            raise Refused(Reply.text(406, text))
        if len(self._good_accepts) < 256:
            self._good_accepts.add(accept)

    # -- who may ----------------------------------------------------------------------------

    async def upgrade(self, scope: Scope) -> Principal | None:
        """Who asks for a WebSocket; Refused if it may not have one. The order is that of
        docs/protocol/websocket.md."""
        headers = one_of_each(scope["headers"])
        if scope["path"] != self._path and self._is_elsewhere(scope):
            raise Refused(Reply.text(404, "There is nothing here"))
        refusal = self._gate.check(headers)
        if refusal is not None:
            raise Refused(refusal)
        if SUBPROTOCOL not in scope.get("subprotocols", ()):
            raise Refused(Reply.text(400, f"Offer the WebSocket subprotocol {SUBPROTOCOL!r}"))
        return None if self._auth is None else await self._authenticated(scope)

    async def _authenticated(self, scope: Scope) -> Principal:
        assert self._auth is not None
        found = await self._auth.authenticate(scope)
        if isinstance(found, Rejection):
            raise Refused(Reply(found.status, found.body, found.headers))
        return found

    def judged(self, principal: Principal | None, request: Request) -> McpError | None:
        """The same for links where there is no status: why a request may not be made."""
        try:
            self.check_allowed(principal, request.method, request.params)
        except Refused as refused:
            text = f"Forbidden: the token lacks a scope ({refused.reply.status})"
            return McpError(INVALID_REQUEST, data=text)
        return None

    def check_allowed(self, principal: Principal | None, method: str, params: Any) -> None:
        if self._auth is None or principal is None:
            return
        rejection = self._auth.allows(principal, method, name_of(method, params))
        if rejection is not None:
            raise Refused(Reply(rejection.status, rejection.body, rejection.headers))

    def _is_elsewhere(self, scope: Scope) -> bool:
        if self._path is not None:
            return _path(scope).rstrip("/") != self._path
        return self._auth is not None and "/.well-known/" in scope["path"]

    def _elsewhere(self, scope: Scope) -> Reply:
        """What is asked before anybody is known: neither Host nor token are looked at."""
        if self._auth is not None and (found := self._auth.metadata(scope)) is not None:
            return Reply(found.status, found.body, found.headers)
        path = _path(scope)
        if path == "/health":
            return Reply.text(200, "ok")
        if path == "/ready":
            return Reply.text(200, "ready") if self.ready else Reply.text(503, "not ready")
        if path == "/metrics" and self._metrics is not None:
            return Reply(200, self._metrics.page(self), ((b"content-type", b"text/plain"),))
        return Reply.text(404, "There is nothing here")

    @property
    def ready(self) -> bool:
        """Whether new work is welcome: load balancers ask this."""
        return self._started and not self.draining and self.backplane.ready

    def notes_of(self, principal: Principal | None, scope: Scope) -> dict[Any, Any]:
        """What middleware keeps about a client of 2026-07-28, which has no session: by its
        principal, or by its address. Of those that came last."""
        who = (scope.get("client") or ("",))[0] if principal is None else (principal.id,)
        notes = self._notes.pop(who, None)
        if notes is None:
            notes = {}
            if len(self._notes) >= _MAX_NOTES:
                del self._notes[next(iter(self._notes))]
        self._notes[who] = notes
        return notes

    # -- answers ----------------------------------------------------------------------------

    def refusal(self, code: int, error: McpError, id: Any = None) -> Reply:
        return Reply.json(code, self.peer.error(id, error))

    def busy(self, why: str, id: Any = None) -> Reply:
        return self.unavailable(Unavailable(f"Too many: {why}. Try again later."), id)

    def unavailable(self, error: Unavailable, id: Any = None) -> Reply:
        later = (b"retry-after", b"%d" % error.retry_after)
        return Reply.json(503, self.peer.error(id, error), (later,))

    def not_allowed(self) -> Reply:
        verbs = b"POST" if self.stateless or not self.with_sessions else b"POST, GET, DELETE"
        return Reply.text(405, "Not here", ((b"allow", verbs),))

    async def opened(self, session: HttpSession) -> Pairs:
        """``initialize`` was answered: if it was agreed to, there is a session now."""
        if self.stateless or session.peer.revision is None:
            return ()
        if self.nodes is not None:
            await self.nodes.keep(session)
        self.sessions.keep(session)
        return ((b"mcp-session-id", session.id.encode()),)

    def run_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.exception("a callback at the end of a connection failed")

    # -- beginning and end --------------------------------------------------------------------

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except Exception as error:
            log.exception("the server could not be started")
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._started and self.loop is loop:
            return
        if self._starting is None or self._started:  # the first, or the old loop is closed
            self._started = False
            self._starting = asyncio.Lock()
        async with self._starting:
            if not self._started:
                await self._start_here(loop)

    async def _start_here(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.home = Home(self.limits)
        self.streams.clear()
        self.sessions = Sessions(self)
        self.ids = SessionIds(self.keys, self.backplane.node)
        self.log = self.backplane.log
        self._stop = asyncio.Event()
        ready: asyncio.Future[None] = loop.create_future()
        self._holder = loop.create_task(self._hold(ready), name="dovetail http")
        await ready
        self.host.serve_on(self.home)
        self.peer = self.host.new_peer()
        self.peer.resume(MODERN)
        methods = self.host.modern_methods if MODERN in self.host.revisions else None
        self._intake = Intake(methods, self.host.mirrored, self.limits.max_depth)
        self._ticker = loop.call_later(_TICK_SECONDS, self._tick)
        self._started = True

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        """Keep the server's lifespan and the backplane open: entered and left in one task."""
        shared = self.host.share(self.backplane, self.keys) if self.backplane.shared else None
        if shared is not None:
            self.nodes = HttpNodes(self, shared)
        try:
            try:
                await self.backplane.open()
                async with self.host.running():
                    ready.set_result(None)
                    await self._stop.wait()
            finally:  # last: tasks that end with the server are kept there
                await self._leave_nodes()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _leave_nodes(self) -> None:
        if self.nodes is not None:
            self.nodes.close()
            await self.host.unshare()
            self.nodes = None
        await self.backplane.close()

    def _tick(self) -> None:
        self._ticker = self.loop.call_later(_TICK_SECONDS, self._tick)
        now = self.loop.time()
        for stream in list(self.streams):
            stream.tick(now)
        self.sessions.expire(now)

    def drain(self) -> None:
        """The server is to end: streams that would wait for news are ended now."""
        self.draining = True
        for session in self.sessions:
            session.end_standing()
        self.host.end_streams()
        for socket in list(self.sockets):
            socket.stop()

    async def close(self) -> None:
        """End every stream and session, then what the server held open."""
        if not self._started:
            return
        self._started = False
        self._ticker.cancel()
        if self.nodes is not None:
            self.nodes.closing = True
        for session in self.sessions:
            self.sessions.lose(session)  # another node may go on with it
        for stream in list(self.streams):
            stream.cut()
        self.host.leave(self.home)
        for task in list(self.home.background):
            task.cancel()
        self._stop.set()
        with suppress(asyncio.CancelledError):
            await self._holder


def _path(scope: Scope) -> str:
    """Relative to where we are mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root and path.startswith(root) else path


def _names_modern(headers: Headers) -> bool:
    return headers.get(b"mcp-protocol-version", b"").strip() == MODERN.id.encode()


def _check_content_type(given: bytes) -> None:
    kind, _, rest = given.partition(b";")
    charset = rest.strip().lower().replace(b'"', b"")
    if kind.strip().lower() != b"application/json" or charset not in (b"", b"charset=utf-8"):
        raise Refused(Reply.text(415, "The body of a POST is application/json"))
