"""MCP (Model Context Protocol) for Python, exact and fast."""

from typing import TYPE_CHECKING, Any

from dovetail.errors import ClientError, McpError, ResourceNotFound, ToolError
from dovetail.runtime.limits import Limits
from dovetail.server.app import Server
from dovetail.server.context import Context
from dovetail.server.output import unstructured
from dovetail.server.session import Session

if TYPE_CHECKING:
    from dovetail.client.client import Client
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
    "Client",
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
    "Answer": "server.questions",
    "Call": "server.middleware",
    "Choices": "server.questions",
    "Client": "client.client",
    "ClientLogHandler": "server.loghandler",
    "Elicit": "server.questions",
    "ElicitUrl": "server.questions",
    "MemoryStore": "server.tasks.store",
    "Next": "server.middleware",
    "RateLimit": "server.middleware",
    "ResponseLimit": "server.middleware",
    "Roots": "server.questions",
    "Sample": "server.questions",
    "SqliteStore": "server.tasks.sqlite",
    "TaskLimits": "server.tasks.store",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"dovetail.{_LATER[name]}"), name)
