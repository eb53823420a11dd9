"""`dovetail check` as its users run it: reports, baselines, exit status, other transports."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
ZOO = [sys.executable, str(Path(__file__).with_name("zoo.py"))]
NOTES = [sys.executable, "-m", "dovetail", "serve", "examples/notes.py"]


def check(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "dovetail", "check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)


def test_a_good_server() -> None:
    done = check("--", *ZOO)
    assert done.returncode == 0, done.stdout
    assert "zoo 1.0.0 keeps the contract" in done.stdout
    assert done.stderr == ""


def test_a_broken_server_and_what_to_do_about_it() -> None:
    done = check("--revision", "2025-11-25", "--", *ZOO, "parse-error")
    assert done.returncode == 1
    assert "MUST   parse-error in every revision" in done.stdout
    assert 'sent      {"jsonrpc":"2.0","id":1,"method":' in done.stdout
    assert "found     nothing came back" in done.stdout
    assert "fix       Answer with -32700" in done.stdout
    assert "zoo 1.0.0 breaks the contract" in done.stdout


@pytest.mark.parametrize(("level", "status"), [("must", 0), ("should", 1), ("never", 0)])
def test_the_level_that_counts(level: str, status: int) -> None:
    done = check("--revision", "2025-11-25", "--fail-on", level, "--", *ZOO, "tool-unknown")
    assert done.returncode == status
    assert "keeps every MUST" in done.stdout


def test_a_baseline_forgives_what_it_lists_and_nothing_else(tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    revision = ("--revision", "2025-11-25")
    assert check(*revision, "--write-baseline", str(known), "--", *ZOO, "parse-error").returncode
    assert "2025-11-25 parse-error\n" in known.read_text()
    forgiven = check(*revision, "--baseline", str(known), "--", *ZOO, "parse-error")
    assert forgiven.returncode == 0
    assert "1 failed (1 known)" in forgiven.stdout
    other = check(*revision, "--baseline", str(known), "--timeout", "1", "--", *ZOO, "id-echo")
    assert other.returncode == 1


def test_reports_for_programs_and_browsers(tmp_path: Path) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "html")}
    options = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    check("--revision", "2025-11-25", *options, "--", *ZOO, "parse-error")
    report = json.loads(files["json"].read_text())
    assert report["verdict"]["worst"] == "MUST"
    assert [finding["rule"] for finding in report["findings"]] == ["parse-error"]
    assert {entry["way"] for entry in report["findings"][0]["wire"]} == {"sent", "received"}
    assert {r["outcome"] for r in report["results"]} == {"pass", "fail"}
    suite = ElementTree.parse(files["junit"]).getroot()[0]
    assert suite.get("failures") == "1"
    assert len(suite) == len(report["results"])
    page = files["html"].read_text()
    assert "<script" not in page
    assert 'id="parse-error"' in page
    assert not re.search(r"(src|href)=", page)  # it needs nothing else


def test_json_on_stdout_is_nothing_but_json() -> None:
    done = check("--revision", "2026-07-28", "--json", "-", "--", *ZOO)
    assert json.loads(done.stdout)["verdict"]["worst"] is None


def test_a_tool_that_only_its_user_can_allow() -> None:
    called = check("--revision", "2025-11-25", "--call", 'add={"a": 1}', "--", *NOTES)
    assert called.returncode == 0, called.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "name a server"),
        (["--", sys.executable, "-c", "print('hello'); raise SystemExit(3)"], "nothing to check"),
        (["--", "/no/such/program"], "nothing to check"),
        (["--call", "add={", "--", "x"], "JSON object"),
        (["--header", "token", "http://127.0.0.1:1/"], "NAME: VALUE"),
        (["--baseline", "/no/such/file", "--", "x"], "cannot read the baseline"),
        (["http://127.0.0.1:1/mcp"], "nothing to check"),
        (["ws://127.0.0.1:1/mcp"], "nothing to check"),
    ],
)
def test_mistakes_are_told(arguments: list[str], text: str) -> None:
    done = check(*arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Our own server on a free port; its URL."""
    with subprocess.Popen([*NOTES, *options], cwd=ROOT, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline().decode()
            found = re.search(r"(ws|http)://\S+", line)
            assert found, line
            yield found[0]
        finally:
            process.terminate()
            process.wait(30)


def test_our_own_server_over_websocket() -> None:
    with serving("--ws", "127.0.0.1:0") as url:
        done = check(url)
    assert done.returncode == 0, done.stdout
    assert "keeps the contract" in done.stdout
    assert "over ws" in done.stdout


def test_the_speed_of_a_server_beside_the_reference() -> None:
    done = check("--bench", "--", *NOTES)
    assert done.returncode == 0
    assert re.search(r"many at once +[\d,.]+ /s +[\d,.]+ /s", done.stdout)


def test_fuzzing_after_the_rules() -> None:
    done = check("--revision", "2025-11-25", "--fuzz", "20", "--", *ZOO)
    assert done.returncode == 0
    assert "20 rounds of mutated messages: nothing broke" in done.stdout
