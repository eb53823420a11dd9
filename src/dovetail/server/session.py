"""What a server keeps about one connection, and what it tells the client unasked."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from dovetail.core import state
from dovetail.errors import ClientError, ConnectionClosed, McpError, RemoteProtocolError
from dovetail.runtime.link import Link
from dovetail.spec.meta import SUBSCRIPTION_ID_KEY
from dovetail.spec.types import (
    ClientCapabilities,
    CreateTaskResult,
    Implementation,
    ServerCapabilities,
    SubscriptionFilter,
)
from dovetail.wire.jsonrpc import Id

if TYPE_CHECKING:
    from dovetail.server.app import Server
    from dovetail.server.questions import Question

__all__ = ["LEVELS", "Session", "Stream", "capability_names"]

# RFC 5424, least first (digest 3).
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

LISTS = ("tools", "resources", "prompts")

_DEFAULT_LEVEL = "info"  # until the client says; MCP leaves the choice to the server


class Stream:
    """One ``subscriptions/listen`` of 2026-07-28: what it asked for, and where it goes."""

    def __init__(self, id: Id, wanted: SubscriptionFilter, connection: Link) -> None:
        self.id = id
        self.wanted = wanted
        self.end = asyncio.Event()
        self._connection = connection

    def send(self, method: str, params: dict[str, Any]) -> None:
        """Every message of a stream carries its id (digest S24)."""
        meta = {**params.get("_meta", {}), SUBSCRIPTION_ID_KEY: self.id}
        self._connection.notify(method, {**params, "_meta": meta})


class Session:
    """The server's side of one connection: log level, subscriptions, open streams."""

    def __init__(self, server: "Server", connection: Link) -> None:
        self.server = server
        self.connection = connection
        self.principal: str | None = None  # who the transport says the client is
        self.log_level = _DEFAULT_LEVEL
        self.subscriptions: set[str] = set()
        self.streams: dict[Id, Stream] = {}
        self._ended = False
        self.notes: dict[Any, Any] = {}  # a place for middleware and extensions
        self.list_changed: frozenset[str] = frozenset()  # what initialize promised
        self.logs = False  # and whether it promised log messages
        connection.at_end(self.end_streams)

    def open_stream(self, stream: Stream) -> None:
        self.streams[stream.id] = stream
        if self._ended:
            stream.end.set()

    def end_streams(self) -> None:
        self._ended = True
        for stream in self.streams.values():
            stream.end.set()

    def promise(self, capabilities: ServerCapabilities) -> None:
        """Remember what initialize declared: only that may be announced (digest S12)."""
        kinds = [kind for kind in LISTS if getattr(capabilities, kind) is not UNSET]
        self.list_changed = frozenset(kinds)
        self.logs = capabilities.logging is not UNSET

    @property
    def ready(self) -> bool:
        """Whether the client of a handshake may be told things (002: not before initialized)."""
        return self.connection.peer.phase is state.READY

    @property
    def client(self) -> Implementation | None:
        """Who has connected, by the handshake. For display and logs only."""
        return self.connection.peer.client_info

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Send the client a notification of your own; any thread may call it."""
        self.connection.on_loop(self.connection.notify, method, params)

    async def ask(
        self,
        question: "Question[Any]",
        *,
        meta: dict[str, Any] | None = None,
        as_task: bool = False,
        via: Link | None = None,
    ) -> Any:
        """Ask a client of the handshake era; ClientError if that leads nowhere.

        ``as_task`` lets a client that can run the question as a task of its own
        (2025-11-25), so that neither side holds a request open while a person thinks.
        ``via`` is the way of the request that asks: the question belongs there.
        """
        link = via or self.connection
        peer = self.connection.peer
        capabilities = peer.client_capabilities
        if not self.ready or peer.revision is None or capabilities is None:
            raise ClientError("The client has not finished its handshake")
        if not question.declared_by(capabilities, peer.revision):
            names = capability_names(question.needs())
            raise ClientError(f"The client does not support {names}")
        params = question.params(peer.revision) | ({"_meta": meta} if meta else {})
        from dovetail.server.forms import BadAnswer

        try:
            if as_task and _runs_tasks(capabilities, question.method):
                return question.parse(await self._ask_task(question.method, params, link))
            raw = await link.request(question.method, params or UNSET)
            return question.parse(raw)
        except McpError as error:
            raise ClientError(f"The client refused: {error.message}", error.code) from error
        except (RemoteProtocolError, BadAnswer) as error:
            raise ClientError(f"The client's answer makes no sense: {error}") from error

    async def _ask_task(self, method: str, params: dict[str, Any], link: Link) -> Raw:
        """The question as a task: the client answers with a handle, then with the result."""
        raw = await link.request(method, {**params, "task": {}})
        try:
            task_id = msgspec.json.decode(raw, type=CreateTaskResult).task.task_id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return raw  # it chose to answer at once
        try:
            return await link.request("tasks/result", {"taskId": task_id})
        except asyncio.CancelledError:
            self.connection.spawn(self._cancel_task(task_id), "tasks/cancel")
            raise

    async def _cancel_task(self, task_id: str) -> None:
        """A task is not cancelled by a notification (digest X25). Nobody needs the answer."""
        with suppress(McpError, RemoteProtocolError, ConnectionClosed, TimeoutError):
            async with asyncio.timeout(self.connection.limits.stop_seconds):
                await self.connection.request("tasks/cancel", {"taskId": task_id})

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """A log message that belongs to no request: for clients of the handshake only."""
        if not self.logs:
            return
        if LEVELS.index(level) >= LEVELS.index(self.log_level):
            params = {"level": level, "data": data}
            self.notify("notifications/message", params | ({"logger": logger} if logger else {}))

    def list_has_changed(self, kind: str) -> None:
        """Tell those entitled to it that the list of ``kind`` is another one now."""
        method = f"notifications/{kind}/list_changed"
        if self.ready and kind in self.list_changed:
            self.connection.notify(method)
        for stream in self.streams.values():
            if getattr(stream.wanted, f"{kind}_list_changed") is True:
                stream.send(method, {})

    def task_changed(self, task_id: str, params: dict[str, Any]) -> None:
        """Tell the streams that watch a task (extension of 2026) how it is now."""
        for stream in self.streams.values():
            if stream.wanted.task_ids and task_id in stream.wanted.task_ids:
                stream.send("notifications/tasks", params)

    def resource_updated(self, uri: str) -> None:
        method = "notifications/resources/updated"
        if self.ready and uri in self.subscriptions:
            self.connection.notify(method, {"uri": uri})
        for stream in self.streams.values():
            if stream.wanted.resource_subscriptions and uri in stream.wanted.resource_subscriptions:
                stream.send(method, {"uri": uri})

    def kept(self) -> dict[str, Any]:
        """What another node needs to go on with this client."""
        return {
            "log_level": self.log_level,
            "logs": self.logs,
            "list_changed": sorted(self.list_changed),
            "subscriptions": sorted(self.subscriptions),
        }

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on where another node has left."""
        self.log_level = kept["log_level"]
        self.logs = kept["logs"]
        self.list_changed = frozenset(kept["list_changed"])
        self.subscriptions = set(kept["subscriptions"])

    def all_may_have_changed(self) -> None:
        """News may have been lost: a list that is read once too often does no harm."""
        for kind in LISTS if self.server.policy.list_changed else ():
            self.list_has_changed(kind)
        for uri in self.watched():
            self.resource_updated(uri)

    def watched(self) -> set[str]:
        """The resources whose changes this client wants to hear of."""
        wanted = [stream.wanted.resource_subscriptions for stream in self.streams.values()]
        return self.subscriptions.union(*(uris for uris in wanted if uris))

    def watched_tasks(self) -> set[str]:
        """The tasks of which its streams want to hear."""
        wanted = [stream.wanted.task_ids for stream in self.streams.values()]
        return set().union(*(ids for ids in wanted if ids))


def capability_names(needed: dict[str, Any]) -> str:
    """``elicitation.url, sampling``: for people, not for the wire."""
    return ", ".join(".".join([name, *settings]) for name, settings in needed.items())


def _runs_tasks(capabilities: ClientCapabilities, method: str) -> bool:
    """Whether the client declared that it runs ``method`` as a task (digest 7.1)."""
    declared: Any = {} if capabilities.tasks is UNSET else capabilities.tasks
    for key in ("requests", *method.split("/")):
        declared = declared.get(key) if isinstance(declared, dict) else None
    return declared is not None
