"""MCP (Model Context Protocol) for Python, exact and fast."""

from typing import TYPE_CHECKING, Any

from dovetail.errors import ClientError, McpError, ResourceNotFound, ToolError
from dovetail.runtime.limits import Limits
from dovetail.server.app import Server
from dovetail.server.context import Context
from dovetail.server.output import unstructured
from dovetail.server.session import Session

if TYPE_CHECKING:
    from dovetail.server.loghandler import ClientLogHandler
    from dovetail.server.middleware import Call, Next, RateLimit, ResponseLimit
    from dovetail.server.questions import Answer, Choices, Elicit, ElicitUrl, Roots, Sample
    from dovetail.server.tasks.sqlite import SqliteStore
    from dovetail.server.tasks.store import MemoryStore, TaskLimits

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Call",
    "Choices",
    "ClientError",
    "ClientLogHandler",
    "Context",
    "Elicit",
    "ElicitUrl",
    "Limits",
    "McpError",
    "MemoryStore",
    "Next",
    "RateLimit",
    "ResourceNotFound",
    "ResponseLimit",
    "Roots",
    "Sample",
    "Server",
    "Session",
    "SqliteStore",
    "TaskLimits",
    "ToolError",
    "unstructured",
]

# Loaded when first named: a server that asks nothing and keeps no tasks starts faster.
_LATER = {
    "Answer": "questions",
    "Call": "middleware",
    "Choices": "questions",
    "ClientLogHandler": "loghandler",
    "Elicit": "questions",
    "ElicitUrl": "questions",
    "MemoryStore": "tasks.store",
    "Next": "middleware",
    "RateLimit": "middleware",
    "ResponseLimit": "middleware",
    "Roots": "questions",
    "Sample": "questions",
    "SqliteStore": "tasks.sqlite",
    "TaskLimits": "tasks.store",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"dovetail.server.{_LATER[name]}"), name)
