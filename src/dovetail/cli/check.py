"""Hold an MCP server to the protocol: `dovetail check -- node server.js`, or a URL."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dovetail.check.paste import curl, pipe
from dovetail.check.report.files import as_baseline, as_json, as_junit, read_baseline
from dovetail.check.report.findings import verdict
from dovetail.check.report.page import as_html
from dovetail.check.report.terminal import Progress, print_report
from dovetail.check.run import CannotStart, Report, check
from dovetail.check.target import StdioTarget, Target
from dovetail.cli.target import TargetError
from dovetail.spec.revisions import BY_ID, Revision

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
    parser.add_argument(
        "--fuzz", type=int, metavar="N", help="N rounds of mutated messages, after the rules"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of --fuzz: the same finds the same (0)"
    )
    parser.add_argument("--bench", action="store_true", help="measure instead of checking")
    parser.add_argument("--baseline", metavar="FILE", help="known failures, which do not count")
    parser.add_argument("--write-baseline", metavar="FILE", help="write down what fails today")
    parser.add_argument("--json", metavar="FILE", help="the report as JSON (- for stdout)")
    parser.add_argument("--junit", metavar="FILE", help="the report as JUnit XML")
    parser.add_argument("--html", metavar="FILE", help="the report as one page")


def run(options: argparse.Namespace) -> int:
    target = _target(options)
    baseline = _baseline(options.baseline)
    if options.bench:
        return _bench(target, options)
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
    status = _status(options.fail_on, verdict(report, baseline).worst)
    if options.fuzz:
        status |= _fuzz(target, BY_ID[report.revisions[-1]], options)
    return status


def _status(fail_on: str, worst: str | None) -> int:
    counted = {"must": ("MUST",), "should": ("MUST", "SHOULD"), "never": ()}[fail_on]
    return int(worst in counted)


def _fuzz(target: Target, revision: Revision, options: argparse.Namespace) -> int:
    from dovetail.check.fuzz import fuzz

    failure = asyncio.run(fuzz(target, revision, options.fuzz, options.seed))
    out = sys.stderr if options.json == "-" else sys.stdout
    if failure is None:
        print(f"{options.fuzz} rounds of mutated messages: nothing broke", file=out)
        return 0
    print(f"\nround {failure.round} of seed {options.seed}: {failure.what}. To see it:", file=out)
    if isinstance(target, StdioTarget):
        print(pipe(target.command, revision, failure.frames), file=out)
    else:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        for frame in failure.frames:
            print(curl(options.server[0], headers, frame), file=out)
    return 1


def _bench(target: Target, options: argparse.Namespace) -> int:
    from dovetail.check.speed import Speed, measure, reference

    async def both() -> tuple[Speed, Speed]:
        revision = BY_ID[options.revision[0] if options.revision else "2025-11-25"]
        return await measure(target, revision), await reference(revision)

    theirs, bare = asyncio.run(both())

    def row(name: str, scale: float, unit: str, *values: float | None) -> str:
        cells = ("-" if value is None else f"{value * scale:,.2f} {unit}" for value in values)
        return f"{name:24}" + "".join(f"{cell:>18}" for cell in cells)

    print(f"{'':24}{'this server':>18}{'bare asyncio loop':>18}")
    print(row("start to first answer", 1e3, "ms", theirs.start, bare.start))
    print(row("one at a time, p50", 1e3, "ms", theirs.p50, bare.p50))
    print(row("one at a time, p99", 1e3, "ms", theirs.p99, bare.p99))
    print(row("many at once", 1, "/s", theirs.rate, bare.rate))
    print(row("resident memory", 1 / 2**20, "MiB", theirs.memory, bare.memory))
    return 0


def _target(options: argparse.Namespace) -> Target:
    if not options.server:
        raise TargetError("name a server: dovetail check -- COMMAND ...")
    calls = dict(_call(written) for written in options.call)
    headers = dict(_header(written) for written in options.header)
    scheme = options.server[0].partition("://")[0] if len(options.server) == 1 else ""
    if scheme in ("http", "https"):
        from dovetail.check.http import HttpTarget

        return HttpTarget(options.server[0], calls, options.timeout, headers)
    if scheme in ("ws", "wss"):
        from dovetail.check.ws import WsTarget

        return WsTarget(options.server[0], calls, options.timeout, headers)
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
