"""One HTTP exchange, without I/O: headers and body in, what to do with them out.

Which era a POST belongs to is decided by its body, then by its headers
(digest 8.6): a request with the envelope of 2026-07-28 is served by those rules,
one without it under a header that names them is refused by those rules, and
everything else belongs to the handshake.

A refusal is a `RemoteProtocolError`; `status` tells its HTTP status.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dovetail.core.peer import (
    Notification,
    Request,
    bad_envelope,
    bad_request,
    names_envelope,
    params_error,
    unknown_method,
)
from dovetail.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    McpError,
    RemoteProtocolError,
)
from dovetail.spec.headers import NAMED_BY, BadHeader, Mirror, decode_value, same_value
from dovetail.spec.meta import PROTOCOL_VERSION_KEY, RequestMeta
from dovetail.spec.methods import decode_meta, decode_params
from dovetail.spec.revisions import BY_ID, MODERN
from dovetail.wire.jsonrpc import BROKEN_JSON, Envelope, Id, decode, split_batch

__all__ = [
    "Handshake",
    "Headers",
    "Intake",
    "answer_status",
    "one_of_each",
    "status",
]

# Names in lower case, as ASGI has them.
Headers = Mapping[bytes, bytes]
# The marked arguments of a tool, by the tool's name.
Mirrors = Mapping[str, tuple[Mirror, ...]]

VERSION, METHOD, NAME = b"mcp-protocol-version", b"mcp-method", b"mcp-name"
_MODERN = MODERN.id.encode()

# Two of these would leave it to chance which of them a proxy and we look at.
_SINGLE = frozenset(
    {
        b"host",
        b"origin",
        b"authorization",
        b"content-type",
        b"content-length",
        b"mcp-session-id",
        b"last-event-id",
        VERSION,
        METHOD,
        NAME,
    }
)

_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    METHOD_NOT_FOUND: 404,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}


class Handshake(Struct, frozen=True):
    """A message of 2025-03-26 to 2025-11-25, for a session to receive.

    ``envelope`` and ``params`` are there if it is a request that could be read; in all
    other cases the session's peer reads the body itself, and says what is wrong with it.
    """

    body: bytes
    envelope: Envelope | None = None
    params: Any = None

    def without_oldest(self) -> None:
        """2024-11-05 is not spoken here: offer such a client our newest instead (digest S2)."""
        if self.params is not None:
            wanted = BY_ID.get(self.params.protocol_version)
            if wanted is not None and not wanted.http:
                self.params.protocol_version = ""

    @property
    def id(self) -> Id | None:
        """That of its request, if it is one that could be read."""
        id = None if self.envelope is None else self.envelope.id
        return id if isinstance(id, int | str) else None

    @property
    def opens(self) -> bool:
        """Whether this is the request that makes a session."""
        return self.envelope is not None and self.envelope.method == "initialize"


def status(code: int) -> int:
    """The status of an error that is found before a handler runs (digest 9)."""
    return _STATUS.get(code, 500)


def answer_status(code: int) -> int:
    """That of an error a handler answers with: it has been served, save in one case (S6)."""
    return 400 if code == MISSING_CLIENT_CAPABILITY else 200


def one_of_each(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers by name, where a name occurs more than once; lists are joined."""
    found: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name not in found:
            found[name] = value
        elif name in _SINGLE or name.startswith(b"mcp-param-"):
            raise _refused(INVALID_REQUEST, f"The header {name.decode('latin-1')} is there twice")
        else:
            found[name] += b", " + value
    return found


class Intake:
    """Reads the POSTs of one server."""

    def __init__(self, methods: Mapping[str, Any] | None, mirrors: Mirrors, max_depth: int) -> None:
        """``methods`` is the table of 2026-07-28, None where it is not served."""
        self._methods = methods
        self._mirrors = mirrors
        self._max_depth = max_depth

    def post(self, headers: Headers, body: bytes) -> Request | Notification | Handshake | None:
        """What a body is. None: a notification of 2026-07-28 that says nothing to us."""
        try:
            envelope = decode(body, self._max_depth)
        except RemoteProtocolError as error:
            return self._unreadable(headers, body, error)
        method = envelope.method
        id: Any = envelope.id
        if isinstance(method, UnsetType) or id is UNSET:
            return self._no_request(headers, body, envelope)
        if id is None or envelope.result is not UNSET or envelope.error is not UNSET:
            raise bad_request(envelope)
        raw = envelope.params
        try:
            params = decode_params[method](b"{}" if raw is UNSET else raw)
        except BROKEN_JSON as error:
            return self._bad_params(headers, body, envelope, error)
        meta = params.meta
        if meta is UNSET or not self._is_modern(meta):
            return self._without_envelope(headers, body, envelope, params)
        handler = self._handler(headers, method, meta, params, id)
        if method == "tools/call" and params.name in self._mirrors:
            _check_mirrors(headers, self._mirrors[params.name], params.arguments, id)
        return Request(id, method, params, raw, MODERN, handler, len(body))

    def _is_modern(self, meta: RequestMeta) -> bool:
        return self._methods is not None and (
            meta.protocol_version is not UNSET or meta.client_capabilities is not UNSET
        )

    # -- what is no plain request of 2026-07-28 --------------------------------------------

    def _unreadable(self, headers: Headers, body: bytes, error: RemoteProtocolError) -> Handshake:
        """A batch of 2025-03-26, or nonsense; a session that is named says which."""
        items = split_batch(body) if error.error.code == INVALID_REQUEST else None
        if items is not None and _names_modern(headers):
            raise _refused(INVALID_REQUEST, "Batches are not supported in this revision")
        if items is not None and any(map(_enveloped, items)):
            raise _refused(INVALID_REQUEST, "Requests of 2026-07-28 cannot be batched")
        if items is None and b"mcp-session-id" not in headers:
            raise error
        return Handshake(body)

    def _no_request(
        self, headers: Headers, body: bytes, envelope: Envelope
    ) -> Notification | Handshake | None:
        """Nothing says which headers a notification has (digest 14.1); none are asked for."""
        if self._methods is None or not _names_modern(headers):
            return Handshake(body)
        method = envelope.method
        if isinstance(method, UnsetType):
            raise _refused(INVALID_REQUEST, "A client of 2026-07-28 sends no responses")
        if envelope.result is not UNSET or envelope.error is not UNSET:
            raise _refused(INVALID_REQUEST, "A message with 'method' has no 'result' or 'error'")
        if method == "notifications/cancelled":
            return None  # over HTTP, whoever cancels hangs up (digest 8.13)
        return Notification(method, envelope.params)

    def _without_envelope(
        self, headers: Headers, body: bytes, envelope: Envelope, params: Any
    ) -> Handshake:
        if self._methods is not None and _names_modern(headers):
            id: Any = envelope.id
            raise bad_envelope(RequestMeta(), id)
        return Handshake(body, envelope, params)

    def _bad_params(
        self, headers: Headers, body: bytes, envelope: Envelope, error: Exception
    ) -> Handshake:
        """Params that do not decode: everything that ranks before them is checked first."""
        raw: Any = envelope.params
        id: Any = envelope.id
        method: Any = envelope.method
        fault = RemoteProtocolError(params_error(raw, error), id)
        try:
            meta = UNSET if raw is UNSET else decode_meta(raw).meta
        except BROKEN_JSON:
            if self._methods is not None and (names_envelope(raw) or _names_modern(headers)):
                raise fault from None
            return Handshake(body)
        if meta is UNSET or not self._is_modern(meta):
            return self._without_envelope(headers, body, envelope, None)
        self._handler(headers, method, meta, None, id)
        raise fault

    # -- the checks of 2026-07-28, in the order of digest 8.6 -----------------------------

    def _handler(
        self, headers: Headers, method: str, meta: RequestMeta, params: Any, id: Id
    ) -> Any:
        """The handler of a request, if envelope, headers, version and method are right.

        ``params`` is None if they could not be read: they rank behind all of these.
        """
        version: Any = meta.protocol_version
        if version is UNSET or meta.client_capabilities is UNSET:
            raise bad_envelope(meta, id)
        if headers.get(VERSION) != version.encode():
            _check_literal(headers, VERSION, version, id)
        if headers.get(METHOD) != method.encode():
            _check_literal(headers, METHOD, method, id)
        if params is not None and method in NAMED_BY:
            name = getattr(params, NAMED_BY[method])
            given = headers.get(NAME)
            if given is None or given != name.encode() or given[:2] == b"=?" or not given.isascii():
                _check_encoded(headers, NAME, lambda decoded: decoded == name, id)
        if version != MODERN.id:
            raise bad_envelope(meta, id)
        handler = self._methods.get(method)  # type: ignore[union-attr]
        if handler is None:
            raise unknown_method(method, id)
        return handler


def _names_modern(headers: Headers) -> bool:
    return headers.get(VERSION, b"").strip(b" \t") == _MODERN


def _check_literal(headers: Headers, name: bytes, wanted: str, id: Id) -> None:
    """White space around a value is not part of it; some servers leave it there."""
    given = headers.get(name)
    if given is None:
        raise _mismatch(name, "is missing", id)
    if given.strip(b" \t") != wanted.encode():
        raise _mismatch(name, "differs from the body", id)


def _check_encoded(headers: Headers, name: bytes, fits: Callable[[str], bool], id: Id) -> None:
    given = headers.get(name)
    if given is None:
        raise _mismatch(name, "is missing", id)
    try:
        decoded = decode_value(given)
    except BadHeader as error:
        raise _mismatch(name, str(error), id) from None
    if not fits(decoded):
        raise _mismatch(name, "differs from the body", id)


def _check_mirrors(
    headers: Headers, mirrors: tuple[Mirror, ...], raw: Raw | UnsetType, id: Id
) -> None:
    """Each marked argument and its header say the same, or neither is there (digest S63)."""
    try:
        arguments = {} if raw is UNSET else msgspec.json.decode(raw)
    except BROKEN_JSON:
        return  # the handler will say so
    for mirror in mirrors:
        value = _argument(arguments, mirror.path)
        name = mirror.header.encode()
        if value is not None:
            _check_encoded(headers, name, lambda d, v=value: same_value(d, v), id)  # type: ignore[misc]
        elif name in headers:
            raise _mismatch(name, "is there, but not the argument", id)


def _argument(arguments: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        arguments = arguments.get(key) if isinstance(arguments, dict) else None
    return arguments


def _enveloped(item: bytes) -> bool:
    try:
        return PROTOCOL_VERSION_KEY in msgspec.json.decode(item)["params"]["_meta"]
    except (*BROKEN_JSON, TypeError, KeyError):
        return False


def _mismatch(name: bytes, text: str, id: Id) -> RemoteProtocolError:
    shown = name.decode("latin-1").title().replace("Mcp-Protocol", "MCP-Protocol")
    return RemoteProtocolError(McpError(HEADER_MISMATCH, data=f"{shown} {text}"), id)


def _refused(code: int, text: str) -> RemoteProtocolError:
    return RemoteProtocolError(McpError(code, data=text))
