"""From samples to figures, and from figures to goals."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from driver import Sample


@dataclass(frozen=True)
class Figures:
    """The medians over all rounds, the best start, and how far the rounds lie apart."""

    spawn: float
    p50: float
    p99: float
    rate: float
    rss: float
    pss: float
    driver_load: float
    best_spawn: float
    spread: float


def summarize(samples: Sequence[Sample]) -> Figures:
    columns = {
        field.name: [getattr(sample, field.name) for sample in samples] for field in fields(Sample)
    }
    medians = {name: statistics.median(values) for name, values in columns.items()}
    spread = (max(columns["rate"]) - min(columns["rate"])) / medians["rate"]
    return Figures(**medians, best_spawn=min(columns["spawn"]), spread=spread)


@dataclass(frozen=True)
class Goal:
    """A ratio of one case to the best of others, and the limit it must keep."""

    text: str
    metric: str
    ours: str
    others: tuple[str, ...]
    limit: float

    @property
    def more_is_better(self) -> bool:
        return self.metric == "rate"

    def ratio(self, figures: Mapping[str, Figures]) -> float | None:
        if not {self.ours, *self.others} <= figures.keys():
            return None
        best = max if self.more_is_better else min
        rival = best(getattr(figures[name], self.metric) for name in self.others)
        return getattr(figures[self.ours], self.metric) / rival

    def met(self, ratio: float) -> bool:
        return ratio >= self.limit if self.more_is_better else ratio <= self.limit


TS = ("ts-v1", "ts-v2")
EXTRA = "dovetail-1000-tools"

GOALS = [
    Goal("pipelined: at least 60 times mcp", "rate", "dovetail", ("mcp",), 60),
    Goal("pipelined: at least 3 times the faster TypeScript SDK", "rate", "dovetail", TS, 3),
    Goal(
        "pipelined: at least 0.6 of the bare asyncio loop",
        "rate",
        "dovetail",
        ("bare-asyncio",),
        0.6,
    ),
    Goal("one at a time, p50: at most 1/6 of mcp", "p50", "dovetail", ("mcp",), 1 / 6),
    Goal(
        "one at a time, p50: at most 1.3 of the bare asyncio loop",
        "p50",
        "dovetail",
        ("bare-asyncio",),
        1.3,
    ),
    Goal("one at a time, p50: below both TypeScript SDKs", "p50", "dovetail", TS, 1),
    Goal("sync tool, p50: at most 1/3.5 of mcp", "p50", "dovetail-sync", ("mcp-sync",), 1 / 3.5),
    Goal("spawn to initialize: at most 1/8 of mcp", "spawn", "dovetail", ("mcp",), 1 / 8),
    Goal("resident memory: at most 1/3 of mcp", "rss", "dovetail", ("mcp",), 1 / 3),
    Goal("1,000 more tools, p50: at most 1.1 of one tool", "p50", EXTRA, ("dovetail",), 1.1),
    Goal("1,000 more tools, pipelined: at least 1/1.1", "rate", EXTRA, ("dovetail",), 1 / 1.1),
]
