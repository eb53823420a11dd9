"""One task, as a value, and the machine of its status, as a table.

Theory of operation. A task is a frozen record; whatever happens to it is a
function from a record to the next one (`transition`, `ask`, `answer`), and a
store applies such a function atomically. ``STEPS`` is the only place that says
which status may follow which, and ``CARRIES`` what a record of each status
holds (digest 7.3 and 12.1, S89, S100). A store runs `check_step` on every
change, so a function that goes around the table is refused as well.

A record does not know which wire form it is shown in: 2025-11-25 ends a tool
that failed as `failed` with a result, the extension as `completed`.

    DovetailError
    └── TaskError
        ├── IllegalTransition   the status machine forbids this change
        ├── RecordTooLarge      a record over ``TaskLimits.max_result_bytes``
        ├── InvalidPosition     a page position that no store gave out
        └── StoreError          the store could not do its work; see the cause
            ├── StoreFull       a bound is reached, even after expiry
            └── StoreAway       what it is kept on cannot be reached now
"""

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dovetail.errors import DovetailError
from dovetail.spec.types import TaskStatus

__all__ = [
    "STEPS",
    "TERMINAL",
    "IllegalTransition",
    "InvalidPosition",
    "RecordTooLarge",
    "StoreAway",
    "StoreError",
    "StoreFull",
    "TaskError",
    "TaskRecord",
    "answer",
    "ask",
    "check_step",
    "new_task",
    "timestamp",
    "transition",
]

# The whole machine: what may follow a status. Staying is not a step.
STEPS: dict[TaskStatus, frozenset[TaskStatus]] = {
    "working": frozenset({"input_required", "completed", "failed", "cancelled"}),
    "input_required": frozenset({"working", "completed", "failed", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

TERMINAL = frozenset(status for status, following in STEPS.items() if not following)

# What a record of each status holds, as the sets of filled members allowed.
# `failed` with an outcome is a tool error in 2025-11-25; an error on `cancelled`
# is what that revision's `tasks/result` answers with, if a server wants one.
CARRIES: dict[TaskStatus, tuple[frozenset[str], ...]] = {
    "working": (frozenset(),),
    "input_required": (frozenset({"input_requests"}),),
    "completed": (frozenset({"outcome"}),),
    "failed": (frozenset({"error"}), frozenset({"outcome"})),
    "cancelled": (frozenset(), frozenset({"error"})),
}

# What never changes: who may see a task, what it is, and how long it is kept. A
# fixed expiry is also what lets a store keep one heap entry or index row per task.
_FIXED = ("task_id", "principal", "method", "name", "created_at", "ttl_ms", "expires_at")

# 256 bits. S96 and S103 ask for ids nobody can guess: without an authorization
# context the id is the only secret. 128 bits would do; the rest costs 21 characters.
_ID_BYTES = 32


class TaskError(DovetailError):
    """Base of what goes wrong with tasks."""


class IllegalTransition(TaskError):
    """The status machine forbids this change; the task is as it was."""


class RecordTooLarge(TaskError):
    """A task would hold more bytes than one task may; it is as it was."""


class InvalidPosition(TaskError):
    """Not a position that a page was returned with."""


class StoreError(TaskError):
    """The store could not do its work. The text is for the log, not for the peer."""


class StoreFull(StoreError):
    """The store holds as much as its limits allow, and nothing in it has expired."""


class StoreAway(StoreError):
    """What the store is kept on cannot be reached now; it may be later."""


class TaskRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task. Frozen; its dict is not to be changed either: stores share records."""

    task_id: str
    # Who may see it. None is "nobody was identified", and only equals itself.
    principal: str | None = None
    method: str
    name: str | None = None
    status: TaskStatus = "working"
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None
    # Seconds on the store's clock.
    expires_at: float | None = None
    # Encoded JSON: the result object, or the JSON-RPC error object.
    outcome: bytes | None = None
    error: bytes | None = None
    # Outstanding questions: key to encoded {"method", "params"}.
    input_requests: dict[str, bytes] = {}
    # Every key ever used, answered or not: none is used twice (S101).
    asked_keys: frozenset[str] = frozenset()

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    def head(self) -> "TaskRecord":
        """The record without what it carries, as a list shows it."""
        return replace(self, outcome=None, error=None, input_requests={}, asked_keys=frozenset())

    def weight(self) -> int:
        """The bytes that a tool or a client decides on; the rest of a record is small."""
        texts = (self.outcome, self.error, self.status_message, *self.asked_keys)
        questions = sum(map(len, self.input_requests.values()))
        return questions + sum(len(text) for text in texts if text is not None)


def new_task(
    *,
    method: str,
    name: str | None = None,
    principal: str | None = None,
    ttl_ms: int | None,
    poll_interval_ms: int | None = None,
    now: float,
) -> TaskRecord:
    """A task that starts to work ``now``; hand it to ``TaskStore.create``."""
    stamp = timestamp(now)
    return TaskRecord(
        task_id=secrets.token_urlsafe(_ID_BYTES),
        principal=principal,
        method=method,
        name=name,
        created_at=stamp,
        last_updated_at=stamp,
        ttl_ms=ttl_ms,
        poll_interval_ms=poll_interval_ms,
        expires_at=None if ttl_ms is None else now + ttl_ms / 1000,
    )


def timestamp(now: float) -> str:
    """ISO 8601 in UTC, of one length, so that the order of texts is the order of times."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def transition(record: TaskRecord, to: TaskStatus, **changes: Any) -> TaskRecord:
    """The record in its next status.

    A terminal status drops the questions and the keys: nothing is asked any more.
    """
    if to not in STEPS[record.status]:
        raise IllegalTransition(f"A task cannot go from {record.status!r} to {to!r}")
    if to in TERMINAL:
        changes = {"input_requests": {}, "asked_keys": frozenset(), **changes}
    after = replace(record, status=to, **changes)
    _check_carried(after)
    return after


def ask(record: TaskRecord, key: str, question: bytes) -> TaskRecord:
    """One more question is outstanding; the task waits for input."""
    if key in record.asked_keys:
        raise IllegalTransition(f"The key {key!r} was used before in this task")
    changes: dict[str, Any] = {
        "input_requests": {**record.input_requests, key: question},
        "asked_keys": record.asked_keys | {key},
    }
    if record.status == "input_required":
        return replace(record, **changes)
    return transition(record, "input_required", **changes)


def answer(record: TaskRecord, keys: Iterable[str]) -> TaskRecord:
    """These questions are settled; with none left, the task works again.

    Unknown and answered keys are ignored (digest 12.1), as is a task that does
    not wait: then the record comes back as it was.
    """
    settled = record.input_requests.keys() & set(keys)
    if not settled:
        return record
    left = {key: value for key, value in record.input_requests.items() if key not in settled}
    if left:
        return replace(record, input_requests=left)
    return transition(record, "working", input_requests=left)


def check_step(before: TaskRecord, after: TaskRecord) -> None:
    """Refuse a change that did not come from the functions above."""
    stays = after.status == before.status and not before.is_terminal
    if not stays and after.status not in STEPS[before.status]:
        raise IllegalTransition(f"A task cannot go from {before.status!r} to {after.status!r}")
    for member in _FIXED:
        if getattr(before, member) != getattr(after, member):
            raise IllegalTransition(f"A task's {member!r} does not change")
    if not (after.is_terminal or before.asked_keys <= after.asked_keys):
        raise IllegalTransition("A task does not forget the keys it has used")
    _check_carried(after)


def _check_carried(record: TaskRecord) -> None:
    members = ("outcome", "error", "input_requests")
    filled = frozenset(member for member in members if getattr(record, member) not in (None, {}))
    if filled not in CARRIES[record.status]:
        carried = ", ".join(sorted(filled)) or "nothing"
        raise IllegalTransition(f"A task that is {record.status!r} cannot carry {carried}")
