"""What a client is told when it is made: who it is, what it waits for, what it can answer."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import UNSET, Struct

from dovetail.runtime.connection import Tap
from dovetail.runtime.limits import Limits
from dovetail.spec.revisions import ALL, Revision
from dovetail.spec.types import (
    Implementation,
    LoggingLevel,
    LoggingMessageNotificationParams,
    Root,
)

__all__ = ["CLIENT_LIMITS", "Options", "default_info"]

# As for a server, but for the longest message: a result may be a scanned book or a film
# still in base64, and the caller asked for it.
CLIENT_LIMITS = Limits(max_frame=64 * 1024 * 1024)


def default_info() -> Implementation:
    # Not imported: the package knows its servers, and a client has no business with them.
    version: str = sys.modules["dovetail"].__version__
    return Implementation(name="dovetail", version=version)


class Options(Struct, kw_only=True):
    """Settings of a client; every limit has its reason beside it."""

    info: Implementation
    revisions: Sequence[Revision] = ALL
    # The revision to ask for; None: find out.
    revision: Revision | None = None
    # Whether nothing but that revision will do.
    pin: bool = False
    # Seconds without an answer or progress. A person gives up after a minute.
    timeout: float | None = 60.0
    # Seconds in all, progress or not: a server that reports for ever is as bad as a silent one.
    max_total: float | None = 3600.0
    # Seconds for an answer to the probe, after which the handshake is tried as well. Servers
    # that do not know it mostly say so at once; few ignore it.
    probe_seconds: float = 3.0
    # Rounds of questions within one request (2026-07-28); people answer two or three.
    max_rounds: int = 16
    # Pages of one list; a server that never ends its list is broken.
    max_pages: int = 1000
    # Whether structured results are checked against the schema of their tool.
    check_output: bool = True
    # Whether a dead connection is replaced by a new one when it is next needed.
    reconnect: bool = False
    limits: Limits = CLIENT_LIMITS
    tap: Tap | None = None
    log_level: LoggingLevel | None = None
    on_elicit: Callable[[Any], Any] | None = None
    elicit_modes: tuple[str, ...] = ("form", "url")
    on_sample: Callable[[Any], Any] | None = None
    # Whether the model behind `on_sample` can use tools.
    sample_tools: bool = False
    roots: list[Root] | Callable[[], Awaitable[list[Root]] | list[Root]] | None = None
    on_log: Callable[[LoggingMessageNotificationParams], Any] | None = None
    on_notification: Callable[[str, Any], Any] | None = None
    extensions: dict[str, Any] = {}
    experimental: Any = UNSET
