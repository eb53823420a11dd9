"""docs/http.md does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from http_lab import text
from test_hostile_http import STATUSES
from test_mounted import At, close

from dovetail.transport.http.options import HttpOptions
from support import run

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")


def test_the_program() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec(program, names)  # noqa: S102 - our own page

    async def main() -> None:
        http = At(names["app"], "/mcp")
        call = {"name": "in_stock", "arguments": {"article": "A1"}}
        assert text(await http.modern("tools/call", call).whole()) == "3"
        await close(names["app"])

    run(main())


def first_cells(start: str, end: str) -> str:
    """The first column of a table, as one text."""
    rows = PAGE[PAGE.index(start) : PAGE.index(end)].strip().splitlines()[2:]
    return " ".join(row.split("|")[1] for row in rows)


def test_the_table_of_statuses_is_complete() -> None:
    cells = first_cells("| status |", "Nothing else comes back")
    assert {int(status) for status in re.findall(r"\d{3}", cells)} == STATUSES | {401}


def test_the_options_exist() -> None:
    named = set(re.findall(r"`(\w+)", first_cells("| option of", "## What is answered")))
    assert named == set(HttpOptions.__annotations__) - {"guard", "tap"}
