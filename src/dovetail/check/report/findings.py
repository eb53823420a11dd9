"""Results put together by rule: what all the reports are made from."""

from collections.abc import Iterable

from msgspec import Struct

from dovetail.check.channel import Entry
from dovetail.check.rules import Level, Rule
from dovetail.check.run import Report, Result

__all__ = ["Finding", "Verdict", "findings", "key", "shown", "verdict"]

# What a report shows of one frame.
_SHOWN = 300


class Finding(Struct, frozen=True):
    """One rule that was broken: how badly, where, and the first time it was seen."""

    rule: Rule
    level: Level
    revisions: tuple[str, ...]
    detail: str
    wire: tuple[Entry, ...]
    known: bool = False  # whether a baseline lists it in every one of these revisions


class Verdict(Struct, frozen=True):
    passed: int
    failed: int
    skipped: int
    worst: Level | None  # the worst level that is broken, apart from what a baseline lists
    line: str


def key(result: Result) -> str:
    """How a baseline names a failure."""
    return f"{result.revision} {result.rule.id}"


def findings(report: Report, baseline: frozenset[str] = frozenset()) -> list[Finding]:
    """Broken rules, the worst first, in the order of the contract."""
    by_rule: dict[str, list[Result]] = {}
    for result in report.failures():
        by_rule.setdefault(result.rule.id, []).append(result)
    found = [_finding(results, baseline) for results in by_rule.values()]
    return sorted(found, key=lambda finding: (finding.known, finding.level != "MUST"))


def _finding(results: list[Result], baseline: frozenset[str]) -> Finding:
    first = min(results, key=lambda result: result.level != "MUST")
    return Finding(
        first.rule,
        first.level,
        tuple(result.revision for result in results),
        first.detail,
        first.wire,
        all(key(result) in baseline for result in results),
    )


def verdict(report: Report, baseline: frozenset[str] = frozenset()) -> Verdict:
    def count(outcome: str) -> int:
        return sum(result.outcome == outcome for result in report.results)

    new = [result for result in report.failures() if key(result) not in baseline]
    worst = _worst(result.level for result in new)
    words = {
        None: "keeps the contract",
        "SHOULD": "keeps every MUST of the contract",
        "MUST": "breaks the contract",
    }[worst]
    passed, failed, skipped = count("pass"), count("fail"), count("skip")
    known = failed - len(new)
    line = f"{words}: {passed} passed, {failed} failed"
    line += f" ({known} known)" if known else ""
    return Verdict(passed, failed, skipped, worst, f"{line}, {skipped} without occasion")


def _worst(levels: Iterable[Level]) -> Level | None:
    found = set(levels)
    return "MUST" if "MUST" in found else "SHOULD" if found else None


def shown(frame: bytes) -> str:
    """A frame as a report shows it."""
    text = frame.decode(errors="backslashreplace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(frame):,} bytes)"
