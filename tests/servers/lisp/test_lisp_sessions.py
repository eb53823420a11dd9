"""Sessions: separate, in order inside, in parallel beside each other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from lisp_support import Client, lisp, text_of

from support import ALL, run


def call(client: Client, code: str, **arguments: Any) -> asyncio.Future[Any]:
    """Start an evaluation without waiting for it."""
    params = {"name": "evaluate-lisp", "arguments": {"code": code, **arguments}}
    future: asyncio.Future[Any] = client.raw.start("tools/call", params)[1]
    return future


async def running(client: Client, session: str = "default") -> None:
    """Until an evaluation of the session is under way."""
    sessions = client.raw.connection.session.server.state.sessions
    while not sessions[session].busy:  # noqa: ASYNC110 - it has no event for tests
        await asyncio.sleep(0.005)


@pytest.mark.verifies("R001-20", "S8")
@pytest.mark.parametrize("revision", ALL)
def test_sessions_are_separate(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            assert "started in" in await client.tool("create-session", session="other")
            await client.text("(defvar *x* 1)")
            await client.text("(defvar *x* 2)", session="other")
            assert await client.text("*x*") == "=> 1"
            assert await client.text("*x*", session="other") == "=> 2"
            listed = await client.tool("list-sessions")
            assert '"default"' in listed
            assert '"other"' in listed
            await client.tool("close-session", session="other")
            gone = await client.error("*x*", session="other")
            assert gone.startswith("There is no session 'other'; there are: default.")

    run(main())


@pytest.mark.verifies("R001-17")
def test_evaluations_of_a_session_run_in_order() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text("(defvar *seen* nil)")
            codes = [f"(progn (sleep {0.02 if n % 2 else 0}) (push {n} *seen*))" for n in range(8)]
            await asyncio.gather(*(call(client, code) for code in codes))
            assert await client.text("(reverse *seen*)") == "=> (0 1 2 3 4 5 6 7)"

    run(main())


@pytest.mark.verifies("D-order")
@pytest.mark.parametrize("revision", ALL)
def test_nothing_else_waits_for_an_evaluation(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            await client.tool("create-session", session="other")
            slow = call(client, "(loop)", timeout=60)
            await running(client)
            if revision != "2026-07-28":
                assert await client.raw.request("ping") == {}
            assert (await client.raw.request("tools/list"))["tools"]
            assert await client.text("(+ 1 2)", session="other") == "=> 3"
            assert '"busy"' in await client.tool("list-sessions")
            assert not slow.done()
            assert "restarted" in await client.tool("restart-session")
            assert "[SESSION LOST]" in text_of((await slow)["result"])
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_sessions_run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for a file that another one writes: one after the other would never end."""

    async def main() -> None:
        async with lisp() as client:
            names = [f"s{n}" for n in range(4)]
            for name in names:
                await client.tool("create-session", session=name)
            wait = '(loop until (probe-file "{0}/{1}") do (sleep 0.005))'
            touch = '(with-open-file (s "{0}/{1}" :direction :output))'
            codes = {
                name: touch.format(tmp_path, name) + wait.format(tmp_path, names[n - 1]) + f"{n}"
                for n, name in enumerate(names)
            }
            answers = await asyncio.gather(
                *(call(client, code, session=name) for name, code in codes.items())
            )
            texts = [text_of(answer["result"]) for answer in answers]
            assert texts == ["=> 0", "=> 1", "=> 2", "=> 3"]

    run(main())


BAD_NAMES = ["", "a b", "../x", "x" * 65, "ä"]


def test_mistakes_with_sessions_are_explained() -> None:
    async def main() -> None:
        async with lisp(max_sessions=2) as client:

            async def refused(tool: str, **arguments: Any) -> str:
                result = await client.raw.call(tool, arguments)
                assert result["isError"] is True
                return text_of(result)

            for name in BAD_NAMES:
                assert "is no name for a session" in await refused("create-session", session=name)
            assert "already" in await refused("create-session", session="default")
            await client.tool("create-session", session="second")
            assert "max-sessions" in await refused("create-session", session="third")
            for tool in ("close-session", "restart-session", "replay-session"):
                assert "There is no session 'no'" in await refused(tool, session="no")
            # The default session can be closed, and is there again, without its state.
            await client.text("(defvar *x* 1)")
            await client.tool("close-session", session="default")
            assert "UNBOUND-VARIABLE" in await client.error("*x*")

    run(main())


def test_a_session_can_have_limits_of_its_own() -> None:
    async def main() -> None:
        async with lisp() as client:
            limits = {"session": "small", "heap-mb": 128, "timeout": 0.2}
            assert (await client.raw.call("create-session", limits))["isError"] is False
            heap = await client.text("(sb-ext:dynamic-space-size)", session="small")
            assert heap == f"=> {128 * 1024 * 1024}"
            assert "exceeded 0.2 seconds" in await client.error("(loop)", session="small")
            assert await client.text("(sb-ext:dynamic-space-size)") == f"=> {512 * 1024 * 1024}"

    run(main())


def test_nothing_starts_before_it_is_needed() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.raw.request("ping")
            await client.raw.request("tools/list")
            listed = (await client.raw.call("list-sessions"))["structuredContent"]["sessions"]
            assert [(one["name"], one["state"]) for one in listed] == [("default", "not started")]
            assert listed[0]["pid"] is None

    run(main())
