"""Questions of the server that we run as tasks for it (2025-11-25, digest 7.3).

The server puts ``task`` on a question and gets a handle at once, so that no request is
held open while a person thinks. It then asks for the result, or how it stands.
"""

import asyncio
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct

from dovetail.core.peer import Request
from dovetail.errors import INTERNAL_ERROR, INVALID_PARAMS, McpError
from dovetail.runtime.connection import Connection, Handler
from dovetail.spec.meta import RELATED_TASK_KEY
from dovetail.spec.types import Task, TaskMetadata
from dovetail.wire.jsonrpc import BROKEN_JSON

if TYPE_CHECKING:
    from dovetail.client.answer import Answerer

__all__ = ["AskedTasks"]

# Questions open at once: a person answers one.
MAX_TASKS = 64
# Milliseconds a task is kept. A person who has not answered within an hour has gone home.
DEFAULT_TTL = 600_000
MAX_TTL = 3_600_000
POLL_MS = 500


class _Wish(Struct):
    task: TaskMetadata | Any = UNSET


class _Job:
    """One question under way."""

    def __init__(self, ttl: int) -> None:
        now = _now()
        self.task = Task(
            task_id=secrets.token_urlsafe(16),
            status="working",
            created_at=now,
            last_updated_at=now,
            ttl=ttl,
            poll_interval=POLL_MS,
        )
        self.running: asyncio.Task[dict[str, Any]] | None = None
        self.done = asyncio.Event()
        self.outcome: dict[str, Any] | BaseException = {}

    def end(self, status: Any, outcome: dict[str, Any] | BaseException) -> None:
        """Terminal states are final (digest S89)."""
        if not self.done.is_set():
            self.task.status = status
            self.task.last_updated_at = _now()
            self.outcome = outcome
            self.done.set()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class AskedTasks:
    """The tasks that one server has given us."""

    def __init__(self, answerer: "Answerer") -> None:
        self._answerer = answerer
        self._jobs: dict[str, _Job] = {}

    def handlers(self) -> dict[str, Handler]:
        return {
            "tasks/get": Handler(self._get, inline=True),
            "tasks/result": Handler(self._result),
            "tasks/list": Handler(self._list, inline=True),
            "tasks/cancel": Handler(self._cancel, inline=True),
        }

    def serve(self, request: Request, connection: Connection) -> Any:
        """A question: answered when its answer is there, or at once with a task."""
        raw = b"{}" if request.raw is UNSET else request.raw
        try:
            wish = msgspec.json.decode(raw, type=_Wish).task
        except BROKEN_JSON:
            wish = UNSET
        if wish is UNSET:
            return self._answerer.answer(request.method, request.raw, request.revision)
        return self._begin(request, connection, wish)

    def _begin(self, request: Request, connection: Connection, wish: Any) -> dict[str, Any]:
        if len(self._jobs) >= MAX_TASKS:
            raise McpError(INTERNAL_ERROR, data=f"Too many tasks: {MAX_TASKS} are open")
        wanted = wish.get("ttl") if isinstance(wish, dict) else UNSET
        if isinstance(wish, TaskMetadata):
            wanted = wish.ttl
        ttl = min(wanted, MAX_TTL) if isinstance(wanted, int) and wanted > 0 else DEFAULT_TTL
        job = _Job(ttl)
        self._jobs[job.task.task_id] = job
        connection.spawn(self._run(job, request, connection), request.method)
        asyncio.get_running_loop().call_later(ttl / 1000, self._expire, job)
        return {"task": job.task}

    async def _run(self, job: _Job, request: Request, connection: Connection) -> None:
        asking = self._answerer.answer(request.method, request.raw, request.revision)
        job.running = asyncio.ensure_future(asking)
        try:
            await asyncio.wait([job.running])
        finally:
            job.running.cancel()
        if job.running.cancelled():
            job.end("cancelled", McpError(INTERNAL_ERROR, data="The task was cancelled"))
        elif (error := job.running.exception()) is not None:
            known = error if isinstance(error, McpError) else McpError(INTERNAL_ERROR)
            job.end("failed", known)
        else:
            job.end("completed", job.running.result())
        connection.notify("notifications/tasks/status", job.task)

    def _expire(self, job: _Job) -> None:
        self._jobs.pop(job.task.task_id, None)
        if job.running is not None:
            job.running.cancel()

    def _find(self, request: Request) -> _Job:
        job = self._jobs.get(request.params.task_id)
        if job is None:
            raise McpError(INVALID_PARAMS, data=f"Unknown task: {request.params.task_id!r}")
        return job

    def _get(self, request: Request, connection: Connection) -> Any:
        return self._find(request).task

    async def _result(self, request: Request, connection: Connection) -> Any:
        job = self._find(request)
        await job.done.wait()
        if isinstance(job.outcome, BaseException):
            raise job.outcome
        return {**job.outcome, "_meta": {RELATED_TASK_KEY: {"taskId": job.task.task_id}}}

    def _list(self, request: Request, connection: Connection) -> Any:
        return {"tasks": [job.task for job in self._jobs.values()]}

    def _cancel(self, request: Request, connection: Connection) -> Any:
        job = self._find(request)
        if job.done.is_set():
            raise McpError(INVALID_PARAMS, data=f"The task has ended: {job.task.status}")
        job.end("cancelled", McpError(INTERNAL_ERROR, data="The task was cancelled"))
        if job.running is not None:
            job.running.cancel()
        return job.task
