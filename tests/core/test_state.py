"""The phase table, pair by pair, and a ``Peer`` that walks it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.core import state
from dovetail.core.peer import Notification, Peer, Reply, Request
from dovetail.core.state import CLOSED, NEW, READY, STARTING, Kind, Phase
from dovetail.errors import LocalProtocolError
from dovetail.spec.revisions import BY_ID, MODERN, Revision
from dovetail.spec.types import ClientCapabilities, Implementation
from support import HANDSHAKE, initialize, modern, notification, request

FIRST = "The first request must be 'initialize'"
AGAIN = "The connection is already initialized"
NOT_YET = "'notifications/initialized' has not been received"
GONE = "The connection is closed"

TAKE, IGNORE = "take", "ignore"

# phase -> kind -> taken, ignored or the text of the refusal; and the phase after it.
# Architecture C5 and the decision "before initialize", written out a second time.
TABLE: dict[Phase, dict[Kind, tuple[str, Phase]]] = {
    NEW: {
        Kind.INITIALIZE: (TAKE, STARTING),
        Kind.PING: (TAKE, NEW),
        Kind.REQUEST: (FIRST, NEW),
        Kind.INITIALIZED: (IGNORE, NEW),
        Kind.NOTIFICATION: (IGNORE, NEW),
        Kind.RESPONSE: (IGNORE, NEW),
    },
    STARTING: {
        Kind.INITIALIZE: (AGAIN, STARTING),
        Kind.PING: (TAKE, STARTING),
        Kind.REQUEST: (TAKE, STARTING),
        Kind.INITIALIZED: (TAKE, READY),
        Kind.NOTIFICATION: (TAKE, STARTING),
        Kind.RESPONSE: (TAKE, STARTING),
    },
    READY: {
        Kind.INITIALIZE: (AGAIN, READY),
        Kind.PING: (TAKE, READY),
        Kind.REQUEST: (TAKE, READY),
        Kind.INITIALIZED: (IGNORE, READY),
        Kind.NOTIFICATION: (TAKE, READY),
        Kind.RESPONSE: (TAKE, READY),
    },
    CLOSED: {
        Kind.INITIALIZE: (GONE, CLOSED),
        Kind.PING: (GONE, CLOSED),
        Kind.REQUEST: (GONE, CLOSED),
        Kind.INITIALIZED: (IGNORE, CLOSED),
        Kind.NOTIFICATION: (IGNORE, CLOSED),
        Kind.RESPONSE: (IGNORE, CLOSED),
    },
}
STRICT = {**TABLE, STARTING: {**TABLE[STARTING], Kind.REQUEST: (NOT_YET, STARTING)}}

PAIRS = [
    pytest.param(strict, phase, kind, *want, id=f"{name}-{phase.value}-{kind.value}")
    for strict, table, name in ((False, TABLE, "lenient"), (True, STRICT, "strict"))
    for phase, row in table.items()
    for kind, want in row.items()
]
every_pair = pytest.mark.parametrize(("strict", "phase", "kind", "what", "then"), PAIRS)


@pytest.mark.verifies("F-phase-table")
@every_pair
def test_the_table(strict: bool, phase: Phase, kind: Kind, what: str, then: Phase) -> None:
    step = (state.HANDSHAKE_STRICT if strict else state.HANDSHAKE)[phase][kind]
    assert step.take is (what == TAKE)
    assert step.then is then
    assert step.refusal == (None if what in (TAKE, IGNORE) else what)


def test_the_table_is_complete() -> None:
    assert len(PAIRS) == 2 * len(Phase) * len(Kind)
    for table in (state.HANDSHAKE, state.HANDSHAKE_STRICT):
        assert set(table) == set(Phase)
        assert all(set(row) == set(Kind) for row in table.values())


# -- the same, by messages -----------------------------------------------------------

METHODS = ("initialize", "ping", "tools/list", "server/discover")


def new_peer(strict: bool = False) -> Peer:
    tables = {
        revision: {name: name for name in METHODS if name in revision.client_requests}
        for revision in BY_ID.values()
    }
    opening = {name: name for name in METHODS[:3]}
    return Peer(tables, opening, strict_handshake=strict)


def agree(peer: Peer, revision: Revision) -> None:
    info = Implementation(name="c", version="1")
    peer.agree(revision, info, ClientCapabilities())


def peer_in(phase: Phase, revision: str = "2025-06-18", strict: bool = False) -> Peer:
    """A peer that has come to ``phase`` by the messages that lead there."""
    peer = new_peer(strict)
    if phase is not NEW:
        opened = peer.receive(initialize(revision))
        assert isinstance(opened, Request)
        assert peer.phase is NEW  # it is the answer that counts, not the question
        assert peer.settle(opened)
        agree(peer, BY_ID[revision])
        assert peer.phase is STARTING
    if phase in (READY, CLOSED):
        assert isinstance(peer.receive(notification("notifications/initialized")), Notification)
        assert peer.phase is READY
    if phase is CLOSED:
        peer.close()
    assert peer.phase is phase
    return peer


MESSAGES: dict[Kind, bytes] = {
    Kind.INITIALIZE: initialize("2024-11-05", id=7),
    Kind.PING: request(7, "ping"),
    Kind.REQUEST: request(7, "tools/list"),
    Kind.INITIALIZED: notification("notifications/initialized"),
    Kind.NOTIFICATION: notification("notifications/roots/list_changed"),
    Kind.RESPONSE: b'{"jsonrpc":"2.0","id":1,"result":{}}',
}


def refusal(event: Any) -> tuple[int, str]:
    assert isinstance(event, Reply)
    answer = msgspec.json.decode(event.frame)
    assert answer["id"] == 7
    return answer["error"]["code"], answer["error"]["data"]


@pytest.mark.verifies("F-phase-table", "R000-2", "R000-9", "R000-11", "D-before-initialize")
@pytest.mark.verifies("D-handshake-lenient", "D-handshake-strict", "E-second-initialize")
@pytest.mark.parametrize("revision", HANDSHAKE)
@every_pair
def test_a_peer_obeys_the_table(
    strict: bool, phase: Phase, kind: Kind, what: str, then: Phase, revision: str
) -> None:
    peer = peer_in(phase, revision, strict)
    before = (peer.revision, peer.client_info)
    event = peer.receive(MESSAGES[kind])
    if kind is Kind.RESPONSE:
        assert event is None  # nothing was asked
    elif what == TAKE:
        assert isinstance(event, Request | Notification)
        assert event.method == msgspec.json.decode(MESSAGES[kind])["method"]
    elif what == IGNORE:
        assert event is None
    else:
        assert refusal(event) == (-32600, what)
        assert not peer.in_flight
    assert (peer.revision, peer.client_info) == before
    # `initialize` moves on with its answer, everything else by being received.
    assert peer.phase is (phase if kind is Kind.INITIALIZE else then)


@pytest.mark.verifies("F-phase-table", "D-modern-no-gate")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("phase", [NEW, STARTING, READY])
def test_no_phase_gates_the_new_era(phase: Phase, strict: bool) -> None:
    peer = peer_in(phase, strict=strict)
    event = peer.receive(modern(7, "tools/list"))
    assert isinstance(event, Request)
    assert event.revision is MODERN
    assert peer.phase is phase


@pytest.mark.verifies("F-phase-table", "R002-13")
@pytest.mark.parametrize("frame", [modern(7, "tools/list"), modern(7, "server/discover")])
@pytest.mark.parametrize("shaken", [False, True])
def test_after_the_end_nothing_is_served(frame: bytes, shaken: bool) -> None:
    peer = peer_in(CLOSED) if shaken else new_peer()
    peer.close()
    assert isinstance(peer.receive(frame), Reply)
    assert not peer.in_flight
    assert peer.phase is CLOSED


@pytest.mark.verifies("F-phase-table", "E-second-initialize")
@pytest.mark.parametrize(("phase", "why"), [(STARTING, AGAIN), (READY, AGAIN), (CLOSED, GONE)])
def test_we_cannot_agree_twice(phase: Phase, why: str) -> None:
    peer = peer_in(phase)
    with pytest.raises(LocalProtocolError, match=why):
        agree(peer, BY_ID["2025-11-25"])
    assert peer.phase is phase
    assert peer.revision is BY_ID["2025-06-18"]


@pytest.mark.verifies("D-before-initialize")
def test_an_initialize_that_fails_leaves_the_connection_new() -> None:
    peer = new_peer()
    assert refusal(peer.receive(request(7, "initialize", {})))[0] == -32602
    assert peer.phase is NEW
    assert isinstance(peer.receive(initialize()), Request)


@pytest.mark.verifies("R002-13")
@pytest.mark.parametrize("phase", list(Phase))
def test_closing_gives_back_what_was_asked(phase: Phase) -> None:
    peer = peer_in(phase)
    ids = [] if phase is CLOSED else [peer.request("ping")[0], peer.request("roots/list")[0]]
    assert peer.close() == ids
    assert peer.close() == []
    with pytest.raises(LocalProtocolError, match=GONE):
        peer.request("ping")
