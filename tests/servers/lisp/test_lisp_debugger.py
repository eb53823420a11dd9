"""Errors that stay open, and code that reads: by asking the client, or by tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lisp_support import Client, lisp, text_of

from support import ALL, run, until

ASKED = ("2025-06-18", "2025-11-25")  # by a request of the server
CODE = '(defun twice (n) (declare (optimize debug)) (* 2 (restart-case (error "no ~A" n)'
DEFINE = CODE + (
    ' (use-value (v) :report "Use another value." '
    ":interactive (lambda () (list (eval (read *query-io*)))) v)"
    ' (give-up () :report "Give up." 0))))'
)


async def suspended(client: Client, code: str = "(+ 1 (twice 5))") -> tuple[str, Any]:
    """The name of an evaluation that waits in the debugger, and the answer that said so."""
    await client.text(DEFINE)
    result = await client.result(code, debug=True)
    assert result["isError"] is True
    shown = text_of(result)
    name = shown.rpartition("[SUSPENDED] ")[2].partition(":")[0]
    return name, result


@pytest.mark.parametrize("revision", ALL)
def test_a_client_that_cannot_be_asked_uses_tools(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            name, result = await suspended(client)
            shown = text_of(result)
            assert shown.startswith("[ERROR] SIMPLE-ERROR\nno 5\n")
            assert "\n[Restarts]\n0: [USE-VALUE] Use another value." in shown
            assert "\n1: [GIVE-UP] Give up.\n" in shown
            assert "\n[Backtrace]\n0: (TWICE 5)\n" in shown
            assert await client.tool("frame-locals", suspended=name) == "N = 5"
            there = await client.tool("eval-in-frame", suspended=name, code="(list n (* n n))")
            assert there == "=> (5 25)"
            # The session is free meanwhile, and keeps what happens in it.
            assert await client.text("(defvar *x* 7)") == "=> *X*"
            done = await client.tool("invoke-restart", suspended=name, restart=0, value="(+ 3 4)")
            assert done == "=> 15"
            assert await client.text("*x*") == "=> 7"
            gone = await client.raw.call("invoke-restart", {"suspended": name, "restart": 0})
            assert gone["isError"] is True
            assert "no suspended evaluation" in text_of(gone)

    run(main())


def test_a_restart_without_a_value() -> None:
    async def main() -> None:
        async with lisp() as client:
            name, _ = await suspended(client)
            assert await client.tool("invoke-restart", suspended=name, restart=1) == "=> 1"

    run(main())


def test_abandoning_answers_with_the_error() -> None:
    async def main() -> None:
        async with lisp() as client:
            name, _ = await suspended(client)
            result = await client.raw.call("abandon", {"suspended": name})
            assert result["isError"] is True
            assert text_of(result).startswith("[ERROR] SIMPLE-ERROR\nno 5\n")
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_an_error_after_the_restart_suspends_again() -> None:
    async def main() -> None:
        async with lisp() as client:
            name, _ = await suspended(client, "(list (twice 1) (twice 2))")
            again = await client.raw.call("invoke-restart", {"suspended": name, "restart": 1})
            assert "no 2" in text_of(again)
            assert again["structuredContent"]["suspended"] == name
            assert await client.tool("invoke-restart", suspended=name, restart=1) == "=> (0 0)"

    run(main())


def test_what_goes_wrong_in_a_frame_stays_there() -> None:
    async def main() -> None:
        async with lisp(timeout=0.3) as client:
            name, _ = await suspended(client)

            async def fails(tool: str, **arguments: Any) -> str:
                result = await client.raw.call(tool, {"suspended": name, **arguments})
                assert result["isError"] is True
                return text_of(result)

            assert "[ERROR] DIVISION-BY-ZERO" in await fails("eval-in-frame", code="(/ 1 0)")
            assert "[TIMEOUT]" in await fails("eval-in-frame", code="(loop)")
            assert "There is no frame 99" in await fails("frame-locals", frame=99)
            assert "[ERROR] END-OF-FILE" in await fails("eval-in-frame", code="(list 1")
            assert await client.tool("invoke-restart", suspended=name, restart=1) == "=> 1"

    run(main())


def test_suspended_evaluations_have_a_deadline_and_a_number() -> None:
    async def main() -> None:
        async with lisp(max_suspended=2) as client:
            names = [(await suspended(client))[0] for _ in range(3)]
            first = await client.raw.call("invoke-restart", {"suspended": names[0], "restart": 1})
            assert "no suspended evaluation" in text_of(first)
            assert await client.tool("invoke-restart", suspended=names[2], restart=1) == "=> 1"
        async with lisp(suspended_seconds=0.1) as client:
            name, _ = await suspended(client)
            sessions = client.raw.connection.session.server.state.sessions
            await until(lambda: not sessions["default"].suspended)
            late = await client.raw.call("invoke-restart", {"suspended": name, "restart": 1})
            assert "no suspended evaluation" in text_of(late)
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_without_debug_an_error_unwinds() -> None:
    async def main() -> None:
        async with lisp(capabilities={"elicitation": {}}) as client:
            assert (await client.error("(/ 1 0)")).startswith("[ERROR] DIVISION-BY-ZERO")
            assert await client.raw.settle() == []

    run(main())


# -- asking the client ---------------------------------------------------------------------


def reply(client: Client, question: Any, result: dict[str, Any]) -> None:
    client.raw.send(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": result}).encode())


@pytest.mark.parametrize("revision", ASKED)
def test_an_error_asks_for_a_restart(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision, capabilities={"elicitation": {}}) as client:
            await client.text(DEFINE)
            arguments = {"code": "(+ 1 (twice 5))", "debug": True}
            call = client.raw.start("tools/call", {"name": "evaluate-lisp", "arguments": arguments})
            question = await client.raw.receive()
            params = question["params"]
            assert params["message"] == "SIMPLE-ERROR: no 5"
            choices = params["requestedSchema"]["properties"]["restart"]["enum"]
            assert choices[0] == "0: Use another value."
            assert choices[-1] == "abandon the evaluation"
            answer = {"action": "accept", "content": {"restart": choices[0], "value": "21"}}
            reply(client, question, answer)
            assert text_of((await call[1])["result"]) == "=> 43"

    run(main())


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_user_who_says_no_abandons(action: str) -> None:
    async def main() -> None:
        async with lisp(capabilities={"elicitation": {}}) as client:
            arguments = {"code": "(/ 1 0)", "debug": True}
            call = client.raw.start("tools/call", {"name": "evaluate-lisp", "arguments": arguments})
            reply(client, await client.raw.receive(), {"action": action})
            result = (await call[1])["result"]
            assert result["isError"] is True
            assert text_of(result).startswith("[ERROR] DIVISION-BY-ZERO")

    run(main())


@pytest.mark.parametrize("revision", ASKED)
def test_input_is_asked_for(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision, capabilities={"elicitation": {}}) as client:
            code = '(list (progn (princ "Your name?") (read-line)) (y-or-n-p "Sure?"))'
            call = client.raw.start(
                "tools/call", {"name": "evaluate-lisp", "arguments": {"code": code}}
            )
            question = await client.raw.receive()
            assert question["params"]["message"] == "Your name?"
            reply(client, question, {"action": "accept", "content": {"line": "Ada"}})
            question = await client.raw.receive()
            assert "Sure?" in question["params"]["message"]
            reply(client, question, {"action": "accept", "content": {"line": "y"}})
            assert text_of((await call[1])["result"]).endswith('=> ("Ada" T)')

    run(main())


def test_a_modern_client_comes_back_with_its_answers() -> None:
    async def main() -> None:
        async with lisp("2026-07-28", capabilities={"elicitation": {"form": {}}}) as client:
            await client.text("(defvar *runs* 0)")
            code = '(incf *runs*) (list (read-line) (restart-case (error "no") (go-on () :ok)))'
            params: dict[str, Any] = {
                "name": "evaluate-lisp",
                "arguments": {"code": code, "debug": True},
            }
            first = await client.raw.request("tools/call", params)
            assert first["resultType"] == "input_required"
            ((key, question),) = first["inputRequests"].items()
            assert question["method"] == "elicitation/create"
            given = {key: {"action": "accept", "content": {"line": "hello"}}}
            second = await client.raw.request(
                "tools/call",
                {**params, "inputResponses": given, "requestState": first["requestState"]},
            )
            ((key, question),) = second["inputRequests"].items()
            choice = question["params"]["requestedSchema"]["properties"]["restart"]["enum"][0]
            given = {key: {"action": "accept", "content": {"restart": choice}}}
            third = await client.raw.request(
                "tools/call",
                {**params, "inputResponses": given, "requestState": second["requestState"]},
            )
            assert text_of(third) == '=> ("hello" :OK)'
            # It went on where it was: nothing ran twice.
            assert await client.text("*runs*") == "=> 1"
            # And it does not begin again when the answer comes too late.
            late = await client.raw.request(
                "tools/call",
                {**params, "inputResponses": given, "requestState": second["requestState"]},
            )
            assert late["isError"] is True
            assert "is gone" in text_of(late)
            assert await client.text("*runs*") == "=> 1"

    run(main())


@pytest.mark.parametrize("revision", ALL)
def test_who_cannot_be_asked_gets_a_hint(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            for code in ("(read-line)", '(y-or-n-p "Sure?")', "(read)"):
                refused = await client.error(code)
                assert "[ERROR] END-OF-FILE" in refused
                assert "`input` argument" in refused
            assert await client.text("(read-line)", input="first\nsecond") == '=> "first"\n=> NIL'
            assert await client.text("(list (read) (read))", input="(a b) 7") == "=> ((A B) 7)"
            assert (await client.text('(y-or-n-p "Sure?")', input="y\n")).endswith("=> T")

    run(main())


def test_a_question_that_leads_nowhere() -> None:
    """The client answers with an error, or cancels the call while its user thinks."""

    async def main() -> None:
        async with lisp(capabilities={"elicitation": {}}) as client:
            sessions = client.raw.connection.session.server.state.sessions
            arguments = {"code": '(restart-case (error "no") (go-on () :ok))', "debug": True}
            params = {"name": "evaluate-lisp", "arguments": arguments}
            call = client.raw.start("tools/call", params)
            question = await client.raw.receive()
            error = {"code": -1, "message": "no dialogs today"}
            client.raw.send(
                json.dumps({"jsonrpc": "2.0", "id": question["id"], "error": error}).encode()
            )
            result = (await call[1])["result"]
            name = result["structuredContent"]["suspended"]
            assert await client.tool("invoke-restart", suspended=name, restart=0) == "=> :OK"
            call = client.raw.start("tools/call", params)
            await client.raw.receive()
            assert sessions["default"].suspended
            client.raw.notify("notifications/cancelled", {"requestId": call[0]})
            await until(lambda: not sessions["default"].suspended)
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())
