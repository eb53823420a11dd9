"""Runs the benchmark: every server in turn, round after round, then the tables and the chart."""

import argparse
import contextlib
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

from cases import CASES, Case
from driver import Effort, Placement, Sample, ServerFailed, measure, try_out
from messages import WrongAnswer
from plot import plot
from report import report, setting
from summary import summarize

HERE = Path(__file__).resolve().parent
WARM_UP = 1.0  # V8 needs most of it; the same for all
FULL = Effort(WARM_UP, one_at_a_time=0.8, pipelined=1.0)
QUICK = Effort(WARM_UP, one_at_a_time=0.15, pipelined=0.25)
FULL_ROUNDS, QUICK_ROUNDS = 5, 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, rough figures")
    parser.add_argument("--only", metavar="NAME,...", help=", ".join(case.name for case in CASES))
    parser.add_argument(
        "--cores",
        choices=("apart", "shared", "free"),
        default="apart",
        help="driver and server on one core each (the default), on the same core, or on any",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="where to write results.md and results.svg; by default bench/, after a full run only",
    )
    return parser.parse_args()


def chosen(only: str | None) -> list[Case]:
    if only is None:
        return CASES
    names = set(only.split(","))
    if unknown := names - {case.name for case in CASES}:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    return [case for case in CASES if case.name in names]


def progress(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def working(cases: list[Case], where: Placement, failed: dict[str, str]) -> list[Case]:
    """The cases whose server answers; the others go to `failed`."""
    for number, case in enumerate(cases, 1):
        progress(f"[{number}/{len(cases)}] trying {case.name}")
        with noting_failure(case, failed):
            try_out(case.command, case.revision, where)
    return [case for case in cases if case.name not in failed]


@contextlib.contextmanager
def noting_failure(case: Case, failed: dict[str, str]) -> Iterator[None]:
    try:
        yield
    except (OSError, ServerFailed, WrongAnswer) as error:
        failed[case.name] = str(error)
        progress(f"    {case.name} failed: {error}")


def measure_all(
    cases: list[Case], effort: Effort, where: Placement, rounds: int, failed: dict[str, str]
) -> dict[str, list[Sample]]:
    """Round-robin, so that noise of the machine hits all alike."""
    samples: dict[str, list[Sample]] = {case.name: [] for case in cases}
    for number, case in enumerate(cases * rounds, 1):
        if case.name in failed:
            continue
        progress(f"[{number}/{rounds * len(cases)}] {case.name:20}", end="")
        with noting_failure(case, failed):
            sample = measure(case.command, case.revision, effort, where)
            samples[case.name].append(sample)
            progress(f"{sample.rate:10,.0f} calls/s   p50 {sample.p50 * 1e6:6,.0f} µs")
    return {name: entries for name, entries in samples.items() if name not in failed}


def main() -> int:
    options = arguments()
    effort, rounds = (QUICK, QUICK_ROUNDS) if options.quick else (FULL, FULL_ROUNDS)
    where = Placement(options.cores)
    gc.disable()
    failed: dict[str, str] = {}
    cases = working(chosen(options.only), where, failed)
    samples = measure_all(cases, effort, where, rounds, failed)
    if not samples:
        return 1
    figures = {name: summarize(entries) for name, entries in samples.items()}
    text = report(figures, setting(figures, where, rounds), failed)
    print(text)
    complete = options.only is None and options.cores == "apart" and not options.quick
    if output := options.output or (HERE if complete else None):
        output.mkdir(parents=True, exist_ok=True)
        (output / "results.md").write_text(f"# Results of the benchmark\n\n{text}\n")
        plot(figures, output / "results.svg")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
