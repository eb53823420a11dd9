"""Runs the benchmark of clients: ours, the official one and FastMCP's, on the same servers."""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import OURS, PEERS, ROOT, SERVERS
from report import markdown, plain

CLIENTS = ROOT / "bench" / "clients"
HERE = Path(__file__).resolve().parent
PATIENCE = 300
MB = 1 << 20
IMPORTS = {
    "dovetail": "from dovetail import Client",
    "mcp": "from mcp.client import Client",
    "fastmcp": "from fastmcp import Client",
}
# What a visit does: calls to warm up, one at a time, and at once.
FULL = {"dovetail": (2000, 2000, 20_000), "mcp": (200, 300, 1500), "fastmcp": (200, 300, 1500)}
TO_MCP = (200, 300, 1500)  # the server is the bottleneck, whoever calls it
HTTP = (300, 300, 2000)


@dataclass(frozen=True)
class Setting:
    """One way to one server."""

    transport: str
    server: str

    @property
    def name(self) -> str:
        return self.transport if self.transport == "memory" else f"{self.transport} {self.server}"


SETTINGS = (
    Setting("memory", "own"),
    Setting("stdio", "dovetail"),
    Setting("stdio", "mcp"),
    Setting("http", "dovetail"),
    Setting("http", "mcp"),
)

# Setting, figure, limit of the ratio of ours to that of `mcp`; "rate" is better when more.
GOALS = (
    ("pipelined over stdio: at least 20 times mcp", "stdio dovetail", "rate", 20.0),
    ("pipelined in memory: at least 20 times mcp", "memory", "rate", 20.0),
    ("pipelined over HTTP: at least 3 times mcp", "http dovetail", "rate", 3.0),
    ("import: at most 1/6 of mcp", "import", "seconds", 1 / 6),
)

Figures = dict[str, float]
Table = dict[tuple[str, str], list[Figures]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench client", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, rough figures")
    parser.add_argument("--only", metavar="SETTING", help="stdio, memory, http or import")
    parser.add_argument("--ours", default=OURS, help="the interpreter that has Dovetail")
    parser.add_argument("--peers", default=PEERS, help="the interpreter that has the others")
    parser.add_argument("--output", type=Path, help="where to write client_results.md")
    return parser.parse_args()


def environment() -> dict[str, str]:
    """Bytecode is cached, as it is for users."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def python_of(client: str, options: argparse.Namespace) -> str:
    python: str = options.ours if client == "dovetail" else options.peers
    return python


def seconds_of_import(client: str, options: argparse.Namespace) -> float:
    """A whole process that imports the client, less one that imports asyncio only."""
    python = python_of(client, options)
    return _process(python, IMPORTS[client]) - _process(python, "import asyncio")


def _process(python: str, code: str) -> float:
    started = time.perf_counter()
    subprocess.run([python, "-c", code], check=True, env=environment())
    return time.perf_counter() - started


@contextlib.contextmanager
def http_server(which: str, options: argparse.Namespace) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if which == "dovetail":
        place = ["--http", f"127.0.0.1:{port}"]
        script = str(SERVERS / "dovetail_server.py")
        command = [options.ours, "-m", "dovetail", "serve", script, *place]
    else:
        command = [options.peers, str(SERVERS / "mcp_http.py"), str(port)]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment(), **quiet) as process:
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            process.wait(20)


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port}")


@contextlib.contextmanager
def server_of(setting: Setting, options: argparse.Namespace) -> Iterator[Any]:
    if setting.transport == "http":
        with http_server(setting.server, options) as url:
            yield url
    elif setting.server == "dovetail":
        yield [options.ours, str(SERVERS / "dovetail_server.py")]
    else:
        yield [options.peers, str(SERVERS / "mcp_server.py")]


def effort(client: str, setting: Setting, quick: bool) -> dict[str, int]:
    if setting.transport == "http":
        counts = HTTP
    else:
        counts = TO_MCP if setting.server == "mcp" else FULL[client]
    warm_up, in_a_row, at_once = (max(100, n // 4) if quick else n for n in counts)
    return {"warm_up": warm_up, "in_a_row": in_a_row, "at_once": at_once}


def visit(client: str, setting: Setting, server: Any, options: argparse.Namespace) -> Figures:
    how = {
        "transport": setting.transport,
        "server": server,
        "revision": None,
        **effort(client, setting, options.quick),
    }
    script = str(CLIENTS / f"{client}_client.py")
    command = [python_of(client, options), script, json.dumps(how)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=environment()
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else "no word")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(options: argparse.Namespace, table: Table, failed: list[str]) -> None:
    """Clients take turns, round after round, so that noise hits all alike."""
    for setting in SETTINGS:
        if options.only not in (None, setting.transport):
            continue
        for number in range(1 if options.quick else 3):
            with server_of(setting, options) as server:
                for client in IMPORTS:
                    note = f"[{setting.name}, round {number + 1}] {client}"
                    try:
                        figures = visit(client, setting, server, options)
                    except (RuntimeError, subprocess.TimeoutExpired, TimeoutError) as error:
                        failed.append(f"{client} on {setting.name}: {error}")
                        progress(f"{note}: {error}")
                        continue
                    table.setdefault((setting.name, client), []).append(figures)
                    progress(f"{note}: {figures['rate']:,.0f} calls/s")


def measure_imports(options: argparse.Namespace, table: Table) -> None:
    if options.only not in (None, "import"):
        return
    for _ in range(3 if options.quick else 9):
        for client in IMPORTS:
            seconds = seconds_of_import(client, options)
            table.setdefault(("import", client), []).append({"seconds": seconds})


def median(table: Table, setting: str, client: str, figure: str) -> float | None:
    samples = table.get((setting, client))
    return None if samples is None else statistics.median(s[figure] for s in samples)


def figures_table(table: Table) -> str:
    header = ("setting", "client", "calls/s", "CPU µs", "p50 µs", "open ms", "RSS MB")
    rows = []
    for setting, client in table:
        if setting == "import":
            continue
        names = ("rate", "busy", "p50", "opened", "rss")
        values = [median(table, setting, client, name) for name in names]
        rate, busy, p50, opened, rss = (value or 0.0 for value in values)
        official = [median(table, setting, "mcp", name) for name in ("rate", "busy")]
        ratios = [
            "–" if not theirs or not ours else plain(ours / theirs)
            for ours, theirs in zip((rate, busy), official, strict=True)
        ]
        shown = (f"{rate:,.0f}", f"{busy * 1e6:,.0f}", f"{p50 * 1e6:,.0f}", f"{opened * 1e3:,.0f}")
        rows.append((setting, client, *shown, f"{rss / MB:.0f}", *ratios))
    return markdown((*header, "calls/s : mcp", "CPU : mcp"), rows)


def imports_table(table: Table) -> str:
    rows = []
    for client in IMPORTS:
        seconds = median(table, "import", client, "seconds")
        if seconds is not None:
            rows.append((client, f"{seconds * 1e3:,.0f}"))
    return markdown(("client", "import ms"), rows)


def goals_table(table: Table) -> str:
    rows = []
    for text, setting, figure, limit in GOALS:
        ours, theirs = (median(table, setting, c, figure) for c in ("dovetail", "mcp"))
        if ours is None or not theirs:
            rows.append((text, "–", "–"))
            continue
        ratio = ours / theirs
        met = ratio >= limit if figure == "rate" else ratio <= limit
        rows.append((text, plain(ratio), "✓" if met else "✗"))
    return markdown(("goal", "measured", "met"), rows)


def main() -> int:
    options = arguments()
    table: Table = {}
    failed: list[str] = []
    measure_imports(options, table)
    measure(options, table, failed)
    parts = [figures_table(table), imports_table(table), goals_table(table)]
    if failed:
        parts.append("Did not run: " + "; ".join(failed) + ".")
    text = "\n\n".join(parts)
    print(text)
    complete = options.only is None and not options.quick
    if output := options.output or (HERE if complete else None):
        (output / "client_results.md").write_text(f"# Results of the clients\n\n{text}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
