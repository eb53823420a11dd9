"""The official suite judges our stdio: supergateway stands between and speaks HTTP to it.

What the bridge itself does wrong is listed here, and nothing else may go wrong. It checks
neither Host nor Origin, its streams cannot be resumed, and a request of 2026-07-28 gets a
process of its own, so that a change in one is not heard in another.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from judge import ROOT, Verdict, bridged_server, judged

pytestmark = pytest.mark.verifies("F-real-peers")

LEGS = {"2025-11-25": (33, 80), "2026-07-28": (40, 149)}
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


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Verdict]]:
    """Both at once: each spends its time waiting for processes to start."""
    subprocess.run([ROOT / "scripts" / "peers"], check=True)

    def leg(revision: str, folder: Path) -> Verdict:
        with bridged_server(folder / "errors") as url:
            arguments = ["--suite", "all", "--spec-version", revision]
            return judged(url, *arguments, into=folder / "results")

    with ThreadPoolExecutor() as pool:
        return {one: pool.submit(leg, one, tmp_path_factory.mktemp(one)) for one in LEGS}


@pytest.mark.parametrize("revision", LEGS)
def test_nothing_fails_but_the_bridge(revision: str, verdicts: dict[str, Future[Verdict]]) -> None:
    verdict = verdicts[revision].result()
    found = verdict.having("FAILURE", "WARNING", "SKIPPED")
    assert set(found) == OF_THE_BRIDGE[revision], found.values()
    assert (len(verdict.checks), verdict.counts["SUCCESS"]) == LEGS[revision]
    assert verdict.empty == (["server-sse-polling"] if revision == "2025-11-25" else [])
