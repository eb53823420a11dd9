"""Reading a registry file: strict, and with a line for everything that is wrong.

What a registry says is shown to agents as it is, so nothing may hide in it: no markup, no control
or invisible characters, no link that is not https.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from dovetail.servers.sources.model import MAX_NAME, MAX_TEXT, Category, Registry, Source
from dovetail.servers.sources.words import NEUTRAL, all_words

__all__ = ["FILE_NAME", "Problem", "RegistryError", "parse", "text_problem"]

# Twice the scale the matcher is measured at.
MAX_CATEGORIES = 20_000
MAX_NOTE, MAX_URL = 600, 2000  # a paragraph; the longest address that browsers surely take
MAX_LISTED = 100  # patterns, terms or hints of a category: more is no longer curated by hand
# A registry's file name is part of a URI and of commands that people paste into a shell.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
URL = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)*(:\d+)?(/[!-~]*)?", re.ASCII | re.IGNORECASE)
# Control characters, and those nobody sees: bidirectional overrides, zero width, private use, tags.
HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ue000-\uf8ff"
    "\U000e0000-\U0010ffff]"
)
MARKUP = re.compile(r"<[a-z/!]|&#?\w+;|\]\(|\*\*|`|^#+ |^[-*>] |://", re.IGNORECASE)

Path = tuple[str | int, ...]
_AT = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_FIELD = re.compile(r"`(\w+)`")
_BYTE = re.compile(r"\(byte (\d+)\)")


class Problem(NamedTuple):
    line: int
    text: str


class RegistryError(Exception):
    """A registry cannot be used; ``problems`` says why, line by line."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file = file
        self.problems = problems
        super().__init__("\n".join(f"{file}:{line}: {text}" for line, text in problems))


def parse(data: bytes, file: str) -> Registry:
    """The registry in ``data``; RegistryError with every problem that was found."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RegistryError(file, [Problem(line, "not UTF-8: save the file as UTF-8")]) from None
    registry = _decode(data, text, file)
    found = list(problems(registry))
    if found or _repeats(text):
        from dovetail.servers.sources.lines import line_of, repeated_key

        if (path := repeated_key(text)) is not None:
            found.append((path, f"key {path[-1]!r} is there twice: remove one"))
        told = sorted(Problem(line_of(text, path), what) for path, what in found)
        raise RegistryError(file, told)
    return registry


def _decode(data: bytes, text: str, file: str) -> Registry:
    try:
        return msgspec.json.decode(data, type=Registry)
    except (msgspec.DecodeError, RecursionError) as error:
        from dovetail.servers.sources.lines import line_of

        said = str(error)
        byte = _BYTE.search(said)
        if byte or "truncated" in said:
            line = data.count(b"\n", 0, int(byte[1]) if byte else len(data)) + 1
            raise RegistryError(file, [Problem(line, f"not JSON: {said}")]) from None
        path: Path = ()
        if at := _AT.search(said):
            path = tuple(name or int(number) for name, number in _STEP.findall(at[1]))
            said = said[: at.start()]
        if "unknown field" in said and (field := _FIELD.search(said)):
            path, said = (*path, field[1]), f"unknown key '{field[1]}': remove it"
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        told = f"{said} (at {where.lstrip('.')})" if where else said
        raise RegistryError(file, [Problem(line_of(text, path), told)]) from None


def _repeats(text: str) -> bool:
    """Whether some object has a key twice; asked of texts that fit the schema only."""
    from json import loads

    twice = False

    def keep(pairs: list[tuple[str, object]]) -> None:
        nonlocal twice
        twice = twice or len({key for key, _ in pairs}) < len(pairs)

    loads(text, object_pairs_hook=keep)
    return twice


# -- what is checked beyond types: each problem with the path of what is wrong ---------------------

Found = Iterator[tuple[Path, str]]


def problems(registry: Registry) -> Found:
    if not 1 <= registry.serial < 2**53:  # what every JSON reader keeps exactly
        yield ("serial",), "serial must be 1 or more, and higher than in the last issue"
    if registry.expires < registry.issued:
        yield ("expires",), "expires before it was issued"
    yield from _text(("curator",), registry.curator, MAX_NAME)
    if registry.note:
        yield from _text(("note",), registry.note, MAX_NOTE)
    yield from _slugs(("tags",), registry.tags)
    if not 1 <= len(registry.categories) <= MAX_CATEGORIES:
        yield ("categories",), f"a registry has 1 to {MAX_CATEGORIES} categories"
    for number, category in enumerate(registry.categories):
        yield from _category(("categories", number), category, registry)
    yield from _taken_twice(registry)


def _category(path: Path, category: Category, registry: Registry) -> Found:
    if not SLUG.fullmatch(category.slug) or len(category.slug) > MAX_NAME:
        yield (*path, "slug"), f"bad slug {category.slug!r}: lower-case letters, digits, hyphens"
    yield from _text((*path, "name"), category.name, MAX_NAME)
    yield from _text((*path, "description"), category.description, MAX_TEXT)
    yield from _tags((*path, "tags"), category.tags, registry)
    if len(category.patterns) < 3:
        yield (*path, "patterns"), f"{len(category.patterns)} patterns: at least 3 are needed"
    for field in ("patterns", "terms", "hints"):
        yield from _vocabulary((*path, field), getattr(category, field))
    for both in sorted({*category.terms} & {*category.hints}):
        at = category.hints.index(both)
        yield (*path, "hints", at), f"{both!r} is a term too: keep one of the two"
    yield from _sources((*path, "sources"), category.sources)


def _tags(path: Path, tags: tuple[str, ...], registry: Registry) -> Found:
    if not tags:
        yield path, "a category has at least one tag"
    yield from _slugs(path, tags)
    for at, tag in enumerate(tags):
        if tag not in registry.tags:
            yield (*path, at), f"tag {tag!r} is not in the registry's own list of tags"


def _slugs(path: Path, values: tuple[str, ...]) -> Found:
    for at, value in enumerate(values):
        if not SLUG.fullmatch(value):
            yield (*path, at), f"bad tag {value!r}: lower-case letters, digits, hyphens"
        if value in values[:at]:
            yield (*path, at), f"{value!r} is there twice: remove one"


def _vocabulary(path: Path, values: tuple[str, ...]) -> Found:
    if len(values) > MAX_LISTED:
        yield path, f"{len(values)} entries: at most {MAX_LISTED}"
    for at, value in enumerate(values):
        yield from _text((*path, at), value, MAX_NAME)
        if all(word in NEUTRAL for word in all_words(value)):
            yield (*path, at), f"{value!r} says nothing: matching leaves all its words out"
        if value in values[:at]:
            yield (*path, at), f"{value!r} is there twice: remove one"


def _sources(path: Path, sources: tuple[Source, ...]) -> Found:
    if len(sources) != 3:
        yield path, f"{len(sources)} sources: a category has exactly 3"
    for at, source in enumerate(sources):
        if source.rank != at + 1:
            yield (*path, at, "rank"), f"rank {source.rank} in place {at + 1}: order them 1, 2, 3"
        yield from _text((*path, at, "title"), source.title, MAX_NAME)
        yield from _text((*path, at, "description"), source.description, MAX_TEXT)
        if len(source.url) > MAX_URL or not URL.fullmatch(source.url):
            yield (*path, at, "url"), f"bad link {source.url[:80]!r}: a plain https:// address"
        if source.url in [other.url for other in sources[:at]]:
            yield (*path, at, "url"), "the same link twice in one category"


def _taken_twice(registry: Registry) -> Found:
    """Slugs, and terms: one that two categories have is not unambiguous."""
    slugs = Counter(category.slug for category in registry.categories)
    terms = Counter(term for category in registry.categories for term in {*category.terms})
    for number, category in enumerate(registry.categories):
        path: Path = ("categories", number)
        if slugs[category.slug] > 1:
            yield (*path, "slug"), f"slug {category.slug!r} is there {slugs[category.slug]} times"
        for at, term in enumerate(category.terms):
            if terms[term] > 1:
                yield (
                    (*path, "terms", at),
                    f"term {term!r} is in {terms[term]} categories: make it a hint",
                )


def _text(path: Path, value: str, limit: int) -> Found:
    if problem := text_problem(value, limit):
        yield path, f"{path[-1]}: {problem}" if isinstance(path[-1], str) else problem


def text_problem(value: str, limit: int) -> str | None:
    """What keeps a text from being shown as it is."""
    if not value or value != value.strip() or "  " in value:
        return "empty, or space at an end or doubled"
    if len(value) > limit:
        return f"{len(value)} characters: at most {limit}"
    if hidden := HIDDEN.search(value):
        return f"control or invisible character U+{ord(hidden[0]):04X}"
    if markup := MARKUP.search(value):
        return f"markup or link {markup[0]!r}: plain text only"
    return None
