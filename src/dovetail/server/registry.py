"""Named things of one kind, which can be added, removed and switched while serving."""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

__all__ = ["Handle", "Registry"]

T = TypeVar("T", bound="Handle")


class Registry(Generic[T]):
    """``active`` is what clients see, in the order of registration.

    What is switched off keeps its place, so that a list does not change its
    order when it comes back (digest 13.5: deterministic order). Any thread may
    change a registry; ``changed`` is given what brings ``active`` up to date, to
    be called where ``active`` is read.
    """

    def __init__(self, kind: str, changed: Callable[[Callable[[], None]], None]) -> None:
        self._kind = kind
        self._changed = changed
        self._all: dict[str, T] = {}
        self._off: set[str] = set()
        self.active: dict[str, T] = {}

    def add(self, key: str, item: T) -> None:
        if self._all.setdefault(key, item) is not item:  # one step: threads may race for a name
            raise ValueError(f"{self._kind} {key!r} is already registered")
        item.bind(self, key)
        self._changed(partial(self._append, key, item))

    def remove(self, key: str) -> None:
        if self._all.pop(key, None) is None:
            raise ValueError(f"{self._kind} {key!r} is not registered")
        self._off.discard(key)
        self._changed(self._refresh)

    def shows(self, key: str, item: Any) -> bool:
        return self._all.get(key) is item and key not in self._off

    def switch(self, key: str, on: bool) -> None:
        if key not in self._all:
            raise ValueError(f"{self._kind} {key!r} is not registered")
        if on == (key not in self._off):
            return
        (self._off.discard if on else self._off.add)(key)
        self._changed(self._refresh)

    def _append(self, key: str, item: T) -> None:
        if self.shows(key, item):  # not gone again before its turn came
            self.active[key] = item

    def _refresh(self) -> None:
        """In place: listings and method tables hold the dict."""
        everything = list(self._all.items())  # one step, whatever other threads do
        self.active.clear()
        self.active.update({k: v for k, v in everything if k not in self._off})


class Handle:
    """What a decorator returns can be taken back."""

    _registry: Registry[Any]
    _key: str

    def bind(self, registry: Registry[Any], key: str) -> None:
        self._registry = registry
        self._key = key

    @property
    def enabled(self) -> bool:
        return self._registry.shows(self._key, self)

    def enable(self) -> None:
        """Show it to clients again."""
        self._registry.switch(self._key, True)

    def disable(self) -> None:
        """Hide it from clients: it is not listed, and calling it is an error."""
        self._registry.switch(self._key, False)

    def remove(self) -> None:
        """Forget it; its name is free again."""
        self._registry.remove(self._key)
