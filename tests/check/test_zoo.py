"""Each broken server of the zoo is caught, by exactly the rule that it breaks."""

import asyncio
import sys
from pathlib import Path

import pytest
from zoo import INCOMING, OUTGOING, STAYS

from dovetail.check.rules import RULES
from dovetail.check.run import Report, check
from dovetail.check.target import StdioTarget

ZOO = Path(__file__).with_name("zoo.py")
BREACHES = sorted({*INCOMING, *OUTGOING, *STAYS})
ON_STDIO = sorted(rule.id for rule in RULES.values() if rule.probe and "stdio" in rule.transports)


def examine(*arguments: str) -> Report:
    return asyncio.run(check(StdioTarget([sys.executable, str(ZOO), *arguments])))


def test_the_good_server_breaks_nothing_and_gives_every_rule_an_occasion() -> None:
    report = examine()
    assert [(r.revision, r.rule.id, r.detail) for r in report.failures()] == []
    passed = {result.rule.id for result in report.results if result.outcome == "pass"}
    assert passed == set(ON_STDIO)


def test_every_rule_has_its_breach() -> None:
    assert BREACHES == ON_STDIO


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_is_caught_by_its_rule_alone(breach: str) -> None:
    report = examine(breach)
    assert {result.rule.id for result in report.failures()} == {breach}
