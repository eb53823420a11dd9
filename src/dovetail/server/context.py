"""What a handler can know about the request it serves."""

from functools import cached_property
from typing import Any

import msgspec
from msgspec import UNSET

from dovetail.core.peer import Request
from dovetail.errors import MISSING_CLIENT_CAPABILITY, McpError, ToolError
from dovetail.runtime.connection import Connection
from dovetail.spec.types import ClientCapabilities, Implementation
from dovetail.wire.jsonrpc import Id

__all__ = ["Context"]


class Context:
    """Given to a function that has a parameter annotated ``Context``."""

    def __init__(self, request: Request, connection: Connection) -> None:
        self._request = request
        self._connection = connection

    @property
    def request_id(self) -> Id:
        return self._request.id

    @property
    def method(self) -> str:
        return self._request.method

    @property
    def revision(self) -> str:
        """The revision this request is served by, such as ``2025-11-25``."""
        return self._request.revision.id

    @property
    def client(self) -> Implementation | None:
        """Who asks, if it said so. For display and logs only (digest 13.5)."""
        if not self._request.revision.modern:
            return self._connection.peer.client_info
        info = self._request.params.meta.client_info
        return None if info is UNSET else info

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the client can do, for this request."""
        if not self._request.revision.modern:
            return self._connection.peer.client_capabilities or ClientCapabilities()
        capabilities: ClientCapabilities = self._request.params.meta.client_capabilities
        return capabilities

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The ``_meta`` of the request, all keys."""
        raw = self._request.raw
        params = {} if raw is UNSET else msgspec.json.decode(raw)
        meta: dict[str, Any] = params.get("_meta", {})
        return meta

    def require(self, capability: str) -> None:
        """Refuse the request unless the client declared ``capability``, such as "sampling".

        2026-07-28 has an error for it (digest S6); before, the model is told.
        """
        if getattr(self.capabilities, capability) is not UNSET:
            return
        if self._request.revision.modern:
            data: dict[str, Any] = {"requiredCapabilities": {capability: {}}}
            raise McpError(MISSING_CLIENT_CAPABILITY, data=data)
        raise ToolError(f"The client does not support {capability}")
