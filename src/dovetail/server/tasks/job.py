"""A task while it runs: the tool's coroutine, its questions and its progress."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from dovetail.core.peer import Request
from dovetail.errors import INTERNAL_ERROR, McpError
from dovetail.runtime.progress import Progress
from dovetail.server.context import Context
from dovetail.server.session import Session
from dovetail.server.tasks.record import (
    IllegalTransition,
    StoreError,
    TaskError,
    TaskRecord,
    answer,
    ask,
    transition,
)
from dovetail.server.tasks.store import TaskStore
from dovetail.server.tasks.wire import related

if TYPE_CHECKING:
    from dovetail.server.questions import Question

__all__ = ["Job", "TaskContext"]

log = logging.getLogger("dovetail")


class Job:
    """One running task. Whatever it changes goes through the store first."""

    def __init__(
        self,
        record: TaskRecord,
        store: TaskStore,
        request: Request,
        session: Session,
        changed: Callable[[TaskRecord, Session], None],
    ) -> None:
        self.task_id = record.task_id
        self.request = request
        self.session = session
        self.done = asyncio.Event()
        self.finished = False
        self.task: asyncio.Task[None] | None = None
        self._store = store
        self._changed = changed
        self._questions: dict[str, tuple[Question[Any], asyncio.Future[Any]]] = {}
        self._asked = 0
        # Who waits in tasks/result: in 2025-11-25 the questions go there (digest 7.3).
        self._collector: asyncio.Future[Session] = asyncio.get_running_loop().create_future()

    # -- running -----------------------------------------------------------------------

    async def run(self, handling: Any) -> None:
        """Wait for the tool and keep what came of it."""
        try:
            try:
                result = await handling
            except asyncio.CancelledError:
                await self._finish("failed", error=_error(McpError(INTERNAL_ERROR, data=_STOPPED)))
            except McpError as error:
                await self._finish("failed", error=_error(error))
            else:
                await self._keep(result)
        finally:
            self.done.set()

    async def _keep(self, result: Any) -> None:
        """A tool error is `failed` in 2025-11-25, but `completed` in the extension."""
        status = "failed" if result.is_error and not self.request.revision.modern else "completed"
        try:
            await self._finish(status, outcome=msgspec.json.encode(result))
        except TaskError as error:
            log.error("the result of task %s is lost: %s", self.task_id, error)
            text = "The result could not be kept"
            await self._finish("failed", error=_error(McpError(INTERNAL_ERROR, data=text)))

    async def _finish(self, status: Any, **carried: bytes) -> None:
        if self.request.progress is not None:
            self.request.progress.finish()  # nothing follows a terminal status (digest X24)
        self.finished = True
        try:
            await self._update(lambda record: transition(record, status, **carried))
        except IllegalTransition:
            pass  # cancelled meanwhile: terminal states stay (digest S94)
        except StoreError:
            if "error" not in carried:
                raise
            log.exception("task %s cannot be marked as %s", self.task_id, status)

    async def _update(self, change: Callable[[TaskRecord], TaskRecord]) -> TaskRecord | None:
        record = await self._store.update(self.task_id, change)
        if record is not None:
            self._changed(record, self.session)
        return record

    async def cancel(self) -> TaskRecord | None:
        """First the record, then the work: nobody sees a cancelled task running."""
        record = await self._update(lambda record: transition(record, "cancelled"))
        self.request.cancelled = True
        if self.task is not None:
            self.task.cancel("tasks/cancel")
        return record

    # -- asking ------------------------------------------------------------------------

    async def ask(self, questions: Mapping[str, "Question[Any]"]) -> dict[str, Any]:
        """Put questions into the record and wait for the answers; the tool keeps its place."""
        asked = {self._fresh(key): (key, question) for key, question in questions.items()}
        revision = self.request.revision
        loop = asyncio.get_running_loop()
        for name, (_, question) in asked.items():
            self._questions[name] = question, loop.create_future()
            wire = {"method": question.method, "params": question.params(revision)}
            encoded = msgspec.json.encode(wire)
            await self._update(lambda record, name=name, e=encoded: ask(record, name, e))  # type: ignore[misc]
        try:
            if not revision.modern:
                await self._ask_collector(list(asked))
            return {key: await self._questions[name][1] for name, (key, _) in asked.items()}
        finally:
            for name in asked:
                self._questions.pop(name, None)

    def _fresh(self, key: str) -> str:
        """A key is used once in the life of a task (digest S101)."""
        self._asked += 1
        return key if self._asked == 1 else f"{key}-{self._asked}"

    def collect(self, session: Session) -> None:
        """Somebody waits for the result, and can be asked."""
        if not self._collector.done():
            self._collector.set_result(session)

    async def _ask_collector(self, names: list[str]) -> None:
        session = await asyncio.shield(self._collector)
        for name in names:
            question, future = self._questions[name]
            value = await session.ask(question, meta=related(self.task_id))
            await self._update(lambda record, name=name: answer(record, [name]))  # type: ignore[misc]
            future.set_result(value)

    async def answer(self, responses: Mapping[str, Raw]) -> None:
        """The client's answers (extension); unknown and settled keys are ignored."""
        from dovetail.server.forms import BadAnswer

        parsed: dict[str, Any] = {}
        for name in responses.keys() & self._questions.keys():
            try:
                parsed[name] = self._questions[name][0].parse(bytes(responses[name]))
            except BadAnswer as error:
                raise McpError(-32602, data=f"inputResponses.{name}: {error}") from None
        await self._update(lambda record: answer(record, parsed))
        for name, value in parsed.items():
            self._questions[name][1].set_result(value)


_STOPPED = "The server was stopped while the task was running"


def _error(error: McpError) -> bytes:
    wire = {"code": error.code, "message": error.message}
    return msgspec.json.encode(wire | ({} if error.data is None else {"data": error.data}))


class TaskContext(Context[Any]):
    """The context of a tool that runs as a task: its request has been answered already."""

    job: Job

    def _report(self, done: float, rest: dict[str, Any]) -> None:
        """2025-11-25 goes on with the token of the request (X24); the extension has none."""
        if self._request.revision.modern or self.job.finished:
            return
        if self._request.progress is None:
            self._request.progress = Progress(self._send_progress)
        self._request.progress.report(done, rest)

    def _send_log(self, params: dict[str, Any]) -> None:
        if not self._request.revision.modern:
            meta = {"_meta": related(self.job.task_id)}
            self._connection.notify("notifications/message", {**params, **meta})

    async def ask_all(
        self, questions: Mapping[str, "Question[Any]"], *, as_task: bool = False
    ) -> dict[str, Any]:
        self._check_askable(questions)
        return await self.job.ask(questions)
