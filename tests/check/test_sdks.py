"""What the checker finds in servers of the official SDKs, of the versions that are pinned.

`findings.toml` lists it: by server, rule and revision. Each was read against the
specification by hand; docs/check.md says what it means. `DOVETAIL_UPDATE=1` writes the
file anew, to be read again.
"""

import asyncio
import os
import tomllib
from pathlib import Path

import pytest

from dovetail.check.run import check
from dovetail.check.target import StdioTarget

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".peers"
SERVERS = {
    "mcp": [PEERS / "venv/bin/python", ROOT / "bench/servers/mcp_server.py"],
    "fastmcp": [PEERS / "venv/bin/python", ROOT / "bench/servers/fastmcp_server.py"],
    "typescript-v1": [PEERS / "bin/node", ROOT / "bench/servers/ts_v1.mjs"],
    "typescript-v2": [PEERS / "bin/node", ROOT / "bench/servers/ts_v2.mjs"],
}
FINDINGS = Path(__file__).with_name("findings.toml")


def found_in(name: str) -> dict[str, list[str]]:
    report = asyncio.run(check(StdioTarget([str(part) for part in SERVERS[name]])))
    found: dict[str, list[str]] = {}
    for result in report.failures():
        found.setdefault(result.rule.id, []).append(result.revision)
    return {rule: sorted(revisions) for rule, revisions in sorted(found.items())}


@pytest.mark.parametrize("name", SERVERS)
def test_findings_are_the_ones_we_confirmed(name: str) -> None:
    found = found_in(name)
    if os.environ.get("DOVETAIL_UPDATE"):
        update(name, found)
    assert found == tomllib.loads(FINDINGS.read_text())[name]


def update(name: str, found: dict[str, list[str]]) -> None:
    known = tomllib.loads(FINDINGS.read_text()) if FINDINGS.exists() else {}
    known[name] = found
    lines = ["# What `dovetail check` finds in servers of other SDKs; see docs/check.md.\n"]
    for server in SERVERS:
        lines.append(f"\n[{server}]\n")
        for rule, revisions in known.get(server, {}).items():
            lines.append(f"{rule} = {str(revisions).replace(chr(39), chr(34))}\n")
    FINDINGS.write_text("".join(lines))
