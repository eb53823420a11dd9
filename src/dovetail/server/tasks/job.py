"""A task while it runs: the tool's coroutine, its questions and its progress."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from dovetail.core.peer import Request
from dovetail.errors import INTERNAL_ERROR, ClientError, ConnectionClosed, McpError
from dovetail.runtime.link import Link
from dovetail.runtime.progress import Progress
from dovetail.server.context import Context
from dovetail.server.session import Session
from dovetail.server.tasks.record import (
    IllegalTransition,
    TaskRecord,
    answer,
    ask,
    transition,
)
from dovetail.server.tasks.store import TaskStore
from dovetail.server.tasks.wire import related

if TYPE_CHECKING:
    from dovetail.server.questions import Question

__all__ = ["BeforeTask", "Job", "TaskContext"]

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
        self.principal = record.principal
        self.request = request
        self.session = session
        self.done = asyncio.Event()
        self.finished = False
        self.lost = True  # until the store has kept how it ended
        self.task: asyncio.Task[None] | None = None
        self.answered: dict[str, Any] = {}  # what was asked before there was a task
        self._store = store
        self._changed = changed
        self._questions: dict[str, tuple[Question[Any], asyncio.Future[Any]]] = {}
        self._keys: set[str] = set()
        # Who waits in tasks/result: in 2025-11-25 the questions go there (digest 7.3).
        self._collectors: list[Link] = []
        self._collected = asyncio.Event()

    # -- running -----------------------------------------------------------------------

    async def run(self, handling: Any) -> None:
        """Wait for the tool and keep what came of it."""
        try:
            result = await handling
        except asyncio.CancelledError:
            await self._fail(McpError(INTERNAL_ERROR, data=_STOPPED))
        except McpError as error:
            await self._fail(error)
        else:
            await self._keep(result)

    async def _keep(self, result: Any) -> None:
        """A tool error is `failed` in 2025-11-25, but `completed` in the extension."""
        status = "failed" if result.is_error and not self.request.revision.modern else "completed"
        try:
            await self._finish(status, outcome=msgspec.json.encode(result))
        except Exception as error:  # too large, no JSON, or the store does not work
            log.error("the result of task %s is lost: %s", self.task_id, error)
            await self._fail(McpError(INTERNAL_ERROR, data="The result could not be kept"))

    async def _fail(self, error: McpError) -> None:
        """A short error always fits; if the store takes not even that, the task is lost."""
        error = self.request.revision.error(error)
        for kept in (error, McpError(INTERNAL_ERROR)):
            try:
                await self._finish("failed", error=_error(kept))
                return
            except Exception as fault:
                log.error("task %s cannot be marked as failed: %s", self.task_id, fault)

    async def _finish(self, status: Any, **carried: bytes) -> None:
        if self.request.progress is not None:
            self.request.progress.finish()  # nothing follows a terminal status (digest X24)
        self.finished = True
        with suppress(IllegalTransition):  # cancelled meanwhile: that stays (digest S94)
            await self._update(lambda record: transition(record, status, **carried))
        self.lost = False

    async def _update(self, change: Callable[[TaskRecord], TaskRecord]) -> TaskRecord | None:
        record = await self._store.update(self.task_id, change)
        if record is not None:
            self._changed(record, self.session)
        return record

    async def cancel(self) -> TaskRecord | None:
        """First the record, then the work: nobody sees a cancelled task running."""
        record = await self._update(lambda record: transition(record, "cancelled"))
        self.stop()
        return record

    def stop(self) -> None:
        """End the work; the record says already that the task has ended."""
        self.finished = self.request.cancelled = True
        if self.request.progress is not None:
            self.request.progress.drop()
        if self.task is not None:
            self.task.cancel("tasks/cancel")

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
        fresh, times = key, 1
        while fresh in self._keys:
            times += 1
            fresh = f"{key}-{times}"
        self._keys.add(fresh)
        return fresh

    @contextmanager
    def collected_by(self, link: Link) -> Iterator[None]:
        """Somebody waits for the result, and can be asked meanwhile."""
        self._collectors.append(link)
        self._collected.set()
        try:
            yield
        finally:
            self._leaves(link)

    def _leaves(self, link: Link) -> None:
        if link in self._collectors:
            self._collectors.remove(link)
        if not self._collectors:
            self._collected.clear()

    async def _ask_collector(self, names: list[str]) -> None:
        for name in names:
            question, future = self._questions[name]
            asking = asyncio.ensure_future(self._ask_somebody(question))
            try:
                await asyncio.wait((asking, future), return_when=asyncio.FIRST_COMPLETED)
                if future.done():  # whoever collects on another node was asked
                    continue
                await self._settle(name)
                future.set_result(asking.result())
            finally:
                asking.cancel()

    async def _settle(self, name: str) -> None:
        await self._update(lambda record: answer(record, [name]))

    async def refuse(self, name: str, text: str) -> None:
        """The client that was asked on another node does not answer."""
        _, future = self._questions.get(name, (None, None))
        if future is not None and not future.done():
            await self._settle(name)
            future.set_exception(ClientError(f"The client refused: {text}"))

    async def _ask_somebody(self, question: "Question[Any]") -> Any:
        """Who collects now is asked; if it goes before it answers, the next one is."""
        while True:
            await self._collected.wait()
            link = self._collectors[0]
            try:
                return await link.session.ask(question, meta=related(self.task_id), via=link)
            except ConnectionClosed:
                self._leaves(link)

    async def answer(self, responses: Mapping[str, Raw]) -> None:
        """The client's answers (extension); unknown and settled keys are ignored."""
        from dovetail.server.forms import BadAnswer

        parsed: dict[str, Any] = {}
        for name in responses.keys() & self._questions.keys():
            try:
                parsed[name] = self._questions[name][0].parse(bytes(responses[name]))
            except BadAnswer as error:
                raise McpError(-32602, data=f"inputResponses.{name}: {error}") from None
        if not parsed:
            return
        await self._update(lambda record: answer(record, parsed))
        for name, value in parsed.items():
            _, future = self._questions.get(name, (None, None))
            if future is not None and not future.done():  # nobody was quicker
                future.set_result(value)


_STOPPED = "The server was stopped while the task was running"


def _error(error: McpError) -> bytes:
    wire = {"code": error.code, "message": error.message}
    return msgspec.json.encode(wire | ({} if error.data is None else {"data": error.data}))


class BeforeTask(Context[Any]):
    """The context of what runs before a task is made; the task need not ask again."""

    @cached_property
    def answers_so_far(self) -> dict[str, Any]:
        return {}

    async def ask_all(
        self, questions: Mapping[str, "Question[Any]"], *, as_task: bool = False
    ) -> dict[str, Any]:
        answers = await super().ask_all(questions, as_task=as_task)
        self.answers_so_far.update(answers)
        return answers


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
        before = self.job.answered
        known = {key: before[key] for key in questions if key in before}
        missing = {key: questions[key] for key in questions if key not in before}
        self._check_askable(missing)
        return known | (await self.job.ask(missing) if missing else {})
