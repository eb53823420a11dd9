"""Running a coroutine in the task that is already there, and knowing when it waits.

Most handlers never wait, so nothing needs to be set up for the case that they do:
no task, no timer, nobody to watch the client. `begin` runs the first step; only
if it waits, the caller prepares for that, and goes on with `resumed`.
"""

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any

__all__ = ["begin", "resumed"]


def begin(work: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
    """(True, its result) if it never waits, else (False, what it waits for).

    Nothing else may wait between this and `resumed`.
    """
    try:
        return False, work.send(None)
    except StopIteration as done:
        return True, done.value


@coroutine
def resumed(work: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    """Go on with what `begin` began; waits, results and exceptions are those of ``work``."""
    try:
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
    except StopIteration as done:
        return done.value
