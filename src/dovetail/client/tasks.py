"""A call that became a task: a handle to wait for, to look at and to cancel.

2025-11-25 has ``tasks/result``, which is answered when the task has ended; the extension
of 2026-07-28 is polled, with jitter and slower after each failure (digest X44).
"""

import asyncio
import random
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw

from dovetail.client.calls import Asked
from dovetail.client.results import CallResult, decoded
from dovetail.client.session import Waits
from dovetail.errors import (
    ConnectionClosed,
    DovetailError,
    HttpError,
    McpError,
    RemoteProtocolError,
    TaskCancelled,
)
from dovetail.spec.types import GetTaskResult, Task

if TYPE_CHECKING:
    from dovetail.client.client import Client

__all__ = ["TaskHandle"]

T = TypeVar("T")

# Seconds between two looks at a task when the server names no time, and the most we wait.
POLL_SECONDS = 0.5
MAX_POLL_SECONDS = 30.0
# Looks in a row that may fail before the task is given up.
MAX_FAILURES = 5

# Cancellations on their way, held so that they are not collected.
_stopping: "set[asyncio.Future[None]]" = set()

_OVER = ("completed", "failed", "cancelled")


class TaskHandle(Generic[T]):
    """``result = await handle`` waits for the end. ``id`` is all another client needs."""

    def __init__(
        self, client: "Client", task: Task, read: Callable[[Raw], CallResult[T]], waits: Waits
    ) -> None:
        self._client = client
        self._task = task
        self._read = read
        self._waits = waits
        self._answered: set[str] = set()

    @property
    def id(self) -> str:
        return self._task.task_id

    @property
    def status(self) -> str:
        """As it was when last heard of; ``refresh`` asks."""
        return self._task.status

    @property
    def message(self) -> str | None:
        return None if self._task.status_message is UNSET else self._task.status_message

    @property
    def done(self) -> bool:
        return self._task.status in _OVER

    def __await__(self) -> Generator[Any, None, CallResult[T]]:
        return self.result().__await__()

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id} {self.status}>"

    async def refresh(self) -> str:
        """Ask for the status."""
        self._task = await self._get()
        return self._task.status

    async def cancel(self) -> None:
        """Ask the server to stop; a task that has ended already stays as it is."""
        try:
            raw = await self._ask("tasks/cancel", {"taskId": self.id})
        except McpError:
            if not (await self.refresh() and self.done):
                raise
            return
        if not (await self._client._live()).revision.modern:
            self._task = decoded(raw, GetTaskResult, "tasks/cancel")

    async def result(self) -> CallResult[T]:
        """The result of the call, when it is there. TaskCancelled, McpError if it failed."""
        try:
            async with asyncio.timeout(self._waits.total):
                if (await self._client._live()).revision.modern:
                    return await self._polled()
                return await self._blocking()
        except TimeoutError:
            text = f"the task {self.id} has not ended in {self._waits.total:g} seconds"
            raise TimeoutError(text) from None

    async def awaited(self) -> CallResult[T]:
        """The result for a caller who asked for no task: what ends the wait ends the task."""
        try:
            async with asyncio.timeout(self._waits.idle):
                return await self.result()
        except (TimeoutError, asyncio.CancelledError):
            _stopping.add(task := asyncio.ensure_future(self._stop()))
            task.add_done_callback(_stopping.discard)
            raise

    async def _stop(self) -> None:
        with suppress(DovetailError, TimeoutError):
            await self.cancel()

    async def _blocking(self) -> CallResult[T]:
        try:
            raw = await self._ask("tasks/result", {"taskId": self.id}, idle=None)
        except McpError as error:
            if await self.refresh() == "cancelled":
                raise TaskCancelled(f"the task {self.id} was cancelled") from error
            raise
        result = self._read(raw)
        self._task.status = "failed" if result.is_error else "completed"
        return result

    async def _polled(self) -> CallResult[T]:
        failures = 0
        while True:
            try:
                task = self._task = await self._get()
                failures = 0
            except (ConnectionClosed, HttpError):
                failures += 1
                if failures > MAX_FAILURES:
                    raise
            else:
                if task.status in _OVER:
                    return self._ended(task)
                if task.status == "input_required" and await self._answer(task):
                    continue
            await asyncio.sleep(_pause(self._task, failures))

    def _ended(self, task: GetTaskResult) -> CallResult[T]:
        if task.status == "cancelled":
            raise TaskCancelled(f"the task {self.id} was cancelled")
        if task.status == "failed":
            if task.error is UNSET:
                raise RemoteProtocolError.text("A failed task does not say why")
            data = None if task.error.data is UNSET else task.error.data
            raise McpError(task.error.code, task.error.message, data)
        if task.result is UNSET:
            raise RemoteProtocolError.text("A completed task has no result")
        return self._read(task.result)

    async def _answer(self, task: GetTaskResult) -> bool:
        """Answer what was not answered yet; keys are never used twice (digest S101)."""
        questions = {} if task.input_requests is UNSET else task.input_requests
        fresh = {key: q for key, q in questions.items() if key not in self._answered}
        if not fresh:
            return False
        session = await self._client._live()
        raw = Raw(msgspec.json.encode({"inputRequests": fresh}))
        answers = await self._client._calls.respond(raw, session)
        self._answered.update(answers)
        await self._ask("tasks/update", {"taskId": self.id, "inputResponses": answers})
        return True

    async def _get(self) -> GetTaskResult:
        raw = await self._ask("tasks/get", {"taskId": self.id})
        return decoded(raw, GetTaskResult, "tasks/get")

    async def _ask(self, method: str, params: dict[str, Any], idle: Any = UNSET) -> Raw:
        waits = Waits(self._waits.idle if idle is UNSET else idle, self._waits.total)
        return await self._client._calls.plain(method, params, Asked(waits, safe=True))


def _pause(task: Task, failures: int) -> float:
    wished = task.poll_interval_ms
    seconds = POLL_SECONDS if wished is UNSET else max(wished / 1000, 0.01)
    seconds = min(seconds * 2**failures, MAX_POLL_SECONDS)
    return float(seconds * random.uniform(0.75, 1.25))


class FinishedTask(TaskHandle[T]):
    """A call that was to be a task and was answered at once."""

    def __init__(
        self, client: "Client", raw: Raw, read: Callable[[Raw], CallResult[T]], waits: Waits
    ) -> None:
        task = Task(task_id="", status="completed", created_at="", last_updated_at="")
        super().__init__(client, task, read, waits)
        self._outcome = read(raw)

    async def refresh(self) -> str:
        return self.status

    async def cancel(self) -> None: ...

    async def result(self) -> CallResult[T]:
        return self._outcome
