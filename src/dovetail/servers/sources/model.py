"""What a registry file holds, and what it may hold."""

from datetime import date
from typing import Literal

from msgspec import Struct

__all__ = ["MAX_NAME", "MAX_TEXT", "SOURCE_TYPES", "Category", "Registry", "Source"]

# Characters: one line of a terminal, and three lines.
MAX_NAME, MAX_TEXT = 120, 300

SourceType = Literal[
    "api",
    "article",
    "book",
    "course",
    "documentation",
    "exercises",
    "forum",
    "interactive",
    "reference",
    "repository",
    "standard",
    "tool",
    "tutorial",
    "video",
]
SOURCE_TYPES: tuple[str, ...] = SourceType.__args__  # type: ignore[attr-defined]


class Source(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    rank: int
    title: str
    url: str
    type: SourceType
    description: str
    # How the link was checked without opening it; nothing is claimed where it is left out.
    evidence: Literal["exact", "text-search", "host", "none"] | None = None
    checked_on: date | None = None  # the day a person opened the link


class Category(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    slug: str
    name: str
    description: str
    tags: tuple[str, ...]
    patterns: tuple[str, ...]
    terms: tuple[str, ...] = ()  # unambiguous: one of them is enough
    hints: tuple[str, ...] = ()  # ambiguous: they need company
    sources: tuple[Source, ...]


class Registry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    schema: Literal[1]
    serial: int
    issued: date
    expires: date
    curator: str
    note: str = ""
    tags: tuple[str, ...]
    categories: tuple[Category, ...]
