"""docs/sources.md does what it says: its registry is good and its commands run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "sources.md").read_text("utf-8")
JSON_BLOCKS = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
CONSOLE = "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("docs")
    (made / "acme.json").write_text(JSON_BLOCKS[2])
    return made


def test_the_commands_print_what_is_shown(folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command, shown in re.findall(r"^\$ (.*)\n((?:[^$\n].*\n)*)", CONSOLE, re.MULTILINE):
        ran = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
        if shown:
            assert ran.stdout == shown, command


def test_the_configurations_start_a_server(folder: Path) -> None:
    subprocess.run(
        ["minisign", "-G", "-W", "-f", "-s", "acme.key", "-p", "acme.pub"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    dovetail = str(Path(sys.executable).with_name("dovetail"))
    sign = [dovetail, "sources", "sign", "acme.json", "--key", "acme.key"]
    subprocess.run(sign, cwd=folder, check=True, capture_output=True)
    ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    for block in JSON_BLOCKS[:2]:
        one = json.loads(block)["mcpServers"]["sources"]
        assert one["command"] == "/path/to/.venv/bin/dovetail"
        given = [word.replace("/path/to", str(folder)) for word in one["args"]]
        ran = subprocess.run(
            [dovetail, *given],
            input=ping,
            env={**os.environ, "XDG_STATE_HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert json.loads(ran.stdout) == {"jsonrpc": "2.0", "id": 1, "result": {}}, ran.stderr


def test_every_option_and_command_is_there() -> None:
    for word in ("lint", "match", "sign", "verify", "diff", "endorse"):
        assert f"dovetail sources {word}" in PAGE
    for option in ("--registry", "--with-embedded", "--public-key", "--trust", "--endorsements"):
        assert option in PAGE
