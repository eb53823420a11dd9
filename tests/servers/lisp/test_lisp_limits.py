"""Limits, spool files and isolation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from lisp_support import Client, lisp, text_of

from dovetail.servers.lisp.limits import LispLimits
from dovetail.servers.lisp.process import Isolation, isolated
from dovetail.servers.lisp.sessions import Config
from support import ALL, run


def session(client: Client) -> Any:
    return client.raw.connection.session.server.state.sessions["default"]


@pytest.mark.parametrize("revision", ALL)
def test_output_is_cut_visibly_and_the_rest_is_kept(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision, max_output=10, max_value=5, max_spool=100) as client:
            result = await client.result(
                '(format t "~{~D~}" (loop for i below 30 collect i)) "0123456789"'
            )
            assert text_of(result) == (
                "[stdout]\n0123456789\n[Output truncated at 10 of 50 characters; all of it is in "
                "lisp://default/output/1/stdout]\n\n"
                '=> "0123\n[Output truncated at 5 of 12 characters; all of it is in '
                "lisp://default/output/1/value0]"
            )
            kept = session(client).outputs[1]
            assert spooled(kept["stdout"]) == "".join(map(str, range(30)))
            assert spooled(kept["value0"]) == '"0123456789"'
            more = await client.text(
                "(dolist (c (list #\\é #\\ü)) (dotimes (i 100) (write-char c)))"
            )
            assert "10 of 200 characters; the first 100 (the limit max-spool) are in" in more
            assert spooled(session(client).outputs[2]["stdout"]) == "é" * 100

    run(main())


def spooled(output: Any) -> str:
    return Path(output.spool).read_text("utf-8")


def test_old_spool_files_go_and_all_go_at_the_end() -> None:
    async def main() -> None:
        async with lisp(max_output=5, max_spools=2) as client:
            for _ in range(3):
                await client.text('(princ "0123456789")')
            outputs = session(client).outputs
            assert list(outputs) == [2, 3]
            folder.append(Path(outputs[3]["stdout"].spool).parent)
            assert len(os.listdir(folder[0])) == 2

    folder: list[Path] = []
    run(main())
    assert not folder[0].exists()


def test_spool_files_of_calls_that_came_to_no_end() -> None:
    """Kept for the history of one that was cancelled, gone with a process."""

    async def main() -> None:
        async with lisp(max_output=5, grace=0.1) as client:
            await client.error('(princ "0123456789") (loop)', timeout=0.2)
            (kept,) = session(client).outputs
            folder = Path(session(client).outputs[kept]["stdout"].spool).parent
            assert len(os.listdir(folder)) == 1
            for killer in (
                "(sb-sys:without-interrupts (loop))",
                "(sb-unix::unix-kill (sb-unix:unix-getpid) 9)",
            ):
                await client.error(f'(princ "0123456789") {killer}', timeout=0.2)
                assert len(os.listdir(folder)) == 1

    run(main())


def test_a_hundred_megabytes_stay_out_of_the_heap() -> None:
    """Counted, not timed: what the heap holds afterwards, and what the file does."""

    async def main() -> None:
        async with lisp(timeout=20) as client:
            line = "x" * 99
            used = "(progn (gc :full t) (sb-kernel:dynamic-usage))"
            before = int((await client.text(used))[3:])
            shown = await client.text(f'(dotimes (i 1000000) (write-line "{line}"))')
            assert "truncated at 100000 of 100000000 characters" in shown
            after = int((await client.text(used))[3:])
            assert after - before < 5_000_000
            output = session(client).outputs[2]["stdout"]
            assert os.stat(output.spool).st_size == LispLimits().max_spool

    run(main())


def test_heap_and_stack_are_as_asked() -> None:
    async def main() -> None:
        async with lisp(heap_mb=96, stack_mb=2) as client:
            assert await client.text("(sb-ext:dynamic-space-size)") == f"=> {96 << 20}"
            shallow = int((await client.text(DEPTH)).rpartition(" ")[2])
        async with lisp(stack_mb=8) as client:
            deep = int((await client.text(DEPTH)).rpartition(" ")[2])
        assert deep > 3 * shallow

    run(main())


DEPTH = (
    "(let ((n 0)) (handler-case (labels ((f () (incf n) (1+ (f)))) (f)) (storage-condition () n)))"
)


def test_without_isolation_code_may_do_what_the_user_may() -> None:
    async def main() -> None:
        async with lisp() as client:
            assert await client.text(NEW_PRIVILEGES) == "=> 0"
            assert "socket made" in await client.text(CONNECT)

    run(main())


NEW_PRIVILEGES = """
(with-open-file (in "/proc/self/status")
  (loop for line = (read-line in)
        when (search "NoNewPrivs:" line) do (return (values (parse-integer line :start 11)))))"""
CONNECT = """
(require :sb-bsd-sockets)
(let ((s (make-instance 'sb-bsd-sockets:inet-socket :type :datagram :protocol :udp)))
  (handler-case (progn (sb-bsd-sockets:socket-connect s #(192 0 2 1) 9) "socket made")
    (error (c) (princ-to-string c))))"""


def test_isolated_code_has_no_network_and_no_new_privileges() -> None:
    async def main() -> None:
        limits = LispLimits(heap_mb=256)
        config = Config(limits=limits, isolation=isolated(limits))
        async with lisp(config=config) as client:
            assert await client.text(NEW_PRIVILEGES) == "=> 1"
            assert "unreachable" in (await client.text(CONNECT)).lower()
            assert await client.text("(+ 1 2)") == "=> 3"
            grab = "(sb-alien:alien-sap (sb-alien:make-alien (sb-alien:unsigned 8) 2000000000))"
            assert "[ERROR]" in await client.error(grab)

    run(main())


def test_what_isolation_needs() -> None:
    assert Isolation().wrapper() == []
    assert Isolation().bridge_arguments() == ""
    everything = isolated(LispLimits(heap_mb=100))
    assert everything.wrapper()[0] == "unshare"
    assert everything.bridge_arguments() == f":address-space {700 << 20} :no-new-privileges t"


def test_core_files_are_never_written() -> None:
    async def main() -> None:
        async with lisp() as client:
            limits = await client.text(
                '(with-open-file (in "/proc/self/limits")'
                ' (loop for line = (read-line in) when (search "core" line) return line))'
            )
            assert "0                    0" in limits

    run(main())


@pytest.mark.parametrize("revision", ALL)
def test_limits_can_be_changed_while_it_runs(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            shown = await client.tool("configure-limits")
            assert "timeout: 30\nmax-output: 100000\n" in shown
            given = {"timeout": 0.2, "max-output": 5, "heap-mb": 128}
            result = await client.raw.call("configure-limits", given)
            assert "timeout: 0.2\nmax-output: 5\n" in text_of(result)
            assert "exceeded 0.2 seconds" in await client.error("(loop)")
            assert "truncated at 5 of 10" in await client.text('(princ "0123456789")')
            await client.tool("restart-session")
            assert await client.text("(sb-ext:dynamic-space-size)") == f"=> {128 << 20}"
            refused = await client.raw.call("configure-limits", {"max-output": 0})
            assert refused["isError"] is True

    run(main())


@pytest.mark.parametrize("revision", ALL)
def test_the_rest_of_a_text_is_a_resource(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision, max_output=10) as client:

            async def read(uri: str) -> Any:
                contents = (await client.raw.request("resources/read", {"uri": uri}))["contents"]
                assert contents[0]["mimeType"] == "text/plain"
                return contents[0]["text"]

            await client.text('(dotimes (i 300000) (format t "~6,\'0D~%" i))')
            uri = "lisp://default/output/1/stdout"
            whole = "".join(f"{number:06}\n" for number in range(300_000))
            first = await read(uri)
            note = f"\n[1100000 characters more: {uri}?start=1000000]"
            assert first == whole[:1_000_000] + note
            second = await read(f"{uri}?start=1000000")
            assert second == whole[1_000_000:2_000_000] + note.replace("1100000", "100000").replace(
                "?start=1000000", "?start=2000000"
            )
            assert await read(f"{uri}?start=2000000") == whole[2_000_000:]
            assert await read(f"{uri}?start=7&count=7") == "000001\n"
            for missing in ("default/output/1/stderr", "default/output/9/stdout", "no/output/1/x"):
                answer = await client.raw.answer("resources/read", {"uri": f"lisp://{missing}"})
                assert answer["error"]["code"] in (-32002, -32602)

    run(main())
