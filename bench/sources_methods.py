"""Other ways to find a category, for comparison: each gives a score for every category."""

import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from dovetail.servers.sources.matching import Matcher
from dovetail.servers.sources.model import Category
from dovetail.servers.sources.words import NEUTRAL, all_words, stem

Ranked = list[tuple[str, float]]  # slugs and scores, best first
Method = Callable[[str], Ranked]


def text_of(category: Category) -> str:
    titles = (source.title for source in category.sources)
    vocabulary = (*category.patterns, *category.terms, *category.hints)
    return " ".join((category.name, category.description, *vocabulary, *titles))


def coverage(categories: Sequence[Category]) -> Method:
    """Ours."""
    matcher = Matcher(categories)
    return lambda query: [(found.category.slug, found.score) for found in matcher.rank(query)]


def levenshtein(categories: Sequence[Category]) -> Method:
    """The formula of the original server: likeness to name, slug or a pattern, and slug parts."""
    texts = {
        one.slug: [plain(text) for text in (one.slug, one.name, *one.patterns)]
        for one in categories
    }

    def rank(query: str) -> Ranked:
        said = plain(query)
        scores = {}
        for slug, candidates in texts.items():
            likeness = max(
                1 - distance(said, text) / max(len(said), len(text), 1) for text in candidates
            )
            parts = slug.split("-")
            scores[slug] = 0.7 * likeness + 0.3 * sum(part in said for part in parts) / len(parts)
        return best(scores)

    return rank


def plain(text: str) -> str:
    return " ".join(word for word in all_words(text) if word not in NEUTRAL)


def distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def bm25(categories: Sequence[Category]) -> Method:
    """SQLite's full text search with its Porter stemmer."""
    db = sqlite3.connect(":memory:")
    db.execute(
        "create virtual table c using fts5(slug unindexed, body, tokenize='porter unicode61')"
    )
    db.executemany("insert into c values (?, ?)", [(one.slug, text_of(one)) for one in categories])

    def rank(query: str) -> Ranked:
        words = [f'"{word}"' for word in all_words(query) if word not in NEUTRAL]
        if not words:
            return []
        sql = "select slug, -bm25(c) from c where c match ? order by 2 desc limit 3"
        return db.execute(sql, (" OR ".join(words),)).fetchall()

    return rank


def cosine(features: Callable[[str], list[str]]) -> Callable[[Sequence[Category]], Method]:
    """tf-idf vectors of words or of groups of letters."""

    def build(categories: Sequence[Category]) -> Method:
        counts = {one.slug: Counter(features(text_of(one))) for one in categories}
        shared = Counter(feature for found in counts.values() for feature in found)
        idf = {feature: math.log(1 + len(categories) / n) for feature, n in shared.items()}
        postings: dict[str, list[tuple[str, float]]] = defaultdict(list)
        for slug, found in counts.items():
            weights = {f: (1 + math.log(n)) * idf[f] for f, n in found.items()}
            length = math.sqrt(sum(weight**2 for weight in weights.values()))
            for feature, weight in weights.items():
                postings[feature].append((slug, weight / length))

        def rank(query: str) -> Ranked:
            said = Counter(features(query))
            weights = {
                f: (1 + math.log(n)) * idf.get(f, math.log(1 + len(categories)))
                for f, n in said.items()
            }
            length = math.sqrt(sum(weight**2 for weight in weights.values())) or 1
            scores: dict[str, float] = defaultdict(float)
            for feature, weight in weights.items():
                for slug, theirs in postings.get(feature, ()):
                    scores[slug] += weight * theirs / length
            return best(scores)

        return rank

    return build


def stems(text: str) -> list[str]:
    return [stem(word) for word in all_words(text) if word not in NEUTRAL]


def letters(text: str) -> list[str]:
    """Groups of three to five letters inside words."""
    found = []
    for word in all_words(text):
        if word not in NEUTRAL:
            padded = f" {word} "
            found += [padded[i : i + n] for n in (3, 4, 5) for i in range(len(padded) - n + 1)]
    return found


def best(scores: dict[str, float]) -> Ranked:
    return sorted(scores.items(), key=lambda item: -item[1])[:3]


METHODS: dict[str, Callable[[Sequence[Category]], Method]] = {
    "the original's formula": levenshtein,
    "FTS5 BM25, Porter stems": bm25,
    "tf-idf cosine of letters (3–5)": cosine(letters),
    "tf-idf cosine of stems": cosine(stems),
    "coverage (ours)": coverage,
}
