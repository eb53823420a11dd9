"""What has changed, as one stream of events: lists, resources, tasks.

In 2026-07-28 it is a ``subscriptions/listen`` of the server; before, it is what the server
says unasked, and ``resources/subscribe`` for resources. Events that were not read yet are
merged: they say that something is another one now, not how often it changed, so a flood of
them takes no more room than there are things to hear of.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Struct

from dovetail.core.peer import Notification
from dovetail.errors import ConnectionClosed, LocalProtocolError
from dovetail.spec.meta import SUBSCRIPTION_ID_KEY
from dovetail.spec.types import GetTaskResult, SubscriptionFilter
from dovetail.wire.jsonrpc import BROKEN_JSON, Id

if TYPE_CHECKING:
    from dovetail.client.client import Client
    from dovetail.client.session import Session

__all__ = ["ChangeEvent", "Listener", "acknowledged", "event_of"]

# The longest pause between two tries to take up a subscription again.
MAX_PAUSE = 10.0

Kind = Literal["tools", "prompts", "resources", "resource", "task", "elicitation", "reconnected"]

# Different resources waiting to be read of; past it the oldest is dropped.
MAX_WAITING = 4096

_LISTS: dict[str, Kind] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


class ChangeEvent(Struct, frozen=True):
    """Something has changed: a list (``tools``, ``prompts``, ``resources``), one ``resource``,
    one ``task``; or the connection is a new one, and whatever was known may be stale.
    """

    kind: Kind
    uri: str | None = None
    task: GetTaskResult | None = None


class _Params(Struct):
    meta: dict[str, Any] = msgspec.field(default={}, name="_meta")
    uri: str | None = None
    taskId: str | None = None
    elicitationId: str | None = None


def event_of(notification: Notification) -> tuple[Any, ChangeEvent] | None:
    """The subscription a notification belongs to, if any, and the event it is."""
    try:
        raw = b"{}" if notification.params is UNSET else notification.params
        params = msgspec.json.decode(raw, type=_Params)
        stream = params.meta.get(SUBSCRIPTION_ID_KEY)
        if (kind := _LISTS.get(notification.method)) is not None:
            return stream, ChangeEvent(kind)
        if notification.method == "notifications/resources/updated" and params.uri is not None:
            return stream, ChangeEvent("resource", params.uri)
        if notification.method in ("notifications/tasks", "notifications/tasks/status"):
            return stream, ChangeEvent("task", None, msgspec.json.decode(raw, type=GetTaskResult))
        if notification.method == "notifications/elicitation/complete":
            return stream, ChangeEvent("elicitation", params.elicitationId)
    except BROKEN_JSON:
        pass
    return None


class Listener:
    """``async with client.listen(...) as events: async for event in events``.

    ``missing`` says what was asked for and not granted. The iteration ends when the server
    ends the subscription; it raises ``ConnectionClosed`` when the server is gone.
    """

    def __init__(self, client: "Client", wanted: SubscriptionFilter) -> None:
        self._client = client
        self.wanted = wanted
        self.accepted = SubscriptionFilter()
        self.id: Id | None = None
        self._subscribed: list[str] = []  # up to 2025-11-25
        self._waiting: dict[Any, ChangeEvent] = {}
        self._wake = asyncio.Event()
        self._acknowledged: asyncio.Future[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._ended = False

    @property
    def missing(self) -> list[str]:
        """What the server did not promise, by its name on the wire (digest 13.5)."""
        wanted, got = msgspec.to_builtins(self.wanted), msgspec.to_builtins(self.accepted)
        missing = []
        for name, value in wanted.items():
            given = got.get(name)
            if isinstance(value, list):
                missing += [item for item in value if item not in (given or [])]
            elif not given:
                missing.append(name)
        return missing

    async def __aenter__(self) -> "Listener":
        self._client._listeners.add(self)
        loop = asyncio.get_running_loop()
        self._acknowledged = loop.create_future()
        self._running = loop.create_task(self._run())
        try:
            async with asyncio.timeout(self._client._options.timeout):
                await self._acknowledged
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._client._listeners.discard(self)
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._subscribed and not self._client.closed:
            for uri in self._subscribed:
                self._client._unsubscribe(uri)
        self._subscribed = []
        self._finish(None)

    def __aiter__(self) -> "Listener":
        return self

    async def __anext__(self) -> ChangeEvent:
        while not self._waiting:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._waiting.pop(next(iter(self._waiting)))

    # -- what the client calls -----------------------------------------------------------

    def deliver(self, stream: Any, event: ChangeEvent) -> None:
        if stream is not None:  # digest C16: told apart by subscription, whatever it says
            if stream != self.id or type(stream) is not type(self.id):
                return
        elif not self._wants(event):
            return
        key = (event.kind, event.uri, None if event.task is None else event.task.task_id)
        self._waiting.pop(key, None)
        self._waiting[key] = event
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._wake.set()

    def _wants(self, event: ChangeEvent) -> bool:
        if event.kind in ("tools", "prompts", "resources"):
            return getattr(self.wanted, f"{event.kind}_list_changed") is True
        if event.kind == "resource":
            uris = self.wanted.resource_subscriptions or []
            return any(event.uri == uri or (event.uri or "").startswith(uri) for uri in uris)
        if event.kind == "task":
            return event.task is not None and event.task.task_id in (self.wanted.task_ids or [])
        return True

    def acknowledge(self, accepted: SubscriptionFilter) -> None:
        self.accepted = accepted
        if self._acknowledged is not None and not self._acknowledged.done():
            self._acknowledged.set_result(None)

    # -- the subscription ------------------------------------------------------------------

    async def _run(self) -> None:
        """Hold the subscription; take it up again on a new connection if that is wished."""
        again = False
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                session = await self._client._live()
                if again:
                    self.deliver(self.id, ChangeEvent("reconnected"))
                if session.revision.modern:
                    await self._stream(session)
                    self._finish(None)
                    return
                await self._subscribe(session)
                await asyncio.wait([session.connection.ended])
                raise ConnectionClosed(session.connection.end_reason)
            except ConnectionClosed as error:
                if not self._client._options.reconnect or self._client.closed:
                    self._finish(error)
                    return
                again = True
                self.id = None
                failures = failures + 1 if loop.time() - began < MAX_PAUSE else 1
                await asyncio.sleep(min(0.05 * 2**failures, MAX_PAUSE))
            except Exception as error:
                self._finish(error)
                return

    async def _stream(self, session: "Session") -> None:
        headers = {"mcp-method": "subscriptions/listen"} if session.http else None
        params = {"notifications": self.wanted, "_meta": session.meta()}
        connection = session.connection
        id, future = connection.start("subscriptions/listen", params, headers)
        self.id = id
        try:
            await future
        except asyncio.CancelledError:
            connection.abandon(id)
            raise
        finally:
            connection.forget(id)

    async def _subscribe(self, session: "Session") -> None:
        """Before 2026-07-28 only resources are subscribed to; lists are announced unasked."""
        capabilities = session.capabilities
        accepted = SubscriptionFilter()
        for kind in ("tools", "prompts", "resources"):
            declared = getattr(capabilities, kind)
            announced = declared is not UNSET and declared.list_changed is True
            name = f"{kind}_list_changed"
            if announced and getattr(self.wanted, name) is True:
                setattr(accepted, name, True)
        uris = self.wanted.resource_subscriptions or []
        resources = capabilities.resources
        if uris and resources is not UNSET and resources.subscribe is True:
            self._subscribed = []
            for uri in uris:
                await self._client._subscribe(uri)
                self._subscribed.append(uri)
            accepted.resource_subscriptions = list(uris)
        if self.wanted.task_ids:
            accepted.task_ids = self.wanted.task_ids
        self.acknowledge(accepted)

    def _finish(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._error = error
        self._wake.set()
        waiting = self._acknowledged
        if waiting is not None and not waiting.done():
            if error is None:
                error = LocalProtocolError("the subscription ended before it began")
            waiting.set_exception(error)
            waiting.exception()


class _Acknowledged(Struct):
    notifications: SubscriptionFilter
    meta: dict[str, Any] = msgspec.field(default={}, name="_meta")


def acknowledged(notification: Notification) -> tuple[Any, SubscriptionFilter] | None:
    """Which subscription a server has accepted, and how much of it."""
    try:
        params = msgspec.json.decode(notification.params or b"{}", type=_Acknowledged)
    except BROKEN_JSON:
        return None
    return params.meta.get(SUBSCRIPTION_ID_KEY), params.notifications
