"""MCP (Model Context Protocol) for Python, exact and fast."""

from dovetail.errors import McpError, ToolError
from dovetail.runtime.limits import Limits
from dovetail.server.app import Server
from dovetail.server.context import Context
from dovetail.server.output import unstructured

__version__ = "0.1.0"

__all__ = ["Context", "Limits", "McpError", "Server", "ToolError", "unstructured"]
