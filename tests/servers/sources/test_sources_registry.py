"""The registry file: what is refused, with which line and words, and that ours is good."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample import category, registry, source, write

from dovetail.servers.sources.catalog import EMBEDDED, CatalogError, load, read_registry
from dovetail.servers.sources.compare import warnings
from dovetail.servers.sources.lines import line_of, repeated_key
from dovetail.servers.sources.model import Registry
from dovetail.servers.sources.registry import RegistryError, parse, text_problem

# The draft this registry was made from; users may have stored these slugs.
DRAFT = """rust-learning python-learning go-learning javascript-learning typescript-learning
    c-programming cpp-learning common-lisp sql-learning postgresql sqlite git bash-scripting
    linux-command-line linux-hardening docker kubernetes web-security threat-modeling cryptography
    tls-configuration password-management online-privacy http-protocol computer-networking
    web-accessibility html-css react api-design json-schema mcp-development machine-learning
    deep-learning data-analysis-python statistics linear-algebra algorithms operating-systems
    compilers distributed-systems site-reliability regular-expressions latex vim python-testing
    software-licensing self-hosted-email home-automation"""


def problems(content: dict[str, Any] | str | bytes) -> str:
    text = json.dumps(content, indent=1) if isinstance(content, dict) else content
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(RegistryError) as caught:
        parse(data, "mine.json")
    return str(caught.value)


def owl(**changes: Any) -> dict[str, Any]:
    """The registry with one category, changed."""
    return registry(categories=[{**category("owls", "Owls", "owl"), **changes}])


def with_source(**changes: Any) -> dict[str, Any]:
    sources = [source(rank, "Owl") for rank in (1, 2, 3)]
    return owl(sources=[sources[0], {**sources[1], **changes}, sources[2]])


def test_a_good_registry() -> None:
    found = parse(json.dumps(registry()).encode(), "mine.json")
    assert isinstance(found, Registry)
    assert [one.slug for one in found.categories] == ["hedgehogs", "owls"]


BAD: list[tuple[Any, str]] = [
    (registry(colour="red"), "mine.json:96: unknown key 'colour': remove it (at colour)"),
    (owl(priority=1), "unknown key 'priority': remove it (at categories[0].priority)"),
    (with_source(price=3), "unknown key 'price': remove it (at categories[0].sources[1].price)"),
    (registry(schema=2), "mine.json:2: Invalid enum value 2 (at schema)"),
    (registry(serial="7"), "mine.json:3: Expected `int`, got `str` (at serial)"),
    (registry(serial=0), "mine.json:3: serial must be 1 or more"),
    (registry(serial=2**60), "mine.json:3: serial must be 1 or more"),
    (registry(issued="yesterday"), "mine.json:4: Invalid RFC3339"),
    (registry(expires="2025-01-01"), "mine.json:5: expires before it was issued"),
    (registry(categories=[]), "a registry has 1 to 20000 categories"),
    (registry(curator="Ada\u202e"), "mine.json:6: curator: control or invisible character U+202E"),
    (registry(curator=""), "mine.json:6: curator: empty"),
    (registry(tags=["Nature"]), "bad tag 'Nature': lower-case letters, digits, hyphens"),
    (owl(slug="Owls"), "mine.json:12: bad slug 'Owls': lower-case letters, digits, hyphens"),
    (owl(slug="owls--two"), "bad slug 'owls--two'"),
    (owl(slug="owls\n"), "bad slug 'owls\\n'"),
    (owl(name="**Owls**"), "name: markup or link '**': plain text only"),
    (owl(name="Owls\u200b"), "name: control or invisible character U+200B"),
    (owl(name="Owls\tof"), "name: control or invisible character U+0009"),
    (owl(name=" Owls"), "name: empty, or space at an end or doubled"),
    (owl(name="x" * 121), "name: 121 characters: at most 120"),
    (owl(description="See [this](https://x.org)"), "description: markup or link ']('"),
    (owl(description="<script>alert(1)</script>"), "description: markup or link '<s'"),
    (owl(description="a &amp; b"), "description: markup or link '&amp;'"),
    (owl(description="read https://evil.example"), "description: markup or link '://'"),
    (owl(description="Ignore\U000e0041 this"), "character U+E0041"),
    (owl(tags=[]), "a category has at least one tag"),
    (owl(tags=["sky"]), "tag 'sky' is not in the registry's own list of tags"),
    (owl(tags=["nature", "nature"]), "'nature' is there twice: remove one"),
    (owl(patterns=["one owl", "two owls"]), "2 patterns: at least 3 are needed"),
    (owl(patterns=["owl one", "owl two", "owl two"]), "'owl two' is there twice: remove one"),
    (owl(terms=["how to"]), "'how to' says nothing: matching leaves all its words out"),
    (owl(terms=["owl"], hints=["owl"]), "'owl' is a term too: keep one of the two"),
    (owl(hints=[f"w{n}" for n in range(101)]), "101 entries: at most 100"),
    (owl(sources=[source(1, "Owl"), source(2, "Owl")]), "2 sources: a category has exactly 3"),
    (owl(sources=[source(n, "Owl") for n in (1, 2, 3, 4)]), "4 sources: a category has exactly 3"),
    (with_source(rank=3), "rank 3 in place 2: order them 1, 2, 3"),
    (with_source(url="http://example.org"), "bad link 'http://example.org': a plain https://"),
    (with_source(url="https://me:pw@example.org/"), "bad link"),
    (with_source(url="https://example.org/a b"), "bad link"),
    (with_source(url="javascript:alert(1)"), "bad link"),
    (with_source(url="https://example.org/owl/1"), "the same link twice in one category"),
    (with_source(type="poster"), "Invalid enum value 'poster' (at categories[0].sources[1].type)"),
    (with_source(checked_on="soon"), "Invalid RFC3339"),
    (with_source(title="x" * 121), "title: 121 characters: at most 120"),
    (with_source(description="\x00"), "description: "),
]


@pytest.mark.parametrize(("content", "said"), BAD, ids=[said[-40:] for _, said in BAD])
def test_what_is_refused(content: Any, said: str) -> None:
    assert said in problems(content)


def test_every_problem_is_told_with_its_own_line() -> None:
    text = json.dumps(owl(slug="Owls", name="<b>", tags=["sky"]), indent=1)
    lines = text.splitlines()
    for problem in problems(text).splitlines():
        number = int(re.match(r"mine\.json:(\d+): ", problem)[1])  # type: ignore[index]
        assert any(word in lines[number - 1] for word in ("Owls", "<b>", "sky")), problem


def test_what_is_no_registry() -> None:
    good = json.dumps(registry(), indent=1)
    assert problems("") == "mine.json:1: not JSON: Input data was truncated"
    assert problems(good[:200]).startswith("mine.json:13: not JSON: ")
    assert problems(good.replace('"serial": 7,', '"serial": 7 7,')).startswith(
        "mine.json:3: not JSON"
    )
    assert problems(b"\xff") == "mine.json:1: not UTF-8: save the file as UTF-8"
    assert "not UTF-8" in problems(good.replace("Ada", "\u00c4da").encode("latin-1"))
    assert "mine.json:1: " in problems("\ufeff" + good)
    assert "mine.json:1: Expected `object`, got `array`" in problems("[]")
    assert problems("[" * 100_000).startswith("mine.json:1: ")


def test_a_key_twice_is_refused() -> None:
    text = json.dumps(registry(), indent=1).replace('"curator"', '"curator": "Eve",\n "curator"', 1)
    assert problems(text) == "mine.json:6: key 'curator' is there twice: remove one"


def test_a_term_of_two_categories_is_no_term() -> None:
    both = [category(slug, slug.title(), slug, terms=["nocturnal"]) for slug in ("owl", "bat")]
    assert (
        problems(registry(categories=both)).count(
            "term 'nocturnal' is in 2 categories: make it a hint"
        )
        == 2
    )


def test_a_slug_of_two_files_is_refused_with_both_places(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one.json"), write(tmp_path / "two.json")
    with pytest.raises(CatalogError) as caught:
        load([one, two])
    assert str(caught.value) == (
        f"{one}:12 and {two}:12: slug 'hedgehogs' is in both registries: rename one"
    )


def test_files_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    one = write(tmp_path / "one.json")
    two = write(tmp_path / "a" / "one.json", registry(categories=[category("x", "X", "xenon")]))
    with pytest.raises(CatalogError, match=r"two registries are named one\.json: rename"):
        load([one, two])


@pytest.mark.parametrize("name", ["our sources.json", "$(rm).json", "-x.json", "ä.json"])
def test_a_file_name_that_no_command_can_hold(tmp_path: Path, name: str) -> None:
    with pytest.raises(CatalogError, match="rename it: letters, digits"):
        load([write(tmp_path / name)])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="No such file"):
        load([tmp_path / "none.json"])


# -- ours ------------------------------------------------------------------------------------------


def test_the_embedded_registry_passes_every_check() -> None:
    found = read_registry(EMBEDDED, checked=True).registry
    assert found.curator == "Dovetail project"
    assert "no link was fetched" in found.note
    assert set(DRAFT.split()) <= {one.slug for one in found.categories}
    assert len(found.categories) >= 50
    for one in found.categories:
        for each in one.sources:
            assert each.evidence in ("exact", "text-search"), each
            assert each.checked_on is None, "nobody has opened it"
    links = [each.url for one in found.categories for each in one.sources]
    assert len(links) == len({link.rstrip("/") for link in links}), "one source, one category"


def test_the_embedded_registry_finds_its_own_patterns() -> None:
    assert list(warnings(load([EMBEDDED]), date(2026, 11, 15))) == []


# -- whatever a file holds -----------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_a_line(data: bytes) -> None:
    with pytest.raises(RegistryError) as caught:
        parse(data, "mine.json")
    assert all(problem.line >= 1 for problem in caught.value.problems)


@given(
    st.sampled_from(["slug", "name", "description", "tags", "patterns", "terms", "sources"]), JSON
)
def test_any_value_in_any_place_is_read_or_refused(field: str, value: Any) -> None:
    try:
        found = parse(json.dumps(owl(**{field: value})).encode(), "mine.json")
    except RegistryError:
        return
    assert getattr(found.categories[0], field) in (value, tuple(value or ()))


@given(st.text(min_size=1, max_size=30))
def test_a_text_that_is_accepted_is_one_visible_line(text: str) -> None:
    if text_problem(text, 120) is None:
        assert text.isprintable() or not any(
            ord(one) < 0xA0 and not one.isprintable() for one in text
        )
        assert "<a" not in text
        assert "](" not in text


@given(JSON)
def test_a_line_is_found_for_every_path(value: Any) -> None:
    text = json.dumps({"a": value, "b": [value]}, indent=1)
    lines = text.count("\n") + 1
    for path in ((), ("a",), ("b", 0), ("b", 9), ("none", 1)):
        assert 1 <= line_of(text, path) <= lines
    assert text.splitlines()[line_of(text, ("b",)) - 1].startswith(' "b"')
    assert repeated_key(text) is None
