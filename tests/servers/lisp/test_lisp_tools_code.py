"""Compiling, timing, parentheses, and what a session has seen."""

from __future__ import annotations

from typing import Any

import pytest
from lisp_support import Client, lisp, text_of

from support import ALL, run


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.raw.call(tool, arguments)
    assert result["isError"] is True
    return text_of(result)


CODE = """(defun first-one (x)
  (car x))

(defun second-one (x)
  (let ((unused 1))
    (undefined-thing x)))

(defun third-one ()
  (+ 1 "two"))
"""


@pytest.mark.parametrize("revision", ALL)
def test_compiling_tells_and_does_not_run(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            await client.text("(defvar *ran* nil)")
            shown = await client.tool("compile-form", code="(setf *ran* t)")
            assert shown == "Compilation successful: 1 form, nothing executed."
            assert await client.text("*ran*") == "=> NIL"
            shown = await client.tool("compile-form", code=CODE)
            assert shown.startswith("Compilation failed: 1 warning, 2 style-warnings")
            assert "The variable UNUSED is defined but never used." in shown
            assert await client.text("(fboundp 'first-one)") == "=> NIL"
            assert "Nothing was evaluated" in await refused(client, "compile-form", code="(car")

    run(main())


def test_diagnostics_are_data() -> None:
    async def main() -> None:
        async with lisp() as client:
            data = (await client.raw.call("compile-form", {"code": CODE}))["structuredContent"]
            assert data["forms"] == 3
            assert data["success"] is False
            told = {(one["severity"], one["line"]): one for one in data["diagnostics"]}
            assert ("style-warning", 5) in told
            assert told["style-warning", 5]["form"] == "(UNUSED 1)"
            warning = next(one for one in data["diagnostics"] if one["severity"] == "warning")
            assert warning["line"] in (8, 9)
            noted = {"code": "(defun f (x y) (declare (optimize speed)) (+ x y))"}
            data = (await client.raw.call("compile-form", noted))["structuredContent"]
            assert data["success"] is True
            assert {one["severity"] for one in data["diagnostics"]} == {"note"}

    run(main())


def test_timing() -> None:
    async def main() -> None:
        async with lisp() as client:
            result = await client.raw.call(
                "time-execution", {"code": '(princ "out") (make-array 100000) (floor 7 2)'}
            )
            shown = text_of(result)
            assert shown.startswith("[stdout]\nout\n\nReal time: ")
            assert shown.endswith("=> 3\n=> 1")
            data = result["structuredContent"]
            assert data["timing"]["bytesConsed"] >= 800_000
            assert data["values"] == ["3", "1"]
            assert "[ERROR] DIVISION-BY-ZERO" in await refused(
                client, "time-execution", code="(/ 1 0)"
            )

    run(main())


@pytest.mark.parametrize("revision", ALL)
def test_parentheses(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            valid = await client.tool("validate-syntax", code='(a) (no:such) #| ( |# "("')
            assert valid == "✓ Syntax valid: 3 top-level forms"
            wrong = await client.tool("validate-syntax", code="(a\n  (b c)\n")
            assert wrong.startswith("✗ 1 unclosed parenthesis")
            assert "line 1" in wrong
            code = '(a (b ")" #\\))\n   c)'
            for here, there in (((1, 0), (2, 4)), ((2, 4), (1, 0)), ((1, 3), (1, 13))):
                given = {"code": code, "line": here[0], "column": here[1]}
                found = await client.raw.call("match-paren", given)
                assert f'"line":{there[0]},"column":{there[1]},' in text_of(found)
            for line, column in ((1, 1), (1, 7), (9, 0), (1, 99)):
                given = {"code": code, "line": line, "column": column}
                assert (await client.raw.call("match-paren", given))["isError"] is True

    run(main())


@pytest.mark.parametrize("revision", ALL)
def test_what_a_session_has_seen(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            assert "no error in session" in await refused(client, "describe-last-error")
            await client.text("(defun f (x) (/ x 0)) (defvar *v* 1) (defclass c () ())")
            listed = await client.tool("list-definitions")
            assert listed == (
                "3 definitions\nfunction F (COMMON-LISP-USER)\n"
                "variable *V* (COMMON-LISP-USER)\nclass C (COMMON-LISP-USER)"
            )
            only = await client.tool("list-definitions", type="class")
            assert only == "1 definition\nclass C (COMMON-LISP-USER)"
            await client.error("(f 1)")
            await client.text("(+ 1 2)")
            shown = await client.tool("describe-last-error")
            assert shown.startswith("[ERROR] DIVISION-BY-ZERO\n")
            assert "\n[Code of call 2]\n(f 1)\n" in shown
            one = await client.raw.call("get-backtrace", {"max-frames": 1})
            assert text_of(one).startswith("0: ")
            assert "as new" in await client.tool("reset-session")
            assert await client.tool("list-definitions") == "0 definitions"
            assert "UNDEFINED-FUNCTION" in await client.error("(f 1)")

    run(main())
