"""Serves a registry anew when its file changes, and the old one as long as the new one is bad."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from dovetail.servers.sources.catalog import Catalog, CatalogError
from dovetail.servers.sources.server import SourcesServer

__all__ = ["INTERVAL", "Watcher"]

log = logging.getLogger(__name__)

# Seconds between two looks at the files: a curator who saves sees it at once, and six calls of
# stat a second cost nothing.
INTERVAL = 1.0


class Watcher:
    """``look`` once, or as the lifespan of a server all the time it serves."""

    def __init__(self, sources: SourcesServer, interval: float = INTERVAL) -> None:
        self._sources = sources
        self._interval = interval
        self._seen = self._stamps()

    async def lifespan(self, server: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()

    async def _watch(self) -> None:
        catalog = self._sources.service.catalog
        await asyncio.to_thread(lambda: catalog.matcher.prepare())
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.look()
            except Exception:  # ours, then; the server goes on with what it has
                log.exception("looking at the registries failed")

    async def look(self) -> bool:
        """Read the files if they changed; whether something else is served now."""
        stamps = await asyncio.to_thread(self._stamps)
        if stamps == self._seen:
            return False
        self._seen = stamps
        try:
            catalog = await asyncio.to_thread(self._read)
        except CatalogError as error:
            self._refuse(error)
            return False
        service = self._sources.service
        self._sources.replace(catalog)
        if problem := service.serials.keep(catalog.registries):
            log.warning("%s", problem)
        log.info(
            "serving %s",
            ", ".join(f"{one.name} {one.registry.serial}" for one in catalog.registries),
        )
        return True

    def _read(self) -> Catalog:
        catalog = self._sources.service.read()
        catalog.matcher.prepare()  # here, not while a client waits
        return catalog

    def _refuse(self, error: CatalogError) -> None:
        """The old registries stay; whoever asks for provenance is told."""
        log.warning("the changed registry is refused, the old one stays: %s", error)
        service = self._sources.service
        named = [one.name for one in service.catalog.registries if str(one.path) in str(error)]
        everyone = [one.name for one in service.catalog.registries]
        reason = str(error).splitlines()[0]
        service.refused = dict.fromkeys(named or everyone, reason)

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        files = self._sources.service.options.files
        return [
            _stamp(file.with_name(file.name + suffix))
            for file in files
            for suffix in ("", ".minisig", ".sig")
        ]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
