"""docs/conformance.md says what the tests check."""

from __future__ import annotations

import json
import re

import pytest
from judge import HERE, ROOT
from test_suite_over_http import REQUIREMENTS, REVISIONS, TASKS
from test_suite_over_stdio import LEGS, OF_THE_BRIDGE

PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")
PINS = (HERE / "peers.txt").read_text("utf-8") + (ROOT / "bench" / "peers.txt").read_text("utf-8")


def row(start: str) -> list[str]:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_rows_of_the_revisions(revision: str) -> None:
    _, scenarios, checks = row(f"`--suite all --spec-version {revision}`")
    expected = REVISIONS[revision]
    assert (int(scenarios), int(checks.split()[0])) == expected


def test_the_rows_of_the_requirements_and_the_tasks() -> None:
    for revision, expected in REQUIREMENTS.items():
        _, scenarios, checks = row(f"`--requirements {revision}`")
        assert (int(scenarios), int(checks.split()[0])) == expected
    _, scenarios, checks = row("the ten scenarios of tasks")
    assert (int(scenarios), int(checks.split()[0])) == (len(TASKS), sum(TASKS.values()))


def test_what_is_said_of_the_bridge() -> None:
    for revision, (_, successes) in LEGS.items():
        assert re.search(rf"{successes} of {successes + 1}(\nchecks| checks)? of {revision}", PAGE)
    warnings = [name for names in OF_THE_BRIDGE.values() for name in names if "WARNING" in name]
    assert len(warnings) == 4
    assert "four warnings" in PAGE


def test_the_versions_are_those_installed() -> None:
    wanted = json.loads((HERE / "node" / "package.json").read_text())["dependencies"]
    wanted |= json.loads((ROOT / "bench" / "node" / "package.json").read_text())["dependencies"]
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", PINS, re.MULTILINE))
    for name in ("@ai-sdk/mcp", "@mcpjam/sdk", "mcp-remote", "supergateway", "chuk-mcp"):
        assert {**wanted, **pinned}[name] in PAGE
    for version in (pinned["fastmcp"], pinned["mcp-fuzzer"], "1.30.0", "2.3.0"):
        assert version in PAGE
    for name in ("conformance", "inspector", "client", "sdk"):
        assert wanted[f"@modelcontextprotocol/{name}"] in PAGE
