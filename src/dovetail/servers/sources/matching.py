"""Which category a query is about: the share of its words that the category explains.

The score is a number a person can follow. Words that only say that somebody asks ("how", "learn",
"tutorial") are left out. The others weigh by how few categories have them, words that go with
every subject ("write", "tool") a third of that. The score of a category is the weight of the words
it has, divided by the weight of all; then two rules:

- a *term* names the subject beyond doubt ("kubectl"), and so does a word of the category's name
  after "in", "with" or "using" ("tables in latex"): the score is at least ``TERM_FLOOR``;
- any other word is ambiguous ("rust"): if it is the only one the category has among several, the
  score is ``LONELY`` of that. Hints are such words, beside those of the patterns.

A word the registry does not have is taken for a near one: a typo, or the start of a longer word.
"""

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import log
from typing import NamedTuple

from dovetail.servers.sources.model import Category
from dovetail.servers.sources.words import NEUTRAL, WEAK, all_words, deletions, stem

__all__ = ["DEFAULT_THRESHOLD", "Match", "Matcher"]

DEFAULT_THRESHOLD = 0.35  # chosen on the tuned half of the labelled queries (docs/sources.md)
TERM_FLOOR = 0.5
SUBJECT_FOLLOWS = frozenset({"in", "with", "using"})
LONELY = 0.55
WEAK_WEIGHT = 0.3
TYPO, PREFIX = 0.85, 0.7  # what a word counts that is near one of ours
# Letters; shorter words are near too many others.
SHORTEST_TYPO, SHORTEST_PREFIX, SHORTEST_WRONG_LETTER = 5, 6, 7
# A word of a category counts in full in its name, its patterns and alone in its vocabulary; half
# in a description, a title, or as a part of a longer term or hint.
CURATED, MENTIONED = 1.0, 0.5
# Words of a query that are looked at: more than a long question has. The rest of a text pasted
# into the query only dilutes the score.
MAX_WORDS = 64
RANKED = 40  # candidates scored in full: far more than the three that are shown


class Match(NamedTuple):
    """A category and how well it fits."""

    category: Category
    score: float
    matched: tuple[str, ...]  # the words of the query it explains


class _Word(NamedTuple):
    """An informative word of a query: as written, its weight, and the stems it stands for."""

    text: str
    weight: float
    stems: tuple[tuple[str, float], ...]


class Matcher:
    """The index of a set of categories, built once."""

    def __init__(self, categories: Sequence[Category]) -> None:
        self._categories = categories
        self._postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self._terms: dict[str, list[tuple[frozenset[str], int]]] = defaultdict(list)
        self._names: list[frozenset[str]] = []
        self._subjects: dict[str, list[int]] = defaultdict(list)
        self._spellings: dict[str, str] = {}  # words as written -> stem
        for number, category in enumerate(categories):
            self._add(number, category)
        self._unknown = log(1 + len(categories))

    def _add(self, number: int, category: Category) -> None:
        name = self._stems([category.name, category.slug])
        vocabulary = [*category.terms, *category.hints]
        curated = name | self._stems(
            [*category.patterns, *(word for word in vocabulary if " " not in word)]
        )
        titles = [source.title for source in category.sources]
        mentioned = self._stems([category.description, *titles, *vocabulary])
        for one in curated | mentioned:
            self._postings[one].append((number, CURATED if one in curated else MENTIONED))
        self._names.append(frozenset(name))
        for word in {*all_words(category.name)} - WEAK - NEUTRAL:
            self._subjects[stem(word)].append(number)
        for term in category.terms:
            needed = frozenset(map(stem, all_words(term)))
            self._terms[max(needed, key=len)].append((needed, number))

    def _stems(self, texts: Iterable[str]) -> set[str]:
        found = set()
        for text in texts:
            for word in all_words(text):
                if word not in NEUTRAL:
                    self._spellings[word] = one = stem(word)
                    found.add(one)
        return found

    def prepare(self) -> None:
        """Make now what the first unknown word would wait for."""
        _ = self._sorted, self._misspelt

    # -- matching ----------------------------------------------------------------------

    def rank(self, query: str, count: int = 3) -> list[Match]:
        """The best categories, best first; empty if no word of the query is known."""
        words, heard, subjects = self._read(query)
        total = sum(word.weight for word in words)
        if not total:
            return []
        explained = self._explained(words)
        named = self._named(heard).union(*(self._subjects.get(one, ()) for one in subjects))
        for number in named:
            explained.setdefault(number, {})
        rough = {
            number: sum(found.values()) + total * (number in named)
            for number, found in explained.items()
        }
        best = [
            self._judged(number, explained[number], words, total, number in named)
            for number in heapq.nlargest(RANKED, rough, key=rough.__getitem__)
        ]
        best.sort(key=lambda found: found[0], reverse=True)
        return [match for _, match in best[:count]]

    def _read(self, query: str) -> tuple[list[_Word], set[str], set[str]]:
        """The informative words; every stem that was said, for terms; those said as a subject."""
        words: list[_Word] = []
        heard: set[str] = set()
        seen: set[str] = set()
        subjects: set[str] = set()
        before = ""
        for text in all_words(query)[:MAX_WORDS]:
            near = ((stem(text), 1.0),) if text in NEUTRAL else self._near(text)
            said = [one for one, quality in near if quality >= TYPO]
            heard.update(said)
            if before in SUBJECT_FOLLOWS:
                subjects.update(said)
            before = text
            if text in NEUTRAL or text in seen or (near and near[0][0] in NEUTRAL):
                continue
            seen.add(text)
            words.append(_Word(text, self._weight(text, near), near))
        return words, heard, subjects

    def _weight(self, text: str, near: tuple[tuple[str, float], ...]) -> float:
        counts = [len(self._postings[one]) for one, _ in near if one in self._postings]
        idf = log(1 + len(self._categories) / max(counts)) if counts else self._unknown
        return idf * (WEAK_WEIGHT if text in WEAK or text.isdigit() else 1.0)

    def _near(self, text: str) -> tuple[tuple[str, float], ...]:
        """The stems a word may stand for: itself if we have it, else what is near."""
        one = stem(text)
        if one in self._postings:
            return ((one, 1.0),)
        return self._typos(text) or self._longer(one) or ((one, 1.0),)

    def _typos(self, text: str) -> tuple[tuple[str, float], ...]:
        if len(text) < SHORTEST_TYPO:
            return ()
        found = {
            known
            for part in deletions(text)
            for known in self._misspelt.get(part, ())
            if _same_but_for_a_typo(text, known)
        }
        if not found:
            return ()
        if found & NEUTRAL:
            return ((min(found & NEUTRAL), TYPO),)
        return tuple((one, TYPO) for one in sorted({self._spellings[word] for word in found}))

    def _longer(self, one: str) -> tuple[tuple[str, float], ...]:
        """Words of ours that begin with this one."""
        if len(one) < SHORTEST_PREFIX:
            return ()
        start = bisect_left(self._sorted, one)
        end = bisect_left(self._sorted, one + "\U0010ffff")
        return tuple((longer, PREFIX) for longer in self._sorted[start : min(end, start + 5)])

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._postings)

    @cached_property
    def _misspelt(self) -> dict[str, list[str]]:
        """Words by their deletions. Made at the first unknown word: most queries have none."""
        index: dict[str, list[str]] = defaultdict(list)
        for word in (*self._spellings, *NEUTRAL):
            if len(word) >= SHORTEST_TYPO - 1:
                for part in deletions(word):
                    index[part].append(word)
        return dict(index)

    def _explained(self, words: list[_Word]) -> dict[int, dict[int, float]]:
        """For each category the words it has, by place, and what each adds."""
        found: dict[int, dict[int, float]] = defaultdict(dict)
        for at, word in enumerate(words):
            for one, quality in word.stems:
                for number, credit in self._postings.get(one, ()):
                    worth = word.weight * credit * quality
                    if worth > found[number].get(at, 0.0):
                        found[number][at] = worth
        return found

    def _named(self, heard: set[str]) -> set[int]:
        """The categories of which some term was said, all words of it."""
        return {
            number
            for one in heard & self._terms.keys()
            for needed, number in self._terms[one]
            if needed <= heard
        }

    def _judged(
        self,
        number: int,
        found: dict[int, float],
        words: list[_Word],
        total: float,
        named: bool,
    ) -> tuple[tuple[float, bool, float, int], Match]:
        score = sum(found.values()) / total
        if named:
            score = TERM_FLOOR + (1 - TERM_FLOOR) * score
        elif len(found) == 1 < len(words):
            score *= LONELY
        said = {one for at in found for one, _ in words[at].stems}
        name = self._names[number]
        likeness = len(name & said) / (len(name) or 1)
        matched = tuple(words[at].text for at in sorted(found))
        score = round(min(score, 1.0), 4)
        return (score, named, likeness, -number), Match(self._categories[number], score, matched)


def _same_but_for_a_typo(text: str, known: str) -> bool:
    """Of two words that share a deletion. The first letter is hardly ever the wrong one, and among
    short words one wrong letter makes another word: scarf and scanf, tokyo and tokio."""
    if text[0] != known[0]:
        return False
    short = len(text) == len(known) < SHORTEST_WRONG_LETTER
    return not short or sorted(text) == sorted(known)
