"""A standard ``logging.Handler`` that forwards records to the client.

    logging.getLogger("myapp").addHandler(ClientLogHandler(server))

A record made while a request is served goes to the client of that request; any
other goes to every client of the handshake era. 2026-07-28 knows only the first.
"""

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from dovetail.server.context import Context
from dovetail.server.middleware import Call, Next

if TYPE_CHECKING:
    from dovetail.server.app import Server

__all__ = ["ClientLogHandler"]

_current: ContextVar[Context[Any] | None] = ContextVar("dovetail_request", default=None)

_LEVELS = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)


class ClientLogHandler(logging.Handler):
    """Make it before serving: it needs a place among the server's middleware."""

    def __init__(self, server: "Server", level: int | str = logging.NOTSET) -> None:
        super().__init__(level)
        self._server = server
        server.middleware(_remember)
        server.may_log = True

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send(_level(record.levelno), self.format(record), record.name)
        except Exception:  # as every handler does: a log must not break what it logs
            self.handleError(record)

    def _send(self, level: str, text: str, logger: str) -> None:
        context = _current.get()
        if context is not None and not context.cancelled:
            context.log(level, text, logger)
        elif context is None:
            self._server.log(level, text, logger)


async def _remember(call: Call, next: Next) -> Any:
    token = _current.set(call.context)
    try:
        return await next(call)
    finally:
        _current.reset(token)


def _level(number: int) -> str:
    return next((name for least, name in _LEVELS if number >= least), "debug")
