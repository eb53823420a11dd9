"""Worker threads for sync handlers.

Not ``concurrent.futures``: its threads are joined when the interpreter exits,
so one tool stuck in a sleep would keep a finished server alive, and each of
its jobs costs two futures and a lock more than the hand-over needs.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queue import SimpleQueue

__all__ = ["Threads"]

_Job = tuple[
    asyncio.AbstractEventLoop,
    "asyncio.Future[Any]",
    Context,
    Callable[..., Any],
    dict[str, Any],
]


class Threads:
    """A pool that grows to ``max_threads`` daemon threads and never blocks the loop."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._lock = threading.Lock()
        self._count = 0
        self._idle = 0

    @cached_property
    def _jobs(self) -> "SimpleQueue[_Job]":
        from queue import SimpleQueue  # a server without sync tools needs none

        return SimpleQueue()

    def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> asyncio.Future[Any]:
        """Run ``function(**arguments)`` in a thread; the future belongs to this loop.

        It sees the context variables of its caller, as with ``asyncio.to_thread``.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            jobs = self._jobs  # made here, once: two threads could each make one
            if self._idle:
                self._idle -= 1
            elif self._count < self._max_threads:
                self._count += 1
                name = f"dovetail-worker-{self._count}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        jobs.put((loop, future, copy_context(), function, arguments))
        # A job that is cancelled while it waits gives back the memory of its arguments.
        future.add_done_callback(partial(_give_back, arguments))
        return future

    def _work(self) -> None:
        while True:
            loop, future, context, function, arguments = self._jobs.get()
            if not future.cancelled():
                settle, outcome = context.run(_run, function, arguments)
                with suppress(RuntimeError):  # the loop is closed: nobody waits
                    loop.call_soon_threadsafe(settle, future, outcome)
            del loop, future, context, function, arguments
            with self._lock:
                self._idle += 1


def _give_back(arguments: dict[str, Any], future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        arguments.clear()


def _run(
    function: Callable[..., Any], arguments: dict[str, Any]
) -> tuple[Callable[..., None], Any]:
    try:
        return _succeed, function(**arguments)
    except StopIteration as error:  # a future refuses it
        return _fail, RuntimeError(f"{function!r} raised StopIteration: {error.value!r}")
    except BaseException as error:
        return _fail, error


def _succeed(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
