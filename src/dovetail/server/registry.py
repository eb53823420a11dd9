"""Named things of one kind, which can be added, removed and switched while serving."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Handle", "Registry"]

T = TypeVar("T", bound="Handle")


class Registry(Generic[T]):
    """``active`` is what clients see, in the order of registration.

    What is switched off keeps its place, so that a list does not change its
    order when it comes back (digest 13.5: deterministic order).
    """

    def __init__(self, kind: str, changed: Callable[[], None]) -> None:
        self._kind = kind
        self._changed = changed
        self._all: dict[str, T] = {}
        self._off: set[str] = set()
        self.active: dict[str, T] = {}

    def add(self, key: str, item: T) -> None:
        if key in self._all:
            raise ValueError(f"{self._kind} {key!r} is already registered")
        item.bind(self, key)
        self._all[key] = item
        self.active[key] = item
        self._changed()

    def remove(self, key: str) -> None:
        if self._all.pop(key, None) is None:
            raise ValueError(f"{self._kind} {key!r} is not registered")
        self._off.discard(key)
        self._refresh()

    def switch(self, key: str, on: bool) -> None:
        if key not in self._all:
            raise ValueError(f"{self._kind} {key!r} is not registered")
        if on == (key in self.active):
            return
        (self._off.discard if on else self._off.add)(key)
        self._refresh()

    def _refresh(self) -> None:
        """In place: listings and method tables hold the dict."""
        self.active.clear()
        self.active.update({k: v for k, v in self._all.items() if k not in self._off})
        self._changed()


class Handle:
    """What a decorator returns can be taken back."""

    _registry: Registry[Any]
    _key: str

    def bind(self, registry: Registry[Any], key: str) -> None:
        self._registry = registry
        self._key = key

    @property
    def enabled(self) -> bool:
        return self._registry.active.get(self._key) is self

    def enable(self) -> None:
        """Show it to clients again."""
        self._registry.switch(self._key, True)

    def disable(self) -> None:
        """Hide it from clients: it is not listed, and calling it is an error."""
        self._registry.switch(self._key, False)

    def remove(self) -> None:
        """Forget it; its name is free again."""
        self._registry.remove(self._key)
