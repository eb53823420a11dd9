"""Attaching to an image through Swank, beside another client of the same image."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
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

SWANK = Path("/usr/share/common-lisp/source/slime/swank-loader.lisp")

DEVELOPER = """
(load "{loader}")
(let ((*standard-output* (make-broadcast-stream)) (*error-output* (make-broadcast-stream)))
  (funcall (intern "INIT" "SWANK-LOADER")))
{more}
(defvar *counter* 5)
(defun bump () (incf *counter*))
(defun port-of-server ()
  (funcall (intern "CREATE-SERVER" "SWANK") :port 0 :dont-close t :style {style}))
(format t "~&port ~D~%" (let ((*standard-output* (make-broadcast-stream))) (port-of-server)))
(finish-output)
{wait}
"""


@pytest.fixture(scope="module")
def fasls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Swank compiled once for all tests of this file."""
    return tmp_path_factory.mktemp("fasls")


@contextlib.contextmanager
def developer(
    folder: Path,
    fasls: Path,
    more: str = "",
    style: str = ":spawn",
    wait: str = "(read-line)",
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A Lisp with Swank as Debian ships it: its port, and the process."""
    script = folder / "start.lisp"
    script.write_text(DEVELOPER.format(loader=SWANK, more=more, style=style, wait=wait))
    command = ["sbcl", "--noinform", "--no-sysinit", "--no-userinit", "--disable-debugger"]
    process = subprocess.Popen(
        [*command, "--load", str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"HOME": str(folder), "XDG_CACHE_HOME": str(fasls), "PATH": "/usr/bin:/bin"},
    )
    try:
        assert process.stdout is not None
        seen = []
        while not (found := re.match(r"port (\d+)", line := process.stdout.readline())):
            seen.append(line)
            assert process.poll() is None, "".join(seen)
        yield int(found[1]), process
    finally:
        process.kill()
        process.communicate()


class Emacs:
    """Another client of the same image, which speaks Swank as Emacs does."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._stream = self._socket.makefile("rb")
        self._id = 0

    def send(self, text: str) -> None:
        data = text.encode()
        self._socket.sendall(b"%06x" % len(data) + data)

    def receive(self) -> str:
        return self._stream.read(int(self._stream.read(6), 16)).decode()

    def start(self, form: str) -> None:
        self._id += 1
        self.send(f'(:emacs-rex {form} "COMMON-LISP-USER" t {self._id})')

    def until(self, start: str) -> str:
        while not (text := self.receive()).startswith(start):
            pass
        return text

    def evaluate(self, code: str) -> str:
        quoted = code.replace("\\", "\\\\").replace('"', '\\"')
        self.start(f'(swank:eval-and-grab-output "{quoted}")')
        return self.until("(:return ")

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def config(port: int, read_write: bool = False, kind: str = "swank", **limits: float) -> Config:
    target = Target("live", kind, f"127.0.0.1:{port}", read_write)
    return Config(targets=(target,), limits=LispLimits(**limits))  # type: ignore[arg-type]


async def live(client: Client, code: str, **arguments: Any) -> str:
    return text_of(await client.result(code, session="live", **arguments))


THREADS = """
(list :ours (count-if (lambda (thread) (search "mcp" (sb-thread:thread-name thread)))
                      (sb-thread:list-all-threads)))"""


@pytest.mark.parametrize("revision", ALL)
def test_a_session_beside_emacs(revision: str, tmp_path: Path, fasls: Path) -> None:
    async def main() -> None:
        with developer(tmp_path, fasls) as (port, process):
            emacs = Emacs(port)
            # It waits in its debugger while we work, and is none the worse for it.
            emacs.start('(swank:eval-and-grab-output "(/ 1 0)")')
            assert "DIVISION-BY-ZERO" in emacs.until("(:debug ")
            async with lisp(revision, config(port, read_write=True)) as client:
                assert await live(client, "(bump)") == "=> 6"
                assert await live(client, '(princ "hallo") (floor 7 2)') == (
                    "[stdout]\nhallo\n\n=> 3\n=> 1"
                )
                assert await live(client, "(defun new () :made)") == "=> NEW"
                shown = await live(client, "(/ 1 0)")
                assert shown.startswith("[ERROR] DIVISION-BY-ZERO\n")
                assert "[Backtrace]\n0: (/ 1 0)" in shown
                assert "[TIMEOUT]" in await live(client, "(loop)", timeout=0.2)
                assert await live(client, '"ü\u20ac\\"\\\\"') == '=> "ü\u20ac\\"\\\\"'
                emacs2 = Emacs(port)
                assert '"(6 :MADE)"' in emacs2.evaluate("(list *counter* (new))")
                assert '"NEWER"' in emacs2.evaluate("(defun newer () :by-emacs)")
                assert await live(client, "(newer)") == "=> :BY-EMACS"
                emacs2.close()
                described = await client.tool("describe-symbol", name="bump", session="live")
                assert described.startswith("COMMON-LISP-USER::BUMP [FUNCTION]")
                assert "runs on" in await client.tool("close-session", session="live")
            assert process.poll() is None
            # No thread of ours is left behind, and nothing of ours was told to Emacs.
            for _ in range(100):
                if "(:OURS 0)" in (left := emacs.evaluate(THREADS)):
                    break
            assert "(:OURS 0)" in left
            emacs.close()

    run(main())


def test_the_image_is_read_only_unless_asked_otherwise(tmp_path: Path, fasls: Path) -> None:
    async def main() -> None:
        with developer(tmp_path, fasls) as (port, _):
            async with lisp() as client:
                given = {"session": "live", "kind": "swank", "address": f"127.0.0.1:{port}"}
                assert "reading only" in await client.tool("attach-session", **given)
                assert await live(client, "(+ 1 *counter*)") == "=> 6"
                for code in ("(bump)", "(setf *counter* 1)", "(defun bump ())", "(sb-ext:exit)"):
                    assert "READ-ONLY" in await live(client, code)
                for tool, arguments in (
                    ("load-file", {"path": "/x.lisp"}),
                    ("load-system", {"system-name": "x"}),
                    ("run-tests", {"code": "(bump)"}),
                    ("profile-code", {"code": "(bump)"}),
                    ("inspect-object", {"code": "(bump)"}),
                ):
                    refused = await client.raw.call(tool, {"session": "live", **arguments})
                    assert refused["isError"] is True
                    assert "read-only" in text_of(refused), tool
                assert await live(client, "*counter*") == "=> 5"

    run(main())


def test_the_debugger_cancel_and_long_texts_work_through_it(tmp_path: Path, fasls: Path) -> None:
    async def main() -> None:
        with developer(tmp_path, fasls) as (port, _):
            attached = config(port, read_write=True, max_output=3_000_000)
            async with lisp(config=attached) as client:
                code = '(+ 1 (restart-case (error "no") (use-value (v) v) (one () 1)))'
                result = await client.result(code, session="live", debug=True)
                token = result["structuredContent"]["suspended"]
                assert await live(client, "(+ 1 1)") == "=> 2"  # meanwhile
                given = {"suspended": token, "restart": 1, "session": "live"}
                assert await client.tool("invoke-restart", **given) == "=> 2"
                long = await live(client, '(dotimes (i 400000) (princ "ä\\"€x\\\\y"))')
                assert long == "[stdout]\n" + 'ä"€x\\y' * 400_000 + "\n\n=> NIL"
                sent = "x" * 1_200_000
                assert await live(client, f'(length "{sent}")') == "=> 1200000"
                request, future = client.raw.start(
                    "tools/call",
                    {"name": "evaluate-lisp", "arguments": {"code": "(loop)", "session": "live"}},
                )
                client.raw.notify("notifications/cancelled", {"requestId": request})
                assert await live(client, "*counter*") == "=> 5"
                future.cancel()

    run(main())


def test_what_is_wrong_is_said(tmp_path: Path, fasls: Path) -> None:
    async def main() -> None:
        async with lisp() as client:

            async def refused(**given: Any) -> str:
                result = await client.raw.call("attach-session", {"session": "live", **given})
                assert result["isError"] is True
                return text_of(result)

            nobody = socket.create_server(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            nobody.close()
            shown = await refused(kind="swank", address=f"127.0.0.1:{port}")
            assert "(swank:create-server :port 4005 :dont-close t)" in shown
            assert "slynk" in await refused(kind="slynk", address="127.0.0.1:no-port")
            events = "(loop (sb-sys:serve-all-events 1))"
            other_style = developer(tmp_path, fasls, style=":fd-handler", wait=events)
            with other_style as (port, _):
                shown = await refused(kind="swank", address=str(port))
                assert "style is FD-HANDLER" in shown
            other = "(defpackage :dovetail-lisp (:use :cl)) (in-package :dovetail-lisp)"
            other += '(defun tunnel-in ()) (defvar *loaded* "old") (in-package :cl-user)'
            with developer(tmp_path, fasls, more=other) as (port, _):
                assert "another version" in await refused(kind="swank", address=str(port))

    run(main())


def test_a_secret_is_told_first(
    tmp_path: Path, fasls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        (tmp_path / ".slime-secret").write_text("xyzzy\n")
        with developer(tmp_path, fasls) as (port, _):
            monkeypatch.setenv("HOME", str(tmp_path))
            async with lisp(config=config(port)) as client:
                assert await live(client, "*counter*") == "=> 5"
            monkeypatch.setenv("HOME", str(tmp_path / "stranger"))
            monkeypatch.setattr("dovetail.servers.lisp.swank._SECONDS", 1.0)  # it never answers
            async with lisp(config=config(port)) as client:
                assert "~/.slime-secret" in await live(client, "*counter*")

    run(main())


def test_an_image_that_goes_away_is_told(tmp_path: Path, fasls: Path) -> None:
    async def main() -> None:
        with developer(tmp_path, fasls) as (port, process):
            async with lisp(config=config(port, read_write=True)) as client:
                assert await live(client, "*counter*") == "=> 5"
                process.kill()
                process.wait()
                shown = await live(client, "*counter*")
                assert "Cannot attach to swank" in shown or "[SESSION LOST]" in shown
                assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_two_sessions_share_the_bridge_that_was_loaded(tmp_path: Path, fasls: Path) -> None:
    """Also where the developer has loaded it from its files."""

    async def main() -> None:
        loaded = f'(handler-bind ((warning #\'muffle-warning)) (load "{BRIDGE}/bridge.lisp"))'
        for more in ("", loaded):
            with developer(tmp_path, fasls, more=more) as (port, _):
                async with lisp(config=config(port, read_write=True)) as one:
                    assert await live(one, "(defvar *shared* 1)") == "=> *SHARED*"
                    async with lisp(config=config(port)) as two:
                        assert await live(two, "*shared*") == "=> 1"
                    assert await live(one, "(incf *shared*)") == "=> 2"

    run(main())


def test_the_bridge_goes_as_text_where_its_file_is_out_of_reach(
    tmp_path: Path, fasls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing"))
        with developer(tmp_path, fasls) as (port, _):
            async with lisp(config=config(port, read_write=True)) as client:
                assert await live(client, "(bump)") == "=> 6"
        assert not (tmp_path / "nothing").exists()

    run(main())


def test_slynk_is_spoken_to_in_its_own_package(tmp_path: Path, fasls: Path) -> None:
    """Slynk has the same packets and the same functions; here Swank goes by its name."""

    async def main() -> None:
        named = '(rename-package "SWANK" "SWANK" (list "SLYNK"))'
        with developer(tmp_path, fasls, more=named) as (port, _):
            async with lisp(config=config(port, kind="slynk", read_write=True)) as client:
                assert await live(client, "(bump)") == "=> 6"

    run(main())


def test_targets_of_the_command_line() -> None:
    assert parse_target("a=swank:127.0.0.1:4005,rw") == Target("a", "swank", "127.0.0.1:4005", True)
    assert parse_target("a=slynk:4005") == Target("a", "slynk", "4005")
