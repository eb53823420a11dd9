"""Who shows what: the ``verifies`` marks of the tests, held against ``tests/requirements``.

The marks are read from the source, not from a run, so the answer does not depend on which tests
were selected. A mark counts on a test function or class, as ``pytestmark``, inside
``pytest.param(..., marks=...)`` of a test, and in a module constant that a test's decorators name.
It does not count on a test that is skipped or expected to fail.

``python tests/_manifest.py`` writes docs/requirements.md; ``--check`` only compares.
A conftest calls ``check_items(items)`` from ``pytest_collection_modifyitems``.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from requirements import BUILT, BY_ID, REQUIREMENTS, REVISIONS, Requirement

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "requirements.md"

Function = ast.FunctionDef | ast.AsyncFunctionDef
Constants = dict[str, list[ast.AST]]  # name of a module constant -> the values given to it


@dataclass(slots=True)
class Citations:
    tests: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # id -> tests
    problems: list[str] = field(default_factory=list)


def is_mark(node: ast.AST, *names: str) -> bool:
    """Whether ``node`` is ``pytest.mark.NAME`` or ``mark.NAME``, called or not."""
    node = node.func if isinstance(node, ast.Call) else node
    if not (isinstance(node, ast.Attribute) and node.attr in names):
        return False
    owner = node.value
    return (owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")) == "mark"


def marks_in(*nodes: ast.AST) -> Iterator[ast.Call]:
    """The ``verifies`` marks somewhere in ``nodes``, but for those of a dead ``pytest.param``."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Call) and is_mark(node, "verifies"):
            yield node
        elif not (isinstance(node, ast.Call) and dead(elements(k.value for k in node.keywords))):
            todo += ast.iter_child_nodes(node)


def dead(nodes: Iterable[ast.AST]) -> bool:
    """Skipped or expected to fail as a whole: shows nothing. ``skipif`` still shows something."""
    return any(is_mark(node, "skip", "xfail") for node in nodes)


def assigned(body: Iterable[ast.stmt]) -> Constants:
    found: Constants = defaultdict(list)
    for node in body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id].append(node.value)
        elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
            found[node.target.id].append(node.value)
    return found


def elements(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """``pytestmark`` is one mark or a list of them."""
    return [e for n in nodes for e in (n.elts if isinstance(n, ast.List | ast.Tuple) else [n])]


class Scan:
    """Reads one file of tests."""

    def __init__(self, path: Path, tree: ast.Module, others: dict[str, Constants], out: Citations):
        self.where = path.relative_to(TESTS).as_posix()
        self.tree = tree
        self.out = out
        self.seen: set[ast.Call] = set()
        self.constants = assigned(tree.body)
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                there = others.get(node.module.rpartition(".")[2], {})
                for alias in node.names:
                    if alias.name in there:
                        self.constants[alias.asname or alias.name] = there[alias.name]

    def run(self) -> None:
        is_test_file = self.where.rpartition("/")[2].startswith("test_")
        if is_test_file:
            self.suite(self.tree.body, self.where, [])
        for mark in ast.walk(self.tree):
            if not (isinstance(mark, ast.Call) and is_mark(mark, "verifies")):
                continue
            # Constants of a helper module are counted where they are imported.
            if mark not in self.seen and (is_test_file or not self.in_constant(mark)):
                self.problem(mark, "this mark is not on a test that runs")

    def suite(self, body: list[ast.stmt], name: str, inherited: list[ast.AST]) -> None:
        """A module or a class: its own marks, then its tests."""
        constants = assigned(body)
        own = [*inherited, *elements(constants.get("pytestmark", []))]
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                self.suite(node.body, f"{name}::{node.name}", [*own, *node.decorator_list])
            elif isinstance(node, Function) and node.name.startswith("test"):
                self.cite([*own, *self.resolved(node.decorator_list)], f"{name}::{node.name}")
        # The test case of a hypothesis machine: TestPeers = Peers.TestCase, or a class of it.
        for constant in constants:
            if constant.startswith("Test"):
                self.cite(own, f"{name}::{constant}")
        if "::" in name and not any(isinstance(node, Function) for node in body):
            self.cite(own, name)

    def resolved(self, decorators: list[ast.expr]) -> list[ast.AST]:
        """The decorators, and the constants they name."""
        found: list[ast.AST] = list(decorators)
        todo: list[ast.AST] = list(decorators)
        names: set[str] = set()
        while todo:
            for node in ast.walk(todo.pop()):
                if isinstance(node, ast.Name) and node.id not in names:
                    names.add(node.id)
                    found += self.constants.get(node.id, [])
                    todo += self.constants.get(node.id, [])
        return found

    def cite(self, nodes: list[ast.AST], test: str) -> None:
        if dead(nodes):
            return
        for mark in marks_in(*nodes):
            self.seen.add(mark)
            if mark.keywords or not mark.args:
                self.problem(mark, "verifies takes ids and nothing else")
            for arg in mark.args:
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
                    self.out.tests[arg.value].add(test)
                else:
                    self.problem(mark, "ids must be written out as strings")

    def in_constant(self, mark: ast.Call) -> bool:
        return any(mark in marks_in(*values) for values in self.constants.values())

    def problem(self, node: ast.Call, text: str) -> None:
        line = f"{self.where}:{node.lineno}: {text}"
        if line not in self.out.problems:
            self.out.problems.append(line)


def scan(root: Path = TESTS) -> Citations:
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(root.rglob("*.py"))}
    others = {path.stem: assigned(tree.body) for path, tree in trees.items()}
    out = Citations()
    for path, tree in trees.items():
        Scan(path, tree, others, out).run()
    return out


def check_items(items: Iterable[pytest.Item]) -> None:
    """For conftest: stop a run whose tests cite ids that do not exist."""
    unknown = {
        f"{item.nodeid}: {id_}"
        for item in items
        for mark in item.iter_markers("verifies")
        for id_ in mark.args
        if id_ not in BY_ID
    }
    if unknown:
        raise pytest.UsageError("unknown requirement\n" + "\n".join(sorted(unknown)))


def page(citations: Citations) -> str:
    """docs/requirements.md"""
    shown = sum(1 for r in REQUIREMENTS if citations.tests.get(r.id))
    built = sum(1 for r in REQUIREMENTS if r.scope in BUILT)
    lines = [
        "# Requirements and the tests that show them",
        "",
        "Written by `python tests/_manifest.py` from `tests/requirements/` and the marks of the",
        "tests; do not edit.",
        "",
        f"{len(REQUIREMENTS)} requirements, {built} of parts that are built, {shown} with tests.",
        "Revisions: " + ", ".join(f"{k} = {v}" for k, v in REVISIONS.items()) + ".",
        "Scope: the part of Dovetail it belongs to; `host` is the duty of somebody else.",
    ]
    source = ""
    for r in REQUIREMENTS:
        if r.source != source:
            source = r.source
            lines += ["", f"## {source[0].upper()}{source[1:]}", ""]
            lines += ["| id | revisions | side | requirement | scope | tests |", "|---" * 6 + "|"]
        lines.append(row(r, citations.tests.get(r.id, set())))
    return "\n".join(lines) + "\n"


def row(r: Requirement, tests: set[str]) -> str:
    text = f"{r.text} *({r.remark})*" if r.remark else r.text
    names = "<br>".join(f"`{test}`" for test in sorted(tests)) or "–"
    return f"| {r.id} | {r.revisions} | {r.side} | {text} | {r.scope} | {names} |"


def main(arguments: list[str]) -> int:
    wanted = page(scan())
    if "--check" in arguments:
        if PAGE.exists() and PAGE.read_text("utf-8") == wanted:
            return 0
        print(f"{PAGE} is out of date: run python tests/_manifest.py", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
