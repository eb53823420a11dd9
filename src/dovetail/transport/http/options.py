"""What ``server.asgi()`` can be told."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from msgspec import Struct

from dovetail.backplane.base import Backplane
from dovetail.backplane.keys import KeyRing
from dovetail.runtime.link import Tap
from dovetail.transport.guard import Guard
from dovetail.transport.http.auth import Authenticator
from dovetail.transport.http.limits import HttpLimits

__all__ = ["HttpOptions", "Options"]


class Options(Struct, frozen=True, kw_only=True):
    # The one path that is served, such as "/mcp"; then "/health" and "/ready" are, too. None:
    # whatever comes here is for us, as in a framework that did the routing.
    path: str | None = None
    # Names under which the server is reached, beside the loopback; "*" allows any.
    hosts: Sequence[str] = ()
    # Origins of web pages that may use it, such as "https://app.example.com"; "*" allows any.
    origins: Sequence[str] = ()
    # The whole policy for both, instead of the two lists.
    guard: Guard | None = None
    # Who may come in. None: everybody who can reach the port.
    auth: Authenticator | None = None
    # What the nodes of one service share. None: this process is the only one.
    backplane: Backplane | None = None
    # The keys of session ids; the same on all nodes.
    keys: KeyRing | None = None
    # No sessions: every request of 2025-03-26 to 2025-11-25 stands alone. The client can then
    # neither be asked anything nor told anything unasked.
    stateless: bool = False
    # "sse" answers every request of a session by an event stream, which can be resumed.
    answers: Literal["auto", "sse"] = "auto"
    limits: HttpLimits | None = None
    # One line per exchange on the logger "dovetail.access".
    access_log: bool = False
    # Prometheus metrics at "/metrics" (extra `metrics`).
    metrics: bool = False
    # Sees every message, for a wire log.
    tap: Tap | None = None


class HttpOptions(TypedDict, total=False):
    """The same, as keyword arguments."""

    path: str | None
    hosts: Sequence[str]
    origins: Sequence[str]
    guard: Guard | None
    auth: Authenticator | None
    backplane: Backplane | None
    keys: KeyRing | None
    stateless: bool
    answers: Literal["auto", "sse"]
    limits: HttpLimits | None
    access_log: bool
    metrics: bool
    tap: Tap | None
