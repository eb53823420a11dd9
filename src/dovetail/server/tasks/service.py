"""The methods of tasks, in both forms, on one store.

2025-11-25: the client puts ``task`` on a call; ``tasks/get``, ``tasks/result``,
``tasks/list``, ``tasks/cancel``. The extension of 2026: the client declares it
and the server decides; ``tasks/get``, ``tasks/update``, ``tasks/cancel``.
"""

import asyncio
import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from dovetail.core.peer import Request
from dovetail.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    McpError,
    Unavailable,
)
from dovetail.runtime.link import Handler, Link
from dovetail.server.session import Session
from dovetail.server.tasks.elsewhere import Elsewhere
from dovetail.server.tasks.job import BeforeTask, Job, TaskContext
from dovetail.server.tasks.record import (
    IllegalTransition,
    InvalidPosition,
    StoreAway,
    StoreError,
    StoreFull,
    TaskRecord,
    new_task,
    transition,
)
from dovetail.server.tasks.store import MemoryStore, TaskStore
from dovetail.server.tasks.wire import core_result, core_task, extension_task
from dovetail.spec.meta import TASKS_EXTENSION

if TYPE_CHECKING:
    from dovetail.server.app import Server
    from dovetail.server.tools import Tool

__all__ = ["TaskService"]

POLL_MS = 1000  # a person waits a second, a model does not mind; listen is quicker
PAGE = 100  # tasks per page of tasks/list: a screenful, some 20 KB


class TaskService:
    """The tasks of one server."""

    def __init__(self, server: "Server", store: TaskStore | None) -> None:
        self._server = server
        self._given = store
        self._store: TaskStore = store or MemoryStore()
        self._jobs: dict[str, Job] = {}
        # Tasks that have ended, though the store could not be told: they have failed.
        self._lost: set[str] = set()
        self._elsewhere: Elsewhere | None = None  # the tasks of other nodes

    def core_handlers(self) -> dict[str, Handler]:
        return {
            "tasks/get": Handler(self._get),
            "tasks/result": Handler(self._result),
            "tasks/list": Handler(self._list),
            "tasks/cancel": Handler(self._cancel),
        }

    def extension_handlers(self) -> dict[str, Handler]:
        return {
            "tasks/get": Handler(self._get),
            "tasks/update": Handler(self._update),
            "tasks/cancel": Handler(self._cancel),
        }

    async def open(self) -> None:
        """What an earlier process left running has failed; nobody shall wait for it."""
        self._elsewhere = None
        self._store = self._given or self._shared_store() or MemoryStore()
        await self._store.recover("The server was restarted while the task was running")

    def _shared_store(self) -> TaskStore | None:
        nodes = self._server.nodes
        store = None if nodes is None else nodes.task_store()
        if nodes is not None and store is not None:
            self._elsewhere = Elsewhere(nodes, store, self._jobs.get)
        return store

    async def close(self) -> None:
        await asyncio.sleep(0)  # all of them have begun: one that has not would never end
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel("shutdown")
        if tasks:
            await asyncio.wait(tasks, timeout=self._server.limits.stop_seconds)
        if self._given is None:  # a store of the author's may serve again
            await self._store.close()

    # -- calling a tool ------------------------------------------------------------------

    def wanted(self, tool: "Tool[..., Any]", request: Request) -> bool:
        """Whether this call becomes a task; McpError if it must or must not."""
        if request.revision.modern:
            return self._wanted_in_extension(tool, request)
        if not request.revision.tasks:
            return False  # the tool runs as any other: older revisions know no tasks
        asked = request.params.task is not UNSET
        if asked and tool.task is None:
            raise McpError(METHOD_NOT_FOUND, data=f"Tool '{tool.name}' cannot run as a task")
        if not asked and tool.task == "required":
            raise McpError(METHOD_NOT_FOUND, data=f"Tool '{tool.name}' runs only as a task")
        return asked

    def _wanted_in_extension(self, tool: "Tool[..., Any]", request: Request) -> bool:
        declared = _declares(request)
        if tool.task == "required" and not declared:
            raise _undeclared()
        return tool.task is not None and declared

    async def call(
        self,
        tool: "Tool[..., Any]",
        arguments: dict[str, Any],
        request: Request,
        connection: Link,
    ) -> Any:
        """Start the tool and answer with the task; it can be read before the answer is out."""
        before = BeforeTask(request, connection, tool.function.owner)
        refusal = await tool.prepare(before, arguments, request.revision)
        if refusal is not None and not request.revision.modern:
            # Who asked for a task understands a task or an error (digest S90).
            raise McpError(INTERNAL_ERROR, data=getattr(refusal.content[0], "text", None))
        if refusal is not None:
            return refusal
        if len(self._jobs) >= self._server.limits.max_in_flight:
            raise McpError(INTERNAL_ERROR, data=f"Too many tasks: {len(self._jobs)} are running")
        session: Session = connection.session
        record = self._new_record(tool, request, session)
        try:
            await self._store.create(record)
        except StoreFull as error:
            raise McpError(INTERNAL_ERROR, data=f"Too many tasks: {error}") from None
        except StoreAway as error:
            raise Unavailable("The task could not be kept") from error
        except StoreError as error:
            raise McpError(INTERNAL_ERROR, data="The task could not be kept") from error
        except asyncio.CancelledError:
            self._lost.add(record.task_id)  # it may be there, but nobody will run it
            raise
        job = Job(record, self._store, request, session, self._changed)
        job.answered = before.answered
        self._start(job, tool, arguments, record.ttl_ms)
        if not request.revision.modern:
            return {"task": core_task(record)}
        return {**extension_task(record), "resultType": "task", "_meta": self._server.stamp}

    def _new_record(self, tool: Any, request: Request, session: Session) -> TaskRecord:
        wish = UNSET if request.revision.modern else request.params.task  # digest S103
        wanted = None if wish is UNSET or wish.ttl is UNSET else wish.ttl
        return new_task(
            method=request.method,
            name=tool.name,
            principal=session.principal,
            ttl_ms=self._store.limits.grant_ttl(wanted),
            poll_interval_ms=POLL_MS,
            now=self._store.clock(),
        )

    def _start(self, job: Job, tool: Any, arguments: dict[str, Any], ttl_ms: int | None) -> None:
        connection = job.session.connection
        tool.function.add_context(arguments, job.request, connection, TaskContext)
        if tool.function.context is not None:
            arguments[tool.function.context].job = job
        handling = _begun(tool, arguments, job.request)
        self._jobs[job.task_id] = job
        loop = asyncio.get_running_loop()
        job.task = loop.create_task(self._run(job, handling))
        if ttl_ms is not None:  # nobody can see it any more, so nobody could stop it
            expiry = loop.call_later(ttl_ms / 1000, job.task.cancel, "expired")
            job.task.add_done_callback(lambda _: expiry.cancel())

    async def _run(self, job: Job, handling: Any) -> None:
        try:
            await job.run(handling)
        finally:
            del self._jobs[job.task_id]
            if job.lost:
                self._lost.add(job.task_id)
            job.done.set()

    def _changed(self, record: TaskRecord, session: Session) -> None:
        """Tell who asked for it: the requestor in 2025-11-25, a stream in the extension."""
        job = self._jobs.get(record.task_id)
        made_in_core = job is not None and job.request.revision.tasks
        if made_in_core and session.ready:
            session.connection.notify("notifications/tasks/status", core_task(record))
        self._show(record)
        if self._server.nodes is not None:
            self._server.nodes.tell("task", record.task_id)

    def _show(self, record: TaskRecord) -> None:
        for other in self._server.sessions:
            if other.principal == record.principal:
                other.task_changed(record.task_id, extension_task(record))

    # -- the other nodes -------------------------------------------------------------------

    def concerns(self) -> set[str]:
        """The tasks that somebody here runs or watches."""
        watched = (session.watched_tasks() for session in self._server.sessions)
        return set(self._jobs).union(*watched)

    async def heard(self, task_id: str) -> None:
        """Another node has changed a task: perhaps it has ended one of ours."""
        if self._elsewhere is not None:
            self._elsewhere.heard(task_id)
        job = self._jobs.get(task_id)
        watchers = [s for s in self._server.sessions if task_id in s.watched_tasks()]
        who = {session.principal for session in watchers}
        if job is not None:
            who.add(job.principal)
        for principal in who:
            try:
                record = await self._store.get(task_id, principal)
            except StoreError:
                return  # it will be heard of again after the gap
            if record is not None:
                self._show(record)
                if job is not None and record.is_terminal:
                    job.stop()

    # -- the methods -----------------------------------------------------------------------

    async def _find(self, request: Request, connection: Link) -> TaskRecord:
        """The task of a request: unknown, expired and somebody else's are all unknown."""
        if request.revision.modern and not _declares(request):
            raise _undeclared()
        task_id = request.params.task_id
        record = await self._guarded(self._store.get(task_id, connection.session.principal))
        if record is None:
            raise McpError(INVALID_PARAMS, data=f"Unknown task: '{task_id}'")
        if task_id in self._lost:
            record = await self._bury(record)
        found: TaskRecord = record
        return found

    async def _bury(self, record: TaskRecord) -> TaskRecord:
        """Tell the store now what it could not keep before."""
        error = msgspec.json.encode({"code": INTERNAL_ERROR, "message": "Internal error"})
        with suppress(IllegalTransition):  # it had been kept, only without an answer
            failing = lambda r: transition(r, "failed", error=error)  # noqa: E731
            record = await self._guarded(self._store.update(record.task_id, failing)) or record
        self._lost.discard(record.task_id)
        return record

    async def _guarded(self, reading: Any) -> Any:
        try:
            return await reading
        except StoreAway as error:
            raise Unavailable("The tasks cannot be read now") from error
        except StoreError as error:
            raise McpError(INTERNAL_ERROR, data="The tasks cannot be read now") from error

    async def watchable(self, request: Request, session: Session) -> list[str]:
        """Those of the ids of a listen request that its client may watch."""
        if not _declares(request):
            raise _undeclared()
        ids = request.params.notifications.task_ids
        who = session.principal
        return [id for id in ids if await self._guarded(self._store.get(id, who))]

    async def _get(self, request: Request, connection: Link) -> dict[str, Any]:
        record = await self._find(request, connection)
        if not request.revision.modern:
            return core_task(record)
        return {**extension_task(record), **self._server.stamps(request.revision)}

    async def _list(self, request: Request, connection: Link) -> dict[str, Any]:
        cursor = request.params.cursor
        page = self._store.page(connection.session.principal, _position(cursor), PAGE)
        try:
            records, following = await self._guarded(page)
        except InvalidPosition:
            raise McpError(INVALID_PARAMS, data="Invalid cursor") from None
        shown: dict[str, Any] = {"tasks": [core_task(record) for record in records]}
        if following is not None:
            shown["nextCursor"] = base64.urlsafe_b64encode(following.encode()).decode()
        return shown

    async def _cancel(self, request: Request, connection: Link) -> dict[str, Any]:
        record = await self._find(request, connection)
        job = self._jobs.get(record.task_id)
        try:
            if job is not None:
                record = await self._guarded(job.cancel()) or record
            else:
                change = self._store.update(record.task_id, lambda r: transition(r, "cancelled"))
                record = await self._guarded(change) or record
                self._changed(record, connection.session)  # the node that runs it hears so
        except IllegalTransition:
            if not request.revision.modern:
                text = f"The task is {record.status} already"
                raise McpError(INVALID_PARAMS, data=text) from None
        return self._server.stamps(request.revision) or core_task(record)

    async def _update(self, request: Request, connection: Link) -> dict[str, Any]:
        record = await self._find(request, connection)
        try:
            raw = request.params.input_responses
            responses = msgspec.json.decode(raw, type=dict[str, Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise McpError(INVALID_PARAMS, data="inputResponses must be an object") from None
        job = self._jobs.get(record.task_id)
        if job is not None:
            await self._guarded(job.answer(responses))
        elif self._elsewhere is not None:
            await self._guarded(self._elsewhere.answer(record.task_id, responses))
        return self._server.stamps(request.revision)

    async def _result(self, request: Request, connection: Link) -> dict[str, Any]:
        """Wait for the end, be asked meanwhile, and return exactly what the call gave."""
        record = await self._find(request, connection)
        asked: set[str] = set()
        while not record.is_terminal:
            job = self._jobs.get(record.task_id)
            if job is not None:
                with job.collected_by(connection):
                    await job.done.wait()
            elif self._elsewhere is not None:
                news = self._elsewhere.wait(record, connection, asked, POLL_MS / 1000)
                await self._guarded(news)
            else:  # another process runs it, or it is just being finished
                await asyncio.sleep(POLL_MS / 1000)
            record = await self._find(request, connection)
        if record.outcome is None:
            raise _kept_error(record)
        return core_result(record.outcome, record.task_id)


async def _begun(tool: Any, arguments: dict[str, Any], request: Request) -> Any:
    """The result of the tool; an inline one has it at once."""
    outcome = tool.start(arguments, request)
    return await outcome if asyncio.iscoroutine(outcome) else outcome


def _declares(request: Request) -> bool:
    extensions = request.params.meta.client_capabilities.extensions
    return extensions is not UNSET and TASKS_EXTENSION in extensions


def _undeclared() -> McpError:
    data: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
    return McpError(MISSING_CLIENT_CAPABILITY, data=data)


def _kept_error(record: TaskRecord) -> McpError:
    if record.error is None:
        return McpError(INTERNAL_ERROR, "Task cancelled", f"Task '{record.task_id}' was cancelled")
    error = msgspec.json.decode(record.error)
    return McpError(error["code"], error["message"], error.get("data"))


def _position(cursor: str | UnsetType) -> str | None:
    if isinstance(cursor, UnsetType):
        return None
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except ValueError:  # binascii.Error and UnicodeDecodeError are
        raise McpError(INVALID_PARAMS, data="Invalid cursor") from None
