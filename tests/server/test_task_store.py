"""The task record, its machine, and the three stores behind one interface.

No `verifies` marks yet: the comments say which requirements a test shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule
from msgspec.structs import replace

from dovetail.errors import DovetailError
from dovetail.server.tasks import (
    STEPS,
    TERMINAL,
    IllegalTransition,
    InvalidPosition,
    MemoryStore,
    RecordTooLarge,
    StoreError,
    StoreFull,
    TaskLimits,
    TaskRecord,
    TaskStore,
    answer,
    ask,
    new_task,
    transition,
)
from dovetail.server.tasks.record import check_step
from dovetail.server.tasks.redis import RedisStore
from dovetail.server.tasks.sqlite import SqliteStore
from dovetail.server.tasks.store import RESERVE
from dovetail.spec.types import TaskStatus

START = 1_800_000_000.0
HOUR_MS = 3_600_000
RESULT = b'{"content":[]}'
ERROR = b'{"code":-32603,"message":"Internal error"}'
QUESTION = b'{"method":"elicitation/create","params":{}}'
STATUSES: tuple[TaskStatus, ...] = get_args(TaskStatus)

# What a record must carry to be in a status.
CARRIED: dict[TaskStatus, dict[str, Any]] = {
    "working": {"input_requests": {}},
    "input_required": {"input_requests": {"k": QUESTION}, "asked_keys": frozenset("k")},
    "completed": {"outcome": RESULT},
    "failed": {"error": ERROR},
    "cancelled": {},
}

Kind = Literal["memory", "sqlite", "redis"]


class FakeClock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


class QuickSqliteStore(SqliteStore):
    """Without waiting for the disk, for the tests that write a lot."""

    def _open(self) -> sqlite3.Connection:
        db = super()._open()
        db.execute("PRAGMA synchronous = OFF")
        return db


class SmallDiskStore(SqliteStore):
    pages = 40

    def _open(self) -> sqlite3.Connection:
        db = super()._open()
        db.execute(f"PRAGMA max_page_count = {self.pages}")
        return db


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite", "redis"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


Make = Callable[..., TaskStore]


@pytest.fixture
def make(kind: Kind, clock: FakeClock, tmp_path: Path, request: pytest.FixtureRequest) -> Make:
    def build(**limits: Any) -> TaskStore:
        if kind == "memory":
            return MemoryStore(TaskLimits(**limits), clock)
        if kind == "redis":
            url, namespace = request.getfixturevalue("redis_url"), tmp_path.name
            return RedisStore(url, TaskLimits(**limits), clock, namespace=namespace)
        return QuickSqliteStore(tmp_path / "tasks.db", TaskLimits(**limits), clock)

    return build


@contextlib.asynccontextmanager
async def closing(store: TaskStore) -> AsyncIterator[TaskStore]:
    try:
        yield store
    finally:
        await store.close()


def task(
    clock: FakeClock, principal: str | None = "ann", ttl_ms: int | None = HOUR_MS
) -> TaskRecord:
    return new_task(
        method="tools/call", name="dig", principal=principal, ttl_ms=ttl_ms, now=clock()
    )


async def created(
    store: TaskStore, clock: FakeClock, principal: str | None = "ann", ttl_ms: int | None = HOUR_MS
) -> TaskRecord:
    record = task(clock, principal, ttl_ms)
    await store.create(record)
    return record


def complete(record: TaskRecord) -> TaskRecord:
    return transition(record, "completed", outcome=RESULT)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def in_status(status: TaskStatus) -> TaskRecord:
    return replace(task(FakeClock()), status=status, **CARRIED[status])


# The record and its machine.


# shows: S89
@pytest.mark.parametrize(("before", "to"), list(itertools.product(STATUSES, STATUSES)))
def test_every_pair_of_statuses(before: TaskStatus, to: TaskStatus) -> None:
    legal = {
        ("working", "input_required"),
        ("input_required", "working"),
        *itertools.product(("working", "input_required"), ("completed", "failed", "cancelled")),
    }
    record = in_status(before)
    copy = replace(record)
    if (before, to) in legal:
        after = transition(record, to, **CARRIED[to])
        assert after.status == to
        check_step(record, after)
    else:
        with pytest.raises(IllegalTransition):
            transition(record, to, **CARRIED[to])
        # The same pair, made without the machine, is refused by every store.
        if before != to or before in TERMINAL:
            with pytest.raises(IllegalTransition):
                check_step(record, replace(record, status=to, **CARRIED[to]))
    assert record == copy


# shows: S89
def test_the_table_has_every_status_and_three_ends() -> None:
    assert set(STEPS) == set(STATUSES)
    assert {"completed", "failed", "cancelled"} == TERMINAL


# shows: S100
@pytest.mark.parametrize(
    ("to", "changes"),
    [
        ("completed", {}),
        ("completed", {"outcome": RESULT, "error": ERROR}),
        ("completed", {"error": ERROR}),
        ("failed", {}),
        ("failed", {"outcome": RESULT, "error": ERROR}),
        ("cancelled", {"outcome": RESULT}),
        ("input_required", {}),
        ("input_required", {"input_requests": {"k": QUESTION}, "outcome": RESULT}),
    ],
)
def test_a_status_carries_what_belongs_to_it(to: TaskStatus, changes: dict[str, Any]) -> None:
    with pytest.raises(IllegalTransition, match=f"{to!r} cannot carry"):
        transition(in_status("working"), to, **changes)


def test_a_tool_error_of_2025_11_25_is_failed_with_a_result() -> None:
    after = transition(in_status("working"), "failed", outcome=RESULT)
    assert (after.status, after.outcome, after.error) == ("failed", RESULT, None)


@pytest.mark.parametrize(
    "change",
    [
        {"task_id": "x"},
        {"principal": None},
        {"method": "x"},
        {"name": None},
        {"created_at": "x"},
        {"ttl_ms": None},
        {"expires_at": None},
        {"asked_keys": frozenset()},
        {"input_requests": {}},
        {"outcome": RESULT},
    ],
)
def test_what_never_changes_is_refused(change: dict[str, Any]) -> None:
    record = in_status("input_required")
    with pytest.raises(IllegalTransition):
        check_step(record, replace(record, **change))


# shows: S100, S101
def test_questions_open_and_close() -> None:
    first = ask(in_status("working"), "a", QUESTION)
    both = ask(first, "b", QUESTION)
    assert (both.status, set(both.input_requests)) == ("input_required", {"a", "b"})
    one = answer(both, ["a", "unknown"])
    assert (one.status, set(one.input_requests)) == ("input_required", {"b"})
    assert answer(one, ["a"]) is one
    done = answer(one, ["b"])
    assert (done.status, done.input_requests) == ("working", {})
    assert done.asked_keys == {"a", "b"}
    for key in ("a", "b"):
        with pytest.raises(IllegalTransition, match="used before"):
            ask(done, key, QUESTION)
    with pytest.raises(IllegalTransition):
        ask(complete(done), "c", QUESTION)


def test_an_end_drops_the_questions() -> None:
    after = transition(in_status("input_required"), "cancelled")
    assert (after.input_requests, after.asked_keys) == ({}, frozenset())
    assert answer(after, ["k"]) is after


# shows: S89, S96, S103
def test_ids_are_unguessable(clock: FakeClock) -> None:
    ids = {task(clock).task_id for _ in range(20_000)}
    assert len(ids) == 20_000
    alphabet = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert all(len(task_id) == 43 and set(task_id) <= alphabet for task_id in ids)
    # Every position uses the whole alphabet: 43 x 6 bits, of which 256 are random.
    assert all(len({task_id[i] for task_id in ids}) == 64 for i in range(42))


# shows: S90
def test_times_are_iso_8601_in_utc(clock: FakeClock) -> None:
    record = task(clock, ttl_ms=1500)
    assert record.created_at == record.last_updated_at == "2027-01-15T08:00:00.000Z"
    assert record.expires_at == START + 1.5
    assert task(clock, ttl_ms=None).expires_at is None


def test_records_are_frozen(clock: FakeClock) -> None:
    with pytest.raises(AttributeError):
        task(clock).status = "failed"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wanted", "granted"),
    [(None, HOUR_MS), (5_000, 5_000), (0, 1_000), (-1, 1_000), (10**15, 24 * HOUR_MS)],
)
def test_the_ttl_that_is_granted(wanted: int | None, granted: int) -> None:
    assert TaskLimits().grant_ttl(wanted) == granted


def test_an_unlimited_ttl_must_be_allowed(clock: FakeClock) -> None:
    free = TaskLimits(max_ttl_ms=None, default_ttl_ms=None)
    assert free.grant_ttl() is None
    assert free.grant_ttl(10**15) == 10**15


@pytest.mark.parametrize(
    "limits",
    [
        {"max_tasks": 0},
        {"max_ttl_ms": -1},
        {"default_ttl_ms": None},
        {"default_ttl_ms": 10, "max_ttl_ms": 9},
        {"max_result_bytes": RESERVE - 1},
    ],
)
def test_limits_that_make_no_sense(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        TaskLimits(**limits)


# Every store.


# shows: S90, S99
def test_a_task_is_readable_when_create_returns(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            record = await created(store, clock)
            assert await store.get(record.task_id, "ann") == record
            assert store.clock is clock
            assert store.limits == TaskLimits()

    run(main())


# shows: S96, S103
def test_a_foreign_an_expired_and_an_unknown_task_look_alike(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            mine = await created(store, clock, "ann")
            open_one = await created(store, clock, None)
            brief = await created(store, clock, "ann", ttl_ms=1_000)
            clock.now += 1
            for principal in ("bob", None, "", "ann "):
                assert await store.get(mine.task_id, principal) is None
            for principal in ("ann", "bob", ""):
                assert await store.get(open_one.task_id, principal) is None
            assert await store.get(brief.task_id, "ann") is None
            for unknown in ("", "x", "\ud800", "é", "a\0b", mine.task_id + "x"):
                assert await store.get(unknown, "ann") is None
            assert await store.get(mine.task_id, "ann") == mine
            assert (await store.page("bob", None, 10))[0] == []
            assert (await store.page(None, None, 10))[0] == [open_one]

    run(main())


def test_an_update_changes_and_stamps(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            record = await created(store, clock)
            clock.now += 2
            after = await store.update(record.task_id, complete)
            assert after is not None
            assert (after.status, after.outcome) == ("completed", RESULT)
            assert after.last_updated_at == "2027-01-15T08:00:02.000Z"
            assert await store.get(record.task_id, "ann") == after
            assert await store.update("unknown", complete) is None

    run(main())


def test_an_update_to_the_same_is_none(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            record = await created(store, clock)
            clock.now += 2
            assert await store.update(record.task_id, lambda r: replace(r)) == record

    run(main())


def test_a_clock_set_back_never_makes_an_update_precede(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            record = await created(store, clock)
            clock.now -= 100
            after = await store.update(record.task_id, complete)
            assert after is not None
            assert after.last_updated_at == record.created_at

    run(main())


# shows: S89, S94
def test_a_refused_change_leaves_the_task(make: Make, clock: FakeClock) -> None:
    def bug(record: TaskRecord) -> TaskRecord:
        raise LookupError("in the change")

    async def main() -> None:
        async with closing(make()) as store:
            record = await created(store, clock)
            with pytest.raises(LookupError, match="in the change"):
                await store.update(record.task_id, bug)
            with pytest.raises(IllegalTransition):
                await store.update(record.task_id, lambda r: replace(r, principal="bob"))
            assert await store.get(record.task_id, "ann") == record
            cancelled = await store.update(record.task_id, lambda r: transition(r, "cancelled"))
            for change in (complete, lambda r: replace(r, status_message="late")):
                with pytest.raises(IllegalTransition):
                    await store.update(record.task_id, change)
            assert await store.get(record.task_id, "ann") == cancelled

    run(main())


# shows: S89
def test_200_concurrent_updates_lose_nothing(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            record = await created(store, clock)

            async def one(i: int) -> None:
                await store.update(record.task_id, lambda r: ask(r, f"k{i}", QUESTION))

            await asyncio.gather(*(one(i) for i in range(200)))
            after = await store.get(record.task_id, "ann")
            assert after is not None
            assert after.asked_keys == set(after.input_requests) == {f"k{i}" for i in range(200)}

            # Of 200 that want to end it, one does.
            ends = (store.update(record.task_id, complete) for _ in range(200))
            results = await asyncio.gather(*ends, return_exceptions=True)
            refused = [r for r in results if isinstance(r, IllegalTransition)]
            assert len(refused) == 199

    run(main())


def test_expiry_follows_the_clock(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make(max_ttl_ms=None)) as store:
            forever = await created(store, clock, ttl_ms=None)
            long = await created(store, clock, ttl_ms=60_000)
            short = await created(store, clock, ttl_ms=1_000)
            clock.now += 0.999
            assert await store.get(short.task_id, "ann") == short
            clock.now += 0.001
            assert await store.get(short.task_id, "ann") is None
            assert await store.update(short.task_id, complete) is None
            assert (await store.page("ann", None, 9))[0] == [forever, long]
            clock.now += 59
            assert (await store.page("ann", None, 9))[0] == [forever]
            clock.now += 10**9
            assert await store.get(forever.task_id, "ann") == forever

    run(main())


def test_bounds_by_count(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make(max_tasks=5, max_tasks_per_principal=3)) as store:
            for _ in range(3):
                await created(store, clock, "ann", ttl_ms=1_000)
            with pytest.raises(StoreFull, match="3 tasks of this principal"):
                await created(store, clock, "ann")
            kept = [await created(store, clock, "bob") for _ in range(2)]
            with pytest.raises(StoreFull, match="5 tasks"):
                await created(store, clock, "cid")
            # Full for new ones; the old ones go on.
            assert await store.update(kept[0].task_id, complete) is not None
            clock.now += 1
            await created(store, clock, "cid")
            await created(store, clock, "ann")
            assert [r.task_id for r in (await store.page("bob", None, 9))[0]] == [
                r.task_id for r in kept
            ]

    run(main())


def test_bounds_by_bytes_never_stop_a_failure(make: Make, clock: FakeClock) -> None:
    total = 10 * RESERVE
    big = b"x" * (8 * RESERVE)

    async def main() -> None:
        async with closing(make(max_result_bytes=9 * RESERVE, max_total_bytes=total)) as store:
            first = await created(store, clock, ttl_ms=1_000)
            second = await created(store, clock)
            await store.update(first.task_id, lambda r: transition(r, "completed", outcome=big))
            with pytest.raises(StoreFull, match="bytes"):
                await store.update(
                    second.task_id, lambda r: transition(r, "completed", outcome=big)
                )
            third = await created(store, clock)
            with pytest.raises(StoreFull, match="bytes"):
                await created(store, clock)
            # A short error always fits, even now.
            failed = await store.update(
                second.task_id, lambda r: transition(r, "failed", error=ERROR)
            )
            assert failed is not None
            clock.now += 1  # the first one leaves
            after = await store.update(
                third.task_id, lambda r: transition(r, "completed", outcome=big)
            )
            assert after is not None
            assert after.outcome == big

    run(main())


def test_a_result_that_is_too_large(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make(max_result_bytes=RESERVE)) as store:
            record = await created(store, clock)
            big = b"x" * (RESERVE + 1)
            changes: list[Callable[[TaskRecord], TaskRecord]] = [
                lambda r: transition(r, "completed", outcome=big),
                lambda r: transition(r, "failed", error=big),
                lambda r: ask(r, "k", big),
                lambda r: ask(r, "k" * len(big), QUESTION),
                lambda r: replace(r, status_message="m" * len(big)),
            ]
            for change in changes:
                with pytest.raises(RecordTooLarge):
                    await store.update(record.task_id, change)
            assert await store.get(record.task_id, "ann") == record
            fits = await store.update(
                record.task_id, lambda r: transition(r, "completed", outcome=big[1:])
            )
            assert fits is not None

    run(main())


def test_a_new_task_must_be_new(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            record = await created(store, clock)
            with pytest.raises(StoreError):
                await store.create(record)
            with pytest.raises(ValueError, match="starts as 'working'"):
                await store.create(complete(task(clock)))
            for ttl in (None, 25 * HOUR_MS):
                with pytest.raises(ValueError, match="grant_ttl"):
                    await created(store, clock, ttl_ms=ttl)
            assert (await store.page("ann", None, 9))[0] == [record]

    run(main())


# shows: S95
def test_pages_with_insertions_and_expiries_in_between(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            ids = []
            for i in range(10):
                ttl = 1_000 if i in (0, 2, 3, 9) else HOUR_MS
                ids.append((await created(store, clock, ttl_ms=ttl)).task_id)
                await created(store, clock, "bob")
            first, position = await store.page("ann", None, 3)
            assert [r.task_id for r in first] == ids[:3]
            clock.now += 1  # the position's own task and its neighbours are gone
            ids.append((await created(store, clock)).task_id)
            seen: list[str] = []
            while position is not None:
                page, position = await store.page("ann", position, 3)
                assert page, "a position promises another page"
                seen += [r.task_id for r in page]
            assert seen == [*ids[4:9], ids[10]]
            for task_id in seen:
                assert await store.get(task_id, "ann") is not None

    run(main())


# shows: S95
def test_the_last_page_says_so(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            assert await store.page("ann", None, 2) == ([], None)
            for _ in range(4):
                await created(store, clock)
            _, position = await store.page("ann", None, 2)
            last, end = await store.page("ann", position, 2)
            assert (len(last), end) == (2, None)
            assert await store.page("ann", "999999999999999999", 2) == ([], None)

    run(main())


def test_a_page_shows_heads(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            done, waiting = await created(store, clock), await created(store, clock)
            await store.update(done.task_id, complete)
            await store.update(waiting.task_id, lambda r: ask(r, "k", QUESTION))
            heads, _ = await store.page("ann", None, 9)
            assert [r.status for r in heads] == ["completed", "input_required"]
            assert all((r.outcome, r.error, r.input_requests) == (None, None, {}) for r in heads)
            whole = await store.get(waiting.task_id, "ann")
            assert whole is not None
            assert whole.input_requests == {"k": QUESTION}

    run(main())


# shows: S93
@pytest.mark.parametrize("position", ["", "x", "-1", "1.0", " 1", "²", "1" * 19, "0x1"])
def test_positions_that_nobody_gave_out(make: Make, clock: FakeClock, position: str) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            with pytest.raises(InvalidPosition):
                await store.page("ann", position, 1)
            with pytest.raises(ValueError, match="at least one"):
                await store.page("ann", None, 0)

    run(main())


def test_a_closed_store_says_so(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        store = make()
        record = await created(store, clock)
        await store.close()
        await store.close()
        calls: list[Coroutine[Any, Any, Any]] = [
            store.create(task(clock)),
            store.get(record.task_id, "ann"),
            store.update(record.task_id, complete),
            store.page("ann", None, 1),
            store.recover("restart"),
        ]
        for call in calls:
            with pytest.raises(StoreError, match="closed"):
                await call

    run(main())


def test_recover_leaves_the_tasks_of_this_process(make: Make, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(make()) as store:
            record = await created(store, clock)
            assert await store.recover("restart") == 0
            assert await store.get(record.task_id, "ann") == record

    run(main())


def test_errors_have_one_base() -> None:
    for error in (IllegalTransition, InvalidPosition, RecordTooLarge, StoreError, StoreFull):
        assert issubclass(error, DovetailError)


# Memory.


def test_memory_stays_bounded_over_100_000_creates(clock: FakeClock) -> None:
    store = MemoryStore(TaskLimits(max_tasks=100, max_tasks_per_principal=40), clock)

    async def cycle(count: int) -> int:
        refused = 0
        for i in range(count):
            clock.now += 0.01
            try:
                record = await created(store, clock, f"p{i % 3}-{i // 1000}", ttl_ms=1_050)
                await store.update(record.task_id, complete)
            except StoreFull:
                refused += 1
        return refused

    async def main() -> None:
        await cycle(5_000)
        before = sys.getallocatedblocks()
        refused = await cycle(100_000)
        growth = sys.getallocatedblocks() - before
        assert 0 < refused < 10_000
        assert growth < 1_000  # one leaked object in each cycle would be 100,000
        clock.now += 2
        assert await store.page("p0-0", None, 1) == ([], None)
        assert (len(store._records), len(store._order), len(store._expiries)) == (0, 0, 0)
        assert store._bytes == 0

    run(main())


# SQLite.


def test_a_sqlite_file_stays_bounded(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "tasks.db"

    async def main() -> None:
        store = QuickSqliteStore(path, TaskLimits(max_tasks=50), clock)
        sizes = []
        async with closing(store):
            for i in range(4_000):
                clock.now += 1
                record = await created(store, clock, ttl_ms=40_000)
                await store.update(
                    record.task_id, lambda r: transition(r, "completed", outcome=b"x" * 5_000)
                )
                if i in (1_000, 3_999):
                    sizes.append(path.stat().st_size)
        assert sizes[1] <= sizes[0] * 1.2
        with contextlib.closing(sqlite3.connect(path)) as db:
            counted = db.execute("SELECT count(*), sum(charge) FROM tasks").fetchone()
            assert db.execute("SELECT tasks, bytes FROM usage").fetchone() == counted
            assert counted[0] <= 50

    run(main())


def test_the_files_are_private_and_leave_nothing(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "tasks.db"

    async def main() -> None:
        umask = os.umask(0)
        try:
            async with closing(SqliteStore(path, clock=clock)) as store:
                await created(store, clock)
                modes = {file.name: file.stat().st_mode & 0o777 for file in files(tmp_path)}
                assert len(modes) == 4  # database, log, shared memory, owner
                assert set(modes.values()) == {0o600}
        finally:
            os.umask(umask)
        assert [file.name for file in files(tmp_path)] == ["tasks.db"]

    run(main())


def test_the_writer_is_one_thread_and_it_ends(tmp_path: Path, clock: FakeClock) -> None:
    def ours() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name.startswith("dovetail-tasks")]

    async def main() -> None:
        loop_thread = threading.current_thread()
        ran_in: list[threading.Thread] = []

        def note(record: TaskRecord) -> TaskRecord:
            ran_in.append(threading.current_thread())
            return record

        async with closing(SqliteStore(tmp_path / "tasks.db", clock=clock)) as store:
            record = await created(store, clock)
            await asyncio.gather(*(store.update(record.task_id, note) for _ in range(20)))
            assert len(ours()) == 1
        assert len(set(ran_in)) == 1
        assert loop_thread not in ran_in
        ran_in[0].join(10)
        assert ours() == []

    run(main())


CHILD = """
import asyncio, sys
from dovetail.server.tasks import TaskLimits, ask, new_task, transition
from dovetail.server.tasks.sqlite import SqliteStore

path, mode, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

async def make(store):
    record = new_task(method="tools/call", name="dig", principal="ann",
                      ttl_ms=store.limits.grant_ttl(), now=store.clock())
    await store.create(record)
    return record.task_id

async def finish(store, task_id):
    await store.update(
        task_id, lambda r: transition(r, "completed", outcome=b'{"n":"%s"}' % task_id.encode()))

async def main():
    store = SqliteStore(path, TaskLimits(max_tasks=10**6, max_tasks_per_principal=10**6))
    if mode == "hold":
        ids = [await make(store) for _ in range(3)]
        await finish(store, ids[0])
        await store.update(ids[2], lambda r: ask(r, "k", b"{}"))
        print(*ids, flush=True)
        await asyncio.Event().wait()
    for i in range(count):
        task_id = await make(store)
        await finish(store, task_id)
        print(task_id, flush=True)
    await store.close()

asyncio.run(main())
"""


@contextlib.contextmanager
def child(path: Path, mode: str, count: int = 10**9) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), mode, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> str:
    """SIGKILL, and what it had still printed."""
    process.send_signal(signal.SIGKILL)
    assert process.stdout is not None
    rest = process.stdout.read()
    assert process.wait() == -signal.SIGKILL
    return rest


# shows: S99; issue 3, point 5: after kill -9 a finished result is served, a running task failed
@pytest.mark.parametrize("with_recover", [True, False])
def test_kill_9_while_tasks_run(tmp_path: Path, with_recover: bool) -> None:
    path = tmp_path / "tasks.db"
    with child(path, "hold") as process:
        assert process.stdout is not None
        done, working, waiting = process.stdout.readline().split()
        kill(process)

    async def main() -> None:
        async with closing(SqliteStore(path)) as store:
            if with_recover:
                assert await store.recover("The server was restarted") == 2
                assert await store.recover("The server was restarted") == 0
            finished = await store.get(done, "ann")
            assert finished is not None
            assert finished.outcome == b'{"n":"%s"}' % done.encode()
            reason = "The server was restarted" if with_recover else "has ended"
            for task_id in (working, waiting):
                lost = await store.get(task_id, "ann")
                assert lost is not None
                assert (lost.status, lost.input_requests) == ("failed", {})
                assert lost.error is not None
                error = json.loads(lost.error)
                assert (error["code"], error["message"]) == (-32603, "Internal error")
                assert reason in error["data"]
                assert lost.status_message == error["data"]
                with pytest.raises(IllegalTransition):
                    await store.update(task_id, complete)
        # The dead owner's file is gone as well.
        assert [file.name for file in files(tmp_path)] == ["tasks.db"]

    run(main())


# shows: S99
def test_kill_9_in_the_middle_of_writing(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with child(path, "write") as process:
        assert process.stdout is not None
        told = [process.stdout.readline().strip() for _ in range(100)]
        told += [line for line in kill(process).splitlines(keepends=False) if len(line) == 43]

    async def main() -> None:
        async with closing(SqliteStore(path)) as store:
            assert await store.recover("restart") in (0, 1)
            for task_id in told:
                record = await store.get(task_id, "ann")
                assert record is not None
                assert record.outcome == b'{"n":"%s"}' % task_id.encode()
            heads, _ = await store.page("ann", None, 10**6)
            assert len(heads) - len(told) in (0, 1)
            assert {r.status for r in heads} <= {"completed", "failed"}
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    run(main())


def test_recover_spares_the_tasks_of_a_living_process(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"

    async def main() -> None:
        async with closing(SqliteStore(path)) as store:
            await store.recover("restart")
            with child(path, "hold") as process:
                assert process.stdout is not None
                line = await asyncio.to_thread(process.stdout.readline)
                _, working, waiting = line.split()
                assert await store.recover("restart") == 0
                for task_id, status in ((working, "working"), (waiting, "input_required")):
                    record = await store.get(task_id, "ann")
                    assert record is not None
                    assert record.status == status
                # Another process may cancel it, too.
                await store.update(waiting, lambda r: transition(r, "cancelled"))
                kill(process)
            # This process did not restart, and learns of the death all the same.
            heads, _ = await store.page("ann", None, 9)
            assert [r.status for r in heads] == ["completed", "failed", "cancelled"]

    run(main())


def test_a_dead_owner_is_seen_by_update_first(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with child(path, "hold") as process:
        assert process.stdout is not None
        working = process.stdout.readline().split()[1]
        kill(process)

    async def main() -> None:
        async with closing(SqliteStore(path)) as store:
            with pytest.raises(IllegalTransition, match="'failed'"):
                await store.update(working, complete)

    run(main())


def test_two_stores_of_one_process_are_two_owners(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "tasks.db"

    async def main() -> None:
        async with closing(SqliteStore(path, clock=clock)) as left:
            async with closing(SqliteStore(path, clock=clock)) as right:
                record = await created(right, clock)
                assert await left.recover("restart") == 0
                assert await left.get(record.task_id, "ann") == record
            lost = await left.get(record.task_id, "ann")
            assert lost is not None
            assert lost.status == "failed"

    run(main())


def test_four_processes_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with contextlib.ExitStack() as stack:
        # All four race to make the file as well.
        writers = [stack.enter_context(child(path, "write", 25)) for _ in range(4)]
        told = [writer.communicate(timeout=60)[0].split() for writer in writers]
        assert [writer.returncode for writer in writers] == [0] * 4

    async def main() -> None:
        async with closing(SqliteStore(path)) as store:
            assert await store.recover("restart") == 0
            heads, _ = await store.page("ann", None, 1000)
            assert {r.task_id for r in heads} == set(itertools.chain(*told))
            assert [r.status for r in heads] == ["completed"] * 100
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert db.execute("SELECT tasks FROM usage").fetchone() == (100,)
            assert db.execute("SELECT count(*) FROM owners").fetchone() == (0,)

    run(main())


def test_a_file_that_is_no_database(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "tasks.db"
    path.write_bytes(b"not a database, " * 500)

    async def main() -> None:
        async with closing(SqliteStore(path, clock=clock)) as store:
            for _ in range(2):
                with pytest.raises(StoreError, match="not a database") as caught:
                    await created(store, clock)
                assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
            # Once the file is mended, the same store works.
            path.unlink()
            record = await created(store, clock)
            assert await store.get(record.task_id, "ann") == record

    run(main())


def test_a_file_with_broken_pages(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "tasks.db"

    async def main() -> None:
        async with closing(SqliteStore(path, clock=clock)) as store:
            records = [await created(store, clock) for _ in range(50)]
        whole = path.read_bytes()
        path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
        async with closing(SqliteStore(path, clock=clock)) as store:
            with pytest.raises(StoreError):
                await store.get(records[0].task_id, "ann")

    run(main())


@pytest.mark.parametrize("column", ["head", "payload"])
def test_a_record_that_cannot_be_read(tmp_path: Path, clock: FakeClock, column: str) -> None:
    path = tmp_path / "tasks.db"

    async def main() -> None:
        async with closing(SqliteStore(path, clock=clock)) as store:
            broken, good = await created(store, clock), await created(store, clock)
            with contextlib.closing(sqlite3.connect(path)) as db:
                query = f"UPDATE tasks SET {column} = ? WHERE task_id = ?"
                db.execute(query, (b"\xc1", broken.task_id))
                db.commit()
            for call in (
                store.get(broken.task_id, "ann"),
                store.update(broken.task_id, complete),
            ):
                with pytest.raises(StoreError, match="cannot be read"):
                    await call
            assert await store.get(good.task_id, "ann") == good
            assert await store.update(good.task_id, complete) is not None

    run(main())


def test_a_full_disk(tmp_path: Path, clock: FakeClock) -> None:
    result = b"x" * 20_000

    async def main() -> None:
        async with closing(SmallDiskStore(tmp_path / "tasks.db", clock=clock)) as store:
            first = await created(store, clock, ttl_ms=1_000)
            done = await store.update(
                first.task_id, lambda r: transition(r, "completed", outcome=result)
            )
            records = [await created(store, clock) for _ in range(10)]
            stored = 0
            with pytest.raises(StoreError, match="full") as caught:  # noqa: PT012
                for record in records:
                    await store.update(
                        record.task_id, lambda r: transition(r, "completed", outcome=result)
                    )
                    stored += 1
            assert not isinstance(caught.value, StoreFull)
            assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
            # What was there is there; the task whose result did not fit is as it was,
            # and can still be failed.
            assert await store.get(first.task_id, "ann") == done
            unlucky = records[stored]
            assert await store.get(unlucky.task_id, "ann") == unlucky
            failed = await store.update(
                unlucky.task_id, lambda r: transition(r, "failed", error=ERROR)
            )
            assert await store.get(unlucky.task_id, "ann") == failed
            # And when something expires, there is room again.
            clock.now += 1
            late = await created(store, clock)
            after = await store.update(
                late.task_id, lambda r: transition(r, "completed", outcome=result[:10_000])
            )
            assert after is not None
            assert await store.get(late.task_id, "ann") == after

    run(main())


def test_a_newer_schema_is_refused_and_untouched(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "tasks.db"

    async def main() -> None:
        async with closing(SqliteStore(path, clock=clock)) as store:
            await created(store, clock)
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA user_version = 2")
        async with closing(SqliteStore(path, clock=clock)) as store:
            with pytest.raises(StoreError, match="schema version 2; this Dovetail knows version 1"):
                await store.recover("restart")
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT count(*) FROM tasks").fetchone() == (1,)

    run(main())


def test_a_file_system_without_wal_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    class DotfileStore(SqliteStore):
        def _connect(self) -> sqlite3.Connection:
            uri = f"{self._path.as_uri()}?vfs=unix-dotfile"
            return sqlite3.connect(uri, uri=True, isolation_level=None)

    async def main() -> None:
        async with closing(DotfileStore(tmp_path / "tasks.db", clock=clock)) as store:
            with pytest.raises(StoreError, match="without shared memory"):
                await created(store, clock)

    run(main())


def test_a_rollback_that_fails_costs_the_connection_only(tmp_path: Path, clock: FakeClock) -> None:
    class Stubborn(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "ROLLBACK":
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, *values)

    class StubbornStore(SqliteStore):
        connections = 0

        def _connect(self) -> sqlite3.Connection:
            self.connections += 1
            return sqlite3.connect(self._path, isolation_level=None, factory=Stubborn)

    async def main() -> None:
        store = StubbornStore(tmp_path / "tasks.db", clock=clock)
        async with closing(store):
            record = await created(store, clock)
            with pytest.raises(IllegalTransition):
                await store.update(record.task_id, lambda r: replace(r, principal="bob"))
            # The same owner as before, so the task still runs.
            assert await store.recover("restart") == 0
            assert await store.get(record.task_id, "ann") == record
            assert await store.update(record.task_id, complete) is not None
            assert store.connections == 2
        assert [file.name for file in files(tmp_path)] == ["tasks.db"]

    run(main())


def test_an_owner_that_cannot_enter_leaves_nothing(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "tasks.db"

    async def main() -> None:
        async with closing(SqliteStore(path, clock=clock)) as store:
            await created(store, clock)
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("DROP TABLE owners")
        async with closing(SqliteStore(path, clock=clock)) as store:
            with pytest.raises(StoreError, match="no such table"):
                await store.recover("restart")
            assert not [file for file in files(tmp_path) if "owner" in file.name]

    run(main())


def test_a_database_of_another_program_is_untouched(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()

    async def main() -> None:
        async with closing(SqliteStore(path, clock=clock)) as store:
            with pytest.raises(StoreError, match="another program"):
                await created(store, clock)

    run(main())
    assert path.read_bytes() == before


def test_a_folder_that_is_missing(tmp_path: Path, clock: FakeClock) -> None:
    async def main() -> None:
        async with closing(SqliteStore(tmp_path / "no" / "tasks.db", clock=clock)) as store:
            with pytest.raises(StoreError, match="No such file") as caught:
                await created(store, clock)
            assert isinstance(caught.value.__cause__, OSError)
            (tmp_path / "no").mkdir()
            await created(store, clock)
            assert len((await store.page("ann", None, 9))[0]) == 1

    run(main())


def test_a_database_that_stays_locked(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.server.tasks.sqlite._BUSY_SECONDS", 0.05)
    path = tmp_path / "tasks.db"

    async def main() -> None:
        async with closing(SqliteStore(path, clock=clock)) as store:
            record = await created(store, clock)
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreError, match="locked"):
                    await store.update(record.task_id, complete)
                # Readers do not wait for a writer.
                assert await store.get(record.task_id, "ann") == record
            assert await store.update(record.task_id, complete) is not None

    run(main())


def test_opening_waits_for_another_that_sets_up(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.server.tasks.sqlite._BUSY_SECONDS", 0.05)
    path = tmp_path / "tasks.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")

    async def main() -> None:
        async with closing(SqliteStore(path, clock=clock)) as store:
            with pytest.raises(StoreError, match="locked"):
                await created(store, clock)
            monkeypatch.setattr("dovetail.server.tasks.sqlite._BUSY_SECONDS", 5.0)
            monkeypatch.setattr(SqliteStore, "_connect", impatient)
            # The other one finishes while we pause.
            monkeypatch.setattr("time.sleep", lambda seconds: other.close())
            record = await created(store, clock)
            assert await store.get(record.task_id, "ann") == record

    def impatient(store: SqliteStore) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=0, isolation_level=None)

    with contextlib.closing(other):
        run(main())


def test_a_cancelled_call_leaves_the_store_working(tmp_path: Path, clock: FakeClock) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(record: TaskRecord) -> TaskRecord:
        entered.set()
        assert go_on.wait(10)
        return replace(record, status_message="slow")

    async def main() -> None:
        async with closing(SqliteStore(tmp_path / "tasks.db", clock=clock)) as store:
            record = await created(store, clock)
            running = asyncio.create_task(store.update(record.task_id, slow))
            await asyncio.to_thread(entered.wait, 10)
            queued = asyncio.create_task(store.update(record.task_id, complete))
            # The loop is free while the thread is busy.
            await asyncio.to_thread(lambda: None)
            for call in (running, queued):
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            go_on.set()
            after = await store.get(record.task_id, "ann")
            assert after is not None
            assert (after.status, after.status_message) == ("working", "slow")

    run(main())


def test_sqlite_is_not_imported_without_need() -> None:
    code = "import sys, dovetail.server.tasks; sys.exit('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_indexes_serve_the_queries(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "tasks.db"

    async def main() -> None:
        async with closing(SqliteStore(path, clock=clock)) as store:
            await created(store, clock)

    run(main())
    from dovetail.server.tasks import sqlite as module

    queries: list[tuple[str, tuple[Any, ...], str]] = [
        (module._SELECT, ("x", 0.0), "task_id=?"),
        (module._PAGE, ("ann", 0, 0.0, 9), "tasks_principal (principal=? AND number>?)"),
        (module._PAGE, (None, 0, 0.0, 9), "tasks_principal (principal=? AND number>?)"),
        ("DELETE FROM tasks WHERE expires_at <= ?", (0.0,), "tasks_expiry"),
        ("SELECT head FROM tasks WHERE owner = ?", ("x",), "tasks_owner"),
        ("SELECT count(*) FROM tasks WHERE principal IS ?", ("x",), "tasks_principal"),
    ]
    with contextlib.closing(sqlite3.connect(path)) as db:
        for query, values, expected in queries:
            plan = db.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()
            assert expected in plan[0][3]


# The SQLite store against the memory store as its model.

PRINCIPALS = st.sampled_from(["ann", "bob", None])
MACHINE_LIMITS = TaskLimits(
    max_tasks=6,
    max_tasks_per_principal=4,
    max_ttl_ms=None,
    max_result_bytes=2 * RESERVE,
    max_total_bytes=8 * RESERVE,
)
CHANGES: dict[str, Callable[[TaskRecord], TaskRecord]] = {
    "ask a": lambda r: ask(r, "a", QUESTION),
    "ask b": lambda r: ask(r, "b", b"q" * (RESERVE // 2)),
    "answer a": lambda r: answer(r, ["a"]),
    "answer both": lambda r: answer(r, ["a", "b"]),
    "say": lambda r: replace(r, status_message="half way"),
    "complete": complete,
    "complete, large": lambda r: transition(r, "completed", outcome=b"x" * (2 * RESERVE)),
    "complete, too large": lambda r: transition(r, "completed", outcome=b"x" * (3 * RESERVE)),
    "fail": lambda r: transition(r, "failed", error=ERROR),
    "cancel": lambda r: transition(r, "cancelled"),
    "cheat": lambda r: replace(r, status="completed", outcome=None),
    "nothing": lambda r: r,
}


class StoresAgree(RuleBasedStateMachine):
    tasks: Bundle[str] = Bundle("tasks")
    folder: Path
    counter = itertools.count()

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.path = self.folder / f"{next(self.counter)}.db"
        self.model = MemoryStore(MACHINE_LIMITS, self.clock)
        self.store = self.open_store()
        self.ids: list[str] = []

    def open_store(self) -> TaskStore:
        return QuickSqliteStore(self.path, MACHINE_LIMITS, self.clock)

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()

    def both(self, call: Callable[[TaskStore], Coroutine[Any, Any, Any]]) -> Any:
        """The answer, or the error, that both stores give."""
        expected, actual = (self.outcome(call(store)) for store in (self.model, self.store))
        assert actual == expected
        return actual

    def outcome(self, call: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.runner.run(call)
        except DovetailError as error:
            return type(error), str(error)

    @rule(target=tasks, principal=PRINCIPALS, ttl=st.sampled_from([None, 1_000, 5_000]))
    def create(self, principal: str | None, ttl: int | None) -> Any:
        record = task(self.clock, principal, ttl)
        if self.both(lambda store: store.create(record)) is not None:
            return multiple()
        self.ids.append(record.task_id)
        return record.task_id

    @rule(task_id=tasks, name=st.sampled_from(sorted(CHANGES)))
    def update(self, task_id: str, name: str) -> None:
        self.both(lambda store: store.update(task_id, CHANGES[name]))

    @rule(task_id=tasks, principal=PRINCIPALS)
    def get(self, task_id: str, principal: str | None) -> None:
        self.both(lambda store: store.get(task_id, principal))

    @rule(principal=PRINCIPALS, limit=st.integers(1, 3))
    def walk(self, principal: str | None, limit: int) -> None:
        listed: list[str] = []
        position: str | None = None
        while True:
            page, position = self.both(lambda store, at=position: store.page(principal, at, limit))
            listed += [record.task_id for record in page]
            if position is None:
                break
        gettable = [t for t in self.ids if self.both(lambda store, t=t: store.get(t, principal))]
        assert listed == gettable

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(with_recover=st.booleans())
    def reopen(self, with_recover: bool) -> None:
        self.runner.run(self.store.close())
        self.store = self.open_store()
        reason = "The process that ran this task has ended"
        error = json.dumps(
            {"code": -32603, "message": "Internal error", "data": reason}, separators=(",", ":")
        ).encode()
        lost = 0
        for task_id in self.ids:
            with contextlib.suppress(IllegalTransition):
                after = self.runner.run(
                    self.model.update(
                        task_id,
                        lambda r: transition(r, "failed", error=error, status_message=reason),
                    )
                )
                lost += after is not None
        if with_recover:
            assert self.runner.run(self.store.recover(reason)) == lost
        else:  # found by whoever reads first
            for principal in ("ann", "bob", None):
                self.both(lambda store, p=principal: store.page(p, None, 9))


class RedisAgrees(StoresAgree):
    """The same, except what becomes of a dead owner: that takes a lease (tests/nodes)."""

    url: str
    reopen = None

    def open_store(self) -> TaskStore:
        namespace = f"{self.folder.name} {self.path.name}"
        return RedisStore(self.url, MACHINE_LIMITS, self.clock, namespace=namespace)


def agree(machine: type[RuleBasedStateMachine]) -> None:
    case = machine.TestCase
    case.settings = settings(
        max_examples=40,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    case().runTest()


def test_the_stores_agree(tmp_path: Path) -> None:
    agree(type("Machine", (StoresAgree,), {"folder": tmp_path}))
    assert any(tmp_path.iterdir())


def test_redis_agrees(tmp_path: Path, redis_url: str) -> None:
    agree(type("Machine", (RedisAgrees,), {"folder": tmp_path, "url": redis_url}))
