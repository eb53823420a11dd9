"""2026-07-28 over HTTP: one POST is one request, and nothing outlives it.

The handler runs in the task of the ASGI server. The answer is JSON, unless there is
something to say before it; then it is an event stream that ends with the answer.
A client that hangs up has cancelled its request (digest S28).
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw

from dovetail.core.exchange import answer_status
from dovetail.core.peer import Peer, Request
from dovetail.errors import LocalProtocolError, Unavailable
from dovetail.runtime.connection import compact
from dovetail.runtime.limits import Limits
from dovetail.runtime.link import INTERRUPTED, error_answer
from dovetail.runtime.steps import begin, resumed
from dovetail.transport.http.auth import Principal
from dovetail.transport.http.body import Refused
from dovetail.transport.http.events import EventStream, until_hung_up
from dovetail.transport.http.replies import Receive, Scope, Send, send_json
from dovetail.wire.jsonrpc import ResultFrame, encode
from dovetail.wire.sse import encode_event

if TYPE_CHECKING:
    from dovetail.transport.http.app import HttpApp

__all__ = ["Exchange"]


class Exchange:
    """One request and its answer: a `Link` for as long as that takes."""

    __slots__ = (
        "_app",
        "_callbacks",
        "_done",
        "_principal",
        "_receive",
        "_request",
        "_scope",
        "_send",
        "_session",
        "_stream",
        "_task",
        "_watch",
    )

    def __init__(
        self,
        app: "HttpApp",
        request: Request | None,
        receive: Receive,
        send: Send,
        principal: Principal | None,
        scope: Scope,
    ) -> None:
        """``request`` is None for a notification: a link, but nobody to be told anything."""
        self._app = app
        self._request: Request = request  # type: ignore[assignment]
        self._scope = scope
        self._receive = receive
        self._send = send
        self._principal = principal
        self._session: Any = None
        self._callbacks: list[Callable[[], None]] | None = None
        self._stream: EventStream | None = None
        self._task: asyncio.Task[Any] | None = None
        self._watch: Any = None  # first the timer, then the task
        self._done = False

    # -- serving ---------------------------------------------------------------------------

    async def serve(self) -> None:
        request = self._request
        try:
            outcome = request.handler.call(request, self)
            if type(outcome) is CoroutineType:
                done, value = begin(outcome)
                outcome = value if done else await self._wait(outcome, value)
            if request.progress is not None:
                request.progress.finish()
            frame, status = encode(ResultFrame(request.id, outcome)), 200
        except asyncio.CancelledError:
            if request.cancelled:
                await self._forget()
                return
            frame, status = self._interrupted(), 200
        except BaseException as error:
            if isinstance(error, Unavailable) and self._stream is None:
                raise Refused(self._app.unavailable(error, request.id)) from None
            frame, code = error_answer(self._app.peer, request, error)
            status = answer_status(code)
        finally:
            self._done = True
            if self._callbacks is not None:
                self.__exit__()
        if self._app.tap is not None:
            self._app.tap("out", frame)
        if self._stream is None:
            await send_json(self._send, status, frame)
        else:
            self._stream.put(_event(frame))
            await self._stream.end()

    def __enter__(self) -> "Exchange":
        self._done = True
        return self

    def __exit__(self, *error: object) -> None:
        callbacks, self._callbacks = self._callbacks, None
        self._app.run_callbacks(callbacks or [])

    async def _wait(self, handling: Coroutine[Any, Any, Any], waits_for: Any) -> Any:
        """The handler takes its time: see whether the client has as much."""
        self._task = asyncio.current_task()
        app = self._app
        self._watch = app.loop.call_later(app.http.watch_after_seconds, self._start_watching)
        try:
            return await resumed(handling, waits_for)
        finally:
            self._watch.cancel()

    def _start_watching(self) -> None:
        """A call that takes long becomes a stream, which can be kept alive."""
        loop, http = self._app.loop, self._app.http
        self._watch = loop.create_task(until_hung_up(self._receive, self._hang_up))
        opening = loop.call_later(http.stream_after_seconds, self._open_stream)
        self._watch.add_done_callback(lambda _: opening.cancel())

    def _hang_up(self) -> None:
        """Nobody is there any more, or nobody who reads."""
        self._request.cancelled = True
        if self._request.progress is not None:
            self._request.progress.drop()
        if self._task is not None and not self._done:
            self._task.cancel("the client hung up")

    def _interrupted(self) -> bytes:
        """Something of the handler's own was cancelled; or the server ends."""
        if self._task is not None and self._task.cancelling():
            raise asyncio.CancelledError
        return error_answer(self._app.peer, self._request, INTERRUPTED)[0]

    async def _forget(self) -> None:
        """The cancellation was ours, and has done its work. Nobody hears how it ended."""
        if self._task is not None:
            self._task.uncancel()
        if self._stream is None:
            self._stream = EventStream(self._app, self._send)
        self._stream.lost = None
        self._stream.cut()
        await self._stream.end()

    # -- the link --------------------------------------------------------------------------

    @property
    def peer(self) -> Peer:
        return self._app.peer

    @property
    def limits(self) -> Limits:
        return self._app.limits

    @property
    def session(self) -> Any:
        """Made when somebody asks for it: a plain tool never does."""
        if self._session is None:
            self._session = self._app.host.new_session(self)
            self._session.principal = None if self._principal is None else self._principal.id
            self._session.notes = self._app.notes_of(self._principal, self._scope)
        return self._session

    def serves(self, request: Request) -> bool:
        return not self._done and not request.cancelled

    def notify(self, method: str, params: Any = UNSET) -> None:
        if self._done or self._request.cancelled:
            return  # after the answer nothing may follow (digest S29)
        frame = self._app.peer.notify(method, params)
        if self._app.tap is not None:
            self._app.tap("out", frame)
        self._open_stream().put(_event(frame))

    def _open_stream(self) -> EventStream:
        if self._stream is None:
            self._stream = EventStream(self._app, self._send, self._hang_up)
            self._stream.put(b"")
        return self._stream

    async def request(self, method: str, params: Any = UNSET) -> Raw:
        raise LocalProtocolError("A client of 2026-07-28 is asked by the answer (digest S9)")

    def hang_up(self, retry_ms: int | None = None) -> None:
        """Whoever lets go of this exchange has cancelled it."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        self._app.home.spawn(coroutine, what)

    @property
    def here(self) -> bool:
        return self._app.home.here

    def on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        self._app.home.on_loop(function, *arguments)

    def at_end(self, callback: Callable[[], None]) -> None:
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)


def _event(frame: bytes) -> bytes:
    return encode_event(compact(frame) if b"\n" in frame else frame, event="message")
