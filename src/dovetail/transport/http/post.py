"""One POST of a session: its request, or its batch, and the answer.

It is the `Link` of its requests: what they say before they are answered goes on the
stream of this POST, what they say afterwards on the session's.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw

from dovetail.core.peer import Batch, Cancelled, Notification, Peer, Request, Response
from dovetail.core.peer import Reply as Refusal
from dovetail.errors import UNSUPPORTED_VERSION, Unavailable
from dovetail.runtime.limits import Limits
from dovetail.runtime.link import INTERRUPTED, error_answer
from dovetail.runtime.steps import begin, resumed
from dovetail.transport.http.body import Refused
from dovetail.transport.http.events import EventStream
from dovetail.transport.http.replies import Pairs, Reply, Send, send_json, send_reply
from dovetail.wire.jsonrpc import Id, ResultFrame, encode

if TYPE_CHECKING:
    from dovetail.transport.http.app import HttpApp
    from dovetail.transport.http.sessions import HttpSession, LoggedStream

__all__ = ["Post"]

# Requests that change what a session needs to live on elsewhere.
_KEPT = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})


class Post:
    __slots__ = ("_app", "_done", "_ids", "_leaving", "_owner", "_send", "_shown", "_stream")

    def __init__(self, app: "HttpApp", owner: "HttpSession", send: Send) -> None:
        self._app = app
        self._owner = owner
        self._send = send
        self._stream: LoggedStream | None = None
        self._shown: EventStream | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._done = False
        self._ids: list[Id] = []

    # -- serving ---------------------------------------------------------------------------

    async def serve(self, request: Request) -> None:
        self._ids = [request.id]
        if self._app.answers == "sse" and request.method != "initialize":
            self._open()
        frame = await self._run(request)
        extra = await self._app.opened(self._owner) if request.method == "initialize" else ()
        await self._answer([] if frame is None else [frame], False, extra)

    async def serve_batch(self, batch: Batch) -> None:
        """All at once, as they would come by POSTs of their own; the answers are one array."""
        frames = [event.frame for event in batch.events if isinstance(event, Refusal)]
        requests = [event for event in batch.events if isinstance(event, Request)]
        self._ids = [request.id for request in requests]
        running = [self._app.loop.create_task(self._run(request)) for request in requests]
        for event in batch.events:
            if isinstance(event, Response | Notification | Cancelled):
                self._owner.take(event)
        if running:
            await asyncio.wait(running)
        frames += [frame for task in running if (frame := task.result()) is not None]
        if requests or frames:
            await self._answer(frames, True, ())
        else:
            await send_reply(self._send, Reply(202))

    async def _run(self, request: Request) -> bytes | None:
        """The answer; None if nobody wants it any more."""
        owner = self._owner
        owner.running += 1
        try:
            outcome = request.handler.call(request, self)
            if type(outcome) is CoroutineType:
                done, value = begin(outcome)
                outcome = value if done else await self._wait(request, outcome, value)
            if not owner.peer.settle(request):
                return None  # cancelled, by a message that came meanwhile
            if request.progress is not None:
                request.progress.finish()
            if request.method in _KEPT and self._app.nodes is not None:
                self._app.nodes.changed(owner)
            return encode(ResultFrame(request.id, outcome))
        except asyncio.CancelledError:
            return self._cancelled(request)
        except BaseException as error:
            owner.peer.settle(request)
            return None if request.cancelled else self._failed(request, error)
        finally:
            owner.running -= 1

    def _failed(self, request: Request, error: BaseException) -> bytes:
        """The error answer, with a status of its own where there still is one to choose."""
        alone = self._stream is None and len(self._ids) == 1
        if alone and isinstance(error, Unavailable):
            raise Refused(self._app.unavailable(error, request.id)) from None
        frame, code = error_answer(self._owner.peer, request, error)
        if alone and code == UNSUPPORTED_VERSION:  # to initialize, where only 2026-07-28 is served
            raise Refused(Reply.json(400, frame)) from None
        return frame

    def _cancelled(self, request: Request) -> bytes | None:
        task = asyncio.current_task()
        if request.cancelled:
            if task is not None:
                task.uncancel()
            return None
        if task is not None and task.cancelling():
            raise asyncio.CancelledError  # the server ends
        self._owner.peer.settle(request)
        return error_answer(self._owner.peer, request, INTERRUPTED)[0]

    async def _wait(
        self, request: Request, handling: Coroutine[Any, Any, Any], waits_for: Any
    ) -> Any:
        """It takes its time. As a stream it can be resumed, and proxies see it alive."""
        request.task = asyncio.current_task()
        after = self._app.http.stream_after_seconds
        opening = self._app.loop.call_later(after, self._open)
        try:
            return await resumed(handling, waits_for)
        finally:
            opening.cancel()
            request.task = None

    # -- answering -------------------------------------------------------------------------

    def _open(self) -> "LoggedStream":
        """From now on this is an event stream."""
        if self._stream is None:
            revision = self._owner.peer.revision
            self._stream = self._owner.new_stream("p")
            self._shown = EventStream(self._app, self._send, self._lost)
            self._stream.shown = self._shown
            primes = revision is not None and revision.polling
            self._stream.begin(
                self._ids, int(self._app.http.retry_seconds * 1000) if primes else None
            )
            if not primes:
                self._shown.put(b"")
        return self._stream

    def _lost(self) -> None:
        """The client does not read: it may come back for the rest."""
        if self._stream is not None and self._stream.shown is self._shown:
            self._stream.shown = None

    async def _answer(self, frames: list[bytes], is_batch: bool, extra: Pairs) -> None:
        self._done = True
        app = self._app
        if app.tap is not None:
            for frame in frames:
                app.tap("out", frame)
        if self._stream is None and frames:
            body = b"[" + b",".join(frames) + b"]" if is_batch else frames[0]
            await send_json(self._send, 200, body, extra)
            return
        stream = self._open()  # also without an answer: a stream may end with none
        for frame in frames:
            stream.emit(frame)
        stream.finish()
        if self._leaving is not None:
            await self._leaving
        elif self._shown is not None:
            await self._shown.end()

    # -- the link --------------------------------------------------------------------------

    @property
    def peer(self) -> Peer:
        return self._owner.peer

    @property
    def limits(self) -> Limits:
        return self._app.limits

    @property
    def session(self) -> Any:
        return self._owner.session

    def serves(self, request: Request) -> bool:
        return self._owner.serves(request)

    def emit(self, frame: bytes) -> None:
        if self._done:
            self._owner.send(frame)
            return
        if self._app.tap is not None:
            self._app.tap("out", frame)
        self._open().emit(frame)

    def notify(self, method: str, params: Any = UNSET) -> None:
        self.emit(self._owner.peer.notify(method, params))

    async def request(self, method: str, params: Any = UNSET) -> Raw:
        return await self._owner.ask(method, params, self.emit)

    def hang_up(self, retry_ms: int | None = None) -> None:
        """End the response, not the request: the client comes back for the rest.

        Only since 2025-11-25 does it know that it should.
        """
        revision = self._owner.peer.revision
        if self._done or revision is None or not revision.polling:
            return
        stream = self._open()
        if stream.shown is not None:
            if retry_ms is not None:
                stream.emit(b"", retry_ms)
            shown, stream.shown = stream.shown, None
            self._leaving = self._app.loop.create_task(shown.end())

    def spawn(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        self._owner.spawn(coroutine, what)

    @property
    def here(self) -> bool:
        return self._owner.here

    def on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        self._owner.on_loop(function, *arguments)

    def at_end(self, callback: Callable[[], None]) -> None:
        self._owner.at_end(callback)
