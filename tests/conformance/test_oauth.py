"""A protected server, a real authorization server, and MCPJam, which judges the way to a token."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from authorization_server import AuthorizationServer, authorization_server
from judge import HERE, NODE, PATIENCE, running

# Steps that a run takes: from the refusal, over metadata, registration and PKCE, to a call.
STEPS = {"2025-03-26": 20, "2025-06-18": 23, "2025-11-25": 23}
# It offers a code a second time, which is refused before its redirect is looked at.
NOT_ISOLATED = "oauth_invalid_redirect"


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    with authorization_server() as made:
        yield made


@pytest.fixture(scope="module")
def protected(
    judges: None, issuer: AuthorizationServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    errors = tmp_path_factory.mktemp("protected") / "errors"
    command = [sys.executable, HERE / "protected.py", issuer.url]
    with running(command, errors) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), errors.read_text()
        yield url
    assert errors.read_text() == ""


@pytest.mark.verifies("S65", "S67", "S68", "S69", "S70")
@pytest.mark.parametrize("revision", STEPS)
def test_the_way_to_a_token(revision: str, protected: str, issuer: AuthorizationServer) -> None:
    task = {
        "url": protected,
        "oauth": {
            "protocolVersion": revision,
            "registrationStrategy": "dcr",
            "auth": {"mode": "headless"},
            "oauthConformanceChecks": True,
            "verification": {"listTools": True, "callTool": {"name": "whoami"}},
        },
    }
    if revision == "2025-03-26":  # which knows no challenge that would name them
        task["oauth"]["scopes"] = "use"  # type: ignore[index]
    result = judged_by_mcpjam(task)
    statuses = [(step["step"], step["status"]) for step in result["steps"]]
    assert [step for step, status in statuses if status != "passed"] == [NOT_ISOLATED], result
    assert len(statuses) == STEPS[revision]
    assert result["passed"] is True
    assert result["verification"]["listTools"]["toolCount"] == 2
    assert result["verification"]["callTool"]["passed"] is True
    last = issuer.granted[-1]
    assert (last["resource"], last["scope"]) == (protected, "use"), "as the challenge said"


def judged_by_mcpjam(task: dict[str, Any]) -> dict[str, Any]:
    run = subprocess.run(
        [NODE, HERE / "clients" / "mcpjam_judge.mjs", json.dumps(task)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    result: dict[str, Any] = json.loads(run.stdout)
    return result
