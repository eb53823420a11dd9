"""Requests by which a client says what it wants to be told: levels, subscriptions, streams."""

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw

from dovetail.core.peer import Request
from dovetail.errors import INTERNAL_ERROR, McpError
from dovetail.runtime.link import Handler, Link
from dovetail.server.session import Session, Stream
from dovetail.spec.meta import SUBSCRIPTION_ID_KEY
from dovetail.spec.types import SubscriptionFilter

if TYPE_CHECKING:
    from dovetail.server.app import Server

__all__ = ["subscription_handlers"]

_EMPTY = Raw(b"{}")

# Each holds a place among the requests in flight; a client needs one or two.
MAX_STREAMS = 64

# An editor watches its open buffers, hundreds at most.
MAX_SUBSCRIPTIONS = 1024


def subscription_handlers(server: "Server") -> dict[str, Handler]:
    """Those that make sense for what the server offers now."""
    handlers: dict[str, Handler] = {}
    if server.may_log:
        handlers["logging/setLevel"] = Handler(_set_level, inline=True)
    if server.offers("resources"):
        handlers["resources/subscribe"] = Handler(_subscribe, inline=True)
        handlers["resources/unsubscribe"] = Handler(_unsubscribe, inline=True)
    if _has_news(server):
        handlers["subscriptions/listen"] = Handler(_listen)
    return handlers


def _has_news(server: "Server") -> bool:
    """Whether there is anything that a listener could hear of (digest 8.9)."""
    changing = server.policy.list_changed and (server.offers("tools") or server.offers("prompts"))
    return changing or server.offers("resources") or server.tasks is not None


def _set_level(request: Request, connection: Link) -> Raw:
    connection.session.log_level = request.params.level
    return _EMPTY


def _subscribe(request: Request, connection: Link) -> Raw:
    """Only what can be read can change."""
    session: Session = connection.session
    session.server.find_resource(request.params.uri)
    if len(session.subscriptions) >= MAX_SUBSCRIPTIONS:
        text = f"Too many subscriptions: {MAX_SUBSCRIPTIONS} are open"
        raise McpError(INTERNAL_ERROR, data=text)
    session.subscriptions.add(request.params.uri)
    _tell_of(session.server, [request.params.uri])
    return _EMPTY


def _tell_of(server: "Server", uris: list[str]) -> None:
    for listener in server.subscribe_listeners:
        for uri in uris:
            listener(uri)


def _unsubscribe(request: Request, connection: Link) -> Raw:
    connection.session.subscriptions.discard(request.params.uri)
    return _EMPTY


def _listen(request: Request, connection: Link) -> Any:
    return _stream(connection.session, request)


async def _stream(session: Session, request: Request) -> dict[str, Any]:
    """Acknowledge before anything else can be said on the stream (digest S22)."""
    wanted = request.params.notifications
    accepted = _accepted(session.server, wanted)
    if wanted.task_ids is not UNSET:
        accepted.task_ids = await session.server.watchable_tasks(request, session)
    if len(session.streams) >= MAX_STREAMS:
        text = f"Too many subscriptions: {MAX_STREAMS} are open"
        raise McpError(INTERNAL_ERROR, data=text)
    stream = Stream(request.id, accepted, session.connection)
    session.open_stream(stream)
    _tell_of(session.server, accepted.resource_subscriptions or [])
    stream.send("notifications/subscriptions/acknowledged", {"notifications": accepted})
    return await _until_the_end(session, stream)


def _accepted(server: "Server", wanted: SubscriptionFilter) -> SubscriptionFilter:
    """The part of the wish this server can fulfil; the client sees what is missing."""
    has_resources = server.offers("resources")
    announces = server.policy.list_changed
    uris = wanted.resource_subscriptions
    return SubscriptionFilter(
        tools_list_changed=_only(wanted.tools_list_changed, announces and server.offers("tools")),
        prompts_list_changed=_only(
            wanted.prompts_list_changed, announces and server.offers("prompts")
        ),
        resources_list_changed=_only(wanted.resources_list_changed, announces and has_resources),
        resource_subscriptions=uris if uris and has_resources else UNSET,
    )


def _only(wanted: Any, offered: bool) -> Any:
    return True if wanted is True and offered else UNSET


async def _until_the_end(session: Session, stream: Stream) -> dict[str, Any]:
    """Wait until the input ends; a cancellation ends it without a result (digest 8.9)."""
    try:
        await stream.end.wait()
    finally:
        if session.streams.get(stream.id) is stream:  # a new one may have its id by now
            del session.streams[stream.id]
    return session.server.result_stamps({SUBSCRIPTION_ID_KEY: stream.id})
