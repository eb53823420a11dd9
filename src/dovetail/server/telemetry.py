"""Spans through OpenTelemetry, for programs that use it.

Whoever wants traces has loaded and set up ``opentelemetry`` before serving: the
method tables look for it among the loaded modules, so that nobody else pays
even for the search. Loaded alone is not enough: other libraries load it if it is there.
"""

import importlib
import sys
from typing import Any

from dovetail.server.middleware import Call, Next

__all__ = ["Spans"]


class Spans:
    """One span per request, a child of the client's if it sent a ``traceparent``."""

    def __init__(self) -> None:
        self._trace: Any = sys.modules["opentelemetry.trace"]
        self._extract: Any = importlib.import_module("opentelemetry.propagate").extract
        self._tracer: Any = self._trace.get_tracer("dovetail")

    async def __call__(self, call: Call, next: Next) -> Any:
        request = call.request
        attributes = {
            "rpc.system": "jsonrpc",
            "mcp.method.name": request.method,
            "mcp.protocol.version": request.revision.id,
            "jsonrpc.request.id": str(request.id),
        }
        name = request.method if call.name is None else f"{request.method} {call.name}"
        with self._tracer.start_as_current_span(
            name,
            context=self._extract(_carrier(request.params.meta)),
            kind=self._trace.SpanKind.SERVER,
            attributes=attributes,
        ):
            return await next(call)


def _carrier(meta: Any) -> dict[str, str]:
    """The W3C keys of ``_meta``, as far as they are text (digest X27)."""
    keys = ("traceparent", "tracestate", "baggage")
    found = {key: getattr(meta, key, None) for key in keys}
    return {key: value for key, value in found.items() if isinstance(value, str)}
