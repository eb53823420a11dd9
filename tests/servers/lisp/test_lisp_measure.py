"""Profiles, memory, and objects looked into by handle."""

from __future__ import annotations

from typing import Any

import pytest
from lisp_support import Client, lisp, text_of

from support import ALL, run

SLOW = """
(defun burn (n)
  (declare (type (unsigned-byte 32) n))
  (let ((sum 0))
    (declare (type (unsigned-byte 32) sum))
    (dotimes (i n sum) (setf sum (mod (+ (* 31 sum) i) 1000003)))))
(defun hot () (burn 100000000))
"""
OBJECTS = """
(defclass point () ((x :initarg :x) (y)))
(defstruct box content)
(define-condition oops (error) ((why :initarg :why)))
(defvar *table* (let ((table (make-hash-table))) (setf (gethash :a table) '(1 2)) table))
(defvar *point* (make-instance 'point :x (make-box :content *table*)))
"""


async def data(client: Client, tool: str, **arguments: Any) -> Any:
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    result = await client.raw.call(tool, given)
    assert result["isError"] is False, result
    return result["structuredContent"]


@pytest.mark.parametrize("revision", ALL)
def test_a_profile_names_what_is_slow(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            await client.text(SLOW)
            result = await client.raw.call(
                "profile-code", {"code": "(hot)", "sample-interval": 0.002}
            )
            shown = text_of(result)
            assert shown.startswith("=> ")
            assert "; Timing: " in shown
            assert "Self  " in shown
            assert "BURN" in shown

    run(main())


def test_a_profile_as_data() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text(SLOW)
            flat = await data(client, "profile-code", code="(hot)", sample_interval=0.002)
            hottest = flat["functions"][0]
            assert "BURN" in hottest["function"]
            assert hottest["samples"] > 10
            assert hottest["percent"] > 50
            for mode in ("time", "alloc"):
                code = "(progn (burn 1000000) (length (make-list 1000000)))"
                given = {"mode": mode, "report_type": "graph"}
                profile = await data(client, "profile-code", code=code, **given)
                assert profile["values"] == ["1000000"]
                assert "Callers" in profile["report"]
            wrong = await client.raw.call("profile-code", {"code": "(/ 1 0)"})
            assert "DIVISION-BY-ZERO" in text_of(wrong)
            late = await client.raw.call("profile-code", {"code": "(loop)", "timeout": 0.2})
            assert "[TIMEOUT]" in text_of(late)
            # The profiler is off again, and can be used again.
            assert await client.text("(+ 1 2)") == "=> 3"
            again = await data(client, "profile-code", code="(hot)", sample_interval=0.002)
            assert "BURN" in again["functions"][0]["function"]

    run(main())


@pytest.mark.parametrize("revision", ALL)
def test_memory(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision, heap_mb=256) as client:
            shown = await client.tool("memory-report")
            assert " of 256 MB used" in shown
            assert "Dynamic space usage is:" in shown

    run(main())


def test_memory_as_data() -> None:
    async def main() -> None:
        async with lisp(heap_mb=256) as client:
            await client.text("(defvar *big* (make-array 5000000))")
            full = (await data(client, "memory-report", gc_first=True))["heap"]
            assert full["size"] == 256 << 20
            await client.text("(setf *big* nil * nil ** nil *** nil / nil // nil /// nil)")
            await client.text("1 2 3")
            less = (await data(client, "memory-report", gc_first=True))["heap"]
            assert full["used"] - less["used"] > 30_000_000
            brief = await data(client, "memory-report", verbosity="minimal")
            much = await data(client, "memory-report", verbosity="full")
            assert len(brief["report"]) < len(much["report"])

    run(main())


@pytest.mark.parametrize("revision", ALL)
def test_an_object_is_looked_into_step_by_step(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            await client.text(OBJECTS)
            shown = await client.tool("inspect-object", code="*point*")
            assert shown.startswith("#1 [POINT]\n#<POINT ")
            assert "Parts: 2\n  X: #S(BOX :CONTENT #<HASH-TABLE" in shown
            assert "  [#2]\n  Y: unbound" in shown
            shown = await client.tool("inspect-object", handle=2)
            assert shown.startswith("#2 [BOX]\n")
            assert "  CONTENT: #<HASH-TABLE" in shown
            shown = await client.tool("inspect-object", handle=3)
            assert "Parts: 1\n  :A: (1 2)  [#4]" in shown
            shown = await client.tool("inspect-object", handle=4)
            assert shown.endswith("(1 2)\nParts: 2\n  0: 1\n  1: 2")
            assert await client.text("(eq (mcp:object 1) *point*)") == "=> T"
            missing = await client.raw.call("inspect-object", {"handle": 99})
            assert missing["isError"] is True
            assert "There is no object 99" in text_of(missing)

    run(main())


KINDS = [
    ("(list* 1 2 3)", ["0", "1", "rest"]),
    ("(let ((c (list 1 2))) (setf (cddr c) c))", ["0", "1", "rest"]),
    ("#(1 2)", ["0", "1"]),
    ("(make-array '(2 2) :initial-element 0)", ["0", "1", "2", "3"]),
    ("'car", ["name", "package", "function"]),
    ("nil", ["name", "package", "value"]),
    ("#'car", ["name", "arguments", "type"]),
    ("#'print-object", ["name", "arguments", "type", "methods"]),
    ("(find-package :cl-user)", ["name", "uses", "used by", "nicknames"]),
    ("(make-condition 'oops :why 1)", ["WHY"]),
    ('"text"', []),
    ("12", []),
    ("#\\a", []),
]


def test_objects_of_all_kinds() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text(OBJECTS)
            for code, labels in KINDS:
                seen = await data(client, "inspect-object", code=code)
                assert [part["label"] for part in seen["parts"]] == labels, code
            long = await data(
                client, "inspect-object", code="(coerce #(0 1 2 3 4) 'list)", start=2, count=2
            )
            assert (long["total"], long["start"]) == (5, 2)
            assert [part["value"] for part in long["parts"]] == ["2", "3"]

    run(main())


def test_handles_end_and_broken_objects_do_no_harm() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text(OBJECTS)
            await client.text('(defmethod print-object ((p point) s) (error "no"))')
            shown = await client.tool("inspect-object", code="*point*")
            assert "#<POINT: error printing object" in shown
            many = "(loop repeat 1000 collect (list 1))"
            await data(client, "inspect-object", code=many, count=1000)
            gone = await client.raw.call("inspect-object", {"handle": 1})
            assert "only the newest 1000 handles are kept" in text_of(gone)
            for wrong in ({}, {"code": "1", "handle": 1}):
                assert (await client.raw.call("inspect-object", wrong))["isError"] is True
            assert "Package NO-SUCH does not exist" in text_of(
                await client.raw.call("inspect-object", {"code": "no-such:thing"})
            )

    run(main())
