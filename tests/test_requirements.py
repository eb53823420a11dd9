"""The manifest, the marks of the tests and docs/requirements.md hold each other to account."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

import _manifest
from requirements import BUILT, BY_ID, LATER, REQUIREMENTS, REVISIONS, SIDES, Requirement, parse

ROOT = Path(__file__).parents[1]
VOCABULARY = ROOT / "docs" / "protocol" / "vocabulary.md"
TERMS = """JSON-RPC, Method, Notification, Capabilities, Request, Response, Error, Revision, Era,
    Envelope, Session, Transport, Frame, Tool, Resource, Prompt, Structured content, Cursor,
    Invariants"""


@pytest.fixture(scope="module")
def citations() -> _manifest.Citations:
    return _manifest.scan()


def listing(head: str, lines: list[str]) -> str:
    return f"{head}\n  " + "\n  ".join(lines)


def test_entries_are_well_formed() -> None:
    assert len(BY_ID) == len(REQUIREMENTS), "an id is there twice"
    for r in REQUIREMENTS:
        assert r.scope in BUILT | LATER, r
        assert r.side in SIDES, r
        assert r.revisions, r
        assert set(r.revisions) <= set(REVISIONS), r
        assert r.text.endswith("."), r
        assert r.source, r
        assert r.remark or r.scope != "host", f"{r.id}: say whose duty it is"


@pytest.mark.parametrize(("prefix", "count"), [("X", 45), ("S", 103), ("C", 58), ("AS", 5)])
def test_every_line_of_the_digest_is_there(prefix: str, count: int) -> None:
    found = {r.id for r in REQUIREMENTS if re.fullmatch(prefix + r"\d+", r.id)}
    assert found == {f"{prefix}{n}" for n in range(1, count + 1)}


@pytest.mark.verifies("F-manifest")
def test_marks_are_readable_and_name_what_exists(citations: _manifest.Citations) -> None:
    wrong = [
        f"{id_} in {', '.join(sorted(tests))}"
        for id_, tests in sorted(citations.tests.items())
        if id_ not in BY_ID
    ]
    assert not wrong, listing("no such requirement:", wrong)
    assert not citations.problems, listing("marks that do not count:", citations.problems)


@pytest.mark.verifies("F-manifest")
def test_every_requirement_of_a_built_part_is_shown(citations: _manifest.Citations) -> None:
    missing = [
        f"{r.id}: {r.text}"
        for r in REQUIREMENTS
        if r.scope in BUILT and not citations.tests.get(r.id)
    ]
    assert not missing, listing(f"{len(missing)} requirements without a test:", missing)


@pytest.mark.verifies("F-manifest")
def test_nothing_is_shown_of_a_part_that_is_not_built(citations: _manifest.Citations) -> None:
    early = [
        f"{r.id} ({r.scope})" for r in REQUIREMENTS if r.scope in LATER and r.id in citations.tests
    ]
    assert not early, listing("shown already, so change the scope:", early)


@pytest.mark.verifies("F-manifest")
def test_table_is_current(citations: _manifest.Citations) -> None:
    current = _manifest.PAGE.read_text("utf-8") == _manifest.page(citations)
    assert current, "run python tests/_manifest.py"


@pytest.mark.verifies("R000-15")
def test_vocabulary_defines_its_terms() -> None:
    defined = re.findall(r"^\*\*(.+?)\*\*", VOCABULARY.read_text("utf-8"), re.MULTILINE)
    assert len(defined) == len(set(defined))
    wanted = {" ".join(term.split()) for term in TERMS.split(",")}
    assert wanted <= set(defined), wanted - set(defined)


def test_a_table_is_read() -> None:
    table = "= here\nX1 | A-C | both | engine | One\n    thing. // why\n"
    table += "X2 | BE | server | http | Two.\n"
    assert list(parse(table)) == [
        Requirement("X1", "ABC", "both", "One thing.", "here", "engine", "why"),
        Requirement("X2", "BE", "server", "Two.", "here", "http"),
    ]


def scanned(monkeypatch: pytest.MonkeyPatch, root: Path, **files: str) -> _manifest.Citations:
    for name, source in files.items():
        (root / f"{name}.py").write_text(textwrap.dedent(source), "utf-8")
    monkeypatch.setattr(_manifest, "TESTS", root)
    return _manifest.scan(root)


def test_marks_are_found_wherever_they_may_stand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = scanned(
        monkeypatch,
        tmp_path,
        cases="""
            from pytest import mark, param
            SHARED = [param(1, marks=mark.verifies("shared"))]
        """,
        test_it="""
            import pytest
            from cases import SHARED
            pytestmark = pytest.mark.verifies("module")
            CASES = [pytest.param(1, marks=[pytest.mark.verifies("case")])]
            TABLE: list = CASES

            @pytest.mark.verifies("a", "b")
            def test_plain(): ...

            @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.verifies("inline"))])
            @pytest.mark.parametrize("y", TABLE + SHARED)
            async def test_params(x, y): ...

            @pytest.mark.verifies("class")
            class TestGroup:
                pytestmark = [pytest.mark.verifies("body")]
                def test_in(self): ...

            @pytest.mark.verifies("machine")
            class TestMachine(Machine.TestCase): ...

            TestOther = Other.TestCase
        """,
    )
    assert not found.problems
    by_test: dict[str, set[str]] = {}
    for id_, tests in found.tests.items():
        for test in tests:
            by_test.setdefault(test.removeprefix("test_it.py::"), set()).add(id_)
    assert by_test == {
        "test_plain": {"module", "a", "b"},
        "test_params": {"module", "inline", "case", "shared"},
        "TestGroup::test_in": {"module", "class", "body"},
        "TestMachine": {"module", "machine"},
        "TestOther": {"module"},
    }


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("@pytest.mark.verifies('a')\ndef helper(): ...", "not on a test that runs"),
        ("@pytest.mark.skip\n@pytest.mark.verifies('a')\ndef test_x(): ...", "not on a test"),
        ("@pytest.mark.xfail(reason='')\n@pytest.mark.verifies('a')\ndef test_x(): ...", "not on"),
        ("CASES = [pytest.param(1, marks=pytest.mark.verifies('a'))]", "not on a test that runs"),
        ("pytestmark = pytest.mark.verifies('a')", "not on a test that runs"),
        (
            "@pytest.mark.parametrize('x', [pytest.param(1, marks=[pytest.mark.xfail(),"
            " pytest.mark.verifies('a')])])\ndef test_x(x): ...",
            "not on a test that runs",
        ),
        ("@pytest.mark.verifies(NAME)\ndef test_x(): ...", "written out"),
        ("@pytest.mark.verifies(*NAMES)\ndef test_x(): ...", "written out"),
        ("@pytest.mark.verifies()\ndef test_x(): ...", "takes ids"),
    ],
)
def test_marks_that_show_nothing_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, problem: str
) -> None:
    found = scanned(monkeypatch, tmp_path, test_it=source)
    assert not found.tests
    assert len(found.problems) == 1
    assert problem in found.problems[0]
