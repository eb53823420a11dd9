"""evaluate-lisp against a real SBCL: the formats of requirement 001."""

from __future__ import annotations

import re
from typing import Any

import pytest
from lisp_support import lisp, text_of

from support import ALL, run

STRUCTURED = ("2025-06-18", "2025-11-25", "2026-07-28")


@pytest.mark.verifies("R000-16", "R001-16")
@pytest.mark.parametrize("revision", ALL)
def test_the_examples_of_the_document(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            assert await client.text("(+ 1 2 3)") == "=> 6"
            assert await client.text("(+ 1 2)") == "=> 3"
            failed = await client.result("(/ 1 0)")
            assert failed["isError"] is True
            head, _, trace = text_of(failed).partition("\n\n[Backtrace]\n")
            assert head.startswith("[ERROR] DIVISION-BY-ZERO\n")
            assert trace.splitlines()[0] == "0: (/ 1 0)"

    run(main())


SECTIONS = [
    ("(floor 17 5)", "=> 3\n=> 2"),
    ("(values)", "; No values"),
    ('(format t "hello~%") :done', "[stdout]\nhello\n\n=> :DONE"),
    ('(format t "hello") :done', "[stdout]\nhello\n\n=> :DONE"),
    ('(format *error-output* "oops") 1', "[stderr]\noops\n\n=> 1"),
    ('(format *trace-output* "oops") 1', "[stderr]\noops\n\n=> 1"),
    ('(warn "careful") :done', "[warnings]\nSIMPLE-WARNING: careful\n\n=> :DONE"),
    (
        "(defun unused () (let ((x 10))))",
        "[warnings]\nSTYLE-WARNING: The variable X is defined but never used.\n\n=> UNUSED",
    ),
    (
        '(princ "out") (princ "err" *error-output*) (warn "w") (values 1 "two")',
        '[stdout]\nout\n\n[stderr]\nerr\n\n[warnings]\nSIMPLE-WARNING: w\n\n=> 1\n=> "two"',
    ),
    ("", "; No values"),
    ("; only a comment", "; No values"),
    ("'|a b|", "=> |a b|"),
    ("(let ((l (list 1 2 3))) (setf (cdr (last l)) l) l)", "=> #1=(1 2 3 . #1#)"),
    ('"ünï ☃ \U0001f600"', '=> "ünï ☃ \U0001f600"'),
    ("(code-char 0)", "=> #\\Nul"),
    ("(make-string 1 :initial-element (code-char #xd800))", '=> "\ufffd"'),
    ("(sb-int:with-float-traps-masked (:divide-by-zero) (/ 1.0 0.0))", None),
]


@pytest.mark.verifies("R001-16")
def test_sections_come_in_order_and_hide_nothing() -> None:
    async def main() -> None:
        async with lisp() as client:
            for code, expected in SECTIONS:
                shown = await client.text(code)
                if expected is not None:
                    assert shown == expected, code
                assert "=> " in shown or shown == "; No values"

    run(main())


def test_capture_time_adds_a_line() -> None:
    async def main() -> None:
        async with lisp() as client:
            shown = await client.text("(+ 1 2)", capture_time=True)
            line = r"; Timing: \d+ms real, \d+ms run, \d+ms GC, \d+ bytes consed"
            assert re.fullmatch(rf"=> 3\n{line}", shown)
            slept = await client.result("(sleep 0.05)", capture_time=True)
            assert slept["structuredContent"]["timing"]["realMs"] >= 50

    run(main())


@pytest.mark.verifies("R001-16")
@pytest.mark.parametrize("revision", ALL)
def test_the_same_is_there_as_data(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            result = await client.result('(princ "hi") (warn "w") (floor 17 5)')
            failed = await client.result("(car 5)")
            listed = await client.raw.request("tools/list")
        tool = next(tool for tool in listed["tools"] if tool["name"] == "evaluate-lisp")
        assert ("outputSchema" in tool) == (revision in STRUCTURED)
        if revision not in STRUCTURED:
            assert "structuredContent" not in result
            return
        data = result["structuredContent"]
        assert data["status"] == "ok"
        assert data["values"] == ["3", "2"]
        assert data["stdout"] == "hi"
        assert data["warnings"] == [
            {"type": "SIMPLE-WARNING", "severity": "warning", "message": "w"}
        ]
        error = failed["structuredContent"]["error"]
        assert error["type"] == "TYPE-ERROR"
        assert error["frames"][0] == "(CAR 5)"
        check_schema(tool["outputSchema"], data, failed["structuredContent"])

    run(main())


def check_schema(schema: dict[str, Any], *instances: Any) -> None:
    import jsonschema

    for instance in instances:
        jsonschema.Draft202012Validator(schema).validate(instance)


def test_what_a_listener_keeps_is_kept() -> None:
    async def main() -> None:
        async with lisp() as client:
            assert await client.text("(defvar *x* 41)") == "=> *X*"
            assert await client.text("(incf *x*)") == "=> 42"
            assert await client.text("(list * ** ***)") == "=> (42 *X* NIL)"
            assert await client.text("(floor 17 5)") == "=> 3\n=> 2"
            assert await client.text("/") == "=> (3 2)"
            assert await client.text("(defpackage :mine (:use :cl))") == '=> #<PACKAGE "MINE">'
            await client.text("(in-package :mine)")
            assert await client.text("(defun local () :here)") == "=> LOCAL"
            await client.error('(in-package :cl-user) (error "after a change")')
            assert await client.text("(mine::local)") == "=> :HERE"
            assert await client.text("*package*") == '=> #<PACKAGE "COMMON-LISP-USER">'

    run(main())


def test_the_package_argument_is_for_one_call() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text("(defpackage :mine (:use :cl))")
            assert await client.text("'foo", package="mine") == "=> FOO"
            assert await client.text("(package-name *package*)", package="MINE") == '=> "MINE"'
            name = '=> "COMMON-LISP-USER"'
            assert await client.text("(package-name *package*)") == name
            missing = await client.error("1", package="no-such")
            assert missing.startswith('[ERROR] PACKAGE-ERROR\nThe package "no-such" does not exist')

    run(main())


def test_forms_are_read_one_by_one() -> None:
    """In the same text, what a form does counts for reading the next."""

    async def main() -> None:
        async with lisp() as client:
            shown = await client.text(
                "(defpackage :other (:use :cl)) (in-package :other) (defvar inner 5) 'inner"
            )
            assert shown == "=> INNER"
            assert await client.text("(package-name (symbol-package *))") == '=> "OTHER"'
            # An error keeps what the forms before it did.
            await client.error('(setf inner 6) (error "no") (setf inner 7)')
            assert await client.text("inner") == "=> 6"

    run(main())


UNBALANCED = [
    ("(+ 1 2", "END-OF-FILE", "line 1, column 1", "Hint: add ) at the end"),
    ("(defun f ()\n  (list 1 2)\n(defun g () 2)", "END-OF-FILE", "line 1, column 1", "add )"),
    ("(+ 1 2))", "READER-ERROR", "line 1, column 8", "Hint: remove it"),
    ('(print "abc)', "END-OF-FILE", "line 1, column 8", 'add "'),
    ("(list #| open)", "END-OF-FILE", "line 1, column 7", "add |#"),
]


@pytest.mark.parametrize(("code", "kind", "place", "hint"), UNBALANCED)
def test_unbalanced_text_is_refused_before_anything_runs(
    code: str, kind: str, place: str, hint: str
) -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text("(defvar *ran* nil)")
            refused = await client.error(f"(setf *ran* t) {code}")
            assert refused.startswith(f"[ERROR] {kind}\n")
            assert hint in refused
            assert refused.endswith("Nothing was evaluated.")
            assert place in await client.error(code)
            assert await client.text("*ran*") == "=> NIL"

    run(main())


BALANCED = [
    ("(list #\\( #\\) #\\;)", "=> (#\\( #\\) #\\;)"),
    ('(length "a ) b")', "=> 5"),
    ('(length "a \\" ) b")', "=> 7"),
    ("(length '(|)| \\( a)) ; )", "=> 3"),
    ("#| ( #| ( |# |# 7", "=> 7"),
    ("'|a\\|)|", "=> |a\\|)|"),
]


@pytest.mark.parametrize(("code", "expected"), BALANCED)
def test_parentheses_that_are_none(code: str, expected: str) -> None:
    async def main() -> None:
        async with lisp() as client:
            assert await client.text(code) == expected

    run(main())


def test_a_session_with_reader_macros_of_its_own_may_look_unbalanced() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text("(set-macro-character #\\] (lambda (s c) (read s) 9))")
            await client.text("(set-macro-character #\\) (get-macro-character #\\)))")
            assert await client.text("]( 1 2 )") == "=> 9"
            assert "unclosed" not in (await client.result("]("))["content"][0]["text"]

    run(main())


ERRORS = [
    ("(car 5)", "TYPE-ERROR", ["(CAR 5)"]),
    ("(no-such-function 1 2)", "UNDEFINED-FUNCTION", ["(NO-SUCH-FUNCTION 1 2)"]),
    ("no-such-variable", "UNBOUND-VARIABLE", ["NO-SUCH-VARIABLE"]),
    ('(error "plain ~A" 1)', "SIMPLE-ERROR", ['(ERROR "plain ~A" 1)']),
    ("(let ((x 0)) (/ 1 x))", "DIVISION-BY-ZERO", ["(LET ((X 0)) (/ 1 X))"]),
    ("(aref (vector 1 2) 7)", "SB-INT:INVALID-ARRAY-INDEX-ERROR", ["(AREF #(1 2) 7)"]),
    (
        '(defun inner (y) (error "no ~A" y)) (defun outer (x) (1+ (inner x))) (outer 3)',
        "SIMPLE-ERROR",
        ["(INNER 3)", "(OUTER 3)"],
    ),
    ("(unknown-package:symbol)", "SB-INT:SIMPLE-READER-PACKAGE-ERROR", []),
    ("(break)", "SIMPLE-CONDITION", ["(BREAK)"]),
    ("(define-condition mine (error) ()) (error 'mine)", "MINE", ["(ERROR (QUOTE MINE))"]),
]


@pytest.mark.parametrize(("code", "kind", "frames"), ERRORS)
def test_errors_have_their_type_and_the_frames_of_the_program(
    code: str, kind: str, frames: list[str]
) -> None:
    async def main() -> None:
        async with lisp() as client:
            result = await client.result(code)
            error = result["structuredContent"]["error"]
            assert error["type"] == kind
            assert error["frames"][: len(frames)] == frames
            shown = text_of(result)
            assert f"[ERROR] {kind}\n" in shown
            trace = "\n".join(f"{n}: {frame}" for n, frame in enumerate(error["frames"]))
            assert shown.endswith(f"\n\n[Backtrace]\n{trace}")
            assert "DOVETAIL" not in shown

    run(main())


def test_a_signal_that_nobody_handles_is_no_error() -> None:
    async def main() -> None:
        async with lisp() as client:
            assert await client.text("(signal 'error)") == "=> NIL"
            assert await client.text('(handler-case (error "x") (error () :caught))') == (
                "=> :CAUGHT"
            )

    run(main())
