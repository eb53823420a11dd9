"""One negotiated connection: requests with deadlines, progress, and what comes unasked.

A session dies with its connection; a client that reconnects makes a new one. All waits
of a session share one timer, so that a deadline costs a call no more than a look at the
clock.
"""

import asyncio
import inspect
import logging
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from dovetail.client.options import Options
from dovetail.core.peer import Notification
from dovetail.errors import SessionLost
from dovetail.runtime.connection import Connection
from dovetail.spec.meta import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    PROGRESS_TOKEN_KEY,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
)
from dovetail.spec.revisions import Revision
from dovetail.spec.types import (
    ClientCapabilities,
    Implementation,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    ServerCapabilities,
)
from dovetail.wire.jsonrpc import BROKEN_JSON, Id

__all__ = ["Progress", "Session", "Waits", "waits_of"]

log = logging.getLogger("dovetail")

_decode_progress = msgspec.json.Decoder(ProgressNotificationParams).decode
_decode_log = msgspec.json.Decoder(LoggingMessageNotificationParams).decode


class Progress(Struct, frozen=True):
    """How far a request has come."""

    done: float
    total: float | None = None
    message: str | None = None


OnProgress = Callable[[Progress], Any]


class Waits(Struct, frozen=True):
    """How long to wait: without a sign of life, and in all. None is for ever."""

    idle: float | None
    total: float | None


def waits_of(options: Options, timeout: Any, max_total: Any) -> Waits:
    """``UNSET`` is what the client was made with."""
    idle = options.timeout if timeout is UNSET else timeout
    total = options.max_total if max_total is UNSET else max_total
    return Waits(idle, total)


class _Wait(Struct, eq=False):
    """One request under way."""

    id: Id
    method: str
    future: Any
    idle: float | None
    deadline: float
    cap: float
    last: float = float("-inf")
    on_progress: OnProgress | None = None


_NEVER = float("inf")


class Session:
    """What is known of the server, and the requests that wait for it."""

    def __init__(self, connection: Connection, options: Options) -> None:
        self.connection = connection
        self.options = options
        self.revision: Revision = None  # type: ignore[assignment]  # set by `negotiate`
        self.server: Implementation | None = None
        self.capabilities = ServerCapabilities()
        self.declared: ClientCapabilities | dict[str, Any] = ClientCapabilities()
        self.instructions: str | None = None
        self.lost = False  # the server forgot it; a new handshake is needed
        self.http = False  # whether requests are repeated in headers
        self.events: Callable[[Notification], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._waits: dict[Id, _Wait] = {}
        self.done = self._waits.__delitem__
        self._tokens: dict[Any, _Wait] = {}
        self._last_token = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER
        self.stamp: Any = UNSET
        self._envelope: dict[str, Any] = {}
        # A program that traces has loaded this; nobody else pays for it.
        self._traced = "opentelemetry.trace" in sys.modules
        self._usual = waits_of(options, UNSET, UNSET)
        # Whether a call needs nothing but to be sent: no headers, no trace, no new session.
        self.is_plain = False

    def settle(self) -> None:
        """All is known that a call needs to know."""
        needs_more = self.http or self._traced or self.dead
        self.is_plain = not needs_more and self.capabilities.tools is not UNSET
        self.connection.at_end(self._over)

    def _over(self) -> None:
        self.is_plain = False

    @property
    def dead(self) -> bool:
        return self.connection.ended.done()

    def speak(self, revision: Revision, capabilities: ClientCapabilities | dict[str, Any]) -> None:
        """From now on requests are of this revision and declare these capabilities."""
        self.revision = revision
        self.declared = capabilities
        if not revision.modern:
            self._envelope, self.stamp = {}, UNSET
            return
        self._envelope = {
            PROTOCOL_VERSION_KEY: revision.id,
            CLIENT_CAPABILITIES_KEY: capabilities,
            CLIENT_INFO_KEY: self.options.info,
        }
        if self.options.log_level is not None:
            self._envelope[LOG_LEVEL_KEY] = self.options.log_level
        self.stamp = Raw(msgspec.json.encode(self._envelope))

    # -- asking --------------------------------------------------------------------------

    def meta(self, token: Any = None, extra: dict[str, Any] | None = None) -> Any:
        """The ``_meta`` of one request; UNSET where there is nothing to say."""
        if token is None and not extra and not self._traced:
            return self.stamp
        meta = {**self._envelope, **(extra or {})}
        if token is not None:
            meta[PROGRESS_TOKEN_KEY] = token
        if self._traced:
            _inject_trace(meta)
        return meta or UNSET

    def token(self) -> int:
        self._last_token += 1
        return self._last_token

    async def request(
        self,
        method: str,
        params: Any,
        waits: Waits,
        *,
        token: Any = None,
        on_progress: OnProgress | None = None,
        headers: dict[str, str] | None = None,
    ) -> Raw:
        """The raw result. TimeoutError, McpError, ConnectionClosed or RemoteProtocolError."""
        id, future = self.connection.start(method, params, headers)
        wait = self._wait(id, method, future, waits)
        if token is not None:
            wait.on_progress = on_progress
            self._tokens[token] = wait
        try:
            result: Raw = await future
            return result
        except asyncio.CancelledError:
            if method != "initialize":  # digest C3
                self.connection.abandon(id)
            raise
        except SessionLost:
            self.lost = True
            raise
        finally:
            self.done(id)
            if token is not None:
                del self._tokens[token]
            self.connection.forget(id)

    def begin(self, method: str, params: Any) -> "tuple[Id, asyncio.Future[Raw]]":
        """``request`` without a coroutine; then comes ``done`` or ``give_up``."""
        id, future = self.connection.start(method, params)
        self._wait(id, method, future, self._usual)
        return id, future

    def give_up(self, id: Id, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            self.connection.abandon(id)
        self.connection.forget(id)
        self.done(id)

    def notify(self, method: str, params: Any = UNSET) -> None:
        self.connection.notify(method, params)

    # -- deadlines -------------------------------------------------------------------------

    def _wait(self, id: Id, method: str, future: Any, waits: Waits) -> _Wait:
        now = self._loop.time()
        cap = _NEVER if waits.total is None else now + waits.total
        deadline = cap if waits.idle is None else min(now + waits.idle, cap)
        wait = self._waits[id] = _Wait(id, method, future, waits.idle, deadline, cap)
        if deadline < self._timer_at:
            self._arm(deadline)
        return wait

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = None if at == _NEVER else self._loop.call_at(at, self._expire)

    def _expire(self) -> None:
        """Some deadline may have passed: end those waits, and sleep until the next."""
        now = self._loop.time()
        self._timer = None
        earliest = _NEVER
        held = self.connection.held_until
        for wait in list(self._waits.values()):
            if wait.idle is not None and held + wait.idle > now:
                wait.deadline = max(wait.deadline, held + wait.idle)
                wait.cap = max(wait.cap, wait.deadline)
            if wait.deadline <= now:
                self._give_up(wait, now)
            else:
                earliest = min(earliest, wait.deadline)
        self._arm(earliest)

    def _give_up(self, wait: _Wait, now: float) -> None:
        if wait.future.done():
            return
        if wait.cap <= now:
            text = f"{wait.method}: not done in time"
        else:
            text = f"{wait.method}: no answer in {wait.idle:g} seconds"
        if wait.method != "initialize":
            self.connection.abandon(wait.id, text)
        wait.future.set_exception(TimeoutError(text))

    # -- what comes unasked ------------------------------------------------------------------

    def notified(self, notification: Notification, connection: Connection) -> None:
        method = notification.method
        if method == "notifications/progress":
            self._progressed(notification)
        elif method == "notifications/message":
            self._logged(notification)
        elif self.events is not None:
            self.events(notification)

    def _progressed(self, notification: Notification) -> None:
        """Progress only grows (digest X22); whatever else comes under a token is ignored."""
        try:
            params = _decode_progress(notification.params or b"{}")
        except BROKEN_JSON:
            return
        wait = self._tokens.get(params.progress_token)
        if wait is None or params.progress <= wait.last:
            return
        wait.last = params.progress
        if wait.idle is not None:
            wait.deadline = min(self._loop.time() + wait.idle, wait.cap)
        if wait.on_progress is not None:
            total = None if params.total is UNSET else params.total
            message = None if params.message is UNSET else params.message
            self.tell(wait.on_progress, Progress(params.progress, total, message))

    def _logged(self, notification: Notification) -> None:
        if self.options.on_log is None:
            return
        try:
            entry = _decode_log(notification.params or b"{}")
        except BROKEN_JSON:
            return
        self.tell(self.options.on_log, entry)

    def tell(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of the user's; a coroutine runs beside us. Its faults are logged."""
        try:
            outcome = function(*arguments)
        except Exception:
            log.exception("%r failed", function)
            return
        if inspect.iscoroutine(outcome):
            self.connection.spawn(outcome, getattr(function, "__name__", "callback"))

    def learn(self, meta: Any) -> None:
        """The server's name, which results of 2026-07-28 carry in their ``_meta``."""
        info = meta.get(SERVER_INFO_KEY) if isinstance(meta, dict) else None
        if info is not None and self.server is None:
            try:
                self.server = msgspec.convert(info, Implementation)
            except msgspec.ValidationError:
                log.debug("the server's name makes no sense: %r", info)

    def end(self) -> None:
        self._arm(_NEVER)


def _inject_trace(meta: dict[str, Any]) -> None:
    """``traceparent`` and its companions, in the formats of the W3C (digest X27)."""
    try:
        from opentelemetry.propagate import inject

        inject(meta)
    except Exception:
        log.debug("no trace context", exc_info=True)
