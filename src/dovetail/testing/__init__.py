"""Tools to test MCP servers with: a client in memory, and a check of every message."""

from dovetail.testing.client import TestClient, connect, envelope
from dovetail.testing.recorder import Recorder
from dovetail.testing.schema import SchemaViolation, check_message

__all__ = ["Recorder", "SchemaViolation", "TestClient", "check_message", "connect", "envelope"]
