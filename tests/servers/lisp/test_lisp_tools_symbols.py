"""Looking at symbols, macros, classes and methods."""

from __future__ import annotations

from typing import Any

import pytest
from lisp_support import Client, lisp, text_of

from support import ALL, run

PROGRAM = """
(defvar *rate* 3 "Per hour.")
(defun price (hours) "What it costs." (* hours *rate*))
(defun invoice (hours) (list :total (price hours)))
(defmacro twice (form) `(progn ,form ,form))
(defun doubled () (twice (price 1)))
(defclass shape () ((name :initarg :name :type string :reader shape-name)))
(defclass circle (shape) ((radius :initarg :radius :initform 1)) (:documentation "Round."))
(defgeneric area (it))
(defmethod area ((it circle)) 3)
(defmethod area :around ((it shape)) (call-next-method))
"""


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.raw.call(tool, arguments)
    assert result["isError"] is True
    return text_of(result)


@pytest.mark.parametrize("revision", ALL)
def test_the_tools_of_a_lisp_programmer(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            await client.text(PROGRAM)
            assert await client.tool("describe-symbol", name="price") == (
                "COMMON-LISP-USER::PRICE [FUNCTION]\nArguments: (HOURS)\n"
                "Documentation (function): What it costs."
            )
            shown = await client.tool("describe-symbol", name="cl-user::*rate*")
            assert shown.startswith("COMMON-LISP-USER::*RATE* [VARIABLE]\nValue: 3\n")
            found = await client.tool("apropos-search", pattern="invo", package="cl-user")
            assert "COMMON-LISP-USER::INVOICE [FUNCTION]" in found
            calls = await client.tool("who-calls", name="price")
            assert calls.startswith("2 definitions calling price\n")
            assert "INVOICE (defined in this session)" in calls
            references = await client.tool("who-references", name="*rate*")
            assert "PRICE (defined in this session)" in references
            expanded = await client.tool("macroexpand-form", form="(twice (f))")
            assert expanded == "Original:\n(TWICE (F))\n\nExpanded:\n(PROGN (F) (F))"
            info = await client.raw.call("class-info", {"class": "circle"})
            shown = text_of(info)
            assert shown.startswith("COMMON-LISP-USER::CIRCLE [STANDARD-CLASS]\nRound.\n")
            assert "Superclasses: SHAPE\n" in shown
            assert "  NAME: STRING, initargs :NAME, instance, inherited" in shown
            assert "  RADIUS: T, initargs :RADIUS, instance" in shown
            methods = await client.raw.call("find-methods", {"class": "circle"})
            assert text_of(methods) == "1 method\nAREA (CIRCLE)"
            given = {"class": "circle", "include-inherited": True}
            methods = await client.raw.call("find-methods", given)
            assert "AREA :AROUND (SHAPE)" in text_of(methods)
            assert "SHAPE-NAME (SHAPE)" in text_of(methods)

    run(main())


def test_the_same_as_data() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text(PROGRAM)
            described = await client.raw.call("describe-symbol", {"name": "car"})
            data = described["structuredContent"]
            assert data["name"] == "COMMON-LISP:CAR"
            assert data["kinds"] == ["function"]
            assert data["arglist"] == "(LIST)"
            found = (await client.raw.call("apropos-search", {"pattern": "a"}))["structuredContent"]
            assert found["total"] > 1000
            assert len(found["symbols"]) == 200
            only = {"pattern": "defun", "package": "cl", "type": "macro"}
            found = (await client.raw.call("apropos-search", only))["structuredContent"]
            assert found["symbols"] == [{"name": "COMMON-LISP:DEFUN", "kinds": ["macro"]}]
            full = {"form": "(when a (unless b c))", "full": True}
            expanded = (await client.raw.call("macroexpand-form", full))["structuredContent"]
            assert "UNLESS" not in expanded["expanded"]

    run(main())


def test_what_is_not_there_is_said() -> None:
    async def main() -> None:
        async with lisp() as client:
            missing = "There is no symbol NO-SUCH in package COMMON-LISP-USER."
            assert missing in await refused(client, "describe-symbol", name="no-such")
            assert "does not exist" in await refused(client, "describe-symbol", name="no:such")
            assert "There is no class named" in await refused(
                client, "class-info", **{"class": "car"}
            )
            wrong = await refused(client, "apropos-search", pattern="x", package="nowhere")
            assert wrong.startswith("[ERROR] PACKAGE-ERROR")
            assert "[ERROR]" in await refused(client, "macroexpand-form", form="(when")
            assert "NO-SUCH" not in await client.text('(list (find-symbol "NO-SUCH-EITHER"))')

    run(main())
