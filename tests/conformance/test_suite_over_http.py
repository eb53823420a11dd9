"""The official conformance suite, 0.2.0-alpha.12, against our server over Streamable HTTP.

No failure, no warning, nothing expected to fail; and as many checks as there are, so that
a scenario which finds nothing to look at does not count as passed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from judge import BASELINE, PUBLISHED, SUITE, Verdict, http_server, judged

pytestmark = pytest.mark.verifies("F-real-peers")

# Scenarios and successful checks of each run.
REVISIONS = {
    "2025-03-26": (1, 3),
    "2025-06-18": (27, 56),
    "2025-11-25": (33, 83),
    "2026-07-28": (40, 152),
}
REQUIREMENTS = {"2025-11-25": (33, 83), "2026-07-28": (50, 196)}
# One check more where every answer is a stream: that three of them work side by side.
STREAMS = "server-sse-multiple-streams:server-sse-streams-functional (INFO)"
# The suite itself has none for this one: "the harness needs a rewrite".
UNWRITTEN = "tasks-status-notifications"
TASKS = {
    "tasks-capability-negotiation": 5,
    "tasks-dispatch-and-envelope": 9,
    "tasks-lifecycle": 9,
    "tasks-mrtr-composition": 2,
    "tasks-mrtr-input": 4,
    "tasks-request-headers": 5,
    "tasks-request-state-removal": 3,
    "tasks-required-task-error": 3,
    UNWRITTEN: 0,
    "tasks-wire-fields": 4,
}


def check(verdict: Verdict, scenarios: int, successes: int, *skipped: str) -> None:
    assert verdict.having("FAILURE", "WARNING") == {}
    assert verdict.having("SKIPPED").keys() == {f"{one}:{one} (SKIPPED)" for one in skipped}
    assert verdict.exit_code == 0, verdict.output
    assert verdict.empty == list(skipped)
    assert (len(verdict.checks), verdict.counts["SUCCESS"]) == (scenarios, successes)


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_scenario_of_a_revision(revision: str, url: str, tmp_path: Path) -> None:
    arguments = ("--suite", "all", "--spec-version", revision)
    verdict = judged(url, *arguments, into=tmp_path / "results")
    check(verdict, *REVISIONS[revision])
    assert (STREAMS in verdict.having("INFO")) == (revision >= "2025-11-25")


@pytest.mark.parametrize(
    "arguments", [("--spec-version", "2025-11-25"), ("--requirements", "2025-11-25")]
)
def test_with_a_stream_for_every_answer(arguments: tuple[str, str], tmp_path: Path) -> None:
    suite = ("--suite", "all") if arguments[0] == "--spec-version" else ()
    with http_server(tmp_path / "errors", "--answers", "sse") as url:
        verdict = judged(url, *suite, *arguments, into=tmp_path / "results")
    check(verdict, 33, 84)
    assert (tmp_path / "errors").read_text() == ""


@pytest.mark.parametrize("revision", REQUIREMENTS)
def test_the_requirements_of_a_revision(revision: str, url: str, tmp_path: Path) -> None:
    """The frozen sets by which implementations are ranked; the unscored ones count here, too."""
    verdict = judged(url, "--requirements", revision, into=tmp_path / "results")
    skipped = [UNWRITTEN] if revision == "2026-07-28" else []
    check(verdict, *REQUIREMENTS[revision], *skipped)


def test_the_scenarios_of_tasks(url: str, tmp_path: Path) -> None:
    """The extension of 2026-07-28; no official SDK serves it yet."""
    verdict = judged(url, "--suite", "all", into=tmp_path / "results")
    found = {
        scenario: sum(check["status"] == "SUCCESS" for check in checks)
        for scenario, checks in verdict.checks.items()
        if scenario.startswith("tasks-")
    }
    assert found == TASKS
    assert verdict.having("FAILURE", "WARNING") == {}
    skipped = {name.partition(":")[0] for name in verdict.having("SKIPPED")}
    # Skills are another extension, which this server does not declare.
    assert {one for one in skipped if not one.startswith("sep-2640-skills-")} == {UNWRITTEN}
    assert len(verdict.checks) == 65


def test_the_suite_that_is_published_as_latest(url: str, tmp_path: Path) -> None:
    """0.1.16, which knows the revisions up to 2025-11-25."""
    verdict = judged(url, "--suite", "all", into=tmp_path / "results", suite=PUBLISHED)
    check(verdict, 32, 46)


def test_nothing_is_expected_to_fail() -> None:
    lines = BASELINE.read_text("utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["server: []", "client: []"]
    assert '"version": "0.2.0-alpha.12"' in SUITE.parents[1].joinpath("package.json").read_text()
