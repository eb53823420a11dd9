"""The matching report: how well each method finds categories, on tuned and on unseen queries.

    python bench/sources_matching.py            prints the table
    python bench/sources_matching.py --write    puts it into docs/sources.md
    python bench/sources_matching.py --split    shows that the split is what the seed gives

The threshold of every method is the one that is best on the tuned queries, except ours, which is
the server's default.
"""

import random
import re
import statistics
import sys
import time
from functools import cache
from pathlib import Path

import msgspec

from dovetail.servers.sources.catalog import EMBEDDED
from dovetail.servers.sources.labelled import read
from dovetail.servers.sources.matching import DEFAULT_THRESHOLD
from dovetail.servers.sources.model import Registry
from sources_methods import METHODS, Method, coverage

DATA = Path(__file__).parent / "sources_data"
PAGE = Path(__file__).parents[1] / "docs" / "sources.md"
BEGIN, END = "<!-- matching report -->", "<!-- end of report -->"
SETS = ("tuned", "unseen", "fresh", "last", "final", "sealed")
SEED = 5

Labelled = list[tuple[str, str]]
Figures = tuple[float, float, float]  # right first; right and accepted; out of scope rejected


def figures(method: Method, queries: Labelled, threshold: float) -> Figures:
    first = accepted = rejected = 0
    for slug, query in queries:
        found, score = next(iter(method(query)), ("", 0.0))
        if slug == "-":
            rejected += score < threshold
        elif found == slug:
            first += 1
            accepted += score >= threshold
    inside = sum(slug != "-" for slug, _ in queries)
    return first / inside, accepted / inside, rejected / (len(queries) - inside)


def best_threshold(method: Method, queries: Labelled) -> float:
    """Where accepted and rejected together are highest."""
    scores = sorted({score for _, query in queries for _, score in method(query)[:1]})
    return max(scores, key=lambda threshold: sum(figures(method, queries, threshold)[1:]))


def median_microseconds(method: Method, queries: Labelled) -> float:
    times = []
    for _, query in queries:
        started = time.perf_counter()
        method(query)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def load(names: tuple[str, ...] = SETS) -> dict[str, Labelled]:
    return {name: read(DATA / f"{name}.tsv") for name in names}


def categories() -> list:
    return list(msgspec.json.decode(EMBEDDED.read_bytes(), type=Registry).categories)


def table(timed: bool = True) -> str:
    sets, ours = load(), categories()
    lines = ["| method | " + " | ".join(sets) + (" | p50 µs |" if timed else " |")]
    lines.append("|---" * (len(sets) + 1 + timed) + "|")
    bare = [msgspec.structs.replace(one, terms=(), hints=()) for one in ours]
    methods = {name: build(ours) for name, build in METHODS.items()}
    methods["coverage without terms and hints"] = coverage(bare)
    for name, method in methods.items():
        spent = [f"{median_microseconds(method, sets['tuned']):.0f}"] if timed else []
        method = cache(method)  # a threshold is chosen by asking all queries many times
        is_ours = name.startswith("coverage")
        threshold = DEFAULT_THRESHOLD if is_ours else best_threshold(method, sets["tuned"])
        shown = [figures(method, queries, threshold) for queries in sets.values()]
        cells = [" / ".join(f"{100 * share:.0f}" for share in each) for each in shown]
        lines.append("| " + " | ".join([name, *cells, *spent]) + " |")
    return "\n".join(lines)


def split(queries: Labelled) -> dict[str, Labelled]:
    """Half of each kind to tune on, half to keep unseen."""
    rng, parts = random.Random(SEED), {"tuned": [], "unseen": []}
    for inside in (True, False):
        order = sorted(
            (one for one in queries if (one[0] != "-") == inside), key=lambda one: one[1]
        )
        rng.shuffle(order)
        parts["tuned"] += order[: len(order) // 2]
        parts["unseen"] += order[len(order) // 2 :]
    return parts


def main() -> int:
    if "--split" in sys.argv:
        sets = load(("tuned", "unseen"))
        again = split([one for queries in sets.values() for one in queries])
        same = all(sorted(again[name]) == sorted(sets[name]) for name in again)
        print(f"the split of seed {SEED} is {'the one' if same else 'NOT the one'} in the files")
        return 0 if same else 1
    text = table()
    print(text)
    if "--write" in sys.argv:
        page = PAGE.read_text("utf-8")
        made = f"{BEGIN}\n{text}\n{END}"
        PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: made, page, flags=re.S), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
