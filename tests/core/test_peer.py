"""One side of a connection: what each frame means, in every phase and revision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from dovetail.core.peer import (
    Batch,
    Cancelled,
    Event,
    Notification,
    Peer,
    Reply,
    Request,
    Response,
)
from dovetail.core.state import NEW
from dovetail.errors import McpError, RemoteProtocolError
from dovetail.spec import revisions
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from dovetail.spec.revisions import BY_ID
from dovetail.spec.types import ClientCapabilities, Implementation
from dovetail.testing import check_message
from dovetail.wire.framing import Oversize
from support import (
    ALL,
    HANDSHAKE,
    INITIALIZED,
    MODERN,
    asked,
    cancel,
    error,
    frame,
    initialize,
    meta,
    modern,
    notification,
    request,
)

METHODS = (
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/read",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
)
# What 2026-07-28 dropped (digest 8.14).
REMOVED = ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
BATCHES = "2025-03-26"


def make(served: tuple[str, ...] = ALL, **options: Any) -> Peer:
    tables: dict[Any, Any] = {
        BY_ID[id]: {name: name for name in METHODS if name in BY_ID[id].client_requests}
        for id in served
    }
    opening = {
        name: name for revision in tables if not revision.modern for name in tables[revision]
    }
    return Peer(tables, opening, **options)


def agree(peer: Peer, revision: str) -> Peer:
    info = Implementation(name="c", version="1")
    peer.agree(BY_ID[revision], info, ClientCapabilities())
    return peer


def ready(revision: str, **options: Any) -> Peer:
    peer = agree(make(**options), revision)
    peer.receive(INITIALIZED)
    return peer


def modern_seen(peer: Peer) -> Peer:
    event = peer.receive(modern("seen", "server/discover"))
    assert isinstance(event, Request)
    assert peer.settle(event)
    return peer


# Every place a connection can be in: the peer there, the revision that holds, and what stands
# for an id that could not be read (decision "id of an error"): null, or nothing at all.
PLACES: dict[str, tuple[Callable[[], Peer], str | None, Any]] = {
    "new": (make, None, None),
    **{
        f"starting {id}": (
            lambda id=id: agree(make(), id),
            id,
            None if id < "2025-11-25" else ...,
        )
        for id in HANDSHAKE
    },
    **{
        f"ready {id}": (lambda id=id: ready(id), id, None if id < "2025-11-25" else ...)
        for id in HANDSHAKE
    },
    "modern": (lambda: modern_seen(make()), MODERN, ...),
    **{
        f"modern, then ready {id}": (
            lambda id=id: agree(modern_seen(make()), id),
            id,
            None if id < "2025-11-25" else ...,
        )
        for id in HANDSHAKE
    },
    **{
        f"ready {id}, then modern": (
            lambda id=id: modern_seen(ready(id)),
            id,
            None if id < "2025-11-25" else ...,
        )
        for id in HANDSHAKE
    },
}
everywhere = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())


def said(event: Event | None, revision: str | None) -> dict[str, Any]:
    """The error answer, which must be legal in its revision."""
    assert isinstance(event, Reply)
    answer = msgspec.json.decode(event.frame)
    check_message(answer, revision or "2025-11-25", "server", allow_null_id=revision is None)
    return answer


PARSE = (-32700, "Parse error")
INVALID = (-32600, "Invalid Request")
OBJECT = "A message must be a JSON object"
BAD_ID = "Field 'id' must be a string or an integer"
NO_METHOD = "Missing required field: method"
WITH_METHOD = "A message with 'method' has no 'result' or 'error'"
BOTH = "A response has either 'result' or 'error', not both"
UNREAD = object()

# name -> frame, code and message, data, id (UNREAD: null or left out)
MALFORMED: dict[str, tuple[Any, tuple[int, str], str, Any]] = {
    "bad json": (b'{"jsonrpc":"2.0","id":1,"method":"ping"', PARSE, "Invalid JSON", UNREAD),
    "no json": (b"hello", PARSE, "Invalid JSON", UNREAD),
    "bad utf-8": (
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        PARSE,
        "Invalid UTF-8",
        UNREAD,
    ),
    "bad utf-8 in params": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xff"}}',
        PARSE,
        "Invalid UTF-8",
        UNREAD,
    ),
    "bad utf-8 in an unknown member": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","zzz":"\xff"}',
        PARSE,
        "Invalid UTF-8",
        UNREAD,
    ),
    "NaN": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
        PARSE,
        "Invalid JSON",
        UNREAD,
    ),
    "lone surrogate": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\\ud800"}}',
        PARSE,
        "Invalid JSON",
        UNREAD,
    ),
    "number": (b"5", INVALID, OBJECT, UNREAD),
    "text": (b'"ping"', INVALID, OBJECT, UNREAD),
    "null": (b"null", INVALID, OBJECT, UNREAD),
    "no jsonrpc": (
        b'{"id":1,"method":"ping"}',
        INVALID,
        "Missing required field: jsonrpc",
        1,
    ),
    "the example of 001": (
        b'{"not-jsonrpc":"2.0","method":"initialize"}',
        INVALID,
        "Missing required field: jsonrpc",
        UNREAD,
    ),
    "wrong jsonrpc": (
        b'{"jsonrpc":"1.0","id":"a","method":"ping"}',
        INVALID,
        "Field 'jsonrpc' must be \"2.0\"",
        "a",
    ),
    "jsonrpc is a number": (
        b'{"jsonrpc":2.0,"id":"a","method":"ping"}',
        INVALID,
        "Field 'jsonrpc' must be \"2.0\"",
        "a",
    ),
    "no method": (b'{"jsonrpc":"2.0","id":1}', INVALID, NO_METHOD, 1),
    "no method, id 0": (b'{"jsonrpc":"2.0","id":0}', INVALID, NO_METHOD, 0),
    "no method, empty id": (b'{"jsonrpc":"2.0","id":"","params":{}}', INVALID, NO_METHOD, ""),
    "nothing but jsonrpc": (b'{"jsonrpc":"2.0"}', INVALID, NO_METHOD, UNREAD),
    "no method and a null id": (b'{"jsonrpc":"2.0","id":null}', INVALID, NO_METHOD, UNREAD),
    "method is a number": (
        b'{"jsonrpc":"2.0","id":1,"method":1}',
        INVALID,
        "Field 'method' must be a string",
        1,
    ),
    "id null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID, BAD_ID, UNREAD),
    "id null, modern": (modern(None, "server/discover"), INVALID, BAD_ID, UNREAD),
    "id true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID, BAD_ID, UNREAD),
    "id 1.5": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', INVALID, BAD_ID, UNREAD),
    "id 1.0": (b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}', INVALID, BAD_ID, UNREAD),
    "id list": (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', INVALID, BAD_ID, UNREAD),
    "id 1.5, modern": (modern(1.5, "server/discover"), INVALID, BAD_ID, UNREAD),
    "result and error": (
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}',
        INVALID,
        BOTH,
        UNREAD,
    ),
    "method and result": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}',
        INVALID,
        WITH_METHOD,
        1,
    ),
    "method and error": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","error":{"code":1,"message":"m"}}',
        INVALID,
        WITH_METHOD,
        1,
    ),
    "notification with a result": (
        b'{"jsonrpc":"2.0","method":"notifications/initialized","result":{}}',
        INVALID,
        WITH_METHOD,
        UNREAD,
    ),
    "bad error": (
        b'{"jsonrpc":"2.0","id":1,"error":"x"}',
        INVALID,
        "Field 'error' must be an object with 'code' and 'message'",
        UNREAD,
    ),
    "oversize": (
        Oversize(b'{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{', 9),
        INVALID,
        "Message longer than 9 bytes",
        "big",
    ),
    "oversize, id not found": (
        Oversize(b'{"jsonrpc":"2.0","params":{"id":1', 9),
        INVALID,
        "Message longer than 9 bytes",
        UNREAD,
    ),
    "oversize, not json": (Oversize(b"x" * 9, 9), INVALID, "Message longer than 9 bytes", UNREAD),
    "over-deep": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 130 + b"1" + b"}" * 131,
        INVALID,
        "Nesting deeper than 128 levels",
        1,
    ),
    "over-deep for the parser": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 90_000,
        PARSE,
        "Nesting too deep",
        UNREAD,
    ),
}


@pytest.mark.verifies("E-bad-json", "E-bad-utf8", "E-nan", "E-lone-surrogate", "E-not-object")
@pytest.mark.verifies("E-jsonrpc-missing", "E-jsonrpc-wrong", "E-method-missing", "E-method-wrong")
@pytest.mark.verifies("E-id-null", "E-id-true", "E-id-float", "E-result-and-error", "E-oversize")
@pytest.mark.verifies("E-overdeep", "D-error-id", "D-null-id", "D-error-data", "R000-13", "R001-9")
@pytest.mark.verifies("R001-6", "R001-7", "X2", "X5", "R002-3", "INV-002")
@pytest.mark.parametrize("case", MALFORMED.values(), ids=MALFORMED.keys())
@everywhere
def test_malformed_frames(place: Any, case: Any) -> None:
    build, revision, no_id = place
    sent, (code, message), data, id = case
    peer = build()
    before = (peer.phase, peer.revision, dict(peer.in_flight))
    answer = said(peer.receive(sent), revision)
    assert answer == error(no_id if id is UNREAD else id, code, message, data)
    assert (peer.phase, peer.revision, dict(peer.in_flight)) == before


@pytest.mark.verifies("E-params-list", "E-params-string")
@pytest.mark.parametrize("params", [b"[]", b"[1,2]", b'"x"', b"5", b"true", b"null", b"1.5"])
@pytest.mark.parametrize("revision", HANDSHAKE)
def test_params_that_are_no_object(revision: str, params: bytes) -> None:
    sent = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params": ' + params + b" }"
    answer = said(ready(revision).receive(sent), revision)
    assert answer == error(1, -32602, "Invalid params", "params must be an object")


@pytest.mark.verifies("E-params-list", "E-params-string", "D-before-initialize")
@pytest.mark.parametrize("params", [b"[]", b'"x"'])
@pytest.mark.parametrize(
    ("method", "code"), [(b"tools/list", -32600), (b"no/such", -32601), (b"ping", -32602)]
)
def test_the_better_reason_wins_over_bad_params(method: bytes, code: int, params: bytes) -> None:
    """Before the handshake: an unknown method or the wrong time says more."""
    sent = b'{"jsonrpc":"2.0","id":1,"method":"' + method + b'","params":' + params + b"}"
    assert said(make().receive(sent), None)["error"]["code"] == code


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "Object missing required field `name`"),
        ({"name": 5}, "Expected `str`, got `int` - at `$.name`"),
        ({"name": "x", "_meta": 5}, "Expected `object`, got `int` - at `$._meta`"),
    ],
)
def test_params_of_the_wrong_shape(params: Any, text: str) -> None:
    answer = said(ready("2025-06-18").receive(request(1, "tools/call", params)), "2025-06-18")
    assert answer == error(1, -32602, "Invalid params", text)


@pytest.mark.verifies("D-unknown-members")
@pytest.mark.parametrize("revision", ALL)
def test_unknown_members_of_params_are_ignored(revision: str) -> None:
    peer = make() if revision == MODERN else ready(revision)
    event = peer.receive(asked(revision, 1, "tools/list", {"zzz": [1, {"id": 5}]}))
    assert isinstance(event, Request)
    assert event.revision is BY_ID[revision]


@pytest.mark.verifies("E-unknown-method", "R001-8", "R001-10", "D-error-data", "X5")
@everywhere
def test_an_unknown_method(place: Any) -> None:
    build, revision, _ = place
    answer = said(build().receive(request(1, "unknown-method")), revision)
    text = "Method 'unknown-method' is not supported"
    assert answer == error(1, -32601, "Method not found", text)


@pytest.mark.verifies("D-before-initialize", "R000-9")
def test_before_initialize() -> None:
    peer = make()
    assert isinstance(peer.receive(request(1, "ping")), Request)
    first = "The first request must be 'initialize'"
    answer = said(peer.receive(request(2, "tools/list")), None)
    assert answer == error(2, -32600, "Invalid Request", first)
    assert said(peer.receive(request(3, "no/such")), None)["error"]["code"] == -32601


# -- ids -----------------------------------------------------------------------------


@pytest.mark.verifies("X2", "X5", "R002-3")
@pytest.mark.parametrize("id", [0, "", -1, "0", 2**64, "a b\n"])
@everywhere
def test_every_id_is_an_id(place: Any, id: Any) -> None:
    build, revision, _ = place
    peer = build()
    sent = asked(MODERN if revision is None else revision, id, "tools/list")
    event = peer.receive(sent)
    assert isinstance(event, Request)
    assert event.id == id
    assert peer.in_flight == {id: event}
    repeated = said(peer.receive(sent), revision or MODERN)
    text = f"Request id {id!r} is already in use"
    assert repeated == error(id, -32600, "Invalid Request", text)
    assert type(repeated["id"]) is type(id)
    cancelled = peer.receive(cancel(id, "why"))
    assert isinstance(cancelled, Cancelled)
    assert cancelled == Cancelled(event, "why")
    assert not peer.in_flight


@pytest.mark.verifies("E-duplicate-id", "R002-3")
@everywhere
def test_an_id_in_use(place: Any) -> None:
    build, revision, _ = place
    served = MODERN if revision is None else revision
    peer = build()
    first = peer.receive(asked(served, 1, "tools/list"))
    assert isinstance(first, Request)
    for again in (asked(served, 1, "tools/list"), modern(1, "server/discover"), request(1, "x")):
        assert said(peer.receive(again), revision or MODERN)["error"]["code"] == -32600
    assert isinstance(peer.receive(asked(served, "1", "tools/list")), Request)
    assert peer.settle(first)  # the first is answered all the same
    assert isinstance(peer.receive(asked(served, 1, "tools/list")), Request)


@pytest.mark.verifies("INV-001", "F-cancel", "S29")
@pytest.mark.parametrize("revision", ALL)
def test_a_request_is_settled_once(revision: str) -> None:
    peer = make() if revision == MODERN else ready(revision)
    sent = asked(revision, 1, "tools/list")
    answered, cancelled, again = peer.receive(sent), None, None
    assert isinstance(answered, Request)
    assert peer.settle(answered)
    assert not peer.settle(answered)
    cancelled = peer.receive(sent)
    assert isinstance(cancelled, Request)
    peer.receive(cancel(1))
    again = peer.receive(sent)  # the id is free again, and the old request stays dead
    assert isinstance(again, Request)
    assert not peer.settle(cancelled)
    assert peer.settle(again)


# -- notifications -------------------------------------------------------------------

QUIET = {
    "unknown": notification("notifications/no-such"),
    "no prefix": notification("whatever"),
    "a request without id": notification("tools/list"),
    "initialize without id": notification("initialize", {"protocolVersion": "2025-06-18"}),
    "params list": notification("notifications/progress", [1]),
    "params text": notification("notifications/progress", "x"),
    "params null": b'{"jsonrpc":"2.0","method":"notifications/progress","params":null}',
    "cancelled without params": notification("notifications/cancelled"),
    "cancelled without id": notification("notifications/cancelled", {}),
    "cancelled with a list": notification("notifications/cancelled", [1]),
    "cancelled with a bad id": notification("notifications/cancelled", {"requestId": 1.5}),
    "cancelled with a null id": notification("notifications/cancelled", {"requestId": None}),
    "cancelled with a bad reason": notification(
        "notifications/cancelled", {"requestId": 1, "reason": 5}
    ),
    "cancelled for nobody": cancel("nobody"),
    "initialized with params": notification("notifications/initialized", [1]),
}


@pytest.mark.verifies("E-unknown-notification", "X10", "X19", "R001-2", "INV-001")
@pytest.mark.parametrize("sent", QUIET.values(), ids=QUIET.keys())
@everywhere
def test_notifications_are_met_with_silence(place: Any, sent: bytes) -> None:
    build, revision, _ = place
    peer = build()
    running = peer.receive(asked(revision or MODERN, 1, "tools/list"))
    assert isinstance(running, Request)
    event = peer.receive(sent)
    assert event is None or isinstance(event, Notification)
    assert peer.in_flight == {1: running}


@pytest.mark.verifies("X19", "F-cancel")
@everywhere
def test_cancelling_what_was_answered_does_nothing(place: Any) -> None:
    build, revision, _ = place
    peer = build()
    event = peer.receive(asked(revision or MODERN, 1, "tools/list"))
    assert isinstance(event, Request)
    assert peer.settle(event)
    assert peer.receive(cancel(1)) is None


def test_a_cancellation_without_a_reason() -> None:
    peer = ready("2025-11-25")
    event = peer.receive(request(1, "tools/list"))
    sent = notification("notifications/cancelled", {"requestId": 1})
    assert peer.receive(sent) == Cancelled(event, None)


# -- the envelope of 2026-07-28 ------------------------------------------------------


def enveloped(method: str, envelope: Any, **params: Any) -> bytes:
    return request(1, method, {**params, "_meta": envelope})


NO_VERSION = {CLIENT_CAPABILITIES_KEY: {}}
NO_CAPABILITIES = {PROTOCOL_VERSION_KEY: MODERN}
OLD_NO_CAPABILITIES = {PROTOCOL_VERSION_KEY: "1999-01-01"}
VERSION_MISSING = f"Missing required _meta field: {PROTOCOL_VERSION_KEY}"
CAPABILITIES_MISSING = f"Missing required _meta field: {CLIENT_CAPABILITIES_KEY}"


def unsupported(requested: str) -> dict[str, Any]:
    return {"supported": [MODERN], "requested": requested}


# Of several faults the first in this order counts: a key that is missing or of the wrong type,
# the version, the method, the params (digest 8.6).
ENVELOPES: dict[str, tuple[bytes, int, Any]] = {
    "no version": (enveloped("tools/list", NO_VERSION), -32602, VERSION_MISSING),
    "no capabilities": (enveloped("tools/list", NO_CAPABILITIES), -32602, CAPABILITIES_MISSING),
    "no capabilities, old version": (
        enveloped("tools/list", OLD_NO_CAPABILITIES),
        -32602,
        CAPABILITIES_MISSING,
    ),
    "no capabilities, old version, unknown method": (
        enveloped("no/such", OLD_NO_CAPABILITIES),
        -32602,
        CAPABILITIES_MISSING,
    ),
    "no version, unknown method": (enveloped("no/such", NO_VERSION), -32602, VERSION_MISSING),
    "no version, removed method": (enveloped("ping", NO_VERSION), -32602, VERSION_MISSING),
    "version of the wrong type": (
        enveloped("tools/list", {**meta(), PROTOCOL_VERSION_KEY: 5}),
        -32602,
        None,
    ),
    "capabilities of the wrong type, old version": (
        enveloped("tools/list", {**OLD_NO_CAPABILITIES, CLIENT_CAPABILITIES_KEY: []}),
        -32602,
        None,
    ),
    "capabilities of the wrong type, unknown method": (
        enveloped("no/such", {**meta(), CLIENT_CAPABILITIES_KEY: 5}),
        -32602,
        None,
    ),
    "unknown version": (
        enveloped("tools/list", meta("2099-01-01")),
        -32022,
        unsupported("2099-01-01"),
    ),
    "empty version": (enveloped("tools/list", meta("")), -32022, unsupported("")),
    "unknown version, unknown method": (
        enveloped("no/such", meta("2099-01-01")),
        -32022,
        unsupported("2099-01-01"),
    ),
    "unknown version, removed method": (
        enveloped("initialize", meta("2099-01-01")),
        -32022,
        unsupported("2099-01-01"),
    ),
    "unknown version, bad params": (
        enveloped("tools/call", meta("2099-01-01"), name=5),
        -32022,
        unsupported("2099-01-01"),
    ),
    "unknown method": (
        enveloped("no/such", meta()),
        -32601,
        "Method 'no/such' is not supported",
    ),
    "bad params": (
        enveloped("tools/call", meta(), name=5),
        -32602,
        "Expected `str`, got `int` - at `$.name`",
    ),
}


@pytest.mark.verifies("F-check-order", "S4", "S5", "D-modern-no-gate", "X31")
@pytest.mark.parametrize("case", ENVELOPES.values(), ids=ENVELOPES.keys())
@everywhere
def test_faults_of_the_envelope(place: Any, case: Any) -> None:
    build, _, _ = place
    sent, code, data = case
    peer = build()
    phase = peer.phase
    answer = said(peer.receive(sent), MODERN)
    assert answer["id"] == 1
    assert answer["error"]["code"] == code
    if data is not None:  # else it is the words of the parser
        assert answer["error"]["data"] == data
    assert peer.phase is phase
    assert 1 not in peer.in_flight


@pytest.mark.verifies("E-legacy-in-meta", "S4")
@pytest.mark.parametrize("version", HANDSHAKE)
@everywhere
def test_a_revision_of_the_handshake_in_the_envelope(place: Any, version: str) -> None:
    answer = said(place[0]().receive(enveloped("tools/list", meta(version))), MODERN)
    text = "Unsupported protocol version"
    assert answer == error(1, -32022, text, unsupported(version))


@pytest.mark.verifies("E-removed-method", "F-check-order")
@pytest.mark.parametrize("method", REMOVED)
@everywhere
def test_removed_methods(place: Any, method: str) -> None:
    params = {"protocolVersion": MODERN, "capabilities": {}, "uri": "x:y", "level": "info"}
    params["clientInfo"] = {"name": "c", "version": "1"}
    answer = said(place[0]().receive(modern(1, method, params)), MODERN)
    text = f"Method '{method}' is not supported"
    assert answer == error(1, -32601, "Method not found", text)


@pytest.mark.verifies("E-removed-method", "F-check-order")
@pytest.mark.parametrize("method", REMOVED)
@everywhere
def test_removed_methods_with_params_of_nobody(place: Any, method: str) -> None:
    """The method comes before its params, also when those would not be read."""
    answer = said(place[0]().receive(modern(1, method)), MODERN)
    assert answer["error"]["code"] == -32601


@pytest.mark.verifies("F-one-pipe", "S3", "D-modern-no-gate", "D-error-id")
@pytest.mark.parametrize("revision", HANDSHAKE)
def test_discover_then_initialize(revision: str) -> None:
    peer = make()
    probe = peer.receive(modern(1, "server/discover"))
    assert isinstance(probe, Request)
    assert probe.revision.id == MODERN
    assert peer.settle(probe)
    assert peer.phase is NEW
    opened = peer.receive(initialize(revision))
    assert isinstance(opened, Request)
    assert peer.settle(opened)
    agree(peer, revision)
    peer.receive(INITIALIZED)
    old, new = peer.receive(request(2, "tools/list")), peer.receive(modern(3, "tools/list"))
    assert isinstance(old, Request)
    assert isinstance(new, Request)
    assert (old.revision.id, new.revision.id) == (revision, MODERN)


@pytest.mark.verifies("S5")
def test_a_modern_method_without_its_envelope() -> None:
    """Help for who forgot it; once a handshake is done the method is simply unknown."""
    answer = said(make().receive(request(1, "server/discover")), None)
    assert answer == error(1, -32602, "Invalid params", VERSION_MISSING)
    later = said(ready("2025-11-25").receive(request(1, "server/discover")), "2025-11-25")
    assert later["error"]["code"] == -32601


@pytest.mark.verifies("D-revisions", "D-batch-policy")
def test_a_server_without_the_new_era() -> None:
    peer = make(HANDSHAKE)
    answer = said(peer.receive(request(1, "server/discover")), None)
    assert answer["error"]["code"] == -32601
    answer = said(peer.receive(modern(1, "server/discover")), None)
    assert answer["error"]["code"] == -32601
    assert isinstance(peer.receive(enveloped("ping", meta())), Request)  # `_meta` is anybody's


def test_a_server_of_the_new_era_only() -> None:
    peer = make((MODERN,))
    assert isinstance(peer.receive(modern(1, "tools/list")), Request)
    assert said(peer.receive(request(2, "ping")), MODERN)["error"]["code"] == -32601
    answer = said(peer.receive(request(3, "tools/list")), MODERN)
    assert answer == error(3, -32602, "Invalid params", VERSION_MISSING)


@pytest.mark.verifies("S7")
def test_what_a_request_says_of_itself() -> None:
    peer = ready("2025-06-18")
    sent = modern(1, "tools/list", {}, capabilities={"elicitation": {}})
    event = peer.receive(sent)
    assert isinstance(event, Request)
    assert event.params.meta.client_capabilities.elicitation is not UNSET
    second = peer.receive(modern(2, "tools/list"))
    assert isinstance(second, Request)
    assert second.params.meta.client_capabilities.elicitation is UNSET


# -- batches -------------------------------------------------------------------------


def batch(*items: bytes) -> bytes:
    return b"[" + b",".join(items) + b"]"


def events(peer: Peer, *items: bytes) -> list[Any]:
    event = peer.receive(batch(*items))
    assert isinstance(event, Batch)
    return event.events


@pytest.mark.verifies("D-batches")
@pytest.mark.parametrize(
    "items",
    [
        [],
        [request(1, "ping")],
        [INITIALIZED],
        [b"1"],
        [b"[]"],
        [initialize()],
        [modern(1, "tools/list")],
        [request(1, "ping"), request(2, "tools/list")],
    ],
)
@pytest.mark.parametrize("place", [name for name in PLACES if BATCHES not in name])
def test_batches_are_refused_elsewhere(place: str, items: list[bytes]) -> None:
    build, revision, no_id = PLACES[place]
    peer = build()
    text = "Batches are not supported in this revision"
    answer = said(peer.receive(batch(*items)), revision)
    assert answer == error(no_id, -32600, "Invalid Request", text)
    assert not peer.in_flight


@pytest.mark.verifies("D-batch-policy")
def test_batches_can_be_refused_by_policy() -> None:
    answer = said(ready(BATCHES, batches=False).receive(batch(request(1, "ping"))), BATCHES)
    assert answer["error"]["code"] == -32600


@pytest.mark.verifies("X11", "D-batches")
def test_a_mixed_batch() -> None:
    peer = ready(BATCHES)
    found = events(
        peer,
        request(1, "ping"),
        notification("notifications/roots/list_changed"),
        request("a", "no/such"),
        request(1, "tools/list"),
        b"5",
        b'{"jsonrpc":"2.0","id":9}',
        b'{"jsonrpc":"2.0","id":5,"result":{}}',
        notification("notifications/cancelled", {"requestId": "nobody"}),
        request(0, "tools/list"),
    )
    kinds = [type(event).__name__ for event in found]
    assert kinds == ["Request", "Notification", "Reply", "Reply", "Reply", "Reply", "Request"]
    answers = [said(event, BATCHES) for event in found if isinstance(event, Reply)]
    assert [(each["id"], each["error"]["code"]) for each in answers] == [
        ("a", -32601),
        (1, -32600),
        (None, -32600),
        (9, -32600),
    ]
    assert list(peer.in_flight) == [1, 0]


@pytest.mark.verifies("E-empty-batch")
@pytest.mark.parametrize("sent", [b"[]", b" [ ] ", b"[\t]"])
def test_an_empty_batch(sent: bytes) -> None:
    answer = said(ready(BATCHES).receive(sent), BATCHES)
    assert answer == error(None, -32600, "Invalid Request", "A batch must not be empty")


@pytest.mark.verifies("E-empty-batch", "E-not-object")
@pytest.mark.parametrize(
    "item", [b"1", b"null", b'"x"', b"[]", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', b"[[]]"]
)
def test_bad_elements_of_a_batch(item: bytes) -> None:
    found = events(ready(BATCHES), item, request(1, "ping"), item)
    first, served, last = found
    assert isinstance(served, Request)
    for refused in (first, last):
        assert said(refused, BATCHES) == error(None, -32600, "Invalid Request", OBJECT)


@pytest.mark.verifies("X10", "X11")
def test_a_batch_of_notifications() -> None:
    peer = ready(BATCHES)
    found = events(peer, notification("notifications/a"), notification("notifications/b"))
    assert [event.method for event in found] == ["notifications/a", "notifications/b"]
    assert events(peer, cancel(1), INITIALIZED) == []


@pytest.mark.verifies("E-batch-initialize")
def test_initialize_in_a_batch() -> None:
    peer = agree(make(), BATCHES)
    refused, served = events(peer, initialize(BATCHES, id=1), request(2, "ping"))
    answer = said(refused, BATCHES)
    assert answer == error(1, -32600, "Invalid Request", "The connection is already initialized")
    assert isinstance(served, Request)
    new = make()
    refusal = said(new.receive(batch(initialize(BATCHES, id=1))), None)
    assert refusal["error"]["code"] == -32600
    assert new.phase is NEW


@pytest.mark.verifies("D-batches")
def test_a_modern_request_in_a_batch() -> None:
    peer = ready(BATCHES)
    refused, served = events(peer, modern(1, "tools/list"), request(2, "ping"))
    text = "Requests of 2026-07-28 cannot be batched"
    assert said(refused, BATCHES) == error(1, -32600, "Invalid Request", text)
    assert list(peer.in_flight) == [2]
    assert isinstance(served, Request)


@pytest.mark.verifies("F-cancel", "X11")
def test_a_batch_that_cancels_its_own_request() -> None:
    peer = ready(BATCHES)
    first, cancelled, last = events(peer, request(1, "tools/list"), cancel(1), request(1, "ping"))
    assert isinstance(cancelled, Cancelled)
    assert cancelled.request is first
    assert peer.in_flight == {1: last}


@pytest.mark.verifies("E-bad-json")
@pytest.mark.parametrize(
    "sent",
    [b"[1", b"[1,]", b'[{"jsonrpc":"2.0","id":1,"method":"ping"},]', b"[NaN]", b"[" * 9000],
)
def test_an_array_that_is_no_json(sent: bytes) -> None:
    assert said(ready(BATCHES).receive(sent), BATCHES)["error"]["code"] == -32700


@pytest.mark.verifies("E-bad-utf8", "E-lone-surrogate")
@pytest.mark.parametrize("text", [b"\xff", b"\\ud800"])
def test_bad_text_in_one_element(text: bytes) -> None:
    item = b'{"jsonrpc":"2.0","id":1,"method":"ping","zzz":"' + text + b'"}'
    answer = said(ready(BATCHES).receive(batch(request(2, "ping"), item)), BATCHES)
    assert answer["error"]["code"] == -32700


# -- responses, and our own requests -------------------------------------------------


@pytest.mark.verifies("X3", "X4", "X1", "R002-2")
def test_our_ids_are_never_used_twice() -> None:
    peer = make()
    ids = []
    for _ in range(50):
        id, sent = peer.request("ping")
        assert msgspec.json.decode(sent) == {"jsonrpc": "2.0", "id": id, "method": "ping"}
        peer.receive(frame(id=id, result={}))
        ids.append(id)
    assert len(set(ids)) == 50
    _, sent = peer.request("roots/list", {"a": 1})
    assert msgspec.json.decode(sent)["params"] == {"a": 1}


@pytest.mark.verifies("R002-4", "X7")
def test_answers_reach_who_asked() -> None:
    peer = make()
    first, second = peer.request("a")[0], peer.request("b")[0]
    failed = peer.receive(frame(id=second, error={"code": 5, "message": "m", "data": [1]}))
    assert isinstance(failed, Response)
    assert failed.id == second
    assert isinstance(failed.error, McpError)
    assert (failed.error.code, failed.error.message, failed.error.data) == (5, "m", [1])
    done = peer.receive(frame(id=first, result={"x": 1}))
    assert isinstance(done, Response)
    assert (done.id, bytes(done.result or b""), done.error) == (first, b'{"x":1}', None)
    assert not peer.pending


@pytest.mark.verifies("E-stray-response", "X19")
@pytest.mark.parametrize("id", [0, 1, 99, "1", "", None])
@everywhere
def test_stray_answers_are_dropped(place: Any, id: Any) -> None:
    peer = place[0]()
    assert peer.receive(frame(id=id, result={})) is None
    assert peer.receive(frame(id=id, error={"code": 1, "message": "m"})) is None


@pytest.mark.verifies("E-stray-response")
def test_late_and_repeated_answers_are_dropped() -> None:
    peer = make()
    id, _ = peer.request("a")
    peer.forget(id)
    peer.forget(id)
    assert peer.receive(frame(id=id, result={})) is None
    id, _ = peer.request("b")
    assert isinstance(peer.receive(frame(id=id, result={})), Response)
    assert peer.receive(frame(id=id, result={})) is None


@pytest.mark.verifies("E-result-and-error", "R002-4")
def test_both_result_and_error() -> None:
    """Nobody is given a result by it, and nobody else's wait ends."""
    peer = make()
    mine, other = peer.request("a")[0], peer.request("b")[0]
    both = {"result": {}, "error": {"code": 1, "message": "m"}}
    event = peer.receive(frame(id=mine, **both))
    assert isinstance(event, Response)
    assert event.result is None
    assert isinstance(event.error, RemoteProtocolError)
    assert list(peer.pending) == [other]
    assert isinstance(peer.receive(frame(id=mine, **both)), Reply)
    assert list(peer.pending) == [other]


@pytest.mark.parametrize("id", [1, "1", None, True, 1.0])
def test_an_id_of_another_type_answers_nothing(id: Any) -> None:
    peer = make()
    asked_id, _ = peer.request("a")
    assert asked_id == 1
    event = peer.receive(frame(id=id, result={}))
    assert isinstance(event, Response) is (id is not None and type(id) is int)
    assert bool(peer.pending) is not isinstance(event, Response)


# -- the side of a client ------------------------------------------------------------


def client() -> Peer:
    """Serves what servers ask for, and does not answer what has no id to answer."""
    tables = {revision: {"ping": "ping", "roots/list": "roots"} for revision in revisions.HANDSHAKE}
    return Peer(tables, {"ping": "ping"}, answers_malformed=False)


@pytest.mark.parametrize(
    "sent",
    [
        b"hello",
        b"\xff",
        b"5",
        b'{"not-jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":9,"result":{},"error":{"code":1,"message":"m"}}',
        Oversize(b"x", 1),
    ],
)
def test_a_client_keeps_quiet_about_garbage(sent: Any) -> None:
    peer = client()
    assert peer.receive(sent) is None


def test_a_client_answers_a_bad_request() -> None:
    peer = client()
    answer = said(peer.receive(b'{"id":1,"method":"ping"}'), None)
    assert answer["id"] == 1
    assert said(peer.receive(request(2, "no/such")), None)["error"]["code"] == -32601


@pytest.mark.verifies("F-phase-table")
def test_a_client_goes_through_the_same_phases() -> None:
    peer = client()
    id, _ = peer.request("initialize", {})
    assert said(peer.receive(request(1, "roots/list")), None)["error"]["code"] == -32601
    assert isinstance(peer.receive(frame(id=id, result={})), Response)
    agree(peer, "2025-06-18")
    event = peer.receive(request(1, "roots/list"))
    assert isinstance(event, Request)
    assert (event.handler, event.revision.id) == ("roots", "2025-06-18")
    told = peer.receive(notification("notifications/tools/list_changed"))
    assert isinstance(told, Notification)


# -- what an error says --------------------------------------------------------------


@pytest.mark.verifies("D-errors-minimal", "R001-6")
@pytest.mark.parametrize("case", MALFORMED.values(), ids=MALFORMED.keys())
def test_minimal_errors_have_no_text(case: Any) -> None:
    sent, (code, message), _, id = case
    answer = said(make(error_detail=False).receive(sent), None)
    assert answer == error(None if id is UNREAD else id, code, message)


@pytest.mark.verifies("D-errors-minimal", "S4")
def test_minimal_errors_keep_what_the_schema_wants() -> None:
    answer = said(make(error_detail=False).receive(modern(1, "x", version="0")), MODERN)
    assert answer["error"]["data"] == unsupported("0")


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_depth_limit_is_the_peers(depth: int) -> None:
    peer = make(max_depth=depth)
    sent = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 9 + b"1" + b"}" * 10
    answer = said(peer.receive(sent), None)
    assert answer["error"]["data"] == f"Nesting deeper than {depth} levels"


def test_a_notification_of_ours_has_no_id() -> None:
    peer = make()
    assert peer.notify("notifications/x") == notification("notifications/x")
    assert peer.notify("notifications/x", {"a": 1}) == notification("notifications/x", {"a": 1})
