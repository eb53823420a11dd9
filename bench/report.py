"""The tables: absolute figures, ratios, goals, and what was measured on what."""

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version

from cases import CASES, NODE, OURS, ROOT
from driver import WINDOW, Placement
from summary import GOALS, Figures, Goal

PYTHON_PEERS = ("mcp", "fastmcp", "pydantic", "anyio", "msgspec")
MB = 1 << 20

Table = Mapping[str, Figures]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that also reads well in a terminal: first column left, the others right."""
    rows = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    rows.insert(1, rule)
    return "\n".join(f"| {' | '.join(aligned(row, widths))} |" for row in rows)


def aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]


def figures_table(figures: Table) -> str:
    header = ("server", "calls/s", "spread", "p50 µs", "p99 µs", "spawn ms", "best ms")
    rows = [figures_row(name, entry) for name, entry in figures.items()]
    return markdown((*header, "RSS MB", "PSS MB"), rows)


def figures_row(name: str, entry: Figures) -> tuple[str, ...]:
    return (
        name,
        f"{entry.rate:,.0f}",
        f"{entry.spread:.0%}",
        f"{entry.p50 * 1e6:,.0f}",
        f"{entry.p99 * 1e6:,.0f}",
        f"{entry.spawn * 1e3:,.0f}",
        f"{entry.best_spawn * 1e3:,.0f}",
        f"{entry.rss / MB:.1f}",
        f"{entry.pss / MB:.1f}",
    )


RATIOS = (
    ("calls/s : mcp", "rate", None),
    ("calls/s : bare asyncio", "rate", "bare-asyncio"),
    ("calls/s : bare blocking", "rate", "bare-blocking"),
    ("p50 : mcp", "p50", None),
    ("p50 : bare asyncio", "p50", "bare-asyncio"),
    ("spawn : mcp", "spawn", None),
    ("RSS : mcp", "rss", None),
)


def ratio_table(figures: Table) -> str:
    header = ("server", *(title for title, _, _ in RATIOS))
    official = {case.name: case.official for case in CASES}
    rows = [
        (name, *(ratio(figures, metric, name, to or official[name]) for _, metric, to in RATIOS))
        for name in figures
    ]
    return markdown(header, rows)


def ratio(figures: Table, metric: str, name: str, other: str) -> str:
    if other not in figures:
        return "–"
    return plain(getattr(figures[name], metric) / getattr(figures[other], metric))


def plain(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def goal_table(figures: Table) -> str:
    return markdown(("goal", "measured", "met"), [goal_row(goal, figures) for goal in GOALS])


def goal_row(goal: Goal, figures: Table) -> tuple[str, str, str]:
    measured = goal.ratio(figures)
    if measured is None:
        return goal.text, "–", "–"
    return goal.text, plain(measured), "✓" if goal.met(measured) else "✗"


def versions() -> list[str]:
    packages = json.loads((ROOT / "bench" / "node" / "package.json").read_text())["dependencies"]
    return [
        f"dovetail {dovetail_version()}",
        *(f"{name} {version(name)}" for name in PYTHON_PEERS),
        *(f"{name} {pin}" for name, pin in packages.items()),
        f"Python {platform.python_version()}",
        f"Node {output(NODE, '--version').lstrip('v')}",
    ]


def dovetail_version() -> str:
    return output(OURS, "-c", "import importlib.metadata as m; print(m.version('dovetail'))")


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


PLACEMENTS = {
    "apart": "driver and server each pinned to a core of its own",
    "shared": "driver and server pinned to the same core",
    "free": "driver and server not pinned",
}


def setting(figures: Table, where: Placement, rounds: int) -> str:
    busiest = max(entry.driver_load for entry in figures.values())
    return (
        f"{datetime.date.today()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, {PLACEMENTS[where.name]}; medians of {rounds} rounds, "
        f"{WINDOW} calls in flight when pipelined; "
        f"the driver used at most {busiest:.0%} of a core."
    )


def report(figures: Table, setting: str, failed: Iterable[str]) -> str:
    parts = [
        figures_table(figures),
        "Ratios to the official SDK in the same setting, and to the bare loops:",
        ratio_table(figures),
        goal_table(figures),
        setting,
        "Versions: " + ", ".join(versions()) + ".",
    ]
    if failed:
        parts.append("Did not run: " + ", ".join(failed) + ".")
    return "\n\n".join(parts)
