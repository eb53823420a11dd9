"""Where tasks are kept: the interface, its limits, and the store in memory.

The rules that every store obeys are functions here (`check_new`, `apply_change`,
`check_room`), so that two stores differ in where they keep records, not in what
they allow.
"""

import heapq
import time
from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from dovetail.server.tasks.record import (
    InvalidPosition,
    RecordTooLarge,
    StoreError,
    StoreFull,
    TaskRecord,
    check_step,
    timestamp,
)

__all__ = [
    "Change",
    "Clock",
    "MemoryStore",
    "SharedStore",
    "TaskLimits",
    "TaskStore",
    "apply_change",
    "charge",
    "check_new",
    "check_page",
    "check_room",
]

# Seconds since 1970. Wall time, because an expiry must mean the same after a restart.
Clock = Callable[[], float]

# From a record to the next one. It must do nothing else: a store may run it in
# another thread, inside a transaction that is then rolled back.
Change = Callable[[TaskRecord], TaskRecord]

# Every task is charged at least this much of ``max_total_bytes``, from its
# creation on. So a short error and a message always fit: a full store refuses
# results, but never the news that a task has failed or was cancelled.
RESERVE = 4096

# Row numbers of SQLite are 64 bits wide: a number of 18 digits always fits.
_MAX_DIGITS = 18


class TaskLimits(Struct, frozen=True, kw_only=True):
    """Every limit of a store: a name, a default and a reason."""

    # Tasks kept at once, finished ones included. A task without payload costs
    # about 2 KiB of memory: 20 MB, while a host that polls holds tens of tasks.
    max_tasks: int = 10_000
    # The same for one principal, so that one of them cannot shut out nine others.
    max_tasks_per_principal: int = 1_000
    # Longest ttl granted; a longer or an unlimited wish is cut to it. A day covers
    # "start it in the evening, read it in the morning". None grants any wish.
    max_ttl_ms: int | None = 24 * 60 * 60 * 1000
    # The ttl of a client that names none: an hour outlives a restart of the
    # client, and empties a store that nobody collects from.
    default_ttl_ms: int | None = 60 * 60 * 1000
    # Shortest ttl granted: below it a task is gone before its first poll, and
    # S99 wants the task readable once its handle is out.
    min_ttl_ms: int = 1_000
    # Payload of one task: result or error, open questions, keys, message. What
    # is larger could not be sent either (Limits.max_frame).
    max_result_bytes: int = 4 * 1024 * 1024
    # Payload of all tasks together. Counts alone do not bound memory: 10,000
    # results of 4 MiB would be 40 GiB.
    max_total_bytes: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        for member in self.__struct_fields__:
            value = getattr(self, member)
            if value is not None and value <= 0:
                raise ValueError(f"{member} must be positive, not {value}")
        if self.max_result_bytes < RESERVE:
            raise ValueError(f"max_result_bytes must be at least {RESERVE}, to hold any error")
        if self.max_ttl_ms is not None and (
            self.default_ttl_ms is None or self.default_ttl_ms > self.max_ttl_ms
        ):
            raise ValueError("default_ttl_ms must not exceed max_ttl_ms")

    def grant_ttl(self, wanted: int | None = None) -> int | None:
        """The ttl of a new task, given the client's wish (None: it has none)."""
        ttl = self.default_ttl_ms if wanted is None else max(wanted, self.min_ttl_ms)
        if ttl is None or self.max_ttl_ms is None:
            return ttl
        return min(ttl, self.max_ttl_ms)


class TaskStore(Protocol):
    """Keeps tasks. Every method raises `StoreError` when the store itself fails.

    A call that is cancelled while it waits may or may not have taken effect.
    """

    @property
    def limits(self) -> TaskLimits: ...

    @property
    def clock(self) -> Clock: ...

    async def create(self, record: TaskRecord) -> None:
        """Keep a new task; it can be read, and is durable, when this returns (S99).

        Raises `StoreFull` when a bound is reached.
        """

    async def get(self, task_id: str, principal: str | None) -> TaskRecord | None:
        """The task; None if unknown, expired or another principal's, all alike (S96)."""

    async def update(self, task_id: str, change: Change) -> TaskRecord | None:
        """Apply ``change`` atomically and stamp the time; None if unknown or expired.

        What ``change`` raises is passed on and nothing is changed; the same goes for
        `IllegalTransition`, `RecordTooLarge` and `StoreFull`. A change that
        returns its argument writes nothing.
        """

    async def page(
        self, principal: str | None, after: str | None, limit: int
    ) -> tuple[list[TaskRecord], str | None]:
        """Tasks of ``principal`` in the order of creation, and where the next page starts.

        The records are heads, without result, error and questions: a list shows
        none, and a page of results could be as large as the store. The position
        is a plain number over all principals: encode it before a client sees it.
        Raises `InvalidPosition`.
        """

    async def recover(self, reason: str) -> int:
        """At start: fail the tasks that an earlier process left running; how many."""

    async def close(self) -> None:
        """Free everything. Calls after it raise `StoreError`; closing twice is fine."""


class SharedStore(TaskStore, Protocol):
    """A store of several nodes, any of which may run a task."""

    async def owner(self, task_id: str) -> str | None:
        """The node that runs a task now."""


def check_new(record: TaskRecord, limits: TaskLimits) -> None:
    """A new task works (S89) and obeys the limits; anything else is our caller's bug."""
    if record.status != "working":
        raise ValueError(f"A task starts as 'working', not as {record.status!r}")
    longest = limits.max_ttl_ms
    if longest is not None and (record.ttl_ms is None or record.ttl_ms > longest):
        raise ValueError("The ttl exceeds max_ttl_ms: use TaskLimits.grant_ttl")


def apply_change(record: TaskRecord, change: Change, limits: TaskLimits, now: float) -> TaskRecord:
    """What ``change`` makes of the record, checked and stamped; the record itself if nothing."""
    after = change(record)
    if after is record or after == record:
        return record
    check_step(record, after)
    if after.weight() > limits.max_result_bytes:
        raise RecordTooLarge(f"The task would hold more than {limits.max_result_bytes} bytes")
    # A wall clock may be set back; a task is still not updated before it was made.
    stamp = max(record.last_updated_at, timestamp(now))
    return replace(after, last_updated_at=stamp)


def charge(record: TaskRecord) -> int:
    """How much of ``max_total_bytes`` a record takes up."""
    return max(RESERVE, record.weight())


def check_room(limits: TaskLimits, *, tasks: int, of_principal: int, total_bytes: int) -> None:
    """Refuse the counts that a store would have after a change."""
    if of_principal > limits.max_tasks_per_principal:
        raise StoreFull(f"There are {limits.max_tasks_per_principal} tasks of this principal")
    if tasks > limits.max_tasks:
        raise StoreFull(f"There are {limits.max_tasks} tasks")
    if total_bytes > limits.max_total_bytes:
        raise StoreFull(f"The tasks would hold more than {limits.max_total_bytes} bytes")


def check_page(after: str | None, limit: int) -> int:
    """The number that a position stands for; the position may come from a client."""
    if limit < 1:
        raise ValueError("A page has at least one task")
    if after is None:
        return 0
    if not (after.isascii() and after.isdecimal() and len(after) <= _MAX_DIGITS):
        raise InvalidPosition("Not a position of a page")
    return int(after)


class MemoryStore:
    """Tasks of this process, for one event loop; they end with it.

    Nothing here awaits, which is what makes each method atomic. Expiry costs no
    timer: every call first drops what has expired, O(log n) for each dropped task.
    """

    def __init__(self, limits: TaskLimits | None = None, clock: Clock = time.time) -> None:
        self._limits = limits or TaskLimits()
        self._clock = clock
        self._closed = False
        self._last = 0
        self._bytes = 0
        self._records: dict[str, TaskRecord] = {}
        # (number, task id) in the order of creation, for paging. A removal moves
        # at most max_tasks_per_principal pointers.
        self._order: dict[str | None, list[tuple[int, str]]] = {}
        # (expiry, number, task id). Tasks only leave by expiry, and an expiry
        # never changes, so no entry is ever stale.
        self._expiries: list[tuple[float, int, str]] = []

    @property
    def limits(self) -> TaskLimits:
        return self._limits

    @property
    def clock(self) -> Clock:
        return self._clock

    async def create(self, record: TaskRecord) -> None:
        check_new(record, self._limits)
        self._expire()
        if record.task_id in self._records:
            raise StoreError("There is a task with this id already")
        order = self._order.get(record.principal, [])
        check_room(
            self._limits,
            tasks=len(self._records) + 1,
            of_principal=len(order) + 1,
            total_bytes=self._bytes + charge(record),
        )
        self._last += 1
        order.append((self._last, record.task_id))
        self._order[record.principal] = order
        self._records[record.task_id] = record
        self._bytes += charge(record)
        if record.expires_at is not None:
            heapq.heappush(self._expiries, (record.expires_at, self._last, record.task_id))

    async def get(self, task_id: str, principal: str | None) -> TaskRecord | None:
        self._expire()
        record = self._records.get(task_id)
        return record if record is not None and record.principal == principal else None

    async def update(self, task_id: str, change: Change) -> TaskRecord | None:
        now = self._expire()
        record = self._records.get(task_id)
        if record is None:
            return None
        after = apply_change(record, change, self._limits, now)
        growth = charge(after) - charge(record)
        if growth > 0:
            check_room(self._limits, tasks=0, of_principal=0, total_bytes=self._bytes + growth)
        self._bytes += growth
        self._records[task_id] = after
        return after

    async def page(
        self, principal: str | None, after: str | None, limit: int
    ) -> tuple[list[TaskRecord], str | None]:
        last_seen = check_page(after, limit)
        self._expire()
        order = self._order.get(principal, [])
        start = bisect_right(order, last_seen, key=itemgetter(0))
        shown = order[start : start + limit]
        more = start + limit < len(order)
        heads = [self._records[task_id].head() for _, task_id in shown]
        return heads, str(shown[-1][0]) if more else None

    async def recover(self, reason: str) -> int:
        """Nothing: an earlier process has left nothing here."""
        self._expire()
        return 0

    async def close(self) -> None:
        self._closed = True
        self._records.clear()
        self._order.clear()
        self._expiries.clear()

    def _expire(self) -> float:
        if self._closed:
            raise StoreError("The task store is closed")
        now = self._clock()
        while self._expiries and self._expiries[0][0] <= now:
            _, number, task_id = heapq.heappop(self._expiries)
            self._drop(number, self._records.pop(task_id))
        return now

    def _drop(self, number: int, record: TaskRecord) -> None:
        self._bytes -= charge(record)
        order = self._order[record.principal]
        del order[bisect_right(order, number, key=itemgetter(0)) - 1]
        if not order:
            del self._order[record.principal]
