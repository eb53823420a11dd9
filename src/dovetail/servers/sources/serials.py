"""The highest serial seen of each registry: an older file must not come back unnoticed.

Whoever can replace a file but not sign one can still put an old, signed one in its place, with
sources that its curator has since withdrawn.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from dovetail.servers.sources.catalog import CatalogError, Loaded

__all__ = ["SerialMemory", "default_place"]


def default_place() -> Path:
    """Where programs keep state between runs (XDG base directories)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "dovetail" / "sources.json"


class SerialMemory:
    """A file of ``{"key or path": serial}``; without a file it lasts as long as the process."""

    def __init__(self, place: Path | None) -> None:
        self._place = place
        self._seen: dict[str, int] = {}
        if place is not None and place.exists():
            self._seen = _read(place)

    def check(self, registries: Iterable[Loaded]) -> None:
        """CatalogError if one is older than what was served before."""
        for loaded in registries:
            serial, last = loaded.registry.serial, self._seen.get(_name(loaded), 0)
            if serial < last:
                kept = f" (remembered in {self._place})" if self._place else ""
                raise CatalogError(
                    f"{loaded.path}: serial {serial} is lower than {last}, which was served before"
                    f"{kept}: this is an old issue. To go back on purpose, raise its serial"
                )

    def keep(self, registries: Iterable[Loaded]) -> str | None:
        """Remember what is served now; the reason, if it cannot be written down."""
        mine = {_name(one): one.registry.serial for one in registries if not one.embedded}
        if mine.items() <= self._seen.items():
            return None
        self._seen |= mine
        if self._place is None:
            return None
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            draft = self._place.with_name(f"{self._place.name}.{os.getpid()}")
            draft.write_bytes(msgspec.json.encode(self._seen) + b"\n")
            draft.replace(self._place)  # whole or not at all
        except OSError as error:
            return f"{self._place}: {error.strerror or error}: serials are not remembered"
        return None


def _name(loaded: Loaded) -> str:
    """Of a signed file the key and its name: it may be served from another place next time."""
    return f"{loaded.key} {loaded.name}" if loaded.key else str(loaded.path.resolve())


def _read(place: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode(place.read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError) as error:
        raise CatalogError(f"{place}: {error}: remove it to forget the serials seen") from None
