"""Sessions that live on another node, and those that are taken over from a dead one.

Every session belongs to one node, whose tag is in its id. A request that lands elsewhere is
brought there as it is, after the checks of the node it came to (Host, Origin, token), and the
answer is brought back; neither the client nor the session can tell.

A node that dies, or ends, leaves the records of its sessions and the logs of their streams. The
first node that is then asked for such a session claims it, makes it anew from the record, and
goes on. Requests that the dead node had not answered are answered with an error when the client
resumes their stream: nobody else knows what became of them. What was missed meanwhile counts as
a gap: the client hears that everything may have changed.
"""

import asyncio
import hmac
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from dovetail.backplane.base import BackplaneAway, Event
from dovetail.backplane.calls import Calls, Conversation, NodeGone
from dovetail.core.exchange import Headers
from dovetail.errors import INTERNAL_ERROR, McpError
from dovetail.spec.revisions import BY_ID
from dovetail.spec.types import ClientCapabilities, Implementation
from dovetail.transport.http.auth import Principal
from dovetail.transport.http.events import until_hung_up
from dovetail.transport.http.replies import Receive, Send
from dovetail.transport.http.sessions import NOTE, HttpSession, LoggedStream
from dovetail.wire.jsonrpc import Id

if TYPE_CHECKING:
    from dovetail.transport.http.app import HttpApp

__all__ = ["HttpNodes"]

log = logging.getLogger("dovetail")

_KIND = "http"
_MAC = 32
# What a session looks at; the rest was for the node that the request came to.
_NEEDED = frozenset(
    {b"mcp-session-id", b"mcp-protocol-version", b"last-event-id", b"accept", b"content-type"}
)
_MOVED = -1
# Numbers of streams and of requests that a session starts with on its next node: above all
# that it had before.
_NEXT_NODE = 1_000_000


class _Forwarded(Struct, array_like=True):
    """A request on its way to the node of its session."""

    method: str
    headers: dict[bytes, bytes]
    body: bytes
    principal: Principal | None
    id: str
    moved: bool = False  # it was elsewhere before: nobody sends it on again


class _Part(Struct, array_like=True):
    """A part of the answer on its way back; the first has the status.

    `_MOVED` instead of a status: the session is on the node that the body names.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    more: bool


class _Record(Struct, array_like=True):
    """What a session needs to live on elsewhere."""

    principal: str | None
    revision: str
    client_info: Implementation | None
    capabilities: ClientCapabilities | None
    kept: dict[str, Any]  # what the server keeps about the client
    streams: int  # it has at most so many


_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(_Forwarded).decode
_decode_part = msgspec.msgpack.Decoder(_Part).decode
_decode_record = msgspec.msgpack.Decoder(_Record).decode


class HttpNodes:
    """The other nodes, for one application."""

    def __init__(self, app: "HttpApp", calls: Calls) -> None:
        self._app = app
        self._calls = calls
        self._backplane = app.backplane
        self._timer = app.loop.call_later(self._renew_seconds, self._renew)
        self.closing = False  # our sessions are being handed over
        calls.serve(_KIND, self._serve)
        app.backplane.bus.subscribe(lambda data: None, self._gap)

    @property
    def _renew_seconds(self) -> float:
        return self._app.http.idle_seconds / 4

    def close(self) -> None:
        self._timer.cancel()

    # -- requests that came to the wrong node ------------------------------------------------

    async def routed(
        self,
        method: str,
        headers: Headers,
        body: bytes,
        receive: Receive,
        send: Send,
        principal: Principal | None,
    ) -> bool:
        """Whether another node has served this request; otherwise it is ours to serve."""
        id = headers.get(b"mcp-session-id", b"").strip().decode("latin-1")
        if not id or id in self._app.sessions or self._app.stateless:
            return False
        needed = {name: value for name, value in headers.items() if name in _NEEDED}
        request = _Forwarded(method, needed, body, principal, id)
        conversation = await self._at_owner(request)
        if conversation is None:
            return False
        moved_to = await self._brought_back(conversation, receive, send)
        if moved_to is not None:
            request.moved = True
            conversation = await self._calls.open(moved_to, _KIND, _encode(request))
            await self._brought_back(conversation, receive, send)
        return True

    async def _at_owner(self, request: _Forwarded) -> Conversation | None:
        """With the node that has the session; None if it is here, or nowhere."""
        maker = self._app.ids.node(request.id)
        if maker is None:
            return None
        if maker != self._backplane.node:
            with suppress(NodeGone):
                return await self._calls.open(maker, _KIND, _encode(request))
        who = None if request.principal is None else request.principal.id
        owner = await self._successor(request.id, maker, who)
        if owner is None:
            return None
        request.moved = True
        return await self._calls.open(owner, _KIND, _encode(request))

    async def _successor(self, id: str, maker: str, principal: str | None) -> str | None:
        """Who has the session after the node that made it; None if it is here, or nowhere."""
        directory = self._backplane.directory
        owner = await directory.owner(_lease(id))
        if owner is not None:
            return None if owner == self._backplane.node else owner
        if maker == self._backplane.node:
            return None  # it has ended
        if await directory.alive(maker):
            raise NodeGone("The node of this session cannot be reached now")
        return await self._adopt(id, principal)

    async def _brought_back(
        self, conversation: Conversation, receive: Receive, send: Send
    ) -> str | None:
        """Bring the answer back; or the node that has the session now."""
        try:
            return await self._bring_back(conversation, receive, send)
        finally:
            await conversation.close()

    async def _bring_back(
        self, conversation: Conversation, receive: Receive, send: Send
    ) -> str | None:
        """Part by part. A client that leaves a stream leaves the session's, too."""
        watch: asyncio.Task[None] | None = None
        try:
            while True:
                data = await conversation.receive()
                if data is None:
                    raise NodeGone("The other node did not answer")
                part = _decode_part(data)
                if part.status == _MOVED:
                    return part.body.decode()
                if part.status:
                    head = {"status": part.status, "headers": part.headers}
                    await send({"type": "http.response.start", **head})
                await send(
                    {"type": "http.response.body", "body": part.body, "more_body": part.more}
                )
                if not part.more:
                    return None
                if watch is None:
                    watch = self._app.loop.create_task(until_hung_up(receive, conversation.leave))
        except NodeGone:
            if watch is None:
                raise
            # The head is out. A stream that ends early is resumed by its client.
            await send({"type": "http.response.body", "body": b""})
            return None
        finally:
            if watch is not None:
                watch.cancel()

    # -- requests that others bring ----------------------------------------------------------

    async def _serve(self, conversation: Conversation, data: bytes) -> None:
        request = _decode_request(data)
        if request.id not in self._app.sessions and not request.moved:
            owner = await self._backplane.directory.owner(_lease(request.id))
            if owner not in (None, self._backplane.node):
                moved = _encode(_Part(_MOVED, [], owner.encode(), False))
                await conversation.send(moved, last=True)
                return
            if self.closing:
                return  # not here any more, but nobody else has it yet: 503

        async def receive() -> dict[str, Any]:
            with suppress(NodeGone):
                while await conversation.receive() is not None:
                    pass
            return {"type": "http.disconnect"}

        answer = _Answer(conversation)
        asked = request.method, request.headers, request.body
        with suppress(OSError):  # the other node is gone, and with it its client
            await self._app.brought(*asked, receive, answer.send, request.principal)

    # -- sessions that outlive their node ------------------------------------------------------

    async def keep(self, session: HttpSession) -> None:
        """Let others find the session when this node is gone."""
        if session.ended:
            return  # meanwhile: its record is gone, and must not come back
        peer = session.peer
        record = _Record(
            session.principal,
            "" if peer.revision is None else peer.revision.id,
            peer.client_info,
            peer.client_capabilities,
            session.session.kept(),
            session.streams,
        )
        data = _encode(record)
        mac = self._macs(session.id, data)[0]
        await self._backplane.records.put(session.id, mac + data, self._record_seconds)

    def _macs(self, id: str, data: bytes) -> list[bytes]:
        """Whoever can write to the engine shall not be able to give a session away."""
        return self._app.keys.macs(id.encode() + data, b"dovetail session record")

    async def _record(self, id: str) -> _Record | None:
        data = await self._backplane.records.get(id)
        if data is None:
            return None
        mac, data = data[:_MAC], data[_MAC:]
        if not any([hmac.compare_digest(mac, ours) for ours in self._macs(id, data)]):
            log.warning("the record of a session has a wrong MAC: do all nodes share the keys?")
            return None
        return _decode_record(data)

    @property
    def _record_seconds(self) -> float:
        return self._app.http.idle_seconds * 1.5

    def changed(self, session: HttpSession) -> None:
        """Something in the record is another now. If it cannot be kept, the gap will do it."""
        self._app.home.spawn(self._try(self.keep(session)), "keeping a session")

    def expired(self, session: HttpSession) -> None:
        """The session has ended. If the engine is away, its record will expire, too."""
        self._app.home.spawn(self._try(self.forget(session.id)), "forgetting a session")

    async def forget(self, id: str) -> None:
        """Nobody shall find the session again."""
        await self._backplane.records.delete(id)
        await self._backplane.directory.release(_lease(id))

    async def _try(self, doing: Any) -> None:
        with suppress(BackplaneAway):
            await doing

    def _renew(self) -> None:
        """Sessions that live here do not expire there."""
        self._timer = self._app.loop.call_later(self._renew_seconds, self._renew)
        self._gap()

    async def _adopt(self, id: str, principal: str | None) -> str | None:
        """Take over a session of a node that is gone; the owner, if somebody was quicker."""
        record = await self._record(id)
        if record is None or record.principal != principal or record.revision not in BY_ID:
            return None
        if self._app.sessions.full:
            raise BackplaneAway(f"Too many: {len(self._app.sessions)} sessions are open")
        owner = await self._backplane.directory.claim(_lease(id))
        if owner != self._backplane.node:
            return owner
        if id not in self._app.sessions:  # two requests may come at once
            self._restore(id, record)
        return None

    def _restore(self, id: str, record: _Record) -> None:
        log.info("session of a node that is gone: taken over")
        session = HttpSession(self._app, id, record.principal)
        used = record.streams + _NEXT_NODE
        revision, client = BY_ID[record.revision], (record.client_info, record.capabilities)
        session.peer.resume(revision, *client, last_id=used)
        session.inherit(used)
        session.session.restore(record.kept)
        self._app.sessions.keep(session)
        session.session.all_may_have_changed()
        self.changed(session)

    def _gap(self) -> None:
        """The engine is back: it may have forgotten our sessions, or given them to others."""
        self._app.home.spawn(self._try(self._keep_all()), "keeping the sessions")

    async def _keep_all(self) -> None:
        for session in self._app.sessions:
            owner = await self._backplane.directory.owner(_lease(session.id))
            if owner in (None, self._backplane.node):
                await self.keep(session)
            else:
                self._app.sessions.lose(session)

    # -- streams of a session that was taken over ------------------------------------------------

    async def settle(self, stream: LoggedStream) -> None:
        """Go on with the log of a dead node's stream, and answer what it left open."""
        app = self._app
        await app.log.adopt(stream.key)
        for id in _unanswered(await app.log.read(stream.key)):
            error = McpError(INTERNAL_ERROR, data="The node that served this request has ended")
            stream.emit(app.peer.error(id, error))


class _Answer:
    """Brings what the application sends back to the node that asked."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], list(message["headers"])
            if not any(name == b"content-length" for name, _ in self._headers):
                await self._bring(b"", True)  # a stream: its client shall know that it is heard
            return
        await self._bring(message.get("body", b""), message.get("more_body", False))

    async def _bring(self, body: bytes, more: bool) -> None:
        part = _Part(self._status, self._headers, body, more)
        self._status, self._headers = 0, []
        try:
            await self._conversation.send(_encode(part), last=not more)
        except BackplaneAway as error:
            raise OSError("the other node is gone") from error  # as from a client that hung up


def _lease(id: str) -> str:
    return f"session {id}"


def _unanswered(events: list[Event]) -> list[Id]:
    """The requests of a stream that have no answer in it: its first event names them."""
    if not events or not events[0].data.startswith(NOTE):
        return []
    asked: list[Id] = msgspec.json.decode(events[0].data[len(NOTE) :])
    answered = [msgspec.json.decode(event.data) for event in events[1:] if event.data]
    done = [frame["id"] for frame in answered if "method" not in frame and "id" in frame]
    return [id for id in asked if id not in done]
