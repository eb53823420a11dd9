"""The contract files say what the rules say, and leave out no requirement of a server."""

import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import dovetail.check.probes  # noqa: F401 - registers the rules
from dovetail.check.rules import RULES
from requirements import BY_ID, REQUIREMENTS, REVISIONS

ROOT = Path(__file__).resolve().parents[2]


def is_for_servers(id: str) -> bool:
    protocol = id[0] in "XS" and id[1:].isdigit()
    return BY_ID[id].side in ("server", "both") and (protocol or id.startswith("R002-"))


def test_every_requirement_of_a_server_is_in_the_contract() -> None:
    wanted = {requirement.id for requirement in REQUIREMENTS if is_for_servers(requirement.id)}
    covered = {id for rule in RULES.values() for id in rule.covers}
    assert wanted - covered == set()
    assert covered - BY_ID.keys() == set()


def test_the_files_are_current() -> None:
    command = [sys.executable, "tools/gen_contract.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("letter", REVISIONS)
def test_a_file_reads_well(letter: str) -> None:
    text = files("dovetail.check").joinpath("contract", f"{REVISIONS[letter]}.toml").read_text()
    contract = tomllib.loads(text)
    assert contract["revision"] == REVISIONS[letter]
    assert [entry["id"] for entry in contract["rule"]] == [
        rule.id for rule in RULES.values() if letter in rule.revisions
    ]
    for entry in contract["rule"]:
        assert entry["level"] in ("MUST", "SHOULD")
        assert entry["text"].endswith(".")
        assert entry.get("probe") or entry.get("no_probe")


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES.values() if rule.probe], ids=lambda r: r.id
)
def test_a_probed_rule_says_what_it_does_and_how_to_keep_it(rule: object) -> None:
    assert rule.how.endswith(".")  # type: ignore[attr-defined]
    assert rule.fix.endswith(".")  # type: ignore[attr-defined]
