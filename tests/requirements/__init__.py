"""What Dovetail has to do, one requirement a line, in our own words.

Tests cite these ids with ``@pytest.mark.verifies("X1", "E-bad-json")``.
``tests/test_requirements.py`` holds the marks and this list together, and
``python tests/_manifest.py`` writes ``docs/requirements.md``.

The data is in ``_spec.py`` (the protocol) and ``_project.py`` (our own documents), as text tables:

    = digest §13.1                        where the lines below come from
    X1 | A-E | both | engine | Text, which
        may go on in an indented line.    // a remark, mostly why it is not ours or not ours yet

Ids: ``X S C AS SH`` protocol rules of both sides, servers, clients, authorization servers, and the
recommendations that others rely on; ``R000`` to ``R004`` and ``INV`` our documents; ``D``
decisions between them; ``E`` malformed input; ``F`` features of the engine; ``N``
many nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import _project, _spec

REVISIONS = {
    "A": "2024-11-05",
    "B": "2025-03-26",
    "C": "2025-06-18",
    "D": "2025-11-25",
    "E": "2026-07-28",
}
SIDES = frozenset({"server", "client", "both"})
# Parts that exist: each of their requirements needs a test. Building a part moves it up here.
BUILT = frozenset(
    {
        "engine",
        "ask",
        "bearer",
        "http",
        "nodes",
        "websocket",
        "client",
        "oauth",
        "logging",
        "progress",
        "subscriptions",
        "tasks",
        "lisp",
        "neovim",
        "sources",
    }
)
# Parts that come later, and "host": the duty of somebody else (the remark says whose).
LATER = frozenset({"host"})


@dataclass(frozen=True, slots=True)
class Requirement:
    id: str
    revisions: str  # letters of REVISIONS
    side: str
    text: str
    source: str
    scope: str
    remark: str = ""


def letters(written: str) -> str:
    """``A-C`` is ``ABC``, ``CE`` is ``CE``."""
    if "-" not in written:
        return written
    first, last = written.split("-")
    return "".join(x for x in REVISIONS if first <= x <= last)


def logical_lines(table: str) -> Iterator[str]:
    """The lines of a table with indented continuations joined."""
    line = ""
    for raw in table.splitlines():
        if raw.startswith(" "):
            line += " " + raw.strip()
            continue
        if line:
            yield line
        line = raw.strip()
    if line:
        yield line


def parse(table: str) -> Iterator[Requirement]:
    source = ""
    for line in logical_lines(table):
        if line.startswith("= "):
            source = line[2:]
            continue
        id_, revisions, side, scope, text = (part.strip() for part in line.split("|", 4))
        text, _, remark = (part.strip() for part in text.partition(" // "))
        yield Requirement(id_, letters(revisions), side, text, source, scope, remark)


REQUIREMENTS: list[Requirement] = [*parse(_spec.TABLE), *parse(_project.TABLE)]
BY_ID: dict[str, Requirement] = {r.id: r for r in REQUIREMENTS}
