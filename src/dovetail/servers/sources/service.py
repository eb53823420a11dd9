"""What the four tools answer, and the prompt: everything but the protocol."""

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from dovetail.servers.sources.catalog import EMBEDDED, Catalog, Loaded, load
from dovetail.servers.sources.endorsements import Shown, Trusted, collect
from dovetail.servers.sources.matching import Match
from dovetail.servers.sources.minisign import PublicKey
from dovetail.servers.sources.model import Category
from dovetail.servers.sources.provenance import Provenance, provenance
from dovetail.servers.sources.serials import SerialMemory

__all__ = ["Categories", "CategorySources", "Endorsements", "Found", "Options", "Service"]


class ShownCategory(Struct, frozen=True):
    slug: str
    name: str
    description: str


class ShownSource(Struct, frozen=True):
    rank: Annotated[int, Meta(description="1 is where to start")]
    title: str
    url: str
    description: Annotated[str, Meta(description="what it is and whom it suits")]


class ShownMatch(Struct, frozen=True):
    score: Annotated[
        float, Meta(ge=0, le=1, description="share of the query's informative words explained")
    ]
    threshold: Annotated[float, Meta(ge=0, le=1)]
    matched: Annotated[list[str], Meta(description="the words that were explained: judge by them")]
    runners_up: Annotated[list[str], Meta(description="slugs of the next best categories")]


class Found(Struct, frozen=True):
    category: ShownCategory | None
    sources: list[ShownSource]
    match: ShownMatch
    message: str


class CategorySources(Struct, frozen=True):
    """A category as a resource."""

    category: ShownCategory
    sources: list[ShownSource]


class ListedCategory(Struct, frozen=True):
    slug: str
    name: str
    tags: list[str]


class Categories(Struct, frozen=True):
    categories: list[ListedCategory]


class Endorsements(Struct, frozen=True):
    endorsements: list[Shown]


class Options(Struct, frozen=True, kw_only=True):
    """What the operator chose."""

    files: Sequence[Path] = (EMBEDDED,)
    keys: Sequence[PublicKey] = ()
    statements: Sequence[Path] = ()
    trusted: Sequence[Trusted] = ()
    state: Path | None = None
    today: Callable[[], date] = date.today


class Service:
    """The registries served now, and what is said about them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.serials = SerialMemory(options.state)
        self.catalog = self.read()
        self.refused: dict[str, str] = {}  # by file name: why what is on disk now is not served
        self.remember_problem = self.serials.keep(self.catalog.registries)

    def read(self) -> Catalog:
        """What the files hold now; CatalogError if it cannot be served."""
        catalog = load(self.options.files, self.options.keys)
        self.serials.check(catalog.registries)
        return catalog

    # -- the tools ---------------------------------------------------------------------

    def get_sources(self, query: str, threshold: float) -> Found:
        ranked = self.catalog.matcher.rank(query)
        best = ranked[0] if ranked and ranked[0].score >= threshold else None
        others = ranked[1:] if best else ranked[:2]
        return Found(
            category=None if best is None else _shown(best.category),
            sources=[] if best is None else _sources(best.category),
            match=ShownMatch(
                score=ranked[0].score if ranked else 0.0,
                threshold=threshold,
                matched=list(ranked[0].matched) if ranked else [],
                runners_up=[other.category.slug for other in others],
            ),
            message=self._message(best, ranked),
        )

    def _message(self, best: Match | None, ranked: list[Match]) -> str:
        if best is not None:
            text = f"3 sources for {best.category.name}."
            expired = [one for one in self.catalog.registries if self._expired(one)]
            for one in expired:
                if best.category in one.registry.categories:
                    text += f" The registry they are from expired on {one.registry.expires}."
            return text
        if not ranked:
            return "No match: no word of the query occurs in this registry."
        return (
            f"No match: the nearest category, {ranked[0].category.slug}, scores "
            f"{ranked[0].score:.2f}, below the threshold. If it is what you mean, ask again with "
            "its name in the query; list_categories shows all there are."
        )

    def _expired(self, loaded: Loaded) -> bool:
        return loaded.registry.expires < self.options.today()

    def list_categories(self) -> Categories:
        return Categories(
            [
                ListedCategory(category.slug, category.name, list(category.tags))
                for category in self.catalog.categories.values()
            ]
        )

    def get_provenance(self) -> Provenance:
        return provenance(list(self.catalog.registries), self.options.today(), self.refused)

    def get_endorsements(self) -> Endorsements:
        return Endorsements(self.endorsed()[0])

    def endorsed(self) -> tuple[list[Shown], list[str]]:
        """The endorsements, and of every other statement why it is not shown."""
        if not self.options.statements:
            return [], []
        options = self.options
        return collect(options.statements, options.trusted, self.catalog, options.today())

    # -- the rest ----------------------------------------------------------------------

    def category(self, slug: str) -> CategorySources | None:
        category = self.catalog.categories.get(slug)
        return None if category is None else CategorySources(_shown(category), _sources(category))

    def slugs(self, prefix: str) -> list[str]:
        """For completion: slugs that begin so, then those that have it further on."""
        prefix = prefix.casefold()
        slugs = sorted(slug for slug in self.catalog.categories if prefix in slug)
        return sorted(slugs, key=lambda slug: not slug.startswith(prefix))

    def names(self, prefix: str) -> list[str]:
        prefix = prefix.casefold()
        names = (category.name for category in self.catalog.categories.values())
        return sorted(name for name in names if prefix in name.casefold())

    def research(self, topic: str, threshold: float) -> str:
        """The text of the prompt."""
        found = self.get_sources(topic, threshold)
        if found.category is None:
            return (
                f"Research this topic: {topic}\n\n"
                "The registry of vetted sources has no category for it. Call list_categories and "
                "see whether one is close; if none is, say that you work without vetted sources, "
                "and name where each statement comes from."
            )
        lines = [f"{one.rank}. {one.title}: {one.url} ({one.description})" for one in found.sources]
        return (
            f"Research this topic: {topic}\n\n"
            f"Start from these three sources for {found.category.name}, in this order:\n"
            + "\n".join(lines)
            + "\n\nRead them as far as the topic needs. Rest your answer on what they say, name "
            "the source of each statement, and say plainly what they do not answer. If they are "
            "about something else than the topic, say so and call get_sources with other words."
        )


def _shown(category: Category) -> ShownCategory:
    return ShownCategory(category.slug, category.name, category.description)


def _sources(category: Category) -> list[ShownSource]:
    return [ShownSource(s.rank, s.title, s.url, s.description) for s in category.sources]
