"""The end of a serving process: signals, and the tasks and threads that would not let it end."""

import asyncio
import logging
import os
import signal
import threading
from asyncio.tasks import _unregister_task
from collections.abc import Callable

__all__ = ["SIGNALS", "abandon_threads", "end_tasks", "stop_on_signals"]

log = logging.getLogger("dovetail")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], seconds: float
) -> Callable[[], None]:
    """The first SIGTERM or SIGINT calls ``stop``, a second one ends the process at once.

    So does the first after ``seconds``. Not ``loop.add_signal_handler``: it waits for the
    loop, and user code may block that. Returns what puts the old handlers back.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def handle(number: int, frame: object) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        end_process_after(seconds)
        loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, handle) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)

    return restore


async def end_tasks(seconds: float) -> None:
    """Cancel what user code left running. What refuses to end is abandoned.

    ``asyncio.run`` would wait for it for ever, and the process with it.
    """
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=seconds)
    for task in left:
        log.warning("abandoned at the end: %r", task)
        _unregister_task(task)


def end_process_after(seconds: float) -> None:
    """A thread of user code that never returns must not outlive what it was started for."""
    watchdog = threading.Timer(seconds, os._exit, [0])
    watchdog.daemon = True
    watchdog.start()


def abandon_threads(seconds: float) -> None:
    """Threads that would keep the process alive after the last answer have so long to end."""
    mine = (threading.main_thread(), threading.current_thread())
    left = [t for t in threading.enumerate() if not t.daemon and t not in mine]
    for thread in left:
        thread.join(0.1)  # an idle pool ends as soon as its loop is closed
    left = [thread for thread in left if thread.is_alive()]
    if left:
        log.warning("threads still running at the end: %s", ", ".join(t.name for t in left))
        end_process_after(seconds)
