"""Answers that may be given again: ``ttlMs`` and ``cacheScope`` of 2026-07-28 (digest 8.10).

A cache may serve several clients. What a server calls public is shared between the clients
of one endpoint; what is private belongs to one authorization, which is one client unless
its maker says otherwise.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

__all__ = ["Cache", "CacheHints"]

# Answers kept, and their bytes: enough for the lists of a hundred servers.
MAX_ENTRIES = 1024
MAX_BYTES = 64 * 1024 * 1024


class CacheHints(Struct, rename="camel"):
    """What a result says about itself. A lifetime that is missing or negative is none."""

    ttl_ms: int | float | UnsetType = UNSET
    cache_scope: str | UnsetType = UNSET


class Cache:
    """Fresh answers by endpoint, authorization, method and params."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[float, Raw]] = OrderedDict()
        self._bytes = 0

    def get(self, endpoint: Hashable, owner: Hashable, question: Hashable) -> Raw | None:
        for key in ((endpoint, owner, question), (endpoint, None, question)):
            found = self._kept.get(key)
            if found is not None and self._clock() < found[0]:
                self._kept.move_to_end(key)
                return found[1]
        return None

    def put(
        self, endpoint: Hashable, owner: Hashable, question: Hashable, raw: Raw, hints: CacheHints
    ) -> None:
        if not isinstance(hints.ttl_ms, int | float) or hints.ttl_ms <= 0:
            return
        public = hints.cache_scope == "public"
        key = (endpoint, None if public else owner, question)
        self._drop(key)
        size = len(bytes(raw))
        if size > MAX_BYTES:
            return
        self._kept[key] = (self._clock() + hints.ttl_ms / 1000, Raw(bytes(raw)))
        self._bytes += size
        while self._bytes > MAX_BYTES or len(self._kept) > MAX_ENTRIES:
            self._drop(next(iter(self._kept)))

    def forget(self, endpoint: Hashable, methods: tuple[str, ...], uri: str | None = None) -> None:
        """A notification said that these answers are not true any more."""
        for key in list(self._kept):
            kept: Any = key
            method, detail = kept[2]
            if kept[0] == endpoint and method in methods and uri in (None, detail):
                self._drop(key)

    def _drop(self, key: Hashable) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._bytes -= len(bytes(found[1]))
