"""Cancelling, timeouts, progress and tasks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from lisp_support import Client, lisp, text_of

from support import ALL, run, until


def start(client: Client, code: str, **rest: Any) -> tuple[int, Any]:
    params = {"name": "evaluate-lisp", "arguments": {"code": code}, **rest}
    return client.raw.start("tools/call", params)  # type: ignore[no-any-return]


def session(client: Client) -> Any:
    return client.raw.connection.session.server.state.sessions["default"]


async def busy(client: Client) -> None:
    await until(lambda: session(client).busy)


async def cancelled(client: Client, code: str, marker: Path, before: str = "") -> None:
    """Cancel an evaluation that has begun: it has written the marker."""
    touch = f'(with-open-file (s "{marker}" :direction :output :if-exists :supersede))'
    id, _ = start(client, before + touch + code)
    await until(lambda: os.path.exists(marker))
    client.raw.notify("notifications/cancelled", {"requestId": id, "reason": "enough"})


STUBBORN = [
    "(loop)",
    "(sleep 100)",
    "(loop (ignore-errors (sleep 100)))",
    "(loop (handler-case (loop) (serious-condition () nil)))",
    "(loop (catch 'x (loop)))",
    "(expt 7 (expt 7 12))",
    "(unwind-protect (loop) (print 1))",
    "(sb-sys:without-interrupts (sleep 0.1))",
    '(sb-ext:run-program "/bin/sleep" (list "100"))',
    "(read-from-string (make-string 1000000000 :initial-element #\\())",
]


@pytest.mark.verifies("R001-19")
@pytest.mark.parametrize("revision", ALL)
def test_a_cancelled_evaluation_stops_and_the_session_goes_on(
    revision: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            await client.text("(defvar *kept* 1)")
            for number, code in enumerate(STUBBORN[:6]):
                await cancelled(client, code, tmp_path / str(number))
                assert await client.text("*kept*") == "=> 1", code

    run(main())


@pytest.mark.parametrize("code", STUBBORN[6:])
def test_stubborn_code_is_cancelled_too(code: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text("(defvar *kept* 1)")
            await cancelled(client, code, tmp_path / "begun")
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_without_interrupts_costs_the_process_and_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with lisp(grace=0.2) as client:
            await cancelled(client, "(sb-sys:without-interrupts (loop))", tmp_path / "begun")
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_what_a_cancelled_evaluation_had_done_is_in_the_history(tmp_path: Path) -> None:
    async def main() -> None:
        async with lisp(grace=0.2) as client:
            await client.text("(defun spin () (loop))")
            await cancelled(client, "(spin)", tmp_path / "one", '(princ "so far")')
            assert await client.text("(+ 1 2)") == "=> 3"
            shown = session(client).history[1].text
            assert shown.startswith("[CANCELLED]")
            assert shown.endswith("\n\n[stdout]\nso far\n\n[Backtrace]\n0: (SPIN)")
            stuck = "(sb-sys:without-interrupts (loop))"
            await cancelled(client, stuck, tmp_path / "two", '(princ "so far")')
            assert await client.text("(+ 1 2)") == "=> 3"
            assert "[stdout]\nso far" in session(client).history[3].text

    run(main())


def test_processes_that_the_code_started_end_with_it(tmp_path: Path) -> None:
    """Also one that has daemonised; but not one that an earlier evaluation started."""

    async def main() -> None:
        async with lisp() as client:
            await client.text(
                '(defvar *early* (sb-ext:run-program "/bin/sleep" (list "300") :wait nil))'
            )
            early = int((await client.text("(sb-ext:process-pid *early*)"))[3:])
            file = tmp_path / "pids"
            shell = f"sleep 300 & echo $! > {file}; (setsid sleep 300 & echo $! >> {file}); wait"
            await client.text("(sleep 0.1)")  # the clock of /proc has a coarse grain
            id, _ = start(client, f'(sb-ext:run-program "/bin/sh" (list "-c" "{shell}"))')
            await until(lambda: len(lines(file)) == 2)
            client.raw.notify("notifications/cancelled", {"requestId": id})
            assert await client.text("(+ 1 2)") == "=> 3"
            await until(lambda: not any(alive(int(pid)) for pid in lines(file)))
            assert alive(early)
        await until(lambda: not alive(early))

    run(main())


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


# -- timeouts --------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ALL)
def test_a_timeout_keeps_what_was_printed(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            shown = await client.error(
                '(princ "so far") (warn "w") (defun spin () (loop)) (spin)', timeout=0.3
            )
            assert shown.startswith("[stdout]\nso far\n\n[warnings]\nSIMPLE-WARNING: w\n\n")
            assert "\n\n[TIMEOUT] Evaluation exceeded 0.3 seconds\n" in shown
            assert "configure-limits" in shown
            assert shown.endswith("\n[Backtrace]\n0: (SPIN)")
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_a_timeout_that_costs_the_process_keeps_it_too() -> None:
    async def main() -> None:
        async with lisp(grace=0.1) as client:
            await client.text("(defun f () 1)")
            shown = await client.error(
                '(princ "so far") (sb-sys:without-interrupts (loop))', timeout=0.2
            )
            assert shown.startswith("[stdout]\nso far\n\n[TIMEOUT] Evaluation exceeded 0.2 seconds")
            assert '[SESSION LOST] The Lisp process of session "default" ended' in shown
            assert "1 function." in shown
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_a_timeout_of_zero_is_none() -> None:
    async def main() -> None:
        async with lisp(timeout=0.1) as client:
            assert await client.text("(sleep 0.3)", timeout=0) == "=> NIL"

    run(main())


# -- progress --------------------------------------------------------------------------------


@pytest.mark.verifies("R001-18")
@pytest.mark.parametrize("revision", ALL)
def test_progress_of_the_code_and_of_its_output(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            code = (
                '(dotimes (i 3) (mcp:progress i 3 (format nil "step ~D" i)) (sleep 0.03))'
                ' (format t "printed~%") (sleep 0.5) :done'
            )
            _, future = start(client, code, _meta={"progressToken": "p"})
            answer = await future
            assert text_of(answer["result"]) == "[stdout]\nprinted\n\n=> :DONE"
            notes = await client.raw.settle()
            assert {note["method"] for note in notes} == {"notifications/progress"}
            params = [note["params"] for note in notes]
            numbers = [one["progress"] for one in params]
            assert numbers == sorted(set(numbers))
            told = [one for one in params if one["progress"] in (0, 1, 2)]
            assert [one["total"] for one in told] == [3, 3, 3]
            if revision != "2024-11-05":
                assert [one["message"] for one in told] == ["step 0", "step 1", "step 2"]
                assert any(one["message"].endswith(": printed") for one in params)

    run(main())


def test_nobody_is_told_who_did_not_ask() -> None:
    async def main() -> None:
        async with lisp() as client:
            assert await client.text("(mcp:progress 1 2) (sleep 0.3) 1") == "=> 1"
            assert await client.raw.settle() == []

    run(main())


def test_a_flood_of_progress_is_thinned_and_its_last_is_said() -> None:
    async def main() -> None:
        async with lisp() as client:
            code = "(dotimes (i 100000) (mcp:progress (1+ i) 100000)) :done"
            _, future = start(client, code, _meta={"progressToken": 1})
            assert text_of((await future)["result"]) == "=> :DONE"
            notes = await client.raw.settle()
            assert len(notes) < 100
            assert notes[-1]["params"]["progress"] == 100000

    run(main())


def test_progress_that_makes_no_sense_harms_nobody() -> None:
    async def main() -> None:
        async with lisp() as client:
            code = "(mcp:progress 5 3) (mcp:progress 1) (mcp:progress 1/3 2.5d0 :note) :done"
            _, future = start(client, code, _meta={"progressToken": 1})
            assert text_of((await future)["result"]) == "=> :DONE"
            for wrong in (":many", "0 :all", "sb-ext:double-float-positive-infinity"):
                refused = await client.error(f"(mcp:progress {wrong})")
                assert "TYPE-ERROR" in refused

    run(main())


# -- tasks -----------------------------------------------------------------------------------


def test_an_evaluation_can_be_a_task() -> None:
    async def main() -> None:
        async with lisp("2025-11-25") as client:
            params = {"name": "evaluate-lisp", "arguments": {"code": "(sleep 0.1) 42"}, "task": {}}
            made = await client.raw.request("tools/call", params)
            id = made["task"]["taskId"]
            result = await client.raw.request("tasks/result", {"taskId": id})
            assert text_of(result) == "=> 42"

    run(main())


def test_a_cancelled_task_stops_its_evaluation() -> None:
    async def main() -> None:
        async with lisp("2025-11-25") as client:
            await client.text("(defvar *kept* 1)")
            params = {"name": "evaluate-lisp", "arguments": {"code": "(loop)"}, "task": {}}
            made = await client.raw.request("tools/call", params)
            await busy(client)
            await client.raw.request("tasks/cancel", {"taskId": made["task"]["taskId"]})
            assert await client.text("*kept*") == "=> 1"

    run(main())


def test_a_modern_client_gets_a_task_if_it_can_take_one() -> None:
    async def main() -> None:
        extension = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        async with lisp("2026-07-28", capabilities=extension) as client:
            params = {"name": "evaluate-lisp", "arguments": {"code": "(+ 40 2)"}}
            made = await client.raw.request("tools/call", params)
            assert made["resultType"] == "task"

    run(main())
