"""A user's function: how it is called, and with what besides its arguments."""

import inspect
from collections.abc import Callable
from typing import Any

from dovetail.core.peer import Request
from dovetail.runtime.connection import Connection
from dovetail.runtime.threads import Threads
from dovetail.server.context import Context
from dovetail.server.signature import hint

__all__ = ["Function"]


class Function:
    """``fn`` with the way to call it.

    ``call(**arguments)`` gives an awaitable: async functions run on the loop,
    sync ones in a thread. One declared ``inline`` returns its value at once.
    """

    __slots__ = ("call", "context", "fn", "inline", "threads")

    def __init__(self, fn: Callable[..., Any], *, inline: bool, threads: Threads) -> None:
        self.fn = fn
        self.threads = threads
        self.context = _context_parameter(fn)
        self.inline = inline
        if inline and _is_async(fn):
            raise TypeError(f"{fn!r} is async: only a sync function can run inline")
        self.call = fn if inline or _is_async(fn) else self.in_thread

    @property
    def skipped(self) -> tuple[str, ...]:
        """Parameters that the client does not fill."""
        return () if self.context is None else (self.context,)

    def add_context(self, arguments: dict[str, Any], request: Request, on: Connection) -> None:
        if self.context is not None:
            arguments[self.context] = Context(request, on)

    def in_thread(self, **arguments: Any) -> Any:
        """A future of what the function returns."""
        return self.threads.call(self.fn, arguments)


def _is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def _context_parameter(fn: Callable[..., Any]) -> str | None:
    """The parameter annotated ``Context``, if there is one."""
    for parameter in inspect.signature(fn).parameters.values():
        if "Context" not in str(parameter.annotation):
            continue
        kind = hint(fn, f"parameter '{parameter.name}'", parameter.annotation)
        if getattr(kind, "__origin__", kind) is Context:
            return parameter.name
    return None
