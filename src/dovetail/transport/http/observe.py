"""Looking at the exchanges from outside: an access log and metrics, both off by default.

An observer is told of every exchange when it is over. The application without one does not
even ask.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from dovetail.transport.http.replies import Receive, Scope, Send

if TYPE_CHECKING:
    from dovetail.transport.http.app import HttpApp

__all__ = ["CALLED", "AccessLog", "Metrics", "Observer", "observed"]

log = logging.getLogger("dovetail.access")

App = Callable[[Scope, Receive, Send], Any]

# The key of the scope under which the application notes which method of MCP was called.
CALLED = "dovetail.called"


class Observer(Protocol):
    def saw(self, scope: Scope, status: int, seconds: float) -> None: ...


async def observed(
    observers: tuple[Observer, ...], app: App, scope: Scope, receive: Receive, send: Send
) -> None:
    """Serve, and tell the observers the status and how long it took. 0: nothing was sent."""
    status = 0
    began = time.perf_counter()
    scope[CALLED] = ""

    async def sending(message: Any) -> None:
        nonlocal status
        if message["type"].endswith("response.start"):
            status = message["status"]
        elif message["type"] == "websocket.accept":
            status = 101
        await send(message)

    try:
        await app(scope, receive, sending)
    finally:
        took = time.perf_counter() - began
        for observer in observers:
            observer.saw(scope, status, took)


class AccessLog:
    """One line per exchange on the logger ``dovetail.access``: no header, no argument, no token."""

    def saw(self, scope: Scope, status: int, seconds: float) -> None:
        client = scope.get("client") or ("-", 0)
        called = scope[CALLED] or "-"
        verb = scope.get("method", "WEBSOCKET")
        path = scope["path"].encode("ascii", "backslashreplace").decode()
        log.info("%s %s %s %s %d %.1fms", client[0], verb, path, called, status, seconds * 1000)


class Metrics:
    """Prometheus metrics of one application, served at ``/metrics`` (extra ``metrics``).

    With several workers, set PROMETHEUS_MULTIPROC_DIR as prometheus-client describes it: the
    answer then is the sum of all.
    """

    def __init__(self) -> None:
        import prometheus_client as prometheus

        self._prometheus = prometheus
        self._registry = prometheus.CollectorRegistry()
        labels = ("verb", "method", "status")
        self._count = prometheus.Counter(
            "dovetail_exchanges", "Exchanges that are over.", labels, registry=self._registry
        )
        self._seconds = prometheus.Histogram(
            "dovetail_exchange_seconds",
            "How long they took, streams included.",
            ("method",),
            registry=self._registry,
        )
        self._gauges = {
            name: prometheus.Gauge(
                f"dovetail_{name}", text, registry=self._registry, multiprocess_mode="livesum"
            )
            for name, text in (
                ("sessions", "Sessions that are open."),
                ("streams", "Event streams that are open."),
                ("active", "Requests that are being served."),
                ("sockets", "WebSockets that are open."),
            )
        }

    def saw(self, scope: Scope, status: int, seconds: float) -> None:
        called = scope[CALLED]
        self._count.labels(scope.get("method", "WEBSOCKET"), called, status).inc()
        self._seconds.labels(called).observe(seconds)

    def page(self, app: "HttpApp") -> bytes:
        """What a scraper reads."""
        values = (len(app.sessions), len(app.streams), app.active, len(app.sockets))
        for gauge, value in zip(self._gauges.values(), values, strict=True):
            gauge.set(value)
        registry = self._registry
        if self._prometheus.values.ValueClass.__name__ != "MutexValue":  # several processes
            from prometheus_client.multiprocess import MultiProcessCollector

            registry = self._prometheus.CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        text: bytes = self._prometheus.generate_latest(registry)
        return text
