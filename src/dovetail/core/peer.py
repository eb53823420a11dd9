"""One side of a connection, without I/O: frames in, events and frames out.

A ``Peer`` knows which messages are legal now, which requests are under way in
either direction, and how to answer what is wrong. It owns no socket, no clock
and no task; the driver above it feeds it and carries out what it says.

The revision of a request is decided per message (digest 8.6): one whose
``_meta`` carries the envelope of 2026-07-28 is served by those rules whatever
came before on the pipe; any other belongs to the handshake.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dovetail.core import state
from dovetail.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    URL_ELICITATION_REQUIRED,
    LocalProtocolError,
    McpError,
    RemoteProtocolError,
)
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY, RequestMeta
from dovetail.spec.methods import decode_cancelled, decode_meta, decode_params
from dovetail.spec.revisions import MODERN, Revision
from dovetail.spec.types import ClientCapabilities, Implementation
from dovetail.wire.framing import Frame, Oversize
from dovetail.wire.jsonrpc import (
    BROKEN_JSON,
    Envelope,
    ErrorFrame,
    Id,
    NotificationFrame,
    RequestFrame,
    WireError,
    decode,
    encode,
    split_batch,
    too_long,
)

__all__ = [
    "Batch",
    "Cancelled",
    "Event",
    "Notification",
    "Peer",
    "Reply",
    "Request",
    "Response",
    "bad_envelope",
    "bad_request",
    "names_envelope",
    "params_error",
    "unknown_method",
]

Table = Mapping[str, Any]


class Request(Struct, eq=False):
    """A request that may be served. ``handler`` is what the table holds for its method."""

    id: Id
    method: str
    params: Any
    raw: Raw | UnsetType
    revision: Revision
    handler: Any
    size: int = 0  # of the frame, which its raw params keep in memory
    # The driver's: the task that serves it, the batch that waits for its answer, its
    # progress, the answers that came with it, and whether anybody still wants its own.
    task: Any = None
    batch: Any = None
    progress: Any = None
    answers: Any = None
    cancelled: bool = False


class Notification(Struct, frozen=True):
    method: str
    params: Raw | UnsetType


class Cancelled(Struct, frozen=True):
    """The peer does not want the answer any more; it must not be sent (digest S29)."""

    request: Request
    reason: str | None


class Response(Struct, frozen=True):
    """The answer to a request of ours: exactly one of the two is set."""

    id: Id
    result: Raw | None
    error: McpError | RemoteProtocolError | None = None


class Reply(Struct, frozen=True):
    """An error answer to something that cannot be served, ready to be sent."""

    frame: bytes
    code: int = 0


class Batch(Struct, frozen=True):
    """The events of one array; their answers go back as one array (digest 4)."""

    events: list["Event"]


Event = Request | Notification | Cancelled | Response | Reply | Batch


# Explanations may be withheld, but not what the schema of an error requires.
_DATA_REQUIRED = frozenset(
    {MISSING_CLIENT_CAPABILITY, UNSUPPORTED_VERSION, URL_ELICITATION_REQUIRED}
)


class Peer:
    """The protocol state of one connection, for either side of it."""

    def __init__(
        self,
        tables: Mapping[Revision, Table],
        opening: Table,
        *,
        strict_handshake: bool = False,
        batches: bool = True,
        error_detail: bool = True,
        answers_malformed: bool = True,
        max_depth: int = 128,
        max_batch: int = 1000,
    ) -> None:
        """``tables`` holds the methods served per revision, ``opening`` those of all
        handshake revisions together, which is what is known before one is agreed."""
        self._tables = tables
        self._opening = opening
        self._modern = tables.get(MODERN)
        self._lifecycle = state.HANDSHAKE_STRICT if strict_handshake else state.HANDSHAKE
        self._batches = batches
        self._error_detail = error_detail
        self._answers_malformed = answers_malformed
        self._max_depth = max_depth
        self._max_batch = max_batch
        self._last_id = 0
        self._seen_modern = False
        self.phase = state.NEW
        self.revision: Revision | None = None
        self.client_info: Implementation | None = None
        self.client_capabilities: ClientCapabilities | None = None
        self.in_flight: dict[Id, Request] = {}
        self.pending: dict[Id, str] = {}

    # -- receiving ---------------------------------------------------------------

    def receive(self, frame: Frame) -> Event | None:
        """What ``frame`` means now; None when the protocol says to ignore it."""
        try:
            if type(frame) is Oversize:
                raise too_long(frame.prefix, frame.limit)
            envelope = decode(frame, self._max_depth)  # type: ignore[arg-type]
            if envelope.method is UNSET:
                return self._response(envelope)
            if envelope.id is UNSET:
                return self._notification(envelope)
            return self._request(envelope, len(frame))
        except RemoteProtocolError as error:
            return self._refused(error, frame)

    def accept(self, envelope: Envelope, params: Any, size: int) -> Request | Reply:
        """A request whose params were decoded already, to find out whom it is for."""
        try:
            return self._accept(envelope, params, size)
        except RemoteProtocolError as error:
            return Reply(self.error(error.id, error.error), error.error.code)

    def _request(self, envelope: Envelope, size: int) -> Request:
        method: Any = envelope.method
        raw = envelope.params
        if envelope.id is None or envelope.result is not UNSET or envelope.error is not UNSET:
            raise bad_request(envelope)
        try:
            params = decode_params[method](b"{}" if raw is UNSET else raw)
        except BROKEN_JSON as error:
            raise self._bad_params(envelope, error) from None
        return self._accept(envelope, params, size)

    def _accept(self, envelope: Envelope, params: Any, size: int) -> Request:
        id: Any = envelope.id
        method: Any = envelope.method
        raw = envelope.params
        if id in self.in_flight:
            raise _invalid(f"Request id {id!r} is already in use", id)
        meta = params.meta
        if meta is not UNSET and self._is_modern(meta):
            revision = MODERN
            handler = self._modern_handler(method, id, meta)
        else:
            revision = self.revision  # type: ignore[assignment]
            handler = self._handshake_handler(method, id)
        request = Request(id, method, params, raw, revision, handler, size)
        self.in_flight[id] = request
        return request

    def _is_modern(self, meta: RequestMeta) -> bool:
        """One key of the envelope is enough: the missing one is then an error (S5)."""
        return self._modern is not None and (
            meta.protocol_version is not UNSET or meta.client_capabilities is not UNSET
        )

    def _modern_handler(self, method: str, id: Id, meta: RequestMeta) -> Any:
        if meta.protocol_version != MODERN.id or meta.client_capabilities is UNSET:
            raise bad_envelope(meta, id)
        self._seen_modern = True
        handler = self._modern.get(method)  # type: ignore[union-attr]
        if handler is None:
            raise unknown_method(method, id)
        return handler

    def _handshake_handler(self, method: str, id: Id) -> Any:
        """The handler of a request of the handshake era, if its phase allows it."""
        table = self._opening if self.revision is None else self._tables[self.revision]
        handler = table.get(method)
        if handler is None:
            raise self._unknown_in_handshake(method, id)
        step = self._lifecycle[self.phase][state.REQUEST_KINDS.get(method, state.REQUEST)]
        if not step.take:
            raise _invalid(step.refusal or "", id)
        return handler

    def _unknown_in_handshake(self, method: str, id: Id) -> RemoteProtocolError:
        """Help those who speak 2026-07-28 but forgot its envelope (S5)."""
        if self.revision is None and self._modern is not None and method in self._modern:
            return bad_envelope(RequestMeta(), id)
        return unknown_method(method, id)

    def _notification(self, envelope: Envelope) -> Event | None:
        method: Any = envelope.method
        if envelope.result is not UNSET or envelope.error is not UNSET:
            raise bad_request(envelope)
        if method == "notifications/cancelled":
            return self._cancelled(envelope.params)
        kind = state.NOTIFICATION_KINDS.get(method, state.NOTIFICATION)
        step = self._lifecycle[self.phase][kind]
        self.phase = step.then
        # A notification carries no envelope: who speaks 2026-07-28 here is not in a phase.
        stateless = self._seen_modern and kind is state.NOTIFICATION
        return Notification(method, envelope.params) if step.take or stateless else None

    def _cancelled(self, raw: Raw | UnsetType) -> Cancelled | None:
        """Any phase: it belongs to a request, and 2026-07-28 has no phases. A
        request that is unknown or already answered is a race, not a fault (X19)."""
        try:
            params = decode_cancelled(b"{}" if raw is UNSET else raw)
        except BROKEN_JSON:
            return None
        if params.request_id is UNSET:
            return None
        request = self.in_flight.pop(params.request_id, None)
        return Cancelled(request, params.reason or None) if request else None

    def _response(self, envelope: Envelope) -> Response | None:
        id: Any = envelope.id
        error: Any = envelope.error
        result: Any = envelope.result
        has_result = result is not UNSET
        if not has_result and error is UNSET:
            raise _invalid("Missing required field: method", _readable(envelope))
        known = _readable(envelope) is not None and self.pending.pop(id, None) is not None
        if has_result and error is not UNSET:
            fault = _invalid("A response has either 'result' or 'error', not both")
            if known:
                return Response(id, None, fault)
            raise fault
        if not known:
            return None  # late, or never asked for
        if has_result:
            return Response(id, result)
        return Response(id, None, McpError(error.code, error.message, _plain(error.data)))

    # -- refusing ----------------------------------------------------------------

    def _refused(self, error: RemoteProtocolError, frame: Frame) -> Event | None:
        if isinstance(frame, bytes) and error.error.code == INVALID_REQUEST:
            items = split_batch(frame)
            if items is not None:
                return self._batch(items)
        if error.answers is not None and self.pending.pop(error.answers, None) is not None:
            return Response(error.answers, None, error)  # whoever waits must hear of it
        if not self._answers_malformed and error.id is None:
            return None
        return Reply(self.error(error.id, error.error), error.error.code)

    def _batch(self, items: Sequence[bytes]) -> Event:
        """Arrays are received under 2025-03-26 only (decision "batches")."""
        if self.revision is None or not self.revision.batches or not self._batches:
            return self._reply("Batches are not supported in this revision")
        if not items:
            return self._reply("A batch must not be empty")
        if len(items) > self._max_batch:
            return self._reply(f"A batch has at most {self._max_batch} messages")
        return Batch([event for event in map(self._batch_item, items) if event is not None])

    def _batch_item(self, item: bytes) -> Event | None:
        if split_batch(item) is not None:
            return self._reply("A message must be a JSON object")
        event = self.receive(item)
        if isinstance(event, Request) and event.revision.modern:
            self.settle(event)
            return self._reply("Requests of 2026-07-28 cannot be batched", event.id)
        return event

    def _reply(self, text: str, id: Id | None = None) -> Reply:
        return Reply(self.error(id, McpError(INVALID_REQUEST, data=text)), INVALID_REQUEST)

    def _bad_params(self, envelope: Envelope, error: Exception) -> RemoteProtocolError:
        """Refuse params that do not decode, unless the request is refused anyway.

        An unknown method or a wrong phase is the better thing to say, and which
        of them applies depends on the envelope inside the broken params.
        """
        id: Any = envelope.id
        method: Any = envelope.method
        raw = envelope.params
        fault = RemoteProtocolError(params_error(raw, error), id)
        try:
            meta = UNSET if raw is UNSET else decode_meta(raw).meta
        except BROKEN_JSON:
            if self._modern is not None and names_envelope(raw):  # type: ignore[arg-type]
                return fault  # a wrong type in the envelope comes first (digest 8.6)
            meta = UNSET
        try:
            if meta is not UNSET and self._is_modern(meta):
                self._modern_handler(method, id, meta)
            else:
                self._handshake_handler(method, id)
        except RemoteProtocolError as refusal:
            return refusal
        return fault

    # -- sending -----------------------------------------------------------------

    def settle(self, request: Request) -> bool:
        """True once per request: when its answer may be sent. False after a cancel."""
        if self.in_flight.get(request.id) is not request:
            return False
        del self.in_flight[request.id]
        return True

    def error(self, id: Id | None, error: McpError) -> bytes:
        """An error answer; without an id, null or nothing stands for it by revision."""
        wire_id: Id | UnsetType | None = id
        if id is None:
            revision = self.revision or (MODERN if self._seen_modern else None)
            wire_id = None if revision is None or revision.null_error_id else UNSET
        data = UNSET if error.data is None else error.data
        if not self._error_detail and error.code not in _DATA_REQUIRED:
            data = UNSET
        return encode(ErrorFrame(wire_id, WireError(error.code, error.message, data)))

    def request(self, method: str, params: Any = UNSET) -> tuple[Id, bytes]:
        """A request of ours under a fresh id."""
        if self.phase is state.CLOSED:
            raise LocalProtocolError("The connection is closed")
        self._last_id += 1
        frame = encode(RequestFrame(self._last_id, method, params))
        self.pending[self._last_id] = method
        return self._last_id, frame

    def notify(self, method: str, params: Any = UNSET) -> bytes:
        return encode(NotificationFrame(method, params))

    def forget(self, id: Id) -> None:
        """Stop waiting for an answer; if it comes all the same it is dropped."""
        self.pending.pop(id, None)

    # -- lifecycle ---------------------------------------------------------------

    def agree(
        self,
        revision: Revision,
        client_info: Implementation,
        client_capabilities: ClientCapabilities,
    ) -> None:
        """``initialize`` has been answered: from now on this revision holds."""
        step = self._lifecycle[self.phase][state.INITIALIZE]
        if not step.take:
            raise LocalProtocolError(step.refusal)
        self.phase = step.then
        self.revision = revision
        self.client_info = client_info
        self.client_capabilities = client_capabilities

    def resume(
        self,
        revision: Revision,
        client_info: Implementation | None = None,
        client_capabilities: ClientCapabilities | None = None,
        last_id: int = 0,
    ) -> None:
        """The handshake was elsewhere, or there is none: go on as if it were done.

        Ids of requests up to ``last_id`` may have been used there.
        """
        self._last_id = last_id
        self.phase = state.READY
        self.revision = revision
        self.client_info = client_info
        self.client_capabilities = client_capabilities

    def close(self) -> list[Id]:
        """No more messages; the ids of our requests that nobody will answer."""
        self.phase = state.CLOSED
        self._modern = None  # its requests are refused by the table from now on, like all
        waiting = list(self.pending)
        self.pending.clear()
        return waiting


def _invalid(text: str, id: Id | None = None) -> RemoteProtocolError:
    return RemoteProtocolError(McpError(INVALID_REQUEST, data=text), id)


def bad_request(envelope: Envelope) -> RemoteProtocolError:
    if envelope.id is None:
        return _invalid("Field 'id' must be a string or an integer")
    return _invalid("A message with 'method' has no 'result' or 'error'", _readable(envelope))


def _readable(envelope: Envelope) -> Id | None:
    return None if isinstance(envelope.id, UnsetType) else envelope.id


def unknown_method(method: str, id: Id) -> RemoteProtocolError:
    error = McpError(METHOD_NOT_FOUND, data=f"Method '{method}' is not supported")
    return RemoteProtocolError(error, id)


def bad_envelope(meta: RequestMeta, id: Id) -> RemoteProtocolError:
    """Digest 8.6: a missing key (-32602) comes before an unsupported version (-32022)."""
    for key, value in (
        (PROTOCOL_VERSION_KEY, meta.protocol_version),
        (CLIENT_CAPABILITIES_KEY, meta.client_capabilities),
    ):
        if value is UNSET:
            text = f"Missing required _meta field: {key}"
            return RemoteProtocolError(McpError(INVALID_PARAMS, data=text), id)
    data = {"supported": [MODERN.id], "requested": meta.protocol_version}
    return RemoteProtocolError(McpError(UNSUPPORTED_VERSION, data=data), id)


def names_envelope(raw: Raw) -> bool:
    """Whether broken params were meant as a request of 2026-07-28."""
    try:
        meta = msgspec.json.decode(raw)["_meta"]
        return PROTOCOL_VERSION_KEY in meta or CLIENT_CAPABILITIES_KEY in meta
    except (*BROKEN_JSON, TypeError, KeyError):
        return False


def params_error(raw: Raw | UnsetType, error: Exception) -> McpError:
    if raw is not UNSET and not bytes(raw).lstrip().startswith(b"{"):
        return McpError(INVALID_PARAMS, data="params must be an object")
    if isinstance(error, msgspec.ValidationError):
        return McpError(INVALID_PARAMS, data=str(error))
    return McpError(PARSE_ERROR, data="Invalid JSON")


def _plain(data: Any) -> Any:
    return None if data is UNSET else data
