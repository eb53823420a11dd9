"""Hold an MCP server to the protocol: `dovetail check -- node server.js`, or a URL."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dovetail.check.http import HttpTarget
from dovetail.check.report.files import as_baseline, as_json, as_junit, read_baseline
from dovetail.check.report.findings import verdict
from dovetail.check.report.page import as_html
from dovetail.check.report.terminal import Progress, print_report
from dovetail.check.run import CannotStart, Report, check
from dovetail.check.target import StdioTarget, Target
from dovetail.cli.target import TargetError
from dovetail.spec.revisions import BY_ID

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    parser.add_argument(
        "server",
        nargs="*",
        metavar="URL | -- COMMAND",
        help="where a server is, or how to start it",
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME: VALUE",
        help="sent with every request",
    )
    parser.add_argument(
        "--revision", action="append", choices=sorted(BY_ID), help="only this one (may be repeated)"
    )
    parser.add_argument(
        "--call",
        action="append",
        default=[],
        metavar="TOOL[=JSON]",
        help="a tool that may be called, with its arguments; read-only ones are called anyway",
    )
    parser.add_argument(
        "--timeout", type=float, default=10.0, metavar="SECONDS", help="for one answer (10)"
    )
    parser.add_argument(
        "--fail-on",
        choices=("must", "should", "never"),
        default="must",
        help="the level whose breach makes the exit status 1 (must)",
    )
    parser.add_argument("--baseline", metavar="FILE", help="known failures, which do not count")
    parser.add_argument("--write-baseline", metavar="FILE", help="write down what fails today")
    parser.add_argument("--json", metavar="FILE", help="the report as JSON (- for stdout)")
    parser.add_argument("--junit", metavar="FILE", help="the report as JUnit XML")
    parser.add_argument("--html", metavar="FILE", help="the report as one page")


def run(options: argparse.Namespace) -> int:
    target = _target(options)
    baseline = _baseline(options.baseline)
    progress = Progress()
    revisions = [BY_ID[id] for id in options.revision] if options.revision else None
    try:
        report = asyncio.run(check(target, revisions, progress))
    except CannotStart as error:
        raise TargetError(f"there is nothing to check.\n{error}") from None
    except ModuleNotFoundError as error:
        raise TargetError(f"check needs {error.name}: pip install 'dovetail[check]'") from None
    finally:
        progress.end()
    if options.json != "-":
        print_report(report, baseline)
    _write_files(options, report, baseline)
    return _status(options.fail_on, verdict(report, baseline).worst)


def _status(fail_on: str, worst: str | None) -> int:
    counted = {"must": ("MUST",), "should": ("MUST", "SHOULD"), "never": ()}[fail_on]
    return int(worst in counted)


def _target(options: argparse.Namespace) -> Target:
    if not options.server:
        raise TargetError("name a server: dovetail check -- COMMAND ...")
    calls = dict(_call(written) for written in options.call)
    if len(options.server) == 1 and options.server[0].startswith(("http://", "https://")):
        headers = dict(_header(written) for written in options.header)
        return HttpTarget(options.server[0], calls, options.timeout, headers)
    return StdioTarget(options.server, calls, options.timeout)


def _header(written: str) -> tuple[str, str]:
    name, colon, value = written.partition(":")
    if not colon:
        raise TargetError(f"--header {written}: write it as NAME: VALUE")
    return name.strip(), value.strip()


def _call(written: str) -> tuple[str, dict[str, Any]]:
    name, _, text = written.partition("=")
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise TargetError(f'--call {written}: after = comes a JSON object, such as add={{"a":1}}')
    return name, arguments


def _baseline(path: str | None) -> frozenset[str]:
    if path is None:
        return frozenset()
    try:
        return read_baseline(Path(path).read_text())
    except OSError as error:
        raise TargetError(f"cannot read the baseline: {error}") from None


def _write_files(options: argparse.Namespace, report: Report, baseline: frozenset[str]) -> None:
    for path, make in (
        (options.json, as_json),
        (options.junit, as_junit),
        (options.html, as_html),
        (options.write_baseline, as_baseline),
    ):
        if path == "-":
            sys.stdout.write(make(report, baseline))
        elif path is not None:
            try:
                Path(path).write_text(make(report, baseline))
            except OSError as error:
                raise TargetError(f"cannot write {path}: {error.strerror}") from None
