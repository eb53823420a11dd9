"""Whatever kills the Lisp: the answer says so, a new one is there, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lisp_support import Client, lisp, text_of
from process import Process

from support import ALL, run, until

DOVETAIL = Path(sys.executable).with_name("dovetail")
LOST = '[SESSION LOST] The Lisp process of session "default" ended ('
KILLERS = [
    ("(exit)", "exit code 0, the code asked for it"),
    ("(exit :code 3)", "exit code 3, the code asked for it"),
    ("(exit :code 4 :abort t)", "exit code 4"),
    ("(let ((l nil)) (loop (push 1 l)))", "heap exhausted during garbage collection"),
    (
        '(sb-ext:run-program "/bin/kill" (list "-9" (format nil "~D" (sb-posix:getpid))))',
        "signal 9, SIGKILL",
    ),
    ("(sb-unix::posix-exit 7)", None),
]


def session(client: Client) -> Any:
    return client.raw.connection.session.server.state.sessions["default"]


@pytest.mark.parametrize("revision", ALL)
def test_a_loss_is_told_and_the_definitions_come_back(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            await client.text("(defpackage :mine (:use :cl)) (in-package :mine)")
            await client.text("(defun f (x) (1+ x)) (defvar *y* 5) (print :no-definition)")
            await client.text("(defun f (x) (+ 2 x))")
            shown = await client.error('(princ "last words") (sb-ext:exit :code 3)')
            assert shown.startswith(f"[stdout]\nlast words\n\n{LOST}exit code 3")
            assert "A fresh one was started in" in shown
            assert "1 package, 1 other form, 1 variable, 1 function" in shown
            assert "replay-session to evaluate the 4 recorded definition forms" in shown
            assert "UNDEFINED-FUNCTION" in await client.error("(f 1)")
            replayed = await client.tool("replay-session")
            assert replayed == "Evaluated 4 recorded definition forms again."
            assert await client.text("(list (f 1) *y* (package-name *package*))") == (
                '=> (3 5 "MINE")'
            )

    run(main())


@pytest.mark.parametrize(("code", "reason"), KILLERS[:5])
def test_the_reason_is_named(code: str, reason: str) -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text("(require :sb-posix)")
            shown = await client.error(code)
            assert f"{LOST}{reason}" in shown
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_a_loss_between_two_calls_is_told_by_the_next() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text("(defun f () 1)")
            image = session(client).image
            os.kill(image.pid, signal.SIGKILL)
            await until(lambda: image.lost)
            result = await client.result("(+ 1 2)")
            assert result["isError"] is False
            shown = text_of(result)
            assert shown.startswith(f"{LOST}signal 9, SIGKILL)")
            assert shown.endswith("\n\n=> 3")
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_after_repeated_losses_the_next_start_waits_but_comes() -> None:
    async def main() -> None:
        async with lisp(max_losses=2, max_delay=0.4) as client:
            assert "A fresh one was started" in await client.error("(exit)")
            shown = await client.error("(exit)")
            assert "It happened 2 times within 60 s: the next one starts in 0.4 s." in shown
            place = session(client)
            assert place.image is None
            assert await client.text("(+ 1 2)") == "=> 3"
            # Asked for, it starts at once, and all is forgiven.
            assert "starts in 0.4 s" in await client.error("(exit)")
            assert "restarted in" in await client.tool("restart-session")
            assert place.image is not None
            assert "A fresh one was started" in await client.error("(exit)")

    run(main())


def test_a_failed_replay_names_what_failed() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text("(defvar *a* 1)")
            await client.text("(setf (symbol-value '*hidden*) 2) (defvar *b* (1+ *hidden*))")
            await client.text("(defvar *c* 3)")
            await client.tool("restart-session")
            result = await client.raw.call("replay-session")
            assert result["isError"] is True
            shown = text_of(result)
            assert shown.startswith("Evaluated 2 recorded definition forms again.\n")
            assert "[FAILED] DEFVAR *B*: The variable *HIDDEN* is unbound." in shown
            assert await client.text("(list *a* *c*)") == "=> (1 3)"

    run(main())


def test_closing_ends_what_the_code_started() -> None:
    async def main() -> None:
        async with lisp() as client:
            pids = []
            for tool in ("restart-session", "close-session"):
                shown = await client.text(
                    '(sb-ext:process-pid (sb-ext:run-program "/bin/sleep" \'("300") :wait nil))'
                )
                pids.append(int(shown.rpartition(" ")[2]))
                lisp_pid = session(client).image.pid
                await client.tool(tool, session="default")
                assert not alive(pids[-1])
                assert not alive(lisp_pid)

    run(main())


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


# -- the server as a process -----------------------------------------------------------------


def served(*options: str) -> Process:
    return Process([DOVETAIL, "serve", "lisp", *options])


def lisp_pid(process: Process) -> int:
    listed = process.request("tools/call", {"name": "list-sessions", "arguments": {}})
    return int(msgspec.json.decode(listed["content"][0]["text"])["sessions"][0]["pid"])


def gone(process: Process, *pids: int) -> None:
    process.until(lambda: not any(alive(pid) for pid in pids), f"the end of {pids}")


@pytest.mark.verifies("R001-22")
def test_the_command_serves_and_leaves_nothing_behind() -> None:
    with served() as process:
        process.initialize("2025-03-26")
        assert process.text("evaluate-lisp", code="(+ 1 2)") == "=> 3"
        pid = lisp_pid(process)
        assert alive(pid)
        assert process.finish() == 0
        gone(process, pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("code", ["1", "(loop)", "(sb-sys:without-interrupts (loop))"])
def test_no_lisp_outlives_the_server(number: int, code: str) -> None:
    with served() as process:
        process.initialize()
        process.text("evaluate-lisp", code="1")
        pid = lisp_pid(process)
        process.call("evaluate-lisp", code=code)
        process.request("ping")
        process.signal(number)
        process.wait_exit()
        gone(process, pid)


def test_the_wire_is_clean_whatever_the_code_prints() -> None:
    with served() as process:
        process.initialize()
        for code in (
            '(write-line "RAW" sb-sys:*stdout*)',
            '(sb-ext:run-program "/bin/echo" (list "RAW") :output t)',
            '(format sb-sys:*stderr* "RAW~%")',
            '(sb-ext:run-program "/bin/sh" (list "-c" "echo RAW >&1; echo RAW >&2") :output t)',
        ):
            assert "RAW\n" in process.text("evaluate-lisp", code=code)
        assert process.finish() == 0
        assert b"RAW" not in process.errors
