"""What a handler sees of the way its request came, and the parts such ways are made of.

A ``Connection`` is a link, and so is one HTTP exchange: a handler tells and asks
its client through it, and does not know which it is.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec import UNSET, Raw, Struct

from dovetail.core.peer import Peer, Request, Response
from dovetail.errors import INTERNAL_ERROR, ConnectionClosed, McpError
from dovetail.runtime.limits import Limits
from dovetail.wire.jsonrpc import Id

__all__ = ["INTERRUPTED", "Asking", "Handler", "Home", "Link", "Tap", "error_answer"]

log = logging.getLogger("dovetail")

# Called with "in" or "out" and the frame, for wire logs and test recorders.
Tap = Callable[[str, bytes], None]


# A handler that was cancelled by something of its own.
INTERRUPTED = McpError(INTERNAL_ERROR, data="The request was interrupted")


class Link(Protocol):
    """The way to one client, as far as the server's side of it needs to know."""

    @property
    def peer(self) -> Peer: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def session(self) -> Any:
        """What the server keeps about this client."""

    def serves(self, request: Request) -> bool:
        """Whether the request still waits for its answer."""

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Send a notification, if there is still somebody to read it."""

    async def request(self, method: str, params: Any = UNSET) -> Raw:
        """Send a request and wait for its answer. McpError if it is an error."""

    def hang_up(self, retry_ms: int | None = None) -> None:
        """Let the client go without its answer, which it will come back for, if it can."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        """Run something that answers no request; it ends with the link."""

    @property
    def here(self) -> bool:
        """Whether the caller is on our event loop."""

    def on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call ``function`` on the event loop: now, or soon when we are in another thread."""

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when nothing more will come from the other side."""


class Handler(Struct, frozen=True):
    """What a method table holds: a function of (request, link).

    It returns the result, or a coroutine that will. An ``inline`` one always
    returns the result at once, and therefore never waits for a free place.
    """

    call: Callable[[Request, Any], Any]
    inline: bool = False


def error_answer(peer: Peer, request: Request, error: BaseException) -> tuple[bytes, int]:
    """The error answer and its code. A crash says nothing of itself: it is in the log."""
    if not isinstance(error, McpError):
        log.error("%s failed", request.method, exc_info=error)
        error = McpError(INTERNAL_ERROR)
    if request.revision is not None:  # only before a handshake there is none
        error = request.revision.error(error)
    try:
        return peer.error(request.id, error), error.code
    except Exception:  # JSON cannot express it: a set, a cycle, half a surrogate pair
        text = str(error.message).encode(errors="replace").decode()
        return peer.error(request.id, McpError(error.code, text)), error.code


class Home:
    """An event loop, its thread, and the work in it that answers no request."""

    def __init__(self, limits: Limits) -> None:
        self.loop = asyncio.get_running_loop()
        self.background: set[asyncio.Task[None]] = set()
        self._max_background = limits.max_background
        self._thread = threading.get_ident()

    @property
    def here(self) -> bool:
        return threading.get_ident() == self._thread and self.loop.is_running()

    def on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        if self.here:
            function(*arguments)
        else:
            self.loop.call_soon_threadsafe(function, *arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        if len(self.background) >= self._max_background:
            log.warning("%s dropped: %d are running", what, len(self.background))
            coroutine.close()
            return
        task = self.loop.create_task(coroutine, name=what)
        self.background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)


class Asking:
    """Our requests to one client, until their answers come."""

    __slots__ = ("_peer", "_waiters", "reason")

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._waiters: dict[Id, asyncio.Future[Raw]] = {}
        self.reason = "the connection has ended"  # what those are told who wait in vain

    async def ask(self, method: str, params: Any, send: Callable[[bytes], None]) -> Raw:
        """Send a request and wait; whoever gives up tells the client so."""
        id, frame, future = self.start(method, params)
        send(frame)
        try:
            return await future
        except asyncio.CancelledError:
            send(self._peer.notify("notifications/cancelled", {"requestId": id}))
            raise
        finally:
            self.forget(id)

    def start(self, method: str, params: Any) -> "tuple[Id, bytes, asyncio.Future[Raw]]":
        """A request to be sent, and the future of its answer, until it is forgotten."""
        id, frame = self._peer.request(method, params)
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiters[id] = future
        return id, frame, future

    def forget(self, id: Id) -> None:
        self._peer.forget(id)
        self._waiters.pop(id, None)

    def answered(self, event: Response) -> None:
        future = self._waiters.pop(event.id, None)
        if future is None or future.done():
            return
        if event.error is not None:
            future.set_exception(event.error)
        else:
            future.set_result(event.result)  # type: ignore[arg-type]

    def fail(self) -> None:
        """Nobody will answer any more."""
        for future in self._waiters.values():
            if not future.done():
                future.set_exception(ConnectionClosed(self.reason))
                future.exception()  # who cancelled its wait does not look
