"""The README does what it says: its code runs, its console lines print what is shown."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the first block as the file it names."""
    (tmp_path / "server.py").write_text(PYTHON_BLOCKS[0])
    return tmp_path


def test_first_block_is_the_quickstart_example() -> None:
    code = PYTHON_BLOCKS[0].removeprefix("# server.py\n")
    example = (ROOT / "examples" / "quickstart.py").read_text()
    assert code.strip() == example.partition("\n")[2].strip()


@pytest.mark.parametrize("number", range(1, len(PYTHON_BLOCKS)))
def test_block_runs(folder: Path, number: int) -> None:
    code = PYTHON_BLOCKS[number].replace('"python"', repr(sys.executable))
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_console_line_prints_what_is_shown(folder: Path) -> None:
    line, shown = re.search(r"^\$ (echo .*)\n(.*)$", README, re.MULTILINE).groups()
    command = line.replace(".venv/bin/python", sys.executable)
    ran = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
    assert ran.stdout == shown + "\n"


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
