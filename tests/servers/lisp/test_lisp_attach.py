"""Attaching to an image that somebody else runs, through a socket of our own."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lisp_support import Client, lisp, text_of

from dovetail.servers.lisp.attach import Target, parse_target
from dovetail.servers.lisp.limits import LispLimits
from dovetail.servers.lisp.sbcl import BRIDGE
from dovetail.servers.lisp.sessions import Config
from support import ALL, run

DEVELOPER = """
(load "{bridge}")
(defvar *counter* 5)
(defun bump () (incf *counter*))
(defclass point () ((x :initarg :x :reader point-x)))
(defstruct box content)
(defvar *point* (make-instance 'point :x 7))
(defvar *box* (make-box :content 8))
(defvar *functions* (list #'bump))
(dovetail-lisp:listen-on "{socket}")
(format t "ready~%")
(finish-output)
(read-line)
"""


@contextlib.contextmanager
def developer(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A Lisp as a developer runs it: the path of its socket, and the process."""
    socket = str(folder / "lisp.sock")
    script = folder / "start.lisp"
    script.write_text(DEVELOPER.format(bridge=BRIDGE / "bridge.lisp", socket=socket))
    command = ["sbcl", "--noinform", "--no-sysinit", "--no-userinit", "--disable-debugger"]
    process = subprocess.Popen(
        [*command, "--load", str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
        yield socket, process
    finally:
        process.kill()
        process.communicate()


def config(socket: str, read_write: bool = False, **limits: float) -> Config:
    target = Target("live", "socket", socket, read_write)
    return Config(targets=(target,), limits=LispLimits(**limits))  # type: ignore[arg-type]


async def live(client: Client, code: str, **arguments: Any) -> str:
    return text_of(await client.result(code, session="live", **arguments))


@pytest.mark.parametrize("revision", ALL)
def test_reading_and_writing(revision: str, tmp_path: Path) -> None:
    async def main() -> None:
        with developer(tmp_path) as (socket, process):
            async with lisp(revision, config(socket, read_write=True)) as client:
                assert await live(client, "(bump)") == "=> 6"
                assert await live(client, "(defun new () :made)") == "=> NEW"
                assert (await live(client, "(/ 1 0)")).startswith("[ERROR] DIVISION-BY-ZERO\n")
                assert "[TIMEOUT]" in await live(client, "(loop)", timeout=0.2)
                assert await live(client, "(list *counter* (new))") == "=> (6 :MADE)"
                # Our own session knows nothing of it.
                assert "UNBOUND-VARIABLE" in await client.error("*counter*")
                assert "runs on" in await client.tool("close-session", session="live")
            assert process.poll() is None
            # Another client finds what the first one did.
            async with lisp(revision, config(socket, read_write=True)) as client:
                assert await live(client, "(new)") == "=> :MADE"

    run(main())


def test_the_tool_attaches_too(tmp_path: Path) -> None:
    async def main() -> None:
        with developer(tmp_path) as (socket, _):
            async with lisp() as client:
                given = {"session": "live", "kind": "socket", "address": socket}
                assert "reading only" in await client.tool("attach-session", **given)
                assert await live(client, "*counter*") == "=> 5"
                listed = (await client.raw.call("list-sessions"))["structuredContent"]["sessions"]
                assert [one["readOnly"] for one in listed] == [False, True]
                missing = await client.raw.call(
                    "attach-session", {**given, "session": "no", "address": "/no/such"}
                )
                assert missing["isError"] is True
                assert "listen-on" in text_of(missing)
                assert "no" not in [one["name"] for one in listed]

    run(main())


def test_only_its_owner_may_use_the_socket(tmp_path: Path) -> None:
    with developer(tmp_path) as (socket, _):
        assert stat.S_IMODE(os.stat(socket).st_mode) == 0o600


READS = [
    ("*counter*", "=> 5"),
    ("(+ *counter* 1)", "=> 6"),
    ('(list 1 (car \'(2)) "3")', '=> (1 2 "3")'),
    ("(point-x *point*)", "=> 7"),
    ("(box-content *box*)", "=> 8"),
    ("(slot-value *point* 'x)", "=> 7"),
    ("(mapcar #'1+ '(1 2))", "=> (2 3)"),
    ("(let ((y 3)) (loop for i below y collect (* i i)))", "=> (0 1 4)"),
    ("(flet ((f (x) (* 2 x))) (f 4))", "=> 8"),
    ("(find 2 '(1 2 3) :key #'identity :test #'=)", "=> 2"),
    ('(format nil "~A" *counter*)', '=> "5"'),
    ("(funcall (lambda (x) (1+ x)) 1)", "=> 2"),
    ("(documentation 'car 'function)", None),
    ("(describe 'bump)", None),
    ('(handler-case (error "x") (error () :handled))', "=> :HANDLED"),
]
REFUSED = [
    "(setf *counter* 0)",
    "(bump)",
    "(defun bump () 0)",
    "(funcall 'bump)",
    "(funcall (first *functions*))",
    "(mapcar #'bump '())",
    "(apply #'bump ())",
    "(let ((x (bump))) x)",
    "(eval '(bump))",
    '(list (quote 1) (delete-file "/tmp/x"))',
    '(load "/tmp/x.lisp")',
    '(sb-ext:run-program "/bin/true" ())',
    "(sb-ext:exit)",
    "(quit)",
    "(find 1 '(1) :key 'bump)",
    "(find 1 '(1) :key (first *functions*))",
    '(format *error-output* "x")',
    "(print 1 *standard-output*)",
    "#.(bump)",
    "(incf *counter*)",
    "(push 1 *functions*)",
    "(let ((f #'bump)) (funcall f))",
    "(macrolet ((m () '(bump))) (m))",
    "(make-instance 'point)",
    "(sort (list 3 1) #'<)",
    "(in-package :keyword)",
    '(with-open-file (s "/tmp/x" :direction :output))',
]


def test_a_read_only_session_looks_and_does_not_touch(tmp_path: Path) -> None:
    async def main() -> None:
        with developer(tmp_path) as (socket, _):
            async with lisp(config=config(socket)) as client:
                for code, expected in READS:
                    result = await client.result(code, session="live")
                    assert result["isError"] is False, (code, result)
                    if expected is not None:
                        assert text_of(result) == expected, code
                for code in REFUSED:
                    result = await client.result(code, session="live")
                    assert result["isError"] is True, code
                    shown = text_of(result)
                    assert "READ-ONLY" in shown or "READER-ERROR" in shown, (code, shown)
                assert await live(client, "*counter*") == "=> 5"

    run(main())


def test_an_image_that_goes_away_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        with developer(tmp_path) as (socket, process):
            async with lisp(config=config(socket, read_write=True)) as client:
                assert await live(client, "*counter*") == "=> 5"
                process.kill()
                process.wait()
                shown = await live(client, "*counter*")
                assert "Cannot attach to the socket" in shown or "[SESSION LOST]" in shown
                assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_code_that_does_not_react_is_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        with developer(tmp_path) as (socket, process):
            async with lisp(config=config(socket, read_write=True, grace=0.1)) as client:
                code = "(sb-sys:without-interrupts (loop until (eql *counter* :stop)))"
                shown = await live(client, code, timeout=0.2)
                assert "[TIMEOUT]" in shown
                assert process.poll() is None
                assert await live(client, "(setf *counter* :stop)") == "=> :STOP"

    run(main())


def test_targets_of_the_command_line() -> None:
    assert parse_target("a=socket:/x/y") == Target("a", "socket", "/x/y")
    assert parse_target("a=socket:/x,y,rw") == Target("a", "socket", "/x,y", True)
    for wrong in ("", "a", "a=", "a=socket", "a=socket:", "=socket:/x", "a=telnet:/x"):
        with pytest.raises(ValueError, match="NAME=KIND:ADDRESS"):
            parse_target(wrong)


def test_a_wrong_option_is_a_line_and_exit_code_2() -> None:
    dovetail = str(Path(sys.executable).with_name("dovetail"))
    for options in (["--attach", "nonsense"], ["--heap-mb", "0"], ["--timeout", "soon"]):
        ran = subprocess.run(
            [dovetail, "serve", "lisp", *options],
            input="",
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert ran.returncode == 2
        assert options[1] in ran.stderr
