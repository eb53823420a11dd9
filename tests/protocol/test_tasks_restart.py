"""Tasks in SQLite outlive the process that ran them, however it ended."""

from __future__ import annotations

import signal
import sqlite3
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.spec.meta import RELATED_TASK_KEY, TASKS_EXTENSION
from dovetail.testing import envelope
from stdio.process import Process

SERVER = """
    import asyncio
    import sys

    from dovetail import Context, Elicit, Server, SqliteStore
    from msgspec import Struct

    class Name(Struct):
        name: str

    server = Server("keeper", version="1", task_store=SqliteStore(sys.argv[1]))

    @server.tool(task="optional")
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool(task="optional")
    async def forever() -> str:
        await asyncio.Event().wait()

    @server.tool(task="optional")
    async def greet(ctx: Context) -> str:
        return (await ctx.ask("who", Elicit("Who?", Name))).value.name

    server.run()
"""
LOST = "The server was restarted while the task was running"
STOPPED = "The server was stopped while the task was running"


class Keeper(Process):
    """The server above, and tasks in the words of either revision."""

    def core(self, name: str, **arguments: Any) -> str:
        params = {"name": name, "arguments": arguments, "task": {}}
        return str(self.request("tools/call", params)["task"]["taskId"])

    def modern(self, method: str, **params: Any) -> Any:
        meta = envelope(extensions={TASKS_EXTENSION: {}}, elicitation={})
        return self.request(method, {**params, "_meta": meta})

    def collected(self, id: str) -> Any:
        return self.answer(self.start("tasks/result", {"taskId": id}))

    def status(self, id: str) -> Any:
        return self.request("tasks/get", {"taskId": id})["status"]

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait_exit()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "keeper.py"
    path.write_text(textwrap.dedent(SERVER))
    return path


@contextmanager
def keeper(script: Path, *, handshake: bool = True) -> Iterator[Keeper]:
    with Keeper([script, script.with_name("tasks.db")]) as process:
        if handshake:
            process.initialize()
        yield process


def test_after_kill_9_results_are_there_and_nobody_waits_in_vain(script: Path) -> None:
    with keeper(script) as first:
        done = first.core("add", a=2, b=3)
        before = first.collected(done)["result"]
        running = first.core("forever")
        assert first.status(running) == "working"
        waiting = first.start("tasks/result", {"taskId": running})
        assert waiting
        first.kill()
    with keeper(script) as second:
        after = second.collected(done)["result"]
        assert after == before
        assert after["structuredContent"] == {"result": 5}
        assert after["_meta"] == {RELATED_TASK_KEY: {"taskId": done}}
        assert second.status(done) == "completed"
        found = second.request("tasks/get", {"taskId": running})
        assert (found["status"], found["statusMessage"]) == ("failed", LOST)
        error = second.collected(running)["error"]
        assert error["code"] == -32603
        listed = [task["taskId"] for task in second.request("tasks/list")["tasks"]]
        assert listed == [done, running]
        cancel = second.answer(second.start("tasks/cancel", {"taskId": running}))
        assert cancel["error"]["code"] == -32602, "it has ended"
        assert second.collected(second.core("add", a=1, b=1))["result"]["isError"] is False
        assert second.finish() == 0


@pytest.mark.verifies("S99", "S100")
def test_the_same_in_the_extension(script: Path) -> None:
    with keeper(script, handshake=False) as first:
        # Killed as soon as the handle is out: durable means now, not soon.
        running = first.modern("tools/call", name="forever", arguments={})["taskId"]
        asked = first.modern("tools/call", name="greet", arguments={})["taskId"]
        first.kill()
    with keeper(script, handshake=False) as second:
        for id in (running, asked):
            found = second.modern("tasks/get", taskId=id)
            assert found["status"] == "failed"
            assert found["error"]["code"] == -32603
            assert "inputRequests" not in found
        answers = {"who": {"action": "accept", "content": {"name": "Ann"}}}
        ack = second.modern("tasks/update", taskId=asked, inputResponses=answers)
        assert ack["resultType"] == "complete", "too late, and acknowledged"
        assert second.modern("tasks/get", taskId=asked)["status"] == "failed"
        assert second.finish() == 0


def test_a_server_that_is_stopped_in_order_says_so(script: Path) -> None:
    with keeper(script) as first:
        running = first.core("forever")
        assert first.finish() == 0
    with keeper(script) as second:
        assert second.status(running) == "failed"
        error = second.collected(running)["error"]
        assert (error["code"], error["data"]) == (-32603, STOPPED)


def test_a_second_server_on_the_same_file_leaves_the_tasks_of_the_first_alone(
    script: Path,
) -> None:
    with keeper(script) as first, keeper(script) as second:
        running = first.core("forever")
        assert second.status(running) == "working"
        waiting = second.start("tasks/result", {"taskId": running})
        first.kill()
        error = second.answer(waiting)["error"]
        assert error["code"] == -32603, "it waited for a process that is dead"
        assert second.status(running) == "failed"


def test_killed_at_any_moment_the_file_stays_good(script: Path) -> None:
    ids: list[str] = []
    for _ in range(3):
        with keeper(script) as process:
            ids += [process.core("add", a=len(ids), b=0) for _ in range(5)]
            # Sent, and not waited for: some of these are cut off in the middle.
            for n in range(20):
                call = {"name": "add", "arguments": {"a": n, "b": n}, "task": {}}
                process.start("tools/call", call)
            process.until(lambda p=process: not p._unsent)  # type: ignore[misc]
            process.kill()
    with keeper(script) as last:
        assert all(last.status(id) in ("completed", "failed") for id in ids)
        listed = last.request("tasks/list")["tasks"]
        assert {task["status"] for task in listed} <= {"completed", "failed"}
        assert set(ids) <= {task["taskId"] for task in listed}
        assert last.finish() == 0
    with sqlite3.connect(script.with_name("tasks.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


def test_a_file_that_is_no_store_is_a_clear_error(script: Path) -> None:
    script.with_name("tasks.db").write_text("a shopping list, not a database" * 50)
    with keeper(script, handshake=False) as process:
        assert process.wait() != 0
        text = process.errors.decode()
        assert "tasks.db" in text.splitlines()[-1]
        assert "file is not a database" in text
