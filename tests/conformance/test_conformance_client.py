"""The official conformance suite judges our client, one scenario at a time.

That is its strict mode: a warning, a time-out and an exit code of the client count, which
its suite mode overlooks. There is no list of expected failures. What may be skipped, and
why a client is expected to refuse a server, is written down here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from judge import BASELINE, HERE, NODE, PUBLISHED, ROOT, SUITE

CLIENT = f"{sys.executable} {HERE / 'client.py'}"
# Milliseconds for one run of the client; only one that hangs meets them.
PATIENCE = 60_000

COUNTS = {"2025-03-26": 2, "2025-06-18": 5, "2025-11-25": 19, "2026-07-28": 33}

CORE = {
    "initialize": "2025-06-18 2025-11-25",
    "tools_call": "2025-06-18 2025-11-25 2026-07-28",
    "elicitation-sep1034-client-defaults": "2025-11-25",
    "sse-retry": "2025-11-25",
    "request-metadata": "2026-07-28",
    "http-standard-headers": "2026-07-28",
    "http-custom-headers": "2026-07-28",
    "http-invalid-tool-headers": "2026-07-28",
    "sep-2322-client-request-state": "2026-07-28",
    "json-schema-ref-no-deref": "2026-07-28",
    "json-schema-2020-12-preservation": "2025-11-25 2026-07-28",
}
AUTH = {
    "2025-03-26-oauth-metadata-backcompat": "2025-03-26",
    "2025-03-26-oauth-endpoint-fallback": "2025-03-26",
    "token-endpoint-auth-basic": "2025-06-18 2025-11-25 2026-07-28",
    "token-endpoint-auth-post": "2025-06-18 2025-11-25 2026-07-28",
    "token-endpoint-auth-none": "2025-06-18 2025-11-25 2026-07-28",
    "metadata-default": "2025-11-25 2026-07-28",
    "metadata-var1": "2025-11-25 2026-07-28",
    "metadata-var2": "2025-11-25 2026-07-28",
    "metadata-var3": "2025-11-25 2026-07-28",
    "basic-cimd": "2025-11-25 2026-07-28",
    "scope-from-www-authenticate": "2025-11-25 2026-07-28",
    "scope-from-scopes-supported": "2025-11-25 2026-07-28",
    "scope-omitted-when-undefined": "2025-11-25 2026-07-28",
    "scope-step-up": "2025-11-25 2026-07-28",
    "scope-retry-limit": "2025-11-25 2026-07-28",
    "pre-registration": "2025-11-25 2026-07-28",
    "resource-mismatch": "2026-07-28",
    "offline-access-scope": "2026-07-28",
    "offline-access-not-supported": "2026-07-28",
    "authorization-server-migration": "2026-07-28",
    "iss-supported": "2026-07-28",
    "iss-not-advertised": "2026-07-28",
    "iss-supported-missing": "2026-07-28",
    "iss-wrong-issuer": "2026-07-28",
    "iss-unexpected": "2026-07-28",
    "iss-normalized": "2026-07-28",
    "metadata-issuer-mismatch": "2026-07-28",
}
EXTENSIONS = [
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
    "auth/dpop",
    "auth/dpop-nonce",
]
SCENARIOS = {**CORE, **{f"auth/{name}": revisions for name, revisions in AUTH.items()}}
RUNS = [(revision, name) for name, where in SCENARIOS.items() for revision in where.split()]

# Here the server is in the wrong and the client must say so; this is how its stderr ends.
REFUSALS = {
    "auth/scope-retry-limit": "names none that is missing",
    "auth/resource-mismatch": "not about",
    "auth/iss-supported-missing": "lacks the issuer that was promised",
    "auth/iss-wrong-issuer": "comes from another issuer",
    "auth/iss-unexpected": "comes from another issuer",
    "auth/iss-normalized": "comes from another issuer",
    "auth/metadata-issuer-mismatch": "says it is of",
}
# What it writes there when all is well: each tool that it must leave out is named.
REPORTS = {"http-invalid-tool-headers": re.compile(r"(tool '\w+' is left out: .*\n){11}")}
# 2026-07-28 has no handshake, so there is no header of it to look at.
MAY_BE_SKIPPED = {
    ("http-standard-headers", "initialize request"),
    ("http-standard-headers", "notifications/initialized request"),
}
# A client that does nothing passes these; so much must have been seen of ours.
AT_LEAST = {"initialize": 1, "http-standard-headers": 9}


@dataclass(frozen=True)
class Verdict:
    exit_code: int
    output: str
    errors: str  # what the client wrote to stderr
    checks: list[dict[str, Any]]

    @property
    def counts(self) -> Counter[str]:
        return Counter(check["status"] for check in self.checks)


@pytest.fixture(scope="session")
def suite() -> None:
    """Installed by scripts/peers, from pins that are checked in."""
    if not SUITE.exists():
        subprocess.run([ROOT / "scripts" / "peers"], check=True)


def judged(scenario: str, *options: str, into: Path, suite: Path = SUITE) -> Verdict:
    command = [NODE, suite, "client", "--command", CLIENT, "--scenario", scenario]
    command += ["--timeout", str(PATIENCE), "-o", into, *options]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * PATIENCE / 1000, cwd=into
    )
    (checks,) = into.glob("**/checks.json")
    errors = (checks.parent / "stderr.txt").read_text("utf-8")
    found = json.loads(checks.read_text("utf-8"))
    return Verdict(run.returncode, run.stdout + run.stderr, errors, found)


def check(scenario: str, verdict: Verdict) -> None:
    bad = [one for one in verdict.checks if one["status"] in ("FAILURE", "WARNING")]
    assert not bad, json.dumps(bad, indent=1) + verdict.errors
    assert verdict.exit_code == 0, verdict.output
    assert "OVERALL: PASSED" in verdict.output, verdict.output
    skipped = [
        one.get("errorMessage", one["id"]) for one in verdict.checks if one["status"] == "SKIPPED"
    ]
    assert [why for why in skipped if not may_be_skipped(scenario, why)] == []
    assert verdict.counts["SUCCESS"] >= AT_LEAST.get(scenario, 1), "nothing was shown"
    if scenario in REFUSALS:
        last = verdict.errors.strip().rpartition("\n")[2]
        assert last.startswith("dovetail.errors.AuthorizationError: "), verdict.errors
        assert REFUSALS[scenario] in last
    else:
        expected = REPORTS.get(scenario, re.compile(""))
        assert expected.fullmatch(verdict.errors), f"the client complained: {verdict.errors}"


def may_be_skipped(scenario: str, why: str) -> bool:
    return any(scenario == where and what in why for where, what in MAY_BE_SKIPPED)


def listed(suite: Path, *options: str) -> list[str]:
    command = [NODE, suite, "list", "--client", *options]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return re.findall(r"^  - (\S+)", shown, re.MULTILINE)


@pytest.mark.parametrize("revision", COUNTS)
def test_the_suite_has_no_scenario_that_is_not_run(suite: None, revision: str) -> None:
    ours = sorted(name for run, name in RUNS if run == revision)
    assert sorted(listed(SUITE, "--spec-version", revision)) == ours
    assert len(ours) == COUNTS[revision]


@pytest.mark.parametrize(("revision", "scenario"), RUNS)
def test_scenario(suite: None, revision: str, scenario: str, tmp_path: Path) -> None:
    check(scenario, judged(scenario, "--spec-version", revision, into=tmp_path))


@pytest.mark.parametrize("scenario", EXTENSIONS)
def test_extension(suite: None, scenario: str, tmp_path: Path) -> None:
    check(scenario, judged(scenario, into=tmp_path))


PUBLISHED_SCENARIOS = [
    name
    for revision, name in RUNS
    if revision == "2025-11-25" and name != "json-schema-2020-12-preservation"
]


@pytest.mark.parametrize("scenario", PUBLISHED_SCENARIOS)
def test_the_published_suite(suite: None, scenario: str, tmp_path: Path) -> None:
    """0.1.16, which a plain `npm install` gives. It does not say which revision its server
    speaks, so the client finds that out."""
    check(scenario, judged(scenario, into=tmp_path, suite=PUBLISHED))


def test_the_published_suite_has_no_scenario_that_is_not_run(suite: None) -> None:
    ours = listed(PUBLISHED, "--spec-version", "2025-11-25")
    assert sorted(ours) == sorted(PUBLISHED_SCENARIOS)


def test_no_failure_is_expected() -> None:
    assert "\nclient: []\n" in BASELINE.read_text("utf-8")
