"""As an agent: the official SDK's client visits ``dovetail serve sources``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.servers.sources.catalog import EMBEDDED

ROOT = Path(__file__).parents[3]
PEERS = ROOT / ".peers" / "venv" / "bin" / "python"
DOVETAIL = Path(sys.executable).with_name("dovetail")
AGENT = Path(__file__).with_name("agent.py")
PATIENCE = 180  # a cold start of the SDK on a busy machine takes many seconds
REVISIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}


@pytest.fixture(scope="module", params=REVISIONS)
def seen(request: pytest.FixtureRequest) -> Any:
    subprocess.run([ROOT / "scripts" / "peers"], check=True)
    command = [PEERS, AGENT, request.param, DOVETAIL, "serve", "sources"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["revision"] == REVISIONS[request.param]
    return found


def test_an_agent_finds_three_sources(seen: Any) -> None:
    assert seen["tools"] == [
        *("get_sources", "list_categories", "get_provenance", "get_endorsements")
    ]
    found = seen["found"]["structuredContent"]
    assert found["category"]["slug"] == "git"
    assert [source["rank"] for source in found["sources"]] == [1, 2, 3]
    assert json.loads(seen["found"]["content"][0]["text"]) == found


def test_an_agent_learns_that_there_is_nothing(seen: Any) -> None:
    assert seen["nothing"]["isError"] is False
    nothing = seen["nothing"]["structuredContent"]
    assert nothing["sources"] == []
    assert "No match" in nothing["message"]


def test_an_agent_can_look_around_and_check(seen: Any) -> None:
    assert len(seen["categories"]["structuredContent"]["categories"]) >= 50
    assert seen["provenance"]["structuredContent"]["curator"] == "Dovetail project"
    assert seen["endorsements"]["structuredContent"] == {"endorsements": []}
    assert seen["registry"]["contents"][0]["text"].encode() == EMBEDDED.read_bytes()
    assert seen["slugs"]["completion"]["values"][0] == "git"
    assert "Learn CSS" in seen["prompt"]["messages"][0]["content"]["text"]
    assert "get_sources" in seen["instructions"]


def test_an_agent_gets_the_errors_of_the_requirement(seen: Any) -> None:
    modern = seen["revision"] == "2026-07-28"
    assert seen["unknown"] == (-32602 if modern else -32601)
    assert seen["wrong"] == -32602
