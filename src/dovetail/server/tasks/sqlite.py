"""Tasks in a SQLite file: they survive the process, and may be shared by several.

What is kept where. A row has the encoded record in two parts, ``head`` (what a
list shows) and ``payload`` (what the task carries), and beside them only the
columns that a query needs.

Threads. One connection, used from one thread of our own, so the event loop never
waits for a disk. A ThreadPoolExecutor of one thread is enough: its jobs are short
and end by themselves, at the latest after the busy timeout.

Durability. WAL with ``synchronous=FULL``: what `create` or `update` returned from
survives a power cut, not just the end of the process. NORMAL would be 2 ms faster
per write, but "durable before the handle is returned" (S99) would then depend on
the machine; a task is seconds of work and is written four or five times.

Owners. Whoever runs a task is its owner until it ends, and a task whose owner is
dead has failed. An owner proves its life with a lock that the system drops when
the process ends, however it ends: a SQLite lock on an empty file beside the
database, so it works wherever the database does, and between two stores of one
process too. A process id would need a start time that Python cannot read
portably, and is wrong across containers; a lease with a heartbeat needs a timer,
and keeps a dead task "working" until it runs out. WAL works only among processes
of one machine, so the lock is seen by everybody who can open the file.

The owner takes its lock before it enters its name in ``owners``, and only names
found there are tested: nobody mistakes an owner that is just starting for a dead one.
"""

import asyncio
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from dovetail.server.tasks.encoding import decoded, decoded_head, encoded, failing
from dovetail.server.tasks.record import StoreError, TaskRecord
from dovetail.server.tasks.store import (
    Change,
    Clock,
    TaskLimits,
    apply_change,
    charge,
    check_new,
    check_page,
    check_room,
)

__all__ = ["SqliteStore"]

_T = TypeVar("_T")

# Refuses a database of another program ("dvtk"), and one of a later Dovetail.
_APPLICATION = 0x6476746B
_VERSION = 1

# Seconds to wait for another process that writes. Its transactions take
# milliseconds; whoever holds the file this long is stuck.
_BUSY_SECONDS = 5.0

# A write-ahead log that once held a large result shrinks to this afterwards.
_LOG_BYTES = 16 * 1024 * 1024

_LOST = "The process that ran this task has ended"

# AUTOINCREMENT: a number is never given out again, so a page position stays right
# when the newest task is gone. `owner` is empty in a task that has ended.
# `usage` is kept by triggers: the bounds must not cost a scan for each task.
_SCHEMA = (
    """CREATE TABLE tasks (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        task_id TEXT NOT NULL UNIQUE,
        principal TEXT,
        owner TEXT,
        expires_at REAL,
        charge INTEGER NOT NULL,
        head BLOB NOT NULL,
        payload BLOB NOT NULL
    )""",
    "CREATE INDEX tasks_principal ON tasks (principal, number)",
    "CREATE INDEX tasks_expiry ON tasks (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX tasks_owner ON tasks (owner) WHERE owner IS NOT NULL",
    "CREATE TABLE owners (name TEXT PRIMARY KEY)",
    "CREATE TABLE usage (tasks INTEGER NOT NULL, bytes INTEGER NOT NULL)",
    "INSERT INTO usage VALUES (0, 0)",
    """CREATE TRIGGER tasks_added AFTER INSERT ON tasks BEGIN
        UPDATE usage SET tasks = tasks + 1, bytes = bytes + NEW.charge;
    END""",
    """CREATE TRIGGER tasks_removed AFTER DELETE ON tasks BEGIN
        UPDATE usage SET tasks = tasks - 1, bytes = bytes - OLD.charge;
    END""",
    """CREATE TRIGGER tasks_changed AFTER UPDATE OF charge ON tasks BEGIN
        UPDATE usage SET bytes = bytes + NEW.charge - OLD.charge;
    END""",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)

_INSERT = """INSERT INTO tasks (task_id, principal, owner, expires_at, charge, head, payload)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_SELECT = """SELECT head, payload, owner FROM tasks
    WHERE task_id = ? AND (expires_at IS NULL OR expires_at > ?)"""
_UPDATE = "UPDATE tasks SET owner = ?, charge = ?, head = ?, payload = ? WHERE task_id = ?"
_PAGE = """SELECT number, head, owner FROM tasks WHERE principal IS ? AND number > ?
    AND (expires_at IS NULL OR expires_at > ?) ORDER BY number LIMIT ?"""


class SqliteStore:
    """Tasks in the file ``path``, which is made (for its user only) if it is missing.

    The file is opened by the first call; a failure to open is a `StoreError` of
    that call, and the next call tries again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        limits: TaskLimits | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._path = Path(path).absolute()
        self._limits = limits or TaskLimits()
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dovetail-tasks")
        self._closed = False
        # Both belong to the thread.
        self._db: sqlite3.Connection | None = None
        self._owner: _Owner | None = None

    @property
    def limits(self) -> TaskLimits:
        return self._limits

    @property
    def clock(self) -> Clock:
        return self._clock

    async def create(self, record: TaskRecord) -> None:
        check_new(record, self._limits)
        await self._run(lambda db: self._create(db, record))

    async def get(self, task_id: str, principal: str | None) -> TaskRecord | None:
        record = await self._run(lambda db: self._get(db, task_id))
        return record if record is not None and record.principal == principal else None

    async def update(self, task_id: str, change: Change) -> TaskRecord | None:
        return await self._run(lambda db: self._update(db, task_id, change))

    async def page(
        self, principal: str | None, after: str | None, limit: int
    ) -> tuple[list[TaskRecord], str | None]:
        start = check_page(after, limit)
        return await self._run(lambda db: self._page(db, principal, start, limit))

    async def recover(self, reason: str) -> int:
        return await self._run(lambda db: self._recover(db, reason))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        closed = asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        # Ends the thread after what it still has to do; it does not wait here.
        self._thread.shutdown(wait=False)
        await closed

    # Below here everything runs in the store's own thread.

    async def _run(self, job: Callable[[sqlite3.Connection], _T]) -> _T:
        if self._closed:
            raise StoreError("The task store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._guard, job)

    def _guard(self, job: Callable[[sqlite3.Connection], _T]) -> _T:
        """The one place where foreign exceptions are translated."""
        try:
            return job(self._database())
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"The task store {self._path} failed: {error}") from error
        finally:
            # A rollback that failed too: the next call starts on a new connection.
            if self._db is not None and self._db.in_transaction:
                self._db.close()
                self._db = None

    def _database(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = self._open()
        return self._db

    def _open(self) -> sqlite3.Connection:
        _make_private(self._path)
        db = self._connect()
        try:
            _prepare(db, self._path)
            self._enter(db)
        except BaseException:
            db.close()
            raise
        return db

    def _enter(self, db: sqlite3.Connection) -> None:
        """Become an owner, or stay the one this store was on its last connection."""
        owner = self._owner or _Owner(self._path)
        try:
            with _transaction(db):
                db.execute("INSERT OR IGNORE INTO owners VALUES (?)", (owner.name,))
        except BaseException:
            if owner is not self._owner:
                owner.release()
            raise
        self._owner = owner

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)

    def _close(self) -> None:
        """Let go of everything, even of a database that does not work any more."""
        owner, db = self._owner, self._db
        self._owner = self._db = None
        with suppress(sqlite3.Error):
            if owner is not None and db is not None:
                # With tasks still running the name stays: it is what finds them.
                unused = "NOT EXISTS (SELECT 1 FROM tasks WHERE owner = name)"
                db.execute(f"DELETE FROM owners WHERE name = ? AND {unused}", (owner.name,))
        if db is not None:
            db.close()
        if owner is not None:
            owner.release()

    def _create(self, db: sqlite3.Connection, record: TaskRecord) -> None:
        with _transaction(db):
            db.execute("DELETE FROM tasks WHERE expires_at <= ?", (self._clock(),))
            tasks, total = db.execute("SELECT tasks, bytes FROM usage").fetchone()
            (mine,) = db.execute(
                "SELECT count(*) FROM tasks WHERE principal IS ?", (record.principal,)
            ).fetchone()
            check_room(
                self._limits,
                tasks=tasks + 1,
                of_principal=mine + 1,
                total_bytes=total + charge(record),
            )
            identity = (record.task_id, record.principal)
            state = (self._name, record.expires_at, charge(record))
            db.execute(_INSERT, (*identity, *state, *encoded(record)))

    def _get(self, db: sqlite3.Connection, task_id: str) -> TaskRecord | None:
        row = self._current(db, task_id)
        return None if row is None else decoded(row[0], row[1])

    def _current(self, db: sqlite3.Connection, task_id: str) -> Any:
        """The row, after a look at whether somebody still works on it."""
        row = self._select(db, task_id)
        if row is not None and self._bury(db, [row[2]]):
            row = self._select(db, task_id)
        return row

    def _select(self, db: sqlite3.Connection, task_id: str) -> Any:
        if not task_id.isascii():  # none of ours, and perhaps no text that SQLite takes
            return None
        return db.execute(_SELECT, (task_id, self._clock())).fetchone()

    def _update(self, db: sqlite3.Connection, task_id: str, change: Change) -> TaskRecord | None:
        self._current(db, task_id)  # ``change`` must not see a dead task as a running one
        with _transaction(db):
            row = self._select(db, task_id)
            if row is None:
                return None
            record = decoded(row[0], row[1])
            after = apply_change(record, change, self._limits, self._clock())
            if after is not record:
                self._check_growth(db, charge(after) - charge(record))
                _write(db, after, row[2])
        return after

    def _check_growth(self, db: sqlite3.Connection, growth: int) -> None:
        if growth <= 0:
            return
        # Only here, not in each update: expired payloads matter when room is needed.
        db.execute("DELETE FROM tasks WHERE expires_at <= ?", (self._clock(),))
        (total,) = db.execute("SELECT bytes FROM usage").fetchone()
        check_room(self._limits, tasks=0, of_principal=0, total_bytes=total + growth)

    def _page(
        self, db: sqlite3.Connection, principal: str | None, start: int, limit: int
    ) -> tuple[list[TaskRecord], str | None]:
        query = (principal, start, self._clock(), limit + 1)  # one more tells if there is more
        rows = db.execute(_PAGE, query).fetchall()
        if self._bury(db, {row[2] for row in rows}):
            rows = db.execute(_PAGE, query).fetchall()
        heads = [decoded_head(row[1]) for row in rows[:limit]]
        return heads, str(rows[limit - 1][0]) if len(rows) > limit else None

    def _recover(self, db: sqlite3.Connection, reason: str) -> int:
        owners = db.execute("SELECT name FROM owners").fetchall()
        return self._bury(db, [name for (name,) in owners], reason)

    @property
    def _name(self) -> str:
        return "" if self._owner is None else self._owner.name

    def _bury(
        self, db: sqlite3.Connection, owners: Iterable[str | None], reason: str = _LOST
    ) -> int:
        """Fail what dead owners were running; how many tasks that were.

        Readers do this too, not just `recover`: with several processes on one file,
        the one that dies may not be the one that starts next.
        """
        dead = [
            name
            for name in owners
            if name is not None and name != self._name and not _is_alive(self._path, name)
        ]
        return sum(self._bury_one(db, name, reason) for name in dead)

    def _bury_one(self, db: sqlite3.Connection, owner: str, reason: str) -> int:
        now = self._clock()
        with _transaction(db):
            db.execute("DELETE FROM tasks WHERE expires_at <= ?", (now,))
            rows = db.execute("SELECT head, payload FROM tasks WHERE owner = ?", (owner,))
            lost = [decoded(*row) for row in rows.fetchall()]
            for record in lost:
                after = apply_change(record, failing(reason), self._limits, now)
                _write(db, after, owner)
            db.execute("DELETE FROM owners WHERE name = ?", (owner,))
        _owner_file(self._path, owner).unlink(missing_ok=True)
        return len(lost)


class _Owner:
    """This store, as the others see it: a name, and a lock held while it lives."""

    def __init__(self, store: Path) -> None:
        self.name = secrets.token_hex(8)
        self._file = _owner_file(store, self.name)
        _make_private(self._file)
        self._lock = sqlite3.connect(self._file, isolation_level=None)
        self._lock.execute("PRAGMA journal_mode = OFF")  # or it leaves a second file
        self._lock.execute("BEGIN EXCLUSIVE")

    def release(self) -> None:
        self._lock.close()
        with suppress(OSError):  # a file left over is removed with the dead owner
            self._file.unlink()


def _owner_file(store: Path, name: str) -> Path:
    return store.with_name(f"{store.name}-owner-{name}")


def _is_alive(store: Path, name: str) -> bool:
    """Whether somebody holds the owner's lock. In doubt, yes: a live task is not failed."""
    file = _owner_file(store, name)
    try:
        with closing(_probe(file)) as probe:
            probe.execute("PRAGMA journal_mode = OFF")
            probe.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:  # locked; or no file, because it ended in good order
        return file.exists()
    return False


def _probe(file: Path) -> sqlite3.Connection:
    """A connection that neither makes the file nor waits for it."""
    return sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None)


def _make_private(file: Path) -> None:
    """Make the file for its user only, as results may be secret; SQLite would ask the umask.

    Never opens a file that exists: closing it would drop the locks that another
    store of this process holds on it (POSIX).
    """
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Set the file up; while others do the same, wait for them.

    SQLite waits by itself for a lock, but not for the one that turns WAL on.
    """
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return _set_up(db, path)
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
        time.sleep(0.005)


def _set_up(db: sqlite3.Connection, path: Path) -> None:
    with _transaction(db, "DEFERRED"):
        _is_new(db, path)  # refuses a foreign file before anything is changed in it
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"The task store {path} is on a file system without shared memory")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    with _transaction(db):
        if _is_new(db, path):  # still: another process may have been faster
            for statement in _SCHEMA:
                db.execute(statement)


def _is_new(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is empty. In a transaction, or the answers may not fit together."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == version == tables == 0:
        return True
    if application != _APPLICATION:
        raise StoreError(f"{path} is a database of another program, not a task store")
    if version != _VERSION:
        raise StoreError(
            f"The task store {path} has schema version {version}; "
            f"this Dovetail knows version {_VERSION}"
        )
    return False


@contextmanager
def _transaction(db: sqlite3.Connection, mode: str = "IMMEDIATE") -> Iterator[None]:
    """IMMEDIATE has the write lock from the start, so nothing changes after what it reads."""
    db.execute(f"BEGIN {mode}")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk has rolled back by itself
            db.execute("ROLLBACK")
        raise


def _write(db: sqlite3.Connection, record: TaskRecord, owner: str) -> None:
    runs = None if record.is_terminal else owner
    db.execute(_UPDATE, (runs, charge(record), *encoded(record), record.task_id))
