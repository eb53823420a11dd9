"""Each broken HTTP server of the zoo is caught, by exactly the rule that it breaks."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from zoo_http import AFTER, BEFORE, TOKEN

from dovetail.check.http import HttpTarget
from dovetail.check.rules import RULES
from dovetail.check.run import Report, check

ZOO = Path(__file__).with_name("zoo_http.py")
BREACHES = sorted({*AFTER, *BEFORE} - {"guarded"})
HTTP_ONLY = sorted(r.id for r in RULES.values() if r.probe and r.transports == ("http",))


def examine(*arguments: str, headers: dict[str, str] | None = None) -> Report:
    command = [sys.executable, str(ZOO), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().strip()
            return asyncio.run(check(HttpTarget(url, {}, 10, headers or {})))
        finally:
            process.terminate()


def failures(report: Report) -> set[str]:
    return {result.rule.id for result in report.failures()}


def test_the_good_server_breaks_nothing_and_gives_every_rule_an_occasion() -> None:
    report = examine()
    assert [(r.revision, r.rule.id, r.detail) for r in report.failures()] == []
    passed = {result.rule.id for result in report.results if result.outcome == "pass"}
    assert {id for id in HTTP_ONLY if id not in passed} == {"http-unauthorized"}


def test_a_guarded_server_shows_the_last_rule() -> None:
    report = examine("guarded", headers={"Authorization": TOKEN})
    assert failures(report) == set()
    assert "http-unauthorized" in {r.rule.id for r in report.results if r.outcome == "pass"}


def test_every_rule_has_its_breach() -> None:
    assert BREACHES == HTTP_ONLY


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_is_caught_by_its_rule_alone(breach: str) -> None:
    headers = {"Authorization": TOKEN} if breach == "http-unauthorized" else None
    assert failures(examine(breach, headers=headers)) == {breach}
