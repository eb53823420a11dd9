"""What changed between two issues of a registry, and what a curator should look at."""

from collections.abc import Iterator
from datetime import date, timedelta

from dovetail.servers.sources.catalog import Catalog
from dovetail.servers.sources.matching import DEFAULT_THRESHOLD
from dovetail.servers.sources.model import Category, Registry

__all__ = ["changes", "warnings"]

SOON = timedelta(days=30)  # time to look through a registry before it expires


def changes(old: Registry, new: Registry) -> list[str]:
    """One line for each thing that is new, gone or different."""
    found = [
        f"{name}: {getattr(old, name)} -> {getattr(new, name)}"
        for name in ("serial", "issued", "expires", "curator", "note", "tags")
        if getattr(old, name) != getattr(new, name)
    ]
    before = {category.slug: category for category in old.categories}
    after = {category.slug: category for category in new.categories}
    found += [f"removed {slug}" for slug in before if slug not in after]
    found += [f"added {slug}" for slug in after if slug not in before]
    for slug in before.keys() & after.keys():
        found += [f"{slug}: {change}" for change in _in_category(before[slug], after[slug])]
    return found


def _in_category(old: Category, new: Category) -> Iterator[str]:
    for name in ("name", "description"):
        if getattr(old, name) != getattr(new, name):
            yield f"{name}: {getattr(old, name)!r} -> {getattr(new, name)!r}"
    for name in ("tags", "patterns", "terms", "hints"):
        before, after = getattr(old, name), getattr(new, name)
        yield from (f"{name}: - {value}" for value in before if value not in after)
        yield from (f"{name}: + {value}" for value in after if value not in before)
    for before, after in zip(old.sources, new.sources, strict=True):
        if before.url != after.url:
            yield f"source {before.rank}: {before.url} -> {after.url}"
        elif before != after:
            yield f"source {before.rank}: other words about {before.url}"


def warnings(catalog: Catalog, today: date) -> Iterator[str]:
    """Nothing that keeps a registry from being served."""
    for loaded in catalog.registries:
        registry = loaded.registry
        if registry.expires < today:
            yield f"{loaded.path}: expired on {registry.expires}: look it through and issue it anew"
        elif registry.expires < today + SOON:
            yield f"{loaded.path}: expires on {registry.expires}"
        if registry.issued > today:
            yield f"{loaded.path}: issued on {registry.issued}, which is not yet"
    for slug, category in catalog.categories.items():
        for pattern in category.patterns:
            best = catalog.matcher.rank(pattern)[0]
            if best.category is not category:
                yield f"{slug}: pattern {pattern!r} finds {best.category.slug} instead"
            elif best.score < DEFAULT_THRESHOLD:
                yield f"{slug}: pattern {pattern!r} scores {best.score:.2f} only"
