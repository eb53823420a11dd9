"""A user's function: how it is called, and with what besides its arguments."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dovetail.core.peer import Request
from dovetail.runtime.link import Link
from dovetail.server.context import Context
from dovetail.server.session import Session
from dovetail.server.signature import hint

if TYPE_CHECKING:
    from dovetail.server.app import Server

__all__ = ["Function"]


class Function:
    """``fn`` with the way to call it.

    ``call(**arguments)`` gives an awaitable: async functions run on the loop,
    sync ones in a thread. One declared ``inline`` returns its value at once.
    ``owner`` is the server it was registered on, also when that is mounted.
    """

    __slots__ = ("call", "context", "fn", "inline", "owner", "session")

    def __init__(self, fn: Callable[..., Any], *, inline: bool, owner: "Server") -> None:
        self.fn = fn
        self.owner = owner
        self.context = _parameter(fn, Context)
        self.session = _parameter(fn, Session)
        self.inline = inline
        if inline and _is_async(fn):
            raise TypeError(f"{fn!r} is async: only a sync function can run inline")
        self.call = fn if inline or _is_async(fn) else self.in_thread

    @property
    def skipped(self) -> tuple[str, ...]:
        """Parameters that the client does not fill."""
        return tuple(name for name in (self.context, self.session) if name is not None)

    def add_context(
        self,
        arguments: dict[str, Any],
        request: Request,
        on: Link,
        kind: type[Context[Any]] = Context,
    ) -> None:
        if self.context is not None:
            arguments[self.context] = kind(request, on, self.owner)
        self.add_session(arguments, on)

    def add_session(self, arguments: dict[str, Any], on: Link) -> None:
        if self.session is not None:
            arguments[self.session] = on.session

    def in_thread(self, /, **arguments: Any) -> Any:
        """A future of what the function returns."""
        return self.owner.threads.call(self.fn, arguments)


def _is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def _parameter(fn: Callable[..., Any], wanted: type) -> str | None:
    """The parameter annotated ``wanted``, if there is one."""
    for parameter in inspect.signature(fn).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, str):
            try:
                kind = hint(fn, f"parameter '{parameter.name}'", kind)
            except TypeError:
                continue  # whoever needs the type will say so
        if getattr(kind, "__origin__", kind) is wanted:
            return parameter.name
    return None
