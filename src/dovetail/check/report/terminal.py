"""The report for people at a terminal."""

import shutil
import sys
import textwrap
from typing import TextIO

from dovetail.check.report.findings import Finding, findings, shown, verdict
from dovetail.check.run import Report, Result

__all__ = ["Progress", "print_report"]

_COLOURS = {"red": 31, "green": 32, "yellow": 33, "dim": 2, "bold": 1}


class Progress:
    """A line that counts, on a terminal only."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._tried = 0
        self._failed = 0

    def __call__(self, result: Result) -> None:
        self._tried += 1
        self._failed += result.outcome == "fail"
        if self._live:
            line = f"{self._tried} tried, {self._failed} failed: {result.revision} {result.rule.id}"
            self._stream.write(f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}")
            self._stream.flush()

    def end(self) -> None:
        if self._live:
            self._stream.write("\r\033[K")
            self._stream.flush()


def print_report(report: Report, baseline: frozenset[str], stream: TextIO = sys.stdout) -> None:
    paint = _painter(stream)
    name = f"{report.server.get('name', '?')} {report.server.get('version', '')}".strip()
    print(paint(name, "bold"), f"over {report.transport}: {report.target}", file=stream)
    print(f"speaks {', '.join(report.revisions)}", file=stream)
    for finding in findings(report, baseline):
        _print_finding(finding, report, paint, stream)
    end = verdict(report, baseline)
    colour = {None: "green", "SHOULD": "yellow", "MUST": "red"}[end.worst]
    print(file=stream)
    print(paint(f"{name} {end.line}", colour), f"({report.seconds:.1f} s)", file=stream)


def _print_finding(finding: Finding, report: Report, paint: "_Paint", stream: TextIO) -> None:
    mark = "known" if finding.known else finding.level
    colour = "dim" if finding.known else {"MUST": "red", "SHOULD": "yellow"}[finding.level]
    everywhere = finding.revisions == report.revisions
    where = "every revision" if everywhere else ", ".join(finding.revisions)
    print(file=stream)
    print(paint(f"{mark:6}", colour), paint(finding.rule.id, "bold"), f"in {where}", file=stream)
    for label, text in (
        ("rule", f"{finding.rule.text} [{finding.rule.section}]"),
        *((entry.way, shown(entry.frame)) for entry in finding.wire),
        ("found", finding.detail),
        ("fix", finding.rule.fix),
    ):
        width = max(60, shutil.get_terminal_size().columns)
        lines = textwrap.wrap(text, width - 12, break_on_hyphens=False) or [""]
        for head, line in zip([label, *[""] * len(lines)], lines, strict=False):
            print(f"  {paint(f'{head:9}', 'dim')} {line}", file=stream)


class _Paint:
    def __init__(self, on: bool) -> None:
        self._on = on

    def __call__(self, text: str, colour: str) -> str:
        return f"\033[{_COLOURS[colour]}m{text}\033[0m" if self._on else text


def _painter(stream: TextIO) -> _Paint:
    return _Paint(stream.isatty())
