"""The lifecycle of a connection, as a table.

Theory of operation. A connection of the handshake era (2024-11-05 to
2025-11-25) walks NEW -> STARTING -> READY: ``initialize`` is answered, then
``notifications/initialized`` arrives. What may happen in a phase is one row of
``HANDSHAKE``; nothing else in the library decides it. A pair that is not
allowed says why, and leaves the phase as it was.

2026-07-28 has no lifecycle: each request carries its own envelope and is
served in any phase, before, between and after the messages of a handshake
(digest 8.6), so it needs no table.

The table does not know which side we are: both sides of a connection are in
the same phase, and both refuse the same things.
"""

from enum import Enum
from typing import NamedTuple

__all__ = [
    "CLOSED",
    "HANDSHAKE",
    "HANDSHAKE_STRICT",
    "INITIALIZE",
    "INITIALIZED",
    "NEW",
    "NOTIFICATION",
    "NOTIFICATION_KINDS",
    "PING",
    "READY",
    "REQUEST",
    "REQUEST_KINDS",
    "RESPONSE",
    "STARTING",
    "Kind",
    "Phase",
    "Step",
]


class Phase(Enum):
    NEW = "new"
    STARTING = "starting"
    READY = "ready"
    CLOSED = "closed"

    # Enum's own hash is a Python function, and the table is looked up per message.
    __hash__ = object.__hash__


class Kind(Enum):
    INITIALIZE = "initialize"
    PING = "ping"
    REQUEST = "request"
    INITIALIZED = "initialized"
    NOTIFICATION = "notification"
    RESPONSE = "response"

    __hash__ = object.__hash__


NEW, STARTING, READY, CLOSED = Phase
INITIALIZE, PING, REQUEST, INITIALIZED, NOTIFICATION, RESPONSE = Kind


class Step(NamedTuple):
    """What to do with a message: take it, ignore it, or refuse it with a reason."""

    take: bool
    then: Phase
    refusal: str | None = None


def _refuse(phase: Phase, why: str) -> Step:
    return Step(False, phase, why)


_FIRST = "The first request must be 'initialize'"
_AGAIN = "The connection is already initialized"
_NOT_YET = "'notifications/initialized' has not been received"
_GONE = "The connection is closed"

# Rows of the table in shared decision "before initialize": until the answer to
# initialize only ping is served (digest 3, requirements 000 and 001).
HANDSHAKE: dict[Phase, dict[Kind, Step]] = {
    NEW: {
        INITIALIZE: Step(True, STARTING),
        PING: Step(True, NEW),
        REQUEST: _refuse(NEW, _FIRST),
        INITIALIZED: Step(False, NEW),
        NOTIFICATION: Step(False, NEW),
        RESPONSE: Step(False, NEW),
    },
    STARTING: {
        INITIALIZE: _refuse(STARTING, _AGAIN),
        PING: Step(True, STARTING),
        REQUEST: Step(True, STARTING),
        INITIALIZED: Step(True, READY),
        NOTIFICATION: Step(True, STARTING),
        RESPONSE: Step(True, STARTING),
    },
    READY: {
        INITIALIZE: _refuse(READY, _AGAIN),
        PING: Step(True, READY),
        REQUEST: Step(True, READY),
        INITIALIZED: Step(False, READY),
        NOTIFICATION: Step(True, READY),
        RESPONSE: Step(True, READY),
    },
    CLOSED: {
        INITIALIZE: _refuse(CLOSED, _GONE),
        PING: _refuse(CLOSED, _GONE),
        REQUEST: _refuse(CLOSED, _GONE),
        INITIALIZED: Step(False, CLOSED),
        NOTIFICATION: Step(False, CLOSED),
        RESPONSE: Step(False, CLOSED),
    },
}

# Requirement 000: "Client MUST send notifications/initialized before calling tools".
HANDSHAKE_STRICT = {
    **HANDSHAKE,
    STARTING: {**HANDSHAKE[STARTING], REQUEST: _refuse(STARTING, _NOT_YET)},
}

# Methods with a column of their own; every other request is REQUEST, and so on.
REQUEST_KINDS = {"initialize": INITIALIZE, "ping": PING}
NOTIFICATION_KINDS = {"notifications/initialized": INITIALIZED}
