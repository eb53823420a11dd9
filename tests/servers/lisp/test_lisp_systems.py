"""Loading files and ASDF systems, looking at them, and running their tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lisp_support import lisp, text_of

from dovetail.servers.lisp.sessions import Config
from support import ALL, run

SYSTEM = """
(defsystem "orchard"
  :version "1.2" :author "Ada" :license "MIT" :description "Apples and pears."
  :depends-on ("sb-rt")
  :components ((:file "package") (:module "fruit" :components ((:file "apple"))))
  :perform (test-op (o c) (symbol-call :orchard :test)))
"""
PACKAGE = """
(defpackage :orchard (:use :cl :sb-rt) (:export #:apples #:test))
(in-package :orchard)
(defvar *wanted* 3)
(deftest three (apples) 3)
(deftest as-many-as-wanted (= (apples) *wanted*) t)
(defun test () (do-tests))
"""
APPLE = """
(in-package :orchard)
(defun apples () 3)
"""


def project(folder: Path) -> Config:
    """A folder with a system in it, where the Lisp starts."""
    (folder / "fruit").mkdir()
    (folder / "orchard.asd").write_text(SYSTEM)
    (folder / "package.lisp").write_text(PACKAGE)
    (folder / "fruit" / "apple.lisp").write_text(APPLE)
    return Config(folder=str(folder))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ASDF writes compiled files; not into the user's."""
    monkeypatch.setenv("ASDF_OUTPUT_TRANSLATIONS", f"/:{tmp_path}/fasls/")


@pytest.mark.parametrize("revision", ALL)
def test_the_life_of_a_system(revision: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with lisp(revision, project(tmp_path)) as client:
            listed = await client.tool("list-local-systems", pattern="ORCH")
            assert listed == f"Found 1 system\norchard ({tmp_path}/orchard.asd)"
            described = await client.tool("describe-system", system="orchard")
            assert described == (
                "orchard\nVersion: 1.2\nDescription: Apples and pears.\nAuthor: Ada\n"
                f"License: MIT\nFile: {tmp_path}/orchard.asd\nDepends on: sb-rt\nFiles: 2\n"
                f"  {tmp_path}/package.lisp\n  {tmp_path}/fruit/apple.lisp"
            )
            loaded = await client.raw.call("load-system", {"system-name": "orchard"})
            assert "System orchard 1.2 loaded successfully." in text_of(loaded)
            assert await client.text("(orchard:apples)") == "=> 3"
            assert "orchard [LOADED]" in await client.tool("list-local-systems", pattern="orchard")
            tested = await client.tool("run-tests", system="orchard")
            assert tested.endswith("Tests passed: 0 failed (sb-rt)")
            await client.text("(setf orchard::*wanted* 4)")
            failed = await client.raw.call("run-tests", {"system": "orchard"})
            assert failed["isError"] is True
            assert "Tests FAILED: 1 of 2 failed (sb-rt)" in text_of(failed)

    run(main())


def test_counts_are_data(tmp_path: Path) -> None:
    async def main() -> None:
        async with lisp(config=project(tmp_path)) as client:

            async def ran(**arguments: Any) -> Any:
                result = await client.raw.call("run-tests", arguments)
                return result["isError"], result.get("structuredContent", {})

            await client.raw.call("load-system", {"system-name": "orchard"})
            await client.text("(setf orchard::*wanted* 4)")
            is_error, data = await ran(system="orchard")
            assert is_error
            assert (data["framework"], data["failures"], data["total"]) == ("sb-rt", 1, 2)
            is_error, data = await ran(code="(eql (orchard:apples) 3)")
            assert (is_error, data["passed"], data["values"]) == (False, True, ["T"])
            is_error, data = await ran(code="(eql (orchard:apples) 4)")
            assert (is_error, data["passed"]) == (True, False)
            shown = '(format t "Did 3 checks.~%   Pass: 2 (66%)~%   Skip: 0 ( 0%)~%'
            shown += '   Fail: 1 (33%)~%")'
            is_error, data = await ran(code=f"{shown} t")
            assert is_error
            assert (data["framework"], data["failures"], data["total"]) == ("FiveAM", 1, 3)
            is_error, data = await ran(code="(/ 1 0)")
            assert is_error
            assert data == {}
            assert (await ran())[0]
            assert (await ran(code="1", system="x"))[0]

    run(main())


def test_a_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with lisp(config=project(tmp_path)) as client:
            (tmp_path / "one.lisp").write_text(
                '(print :loading) (defun one () (let ((unused 1)) "eins"))'
            )
            for compile in (False, True):
                await client.text("(fmakunbound 'one)")
                shown = await client.tool("load-file", path="one.lisp", compile=compile)
                assert shown.startswith("[stdout]\n\n:LOADING ")
                assert "[warnings]\nSTYLE-WARNING: The variable UNUSED is defined" in shown
                how = "Compiled and loaded" if compile else "Loaded"
                assert f"{how} {tmp_path}/one.lisp." in shown
                assert await client.text("(one)") == '=> "eins"'
            assert not (tmp_path / "one.fasl").exists()
            (tmp_path / "two.lisp").write_text("(defun two () 2)")
            await client.text("(defpackage :other (:use :cl))")
            await client.tool("load-file", path=str(tmp_path / "two.lisp"), package="other")
            assert await client.text("(other::two)") == "=> 2"
            assert await client.text("(package-name *package*)") == '=> "COMMON-LISP-USER"'

    run(main())


def test_what_was_loaded_is_replayed(tmp_path: Path) -> None:
    async def main() -> None:
        async with lisp(config=project(tmp_path)) as client:
            (tmp_path / "one.lisp").write_text("(defun one () 1)")
            await client.tool("load-file", path="one.lisp")
            await client.raw.call("load-system", {"system-name": "orchard"})
            await client.tool("restart-session")
            assert "UNDEFINED-FUNCTION" in await client.error("(one)")
            shown = await client.tool("replay-session")
            assert shown == "Evaluated 2 recorded definition forms again."
            assert await client.text("(list (one) (orchard:apples))") == "=> (1 3)"

    run(main())


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        async with lisp(config=project(tmp_path)) as client:

            async def refused(tool: str, **arguments: Any) -> str:
                given = {name.replace("_", "-"): value for name, value in arguments.items()}
                result = await client.raw.call(tool, given)
                assert result["isError"] is True
                return text_of(result)

            assert '"missing" not found' in await refused("load-system", system_name="missing")
            assert '"missing" not found' in await refused("describe-system", system="missing")
            assert "There is no such file" in await refused("load-file", path="missing.lisp")
            (tmp_path / "bad.lisp").write_text('(defun bad () (car 1 2 3)) (error "at load")')
            assert "at load" in await refused("load-file", path="bad.lisp")
            (tmp_path / "open.lisp").write_text("(defun open-ended (")
            assert "end of file" in await refused("load-file", path="open.lisp")
            (tmp_path / "fruit" / "apple.lisp").write_text("(defun apples () (oops")
            assert "[ERROR]" in await refused("load-system", system_name="orchard")
            shown = await refused("load-file", path="loop.lisp")
            assert "There is no such file" in shown
            (tmp_path / "loop.lisp").write_text("(loop)")
            assert "[TIMEOUT]" in await refused("load-file", path="loop.lisp", timeout=0.2)
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())
