"""Lists that go over several pages."""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw

from dovetail.client.cache import CacheHints
from dovetail.client.calls import Asked
from dovetail.client.results import decoded
from dovetail.errors import RemoteProtocolError
from dovetail.wire.jsonrpc import BROKEN_JSON

if TYPE_CHECKING:
    from dovetail.client.client import Client

__all__ = ["Lister", "Page", "cached"]

T = TypeVar("T")


class Page(list[T]):
    """The items of one page; ``next_cursor`` is None on the last."""

    next_cursor: str | None = None


class Lister(Generic[T]):
    """``async for tool in client.tools():`` reads page after page.

    ``await client.tools.page(cursor)`` is one of them, ``await client.tools.all()`` a list.
    """

    def __init__(
        self,
        client: "Client",
        method: str,
        member: str,
        kind: type[Any],
        keep: Callable[[list[T]], list[T]] | None = None,
    ) -> None:
        self._client = client
        self._method = method
        self._member = member
        self._kind = kind
        self._keep = keep

    async def page(self, cursor: str | None = None) -> Page[T]:
        params = {} if cursor is None else {"cursor": cursor}
        raw = await cached(self._client, self._method, params, cursor)
        result = decoded(raw, self._kind, self._method)
        items = getattr(result, self._member)
        page: Page[T] = Page(items if self._keep is None else self._keep(items))
        page.next_cursor = None if result.next_cursor is UNSET else result.next_cursor
        return page

    def __call__(self) -> AsyncIterator[T]:
        return self._items()

    async def _items(self) -> AsyncIterator[T]:
        async for page in self._pages():
            for item in page:
                yield item

    async def all(self) -> list[T]:
        return [item async for page in self._pages() for item in page]

    async def _pages(self) -> AsyncIterator[Page[T]]:
        """An empty cursor is one like any other (digest C18), but none comes twice."""
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(self._client._options.max_pages):
            page = await self.page(cursor)
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in seen:
                raise RemoteProtocolError.text(f"{self._method}: the list goes round in circles")
            seen.add(cursor)
        limit = self._client._options.max_pages
        raise RemoteProtocolError.text(f"{self._method}: more than {limit} pages")


async def cached(client: "Client", method: str, params: dict[str, Any], detail: Any) -> Raw:
    """The answer to a question that changes nothing, from the cache while it is fresh."""
    question = (method, detail)
    found = client._cache.get(client._endpoint, client._owner, question)
    if found is not None:
        return found
    asked = Asked(client._waits, safe=True)
    if method != "resources/read":
        raw = await client._calls.plain(method, params, asked)
        keep(client, question, raw)
        return raw
    raw, asked_back = await client._calls.with_input(method, params, asked)
    if not asked_back:  # what belongs to an answer of the user is nobody else's (digest C17)
        keep(client, question, raw)
    return raw


def keep(client: "Client", question: Any, raw: Raw) -> None:
    try:
        hints = msgspec.json.decode(raw, type=CacheHints)
    except BROKEN_JSON:
        return
    client._cache.put(client._endpoint, client._owner, question, raw, hints)
