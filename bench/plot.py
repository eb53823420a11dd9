"""The chart for the README, the same bytes for the same figures."""

from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "dovetail", "font.family": "DejaVu Sans", "font.size": 9})

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from summary import Figures  # noqa: E402

OURS, PEER, BARE = "#0f766e", "#94a3b8", "#d6dbe3"
BARS = {
    "dovetail": ("Dovetail", OURS),
    "ts-v1": ("TypeScript SDK 1", PEER),
    "ts-v2": ("TypeScript SDK 2", PEER),
    "mcp": ("mcp (Python SDK)", PEER),
    "fastmcp": ("FastMCP", PEER),
    "bare-asyncio": ("bare asyncio loop", BARE),
    "bare-blocking": ("bare blocking loop", BARE),
}
Value = Callable[[Figures], float]
PANELS: list[tuple[str, Value, str]] = [
    ("Pipelined calls per second (more is better)", lambda f: f.rate, "{:,.0f}"),
    ("One call at a time, p50 in µs (less is better)", lambda f: f.p50 * 1e6, "{:,.0f}"),
    ("Start to first answer, ms (less is better)", lambda f: f.spawn * 1e3, "{:,.0f}"),
    ("Resident memory, MB (less is better)", lambda f: f.rss / 2**20, "{:,.0f}"),
]


def panel(axes: Axes, names: list[str], values: list[float], title: str, form: str) -> None:
    labels, colors = zip(*(BARS[name] for name in names), strict=True)
    bars = axes.barh(labels, values, color=colors, height=0.72)
    axes.bar_label(bars, [form.format(value) for value in values], padding=3)
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 3, max(values) * 3)
    axes.invert_yaxis()
    axes.xaxis.set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def plot(figures: Mapping[str, Figures], path: Path) -> None:
    names = [name for name in BARS if name in figures]
    figure, grid = plt.subplots(2, 2, figsize=(10, 5.2), layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
    for axes, (title, value, form) in zip(grid.flat, PANELS, strict=True):
        panel(axes, names, [value(figures[name]) for name in names], title, form)
    figure.supxlabel("lengths are logarithmic", fontsize=8, color="#64748b")
    figure.savefig(path, metadata={"Date": None, "Creator": None} if path.suffix == ".svg" else {})
    plt.close(figure)
