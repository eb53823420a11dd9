"""Lists of definitions, encoded once per revision and page, and cut into pages."""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from dovetail.errors import INVALID_PARAMS, McpError
from dovetail.spec.project import project
from dovetail.spec.revisions import Revision

__all__ = ["Listing"]


class Listing:
    """One list: ``items`` is its registry, ``member`` its name in the result."""

    def __init__(
        self,
        member: str,
        items: Mapping[str, Any],
        describe: Callable[[Any, Revision], Any],
        stamps: Callable[[Revision], dict[str, Any]],
        page_size: int | None,
    ) -> None:
        self._member = member
        self._items = items
        self._describe = describe
        self._stamps = stamps
        self._page_size = page_size
        self._cache: dict[tuple[str, int], Raw] = {}

    def clear(self) -> None:
        """The registry has changed."""
        self._cache.clear()

    def page(self, revision: Revision, cursor: str | UnsetType) -> Raw:
        start = 0 if cursor is UNSET else self._start(cursor)
        key = (revision.id, start)
        page = self._cache.get(key)
        if page is None:
            page = Raw(msgspec.json.encode(self._build(revision, start)))
            if start % (self._page_size or len(self._items) + 1) == 0:
                self._cache[key] = page  # not what a made-up cursor asks for
        return page

    def _build(self, revision: Revision, start: int) -> dict[str, Any]:
        items = list(self._items.values())
        end = len(items) if self._page_size is None else start + self._page_size
        shown = [
            project(self._describe(item, revision), revision)
            for item in items[start:end]
            if getattr(item, "listed", True)
        ]
        page: dict[str, Any] = {self._member: shown, **self._stamps(revision)}
        if end < len(items):
            page["nextCursor"] = _cursor(list(self._items)[end - 1])
        return page

    def _start(self, cursor: str) -> int:
        """Where the page begins: after the item the cursor names, wherever it is now.

        A name survives changes between two pages, where a number would skip or
        repeat items; only if that very item is gone must the client start again.
        """
        try:
            last = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
            return list(self._items).index(last) + 1
        except (binascii.Error, UnicodeDecodeError, ValueError):
            raise McpError(INVALID_PARAMS, data="Invalid cursor") from None


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()
