"""2025-03-26 to 2025-11-25 over HTTP: POST, GET and DELETE of a session.

A POST with a request is answered by JSON, or by an event stream if there is something
to say before the answer. A client that hangs up has cancelled nothing (digest 10.3):
its request goes on, and what it missed waits in the log of the stream.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from dovetail.core.exchange import VERSION, Handshake, Headers
from dovetail.core.peer import Batch, Request
from dovetail.core.peer import Reply as Refusal
from dovetail.errors import INVALID_REQUEST, PARSE_ERROR, McpError
from dovetail.spec.revisions import BY_ID, Revision
from dovetail.transport.http.auth import Principal
from dovetail.transport.http.body import Refused
from dovetail.transport.http.events import EventStream, until_hung_up
from dovetail.transport.http.post import Post
from dovetail.transport.http.replies import Receive, Reply, Send, send_json, send_reply
from dovetail.transport.http.sessions import HttpSession, LoggedStream, event_place
from dovetail.wire.jsonrpc import Id

if TYPE_CHECKING:
    from dovetail.transport.http.app import HttpApp

__all__ = ["Legacy"]

SESSION, LAST_EVENT = b"mcp-session-id", b"last-event-id"


class Legacy:
    """The three verbs, for one application."""

    def __init__(self, app: "HttpApp") -> None:
        self._app = app

    async def post(
        self,
        message: Handshake,
        headers: Headers,
        send: Send,
        principal: Principal | None,
    ) -> None:
        app = self._app
        if message.envelope is not None:
            app.check_allowed(principal, str(message.envelope.method), message.params)
        session = self._session(message, headers, None if principal is None else principal.id)
        try:
            if len(session.peer.in_flight) >= app.limits.max_in_flight:
                text = f"{app.limits.max_in_flight} requests are running"
                raise Refused(app.busy(text, message.id))
            await self._receive(session, message, send, principal)
        finally:
            if session.id not in app.sessions:  # stateless, or not agreed to
                session.end()

    async def _receive(
        self, session: HttpSession, message: Handshake, send: Send, principal: Principal | None
    ) -> None:
        app = self._app
        if message.envelope is not None and message.params is not None:
            event: Any = session.peer.accept(message.envelope, message.params, len(message.body))
        else:
            event = session.peer.receive(message.body)
        if isinstance(event, Request):
            await Post(app, session, send).serve(event)
        elif isinstance(event, Batch):
            self._check_batch(event, session, principal)
            await Post(app, session, send).serve_batch(event)
        elif isinstance(event, Refusal):
            malformed = event.code in (PARSE_ERROR, INVALID_REQUEST)
            await send_json(send, 400 if malformed else 200, event.frame)
        else:
            if event is not None:
                session.take(event)
            await send_reply(send, Reply(202))

    def _check_batch(self, batch: Batch, session: HttpSession, principal: Principal | None) -> None:
        """All of it may be done, or nothing of it is."""
        requests = [event for event in batch.events if isinstance(event, Request)]
        try:
            for request in requests:
                self._app.check_allowed(principal, request.method, request.params)
        except Refused:
            for request in requests:
                session.peer.settle(request)
            raise

    def _session(self, message: Handshake, headers: Headers, principal: str | None) -> HttpSession:
        app = self._app
        id = headers.get(SESSION)
        if id is not None and not app.stateless:
            return self._known(id, headers, principal, message.id)
        if message.opens:
            message.without_oldest()
            if app.sessions.full:
                raise Refused(app.busy(f"{len(app.sessions)} sessions are open", message.id))
            return app.sessions.open(principal)
        if not app.stateless:
            text = "The header Mcp-Session-Id is missing: a session starts with 'initialize'"
            raise self._refused(400, text, message.id)
        # Every request stands alone, of a client that can do nothing special.
        revision = self._revision(headers, message.id) or app.oldest
        session = app.sessions.open(principal)
        session.peer.resume(revision)
        return session

    def _known(
        self, id: bytes, headers: Headers, principal: str | None, request: Id | None = None
    ) -> HttpSession:
        session = self._app.sessions.get(id.strip().decode("latin-1"), principal)
        if session is None:
            text = "There is no such session: it has ended, or never was. Initialize a new one."
            raise self._refused(404, text, request)
        self._revision(headers, request)
        return session

    def _revision(self, headers: Headers, request: Id | None) -> Revision | None:
        """That of the version header, if there is one (digest S58)."""
        named = headers.get(VERSION)
        if named is None:
            return None
        revision = BY_ID.get(named.strip(b" \t").decode("latin-1"))
        if revision not in self._app.with_sessions:
            text = "MCP-Protocol-Version names no revision that sessions have here"
            raise self._refused(400, text, request)
        return revision

    def _refused(self, status: int, text: str, request: Id | None = None) -> Refused:
        error = McpError(INVALID_REQUEST, data=text)
        return Refused(self._app.refusal(status, error, request))

    # -- GET -------------------------------------------------------------------------------

    async def get(
        self, headers: Headers, receive: Receive, send: Send, principal: str | None
    ) -> None:
        app = self._app
        accept = headers.get(b"accept", b"*/*")
        if b"text/event-stream" not in accept and b"*/*" not in accept and b"text/*" not in accept:
            raise Refused(Reply.text(406, "A GET is answered by text/event-stream only"))
        session = self._known(self._required(headers), headers, principal)
        if len(session.live) >= app.http.max_streams:
            raise Refused(app.busy(f"{len(session.live)} streams of the session are open"))
        last = headers.get(LAST_EVENT)
        if last is None:
            await self._show(session, session.new_stream("g"), None, receive, send)
        else:
            await self._resume(session, last.strip().decode("latin-1"), receive, send)

    def _required(self, headers: Headers) -> bytes:
        id = headers.get(SESSION)
        if id is None or self._app.stateless:
            if self._app.stateless:
                raise Refused(self._app.not_allowed())
            raise self._refused(400, "The header Mcp-Session-Id is missing")
        return id

    async def _resume(
        self, session: HttpSession, event_id: str, receive: Receive, send: Send
    ) -> None:
        """Only what followed on that very stream (digest S55)."""
        place = event_place(event_id)
        if place is None or not session.issued(place[0]):
            text = f"Last-Event-ID {event_id!r} is none of this session"
            raise self._refused(400, text)
        name, cursor = place
        stream = session.live.get(name)
        if stream is None:
            stream = LoggedStream(session, name)
            if self._app.nodes is not None and session.inherits(name):
                await self._app.nodes.settle(stream)
            if name.startswith("g"):
                session.live[name] = stream
        await self._app.log.read(stream.key, cursor)  # if it cannot be read, now is the time
        await self._show(session, stream, cursor, receive, send)

    async def _show(
        self,
        session: HttpSession,
        stream: LoggedStream,
        cursor: int | None,
        receive: Receive,
        send: Send,
    ) -> None:
        """Until the client goes or the stream ends. The newest response takes a stream over:
        that of an older one is most likely a dead connection."""
        app = self._app
        gone: asyncio.Future[None] = app.loop.create_future()
        shown = EventStream(app, send, partial(_resolve, gone))
        await shown.open()
        if cursor is not None:
            await stream.replay(shown, cursor)
        is_over = session.live.get(stream.name) is not stream or app.draining
        if not is_over and not shown.closed:
            before, stream.shown = stream.shown, shown
            if before is not None:
                before.cut()
            await self._hold(session, stream, shown, gone, receive)
        await shown.end()

    async def _hold(
        self,
        session: HttpSession,
        stream: LoggedStream,
        shown: EventStream,
        gone: asyncio.Future[None],
        receive: Receive,
    ) -> None:
        watch = self._app.loop.create_task(until_hung_up(receive, shown.cut))
        session.running += 1
        stands = stream.name.startswith("g")
        if stands:
            session.stand(stream)
        try:
            await gone
        finally:
            watch.cancel()
            session.running -= 1
            session.used = self._app.loop.time()
            if stands:
                session.unstand(stream)
            if stream.shown is shown:
                stream.shown = None
                if stands:
                    session.live.pop(stream.name, None)

    # -- DELETE ----------------------------------------------------------------------------

    async def delete(self, headers: Headers, send: Send, principal: str | None) -> None:
        session = self._known(self._required(headers), headers, principal)
        if self._app.nodes is not None:
            await self._app.nodes.forget(session.id)
        self._app.sessions.drop(session)
        await send_reply(send, Reply(204))


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
