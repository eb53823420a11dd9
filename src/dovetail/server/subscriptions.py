"""Requests by which a client says what it wants to be told: levels, subscriptions, streams."""

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw

from dovetail.core.peer import Request
from dovetail.errors import INTERNAL_ERROR, McpError
from dovetail.runtime.connection import Connection, Handler
from dovetail.server.session import Session, Stream
from dovetail.spec.meta import SUBSCRIPTION_ID_KEY
from dovetail.spec.types import SubscriptionFilter

if TYPE_CHECKING:
    from dovetail.server.app import Server

__all__ = ["subscription_handlers"]

_EMPTY = Raw(b"{}")

# Each holds a place among the requests in flight; a client needs one or two.
MAX_STREAMS = 64


def subscription_handlers(server: "Server") -> dict[str, Handler]:
    """Those that make sense for what the server offers now."""
    handlers: dict[str, Handler] = {}
    if server.may_log:
        handlers["logging/setLevel"] = Handler(_set_level, inline=True)
    if server.resources or server.templates:
        handlers["resources/subscribe"] = Handler(_subscribe, inline=True)
        handlers["resources/unsubscribe"] = Handler(_unsubscribe, inline=True)
    if server.tools or server.prompts or server.resources or server.templates:
        handlers["subscriptions/listen"] = Handler(_listen)
    return handlers


def _set_level(request: Request, connection: Connection) -> Raw:
    connection.session.log_level = request.params.level
    return _EMPTY


def _subscribe(request: Request, connection: Connection) -> Raw:
    """Only what can be read can change."""
    session: Session = connection.session
    session.server.find_resource(request.params.uri)
    session.subscriptions.add(request.params.uri)
    return _EMPTY


def _unsubscribe(request: Request, connection: Connection) -> Raw:
    connection.session.subscriptions.discard(request.params.uri)
    return _EMPTY


def _listen(request: Request, connection: Connection) -> Any:
    session: Session = connection.session
    if len(session.streams) >= MAX_STREAMS:
        text = f"Too many subscriptions: {MAX_STREAMS} are open"
        raise McpError(INTERNAL_ERROR, data=text)
    return _stream(session, request)


async def _stream(session: Session, request: Request) -> dict[str, Any]:
    """Acknowledge before anything else can be said on the stream (digest S22)."""
    wanted = request.params.notifications
    accepted = _accepted(session.server, wanted)
    if wanted.task_ids is not UNSET:
        accepted.task_ids = await session.server.watchable_tasks(request, session)
    stream = Stream(request.id, accepted, session.connection)
    session.streams[request.id] = stream
    stream.send("notifications/subscriptions/acknowledged", {"notifications": accepted})
    return await _until_the_end(session, stream)


def _accepted(server: "Server", wanted: SubscriptionFilter) -> SubscriptionFilter:
    """The part of the wish this server can fulfil; the client sees what is missing."""
    has_resources = bool(server.resources or server.templates)
    announces = server.policy.list_changed
    uris = wanted.resource_subscriptions
    return SubscriptionFilter(
        tools_list_changed=_only(wanted.tools_list_changed, announces and bool(server.tools)),
        prompts_list_changed=_only(wanted.prompts_list_changed, announces and bool(server.prompts)),
        resources_list_changed=_only(wanted.resources_list_changed, announces and has_resources),
        resource_subscriptions=uris if uris and has_resources else UNSET,
    )


def _only(wanted: Any, offered: bool) -> Any:
    return True if wanted is True and offered else UNSET


async def _until_the_end(session: Session, stream: Stream) -> dict[str, Any]:
    """Wait until the input ends; a cancellation ends it without a result (digest 8.9)."""
    end = asyncio.Event()
    session.connection.at_end(end.set)
    try:
        await end.wait()
    finally:
        del session.streams[stream.id]
    return session.server.result_stamps({SUBSCRIPTION_ID_KEY: stream.id})
