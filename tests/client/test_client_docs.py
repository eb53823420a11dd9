"""docs/client.md does what it says: every program in it is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text("utf-8")
SERVER, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PROGRAMS = re.findall(r"```python\n([^`]*)```\n```text\n([^`]*)```", PAGE)
COMMANDS = re.findall(r"^\$ (dovetail .*)$", PAGE, re.MULTILINE)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SERVER)
    return tmp_path


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs(place: Path, number: int) -> None:
    program, said = PROGRAMS[number]
    (place / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=place, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == said, done.stderr


def test_every_program_shows_what_it_prints() -> None:
    assert len(PROGRAMS) == PAGE.count("```python") - 1 == 5


@pytest.mark.parametrize("command", [c for c in COMMANDS if "-- python" in c and "--http" not in c])
def test_commands(place: Path, command: str) -> None:
    words = command.replace("dovetail", f"{sys.executable} -m dovetail").replace(
        "-- python", f"-- {sys.executable}"
    )
    done = subprocess.run(words.split(), cwd=place, capture_output=True, text=True, timeout=60)
    if "complete" in words.split():  # the shop completes nothing, and says so
        assert done.returncode == 1
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout
