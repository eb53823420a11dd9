"""`dovetail serve` as a user runs it."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOVETAIL = str(Path(sys.executable).with_name("dovetail"))
PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
SERVER = """
import logging
import sys
from dovetail import Server
print("printed while loading")
sys.stdout.flush()
server = Server("one", version="1")
other = Server("two", version="1")
log = logging.getLogger("author")
log.warning("a warning")
log.debug("a detail")
"""
INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        },
    }
)


def serve(*arguments: str, cwd: Path, stdin: str = INITIALIZE) -> subprocess.CompletedProcess[str]:
    command = [DOVETAIL, "serve", *arguments]
    return subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=30)


def name_of(ran: subprocess.CompletedProcess[str]) -> str:
    return json.loads(ran.stdout)["result"]["serverInfo"]["name"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SERVER)
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text(SERVER)
    return tmp_path


@pytest.mark.verifies("F-cli-serve")
@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("mine.py", "one"),
        ("mine.py:other", "two"),
        ("./mine.py:server", "one"),
        ("package.inner:other", "two"),
        ("mine:server", "one"),
    ],
)
def test_a_target_is_found(folder: Path, target: str, name: str) -> None:
    ran = serve(target, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert name_of(ran) == name


@pytest.mark.verifies("F-cli-serve", "F-stdio-print")
def test_what_a_target_prints_while_it_is_loaded_stays_off_the_wire(folder: Path) -> None:
    ran = serve("mine.py", cwd=folder)
    assert len(ran.stdout.splitlines()) == 1
    assert "printed while loading" in ran.stderr


@pytest.mark.verifies("F-cli-serve")
@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("none.py", "there is no file none.py"),
        ("mine.py:nothing", "mine.py has no Server named 'nothing'; it has server, other"),
        ("no.such:server", "there is no module 'no.such'"),
        ("json:server", "json has no Server named 'server'; it has no dovetail.Server at all"),
        ("mine", "'mine' is neither a file.py nor a module:name"),
    ],
)
def test_a_bad_target_is_one_clear_line(folder: Path, target: str, text: str) -> None:
    ran = serve(target, cwd=folder)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[-1] == f"dovetail: {text}"


@pytest.mark.verifies("F-log-level")
def test_the_log_level_decides_what_stderr_shows(folder: Path) -> None:
    assert "a warning" in serve("mine.py", cwd=folder).stderr
    assert "a detail" not in serve("mine.py", cwd=folder).stderr
    assert "a detail" in serve("mine.py", "--log-level", "debug", cwd=folder).stderr
    assert "a warning" not in serve("mine.py", "--log-level", "error", cwd=folder).stderr


@pytest.mark.verifies("F-wire-log")
def test_the_wire_log_holds_every_message_both_ways(folder: Path) -> None:
    stdin = PING + "{broken\n" + "[" * 3000 + "\n"
    serve("mine.py", "--wire-log", "wire.jsonl", cwd=folder, stdin=stdin)
    entries = [json.loads(line) for line in (folder / "wire.jsonl").read_text().splitlines()]
    assert [entry["dir"] for entry in entries].count("in") == 3
    assert [entry["dir"] for entry in entries].count("out") == 3
    assert entries[0]["message"] == json.loads(PING)
    assert {"raw": "{broken"}.items() <= entries[2].items() or "raw" in entries[1]
    assert all(isinstance(entry["time"], float) for entry in entries)


@pytest.mark.verifies("F-wire-log")
def test_a_wire_log_that_cannot_be_written_is_one_clear_line(folder: Path) -> None:
    ran = serve("mine.py", "--wire-log", "none/wire.jsonl", cwd=folder)
    assert ran.returncode == 2
    assert ran.stderr.startswith("dovetail: cannot write the wire log: ")


@pytest.mark.verifies("F-serve-default")
def test_scripts_serve_starts_a_notebook(tmp_path: Path) -> None:
    """Over HTTP on the loopback; it prints the URL and the line that adds it to a client."""
    notes = {"NOTES_FILE": str(tmp_path / "notes.json"), "PORT": "0"}
    served = subprocess.Popen(
        [ROOT / "scripts" / "serve"], stderr=subprocess.PIPE, text=True, env={**os.environ, **notes}
    )
    try:
        assert served.stderr is not None
        lines = iter(served.stderr.readline, "")
        url = next(line.split()[-1] for line in lines if line.startswith("dovetail: serving "))
        assert url.startswith("http://127.0.0.1:")
        assert next(lines).endswith(f"claude mcp add --transport http notes {url}\n")
        headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        request = urllib.request.Request(url, INITIALIZE.encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["result"]["serverInfo"]["name"] == "notes"
    finally:
        served.terminate()
        assert served.wait(30) == 0
        served.stderr.close()  # type: ignore[union-attr]


@pytest.mark.verifies("F-cli-serve")
def test_version_and_module() -> None:
    shown = subprocess.run([DOVETAIL, "--version"], capture_output=True, text=True).stdout
    module = [sys.executable, "-m", "dovetail", "--version"]
    assert shown.startswith("dovetail ")
    assert subprocess.run(module, capture_output=True, text=True).stdout == shown


@pytest.mark.verifies("F-wire-log")
def test_a_wire_log_on_a_full_disk_ends_but_the_server_goes_on(folder: Path) -> None:
    ran = serve("mine.py", "--wire-log", "/dev/full", cwd=folder)
    assert ran.returncode == 0
    assert name_of(ran) == "one"
    assert ran.stderr.count("the wire log ends here") == 1
