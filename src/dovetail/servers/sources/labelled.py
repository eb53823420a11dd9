"""Labelled queries: how often a registry gives the right answer."""

from pathlib import Path
from typing import NamedTuple

from dovetail.servers.sources.catalog import Catalog, CatalogError

__all__ = ["Report", "read", "run"]

OUT_OF_SCOPE = "-"


class Report(NamedTuple):
    right: float  # share of the queries answered as labelled
    text: str


def read(path: Path) -> list[tuple[str, str]]:
    """Lines of a slug, or ``-`` for what the registry should reject, a tab, and a query."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path}: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        slug, tab, query = line.partition("\t")
        if line.strip() and not line.startswith("#"):
            if not tab or not query.strip():
                raise CatalogError(f"{path}:{number}: expected a slug or -, a tab, and a query")
            found.append((slug, query))
    return found


def run(path: Path, catalog: Catalog, threshold: float) -> Report:
    """Ask every query, and tell each that was not answered as labelled."""
    queries = read(path)
    wrong = []
    for slug, query in queries:
        if slug not in catalog.categories and slug != OUT_OF_SCOPE:
            raise CatalogError(f"{path}: no category {slug!r} (query {query!r})")
        best = next(iter(catalog.matcher.rank(query)), None)
        found = best.category.slug if best and best.score >= threshold else OUT_OF_SCOPE
        if found != slug:
            wrong.append(f"{query!r}: expected {slug}, found {found}")
    right = 1 - len(wrong) / (len(queries) or 1)
    return Report(right, "\n".join([*wrong, f"{right:.1%} of {len(queries)} queries right"]))
