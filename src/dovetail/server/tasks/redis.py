"""Tasks on Redis or Valkey: any node can read, change and cancel the task of another.

What is kept where, under one prefix: a hash ``t:ID`` for each task, in the same two parts as in
the SQLite store; ``order:WHO`` with the ids of a principal's tasks by number; ``expiry`` with
the ids by expiry; ``usage`` with the counts that the bounds need. Scripts change them together.

An update is read, computed here, and written if nobody was quicker; else it is done again.

Owners. A task belongs to the node that runs it, until it ends. Readers look whether that node
still has its lease (`Directory.alive`), and fail the task if not: with a lease of ten seconds
that is how long a killed node's task seems to work.

Expiry is by our own clock, as in every store; the engine's own is a net below it, and only
catches what a service that is never started again leaves behind.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from dovetail.backplane.base import BackplaneAway
from dovetail.backplane.redis import RedisBackplane
from dovetail.server.tasks.encoding import decoded, decoded_head, encoded, failing
from dovetail.server.tasks.record import StoreAway, StoreError, TaskRecord
from dovetail.server.tasks.store import (
    RESERVE,
    Change,
    Clock,
    TaskLimits,
    apply_change,
    charge,
    check_new,
    check_page,
    check_room,
)

__all__ = ["RedisStore"]

_T = TypeVar("_T")

# Milliseconds after which the engine drops what nobody has swept.
_NET_MS = 7 * 24 * 60 * 60 * 1000
# Updates of one task wait for each other here, instead of failing each other there.
_LOCKS = 64

_LOST = "The node that ran this task has ended"

# Every script begins so. ARGV[1] is the prefix, ARGV[2] the time.
_COMMON = f"""
local p, now = ARGV[1], ARGV[2]
local usage = p .. 'usage'
local function drop(id)
  local t = redis.call('HMGET', p .. 't:' .. id, 'charge', 'who')
  redis.call('DEL', p .. 't:' .. id)
  redis.call('ZREM', p .. 'expiry', id)
  redis.call('HINCRBY', usage, 'tasks', -1)
  redis.call('HINCRBY', usage, 'bytes', -(t[1] or {RESERVE}))
  if t[2] then redis.call('ZREM', p .. 'order:' .. t[2], id) end
end
local function sweep()
  local ids = redis.call('ZRANGEBYSCORE', p .. 'expiry', '-inf', now)
  for _, id in ipairs(ids) do drop(id) end
end
local function used(member) return tonumber(redis.call('HGET', usage, member) or 0) end
"""

# 3 id, 4 who, 5 owner, 6 expiry, 7 charge, 8 head, 9 payload, 10-12 bounds, 13 time to live
_CREATE = (
    _COMMON
    + f"""
sweep()
local key, order = p .. 't:' .. ARGV[3], p .. 'order:' .. ARGV[4]
if redis.call('EXISTS', key) == 1 then return 0 end
local tasks, mine = used('tasks') + 1, redis.call('ZCARD', order) + 1
local bytes = used('bytes') + ARGV[7]
if tasks > tonumber(ARGV[10]) or mine > tonumber(ARGV[11]) or bytes > tonumber(ARGV[12]) then
  return {{tasks, mine, bytes}}
end
redis.call('HSET', key, 'who', ARGV[4], 'owner', ARGV[5], 'charge', ARGV[7], 'head', ARGV[8],
           'payload', ARGV[9], 'version', 1)
redis.call('ZADD', order, redis.call('HINCRBY', usage, 'last', 1), ARGV[3])
redis.call('HINCRBY', usage, 'tasks', 1)
redis.call('HINCRBY', usage, 'bytes', ARGV[7])
if ARGV[6] ~= '' then
  redis.call('ZADD', p .. 'expiry', ARGV[6], ARGV[3])
  redis.call('PEXPIRE', key, ARGV[13] + {_NET_MS})
end
return 1"""
)

# 3 id, 4 version, 5 owner, 6 charge, 7 head, 8 payload, 9 bound of the bytes
_UPDATE = (
    _COMMON
    + """
local key = p .. 't:' .. ARGV[3]
local t = redis.call('HMGET', key, 'version', 'charge')
if t[1] ~= ARGV[4] then return 0 end
local growth = ARGV[6] - t[2]
if growth > 0 then
  sweep()
  if used('bytes') + growth > tonumber(ARGV[9]) then return {used('bytes') + growth} end
end
redis.call('HSET', key, 'owner', ARGV[5], 'charge', ARGV[6], 'head', ARGV[7], 'payload', ARGV[8],
           'version', ARGV[4] + 1)
redis.call('HINCRBY', usage, 'bytes', growth)
return 1"""
)

# 3 who, 4 number to start after, 5 how many
_PAGE = (
    _COMMON
    + """
sweep()
local rows = redis.call('ZRANGEBYSCORE', p .. 'order:' .. ARGV[3], '(' .. ARGV[4], '+inf',
                        'WITHSCORES', 'LIMIT', 0, ARGV[5])
local found = {}
for i = 1, #rows, 2 do
  local t = redis.call('HMGET', p .. 't:' .. rows[i], 'head', 'owner')
  if t[1] then found[#found + 1] = {rows[i + 1], rows[i], t[1], t[2]} end
end
return found"""
)


class RedisStore:
    """Tasks on the engine of a backplane, or at a URL of their own."""

    def __init__(
        self,
        backplane: RedisBackplane | str,
        limits: TaskLimits | None = None,
        clock: Clock = time.time,
        *,
        namespace: str = "dovetail",
    ) -> None:
        self._is_ours = isinstance(backplane, str)
        if isinstance(backplane, str):
            backplane = RedisBackplane(backplane, namespace=namespace)
        self._backplane = backplane
        self._limits = limits or TaskLimits()
        self._clock = clock
        self._prefix = f"{self._backplane.namespace}:task:"
        self._locks = [asyncio.Lock() for _ in range(_LOCKS)]
        self._opening = asyncio.Lock()
        self._is_open = not self._is_ours
        self._closed = False

    @property
    def limits(self) -> TaskLimits:
        return self._limits

    @property
    def clock(self) -> Clock:
        return self._clock

    async def create(self, record: TaskRecord) -> None:
        check_new(record, self._limits)
        await self._guarded(self._create(record))

    async def get(self, task_id: str, principal: str | None) -> TaskRecord | None:
        record, _, _ = await self._guarded(self._read(task_id))
        return record if record is not None and record.principal == principal else None

    async def update(self, task_id: str, change: Change) -> TaskRecord | None:
        async with self._locks[hash(task_id) % _LOCKS]:
            return await self._guarded(self._update(task_id, change))

    async def page(
        self, principal: str | None, after: str | None, limit: int
    ) -> tuple[list[TaskRecord], str | None]:
        start = check_page(after, limit)
        return await self._guarded(self._page(principal, start, limit))

    async def owner(self, task_id: str) -> str | None:
        """The node that runs a task now."""
        _, _, owner = await self._guarded(self._read(task_id))
        return owner or None

    async def recover(self, reason: str) -> int:
        """Nothing: whoever reads a task of a dead node fails it."""
        await self._guarded(_nothing())
        return 0

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._is_ours and self._is_open:
                await self._backplane.close()

    # -- inside ------------------------------------------------------------------------

    async def _guarded(self, job: Awaitable[_T]) -> _T:
        """The one place where the engine's troubles become the store's."""
        try:
            await self._open()
            return await job
        except BackplaneAway as error:
            raise StoreAway(f"The task store cannot be reached: {error}") from error
        finally:
            if asyncio.iscoroutine(job):
                job.close()  # one that was never begun

    async def _open(self) -> None:
        if self._closed:
            raise StoreError("The task store is closed")
        if not self._is_open:
            async with self._opening:
                if not self._is_open:
                    await self._backplane.open()
                    self._is_open = True

    async def _run(self, script: str, *arguments: Any) -> Any:
        common = (self._prefix, repr(self._clock()))
        return await self._backplane.engine.call("EVAL", script, 0, *common, *arguments)

    async def _create(self, record: TaskRecord) -> None:
        limits = self._limits
        expiry = "" if record.expires_at is None else repr(record.expires_at)
        outcome = await self._run(
            _CREATE,
            record.task_id,
            _who(record.principal),
            self._backplane.node,
            expiry,
            charge(record),
            *encoded(record),
            limits.max_tasks,
            limits.max_tasks_per_principal,
            limits.max_total_bytes,
            record.ttl_ms or 0,
        )
        if outcome == 0:
            raise StoreError("There is a task with this id already")
        if outcome != 1:
            tasks, mine, total = outcome
            check_room(limits, tasks=tasks, of_principal=mine, total_bytes=total)

    async def _read(self, task_id: str) -> tuple[TaskRecord | None, bytes, str]:
        """The record, its version and its owner, after a look at whether that one lives."""
        while task_id.isascii():
            key, members = f"{self._prefix}t:{task_id}", ("head", "payload", "version", "owner")
            row = await self._backplane.engine.call("HMGET", key, *members)
            if row[0] is None:
                break
            record, version, owner = decoded(row[0], row[1]), row[2], row[3].decode()
            if record.expires_at is not None and record.expires_at <= self._clock():
                break
            if await self._lives(owner):
                return record, version, owner
            await self._write(record, version, owner, failing(_LOST))
        return None, b"", ""

    async def _lives(self, owner: str) -> bool:
        if owner in ("", self._backplane.node):
            return True
        return await self._backplane.directory.alive(owner)

    async def _update(self, task_id: str, change: Change) -> TaskRecord | None:
        while True:
            record, version, owner = await self._read(task_id)
            if record is None:
                return None
            after = await self._write(record, version, owner, change)
            if after is not None:
                return after

    async def _write(
        self, record: TaskRecord, version: bytes, owner: str, change: Change
    ) -> TaskRecord | None:
        """The record after the change; None if somebody else was quicker."""
        after = apply_change(record, change, self._limits, self._clock())
        if after is record:
            return record
        runs = "" if after.is_terminal else owner
        bound = self._limits.max_total_bytes
        outcome = await self._run(
            _UPDATE, record.task_id, version, runs, charge(after), *encoded(after), bound
        )
        if isinstance(outcome, list):
            check_room(self._limits, tasks=0, of_principal=0, total_bytes=outcome[0])
        return after if outcome == 1 else None

    async def _page(
        self, principal: str | None, start: int, limit: int
    ) -> tuple[list[TaskRecord], str | None]:
        rows = await self._run(_PAGE, _who(principal), start, limit + 1)
        for index, (_, task_id, _, owner) in enumerate(rows):
            if not await self._lives(owner.decode()):
                record, _, _ = await self._read(task_id.decode())
                if record is not None:
                    rows[index][2] = encoded(record)[0]
        heads = [decoded_head(row[2]) for row in rows[:limit]]
        return heads, rows[limit - 1][0].decode() if len(rows) > limit else None


def _who(principal: str | None) -> bytes:
    """Nobody, and somebody of any name."""
    return b"-" if principal is None else b"+" + principal.encode(errors="surrogatepass")


async def _nothing() -> None:
    """Only to see that the store is open."""
