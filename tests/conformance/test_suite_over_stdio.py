"""The official suite judges our stdio: supergateway stands between and speaks HTTP to it.

What the bridge itself does wrong is listed here, and nothing else may go wrong. It checks
neither Host nor Origin, its streams cannot be resumed, and a request of 2026-07-28 gets a
process of its own, so that a change in one is not heard in another.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from judge import bridged_server, judged

pytestmark = pytest.mark.verifies("F-real-peers")

LEGS = {"2025-11-25": (33, 80), "2026-07-28": (40, 149)}
# The suite waits half a second for these, in which the bridge starts a process. On a busy
# machine that may be too short: then their scenario is judged again.
LATE = {
    "server-stateless:sep-2575-http-server-no-independent-requests-on-stream (FAILURE)",
    "server-stateless:sep-2575-server-no-log-without-loglevel (FAILURE)",
}
REBINDING = "dns-rebinding-protection:localhost-host-rebinding-rejected (FAILURE)"
OF_THE_BRIDGE = {
    "2025-11-25": {
        REBINDING,
        "server-sse-polling:server-sse-priming-event (WARNING)",
        "server-sse-polling:server-sse-retry-field (WARNING)",
    },
    "2026-07-28": {
        REBINDING,
        "server-stateless:sep-2575-server-sends-prompts-list-changed-on-subscription (WARNING)",
        "server-stateless:sep-2575-server-sends-tools-list-changed-on-subscription (WARNING)",
    },
}


@pytest.mark.parametrize("revision", LEGS)
def test_nothing_fails_but_the_bridge(revision: str, judges: None, tmp_path: Path) -> None:
    with bridged_server(tmp_path / "errors") as url:
        arguments = ["--suite", "all", "--spec-version", revision]
        verdict = judged(url, *arguments, into=tmp_path / "results")
        for attempt in range(3):
            if LATE.isdisjoint(verdict.having("FAILURE")):
                break
            again = ["--scenario", "server-stateless", "--spec-version", revision]
            verdict.checks.update(judged(url, *again, into=tmp_path / f"{attempt}").checks)
    found = verdict.having("FAILURE", "WARNING", "SKIPPED")
    assert set(found) == OF_THE_BRIDGE[revision], found.values()
    assert (len(verdict.checks), verdict.counts["SUCCESS"]) == LEGS[revision]
    assert verdict.empty == (["server-sse-polling"] if revision == "2025-11-25" else [])
