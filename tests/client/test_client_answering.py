"""What servers ask of us, in both eras, as tasks, and with a bound."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest
from clientkit import MODERN, Line, connected, over, script, sent, stamped
from msgspec import Struct

from dovetail import (
    Client,
    Context,
    Elicit,
    ElicitUrl,
    McpError,
    Roots,
    Sample,
    Server,
)
from dovetail.errors import RemoteProtocolError
from dovetail.spec.types import CreateMessageResult, TextContent
from support import run, until

ASKING = ("2025-06-18", "2025-11-25", MODERN)


class Form(Struct):
    name: str
    age: int = 30
    colour: Literal["red", "green"] = "red"
    ok: bool = True


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def form(*, ctx: Context[Any]) -> str:
        answer = await ctx.ask("form", Elicit("Who are you?", Form))
        return repr(answer.value) if answer.accepted else answer.action

    @server.tool
    async def twice(*, ctx: Context[Any]) -> str:
        first = await ctx.ask("one", Elicit("First?", Form))
        second = await ctx.ask("two", Elicit("Second?", Form))
        return f"{first.value.name} {second.value.name}"

    @server.tool
    async def page(*, ctx: Context[Any]) -> str:
        return (await ctx.ask("page", ElicitUrl("Sign in", "https://example.com/in"))).action

    @server.tool
    async def model(*, ctx: Context[Any]) -> str:
        sampled = await ctx.ask("s", Sample("Say hi", max_tokens=10))
        return f"{sampled.model}: {sampled.text}"

    @server.tool
    async def places(*, ctx: Context[Any]) -> list[str]:
        return [root.uri for root in await ctx.ask("r", Roots())]

    @server.prompt
    async def asked(*, ctx: Context[Any]) -> str:
        answer = await ctx.ask("form", Elicit("Name?", Form))
        return f"I am {answer.value.name}"

    @server.resource("asking://me")
    async def me(*, ctx: Context[Any]) -> str:
        answer = await ctx.ask("form", Elicit("Name?", Form))
        return f"It is {answer.value.name}"

    return server


@pytest.mark.parametrize("revision", ASKING)
@pytest.mark.verifies("C35", "C10", "C11", "C12")
def test_forms_with_defaults(revision: str) -> None:
    async def main() -> None:
        questions: list[Any] = []

        def answer(question: Any) -> Any:
            questions.append(question)
            return {"name": "Eve", "age": 7}

        async with connected(asking(), revision=revision, on_elicit=answer) as (client, recorder):
            result = await client.call("form")
            assert result.text == "Form(name='Eve', age=7, colour='red', ok=True)"
            assert (await client.call("twice")).text == "Eve Eve"
            assert (await client.prompt("asked")).messages[0].content.text == "I am Eve"
            assert (await client.read("asking://me"))[0].text == "It is Eve"
        assert questions[0].mode == "form"
        assert questions[0].required == ["name"]
        assert set(questions[0].choices("colour")) == {"red", "green"}
        calls = sent(recorder, "tools/call")
        assert len({call["id"] for call in calls}) == len(calls)

    run(main())


@pytest.mark.parametrize("revision", ASKING)
@pytest.mark.parametrize(("outcome", "action"), [(False, "decline"), (None, "cancel")])
@pytest.mark.verifies("C35")
def test_declining_and_cancelling(revision: str, outcome: Any, action: str) -> None:
    async def main() -> None:
        async with connected(asking(), revision=revision, on_elicit=lambda q: outcome) as (c, _):
            assert (await c.call("form")).text == action

    run(main())


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
def test_pages(revision: str) -> None:
    async def main() -> None:
        urls: list[str] = []

        async def answer(question: Any) -> bool:
            await asyncio.sleep(0)
            urls.append(question.url)
            return True

        async with connected(asking(), revision=revision, on_elicit=answer) as (client, _):
            assert (await client.call("page")).text == "accept"
        assert urls == ["https://example.com/in"]

    run(main())


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", *ASKING])
def test_sampling(revision: str) -> None:
    def full(params: Any) -> CreateMessageResult:
        assert params.messages[0].content.text == "Say hi"
        return CreateMessageResult(
            role="assistant", content=TextContent(text="hi"), model="m", stop_reason="endTurn"
        )

    async def main() -> None:
        async with connected(asking(), revision=revision, on_sample=full) as (client, _):
            assert (await client.call("model")).text == "m: hi"
        async with connected(asking(), revision=revision, on_sample=lambda p: "ho") as (client, _):
            assert (await client.call("model")).text == "unknown: ho"

    run(main())


@pytest.mark.parametrize("revision", ["2024-11-05", *ASKING])
@pytest.mark.verifies("C31", "C32")
def test_roots_and_their_change(revision: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(asking(), revision=revision, roots=[tmp_path]) as (client, recorder):
            assert (await client.call("places", returns=list[str])).value == [tmp_path.as_uri()]
            client.set_roots([])
            assert (await client.call("places", returns=list[str])).value == []
        told = sent(recorder, "notifications/roots/list_changed")
        assert len(told) == (0 if revision == MODERN else 1)

    run(main())


@pytest.mark.verifies("C32")
def test_roots_are_files() -> None:
    with pytest.raises(ValueError, match="file://"):
        Client.memory(asking(), roots=[{"uri": "https://example.com"}])


@pytest.mark.parametrize("revision", ASKING)
@pytest.mark.verifies("C6")
def test_what_has_no_handler_is_not_declared(revision: str) -> None:
    async def main() -> None:
        async with connected(asking(), revision=revision) as (client, _):
            if revision == MODERN:
                with pytest.raises(McpError) as caught:
                    await client.call("form")
                assert caught.value.code == -32021
            else:
                assert (await client.call("form")).is_error

    run(main())


# -- requests of the handshake, from a server that does not behave -----------------------------


def asks(method: str, params: dict[str, Any]) -> tuple[Line, list[dict[str, Any]]]:
    """A line of 2025-11-25 that asks this when a tool is called, and the answers it gets."""
    answers: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []

    def serve(message: dict[str, Any], line: Line) -> None:
        if message.get("method") == "tools/call":
            calls.append(message)
            line.say(id="q", method=method, params=params)
        elif message.get("id") == "q":
            answers.append(message)
            line.result(calls[0], {"content": []})

    return script(serve), answers


FORM = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("elicitation/create", {"message": "?", "mode": "url", "url": "https://x.y"}, -32602),
        ("elicitation/create", {"message": "?", "requestedSchema": 5}, -32602),
        ("elicitation/create", {}, -32602),
        ("sampling/createMessage", {"messages": [], "maxTokens": 1, "tools": []}, -32602),
        ("sampling/createMessage", {"messages": []}, -32602),
        ("roots/list", {}, -32601),
        ("launch/missiles", {}, -32601),
        ("tools/list", {}, -32601),
    ],
)
@pytest.mark.verifies("C34", "C37")
def test_what_cannot_be_answered_is_refused(method: str, params: Any, code: int) -> None:
    async def main() -> None:
        line, answers = asks(method, params)
        options = {"on_elicit": lambda q: {}, "on_sample": lambda p: "x", "elicit_modes": ("form",)}
        async with over(line, **options) as client:
            await client.call("add")
        assert answers[0]["error"]["code"] == code

    run(main())


@pytest.mark.verifies("C35", "C37")
def test_a_question_without_a_mode_is_a_form_and_odd_notices_are_ignored() -> None:
    async def main() -> None:
        line, answers = asks("elicitation/create", {"message": "?", "requestedSchema": FORM})
        async with over(line, on_elicit=lambda q: {"a": q.mode}) as client:
            line.say(method="notifications/elicitation/complete", params={"elicitationId": "x"})
            await client.call("add")
        assert answers[0]["result"] == {"action": "accept", "content": {"a": "form"}}

    run(main())


def test_a_handler_that_breaks_is_an_error_for_the_server_and_no_end() -> None:
    async def main() -> None:
        line, answers = asks("elicitation/create", {"message": "?", "requestedSchema": FORM})
        async with over(line, on_elicit=lambda q: 1 / 0) as client:
            await client.call("add")
        assert answers[0]["error"]["code"] == -32603

    run(main())


def test_a_ping_is_answered_at_once() -> None:
    async def main() -> None:
        line, answers = asks("ping", {})
        async with over(line) as client:
            await client.call("add")
        assert answers[0]["result"] == {}

    run(main())


@pytest.mark.verifies("C9")
def test_in_2026_nothing_is_ever_answered() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        for method in ("ping", "roots/list", "elicitation/create", "nonsense"):
            line.say(id=f"q-{method}", method=method, params={})
        line.raw(b"garbage\n[]\n{}\n")
        line.result(message, {**stamped(), "content": []})

    async def main() -> None:
        line = script(serve, revision=MODERN)
        async with over(line, on_elicit=lambda q: {}, roots=[]) as client:
            await client.call("add")
            await asyncio.sleep(0)
        assert all("method" in message for message in line.received)

    run(main())


# -- tasks that we run for the server (2025-11-25) -----------------------------------------------


def test_a_question_as_a_task() -> None:
    server = Server("asker")

    @server.tool
    async def slow(*, ctx: Context[Any]) -> str:
        answer = await ctx.ask("form", Elicit("Who?", Form), as_task=True)
        sampled = await ctx.ask("s", Sample("Hi", max_tokens=5), as_task=True)
        return f"{answer.value.name} {sampled.text}"

    async def main() -> None:
        options = {"on_elicit": lambda q: {"name": "Eve"}, "on_sample": lambda p: "hello"}
        async with connected(server, revision="2025-11-25", **options) as (client, recorder):
            assert (await client.call("slow")).text == "Eve hello"
        methods = [m.get("method") for who, m in recorder.messages if who == "server"]
        assert methods.count("tasks/result") == 2

    run(main())


def test_the_life_of_a_task_that_we_run() -> None:
    """Asked how it stands, listed, cancelled; unknown and ended ones are refused."""

    async def main() -> None:
        waiting = asyncio.Event()

        async def never(question: Any) -> Any:
            waiting.set()
            await asyncio.Event().wait()

        line = script(lambda m, at: None)
        async with over(line, on_elicit=never):

            async def ask(method: str, params: Any) -> dict[str, Any]:
                id = f"q{len(line.received)}-{method}"
                line.say(id=id, method=method, params=params)
                await until(lambda: any(m.get("id") == id for m in line.received))
                return next(m for m in line.received if m.get("id") == id)

            params = {"message": "?", "requestedSchema": FORM, "task": {"ttl": 60000}}
            task = (await ask("elicitation/create", params))["result"]["task"]
            await waiting.wait()
            assert task["status"] == "working"
            assert task["ttl"] == 60000
            named = {"taskId": task["taskId"]}
            assert (await ask("tasks/get", named))["result"]["status"] == "working"
            assert len((await ask("tasks/list", {}))["result"]["tasks"]) == 1
            assert (await ask("tasks/cancel", named))["result"]["status"] == "cancelled"
            assert (await ask("tasks/cancel", named))["error"]["code"] == -32602
            assert "error" in await ask("tasks/result", named)
            assert (await ask("tasks/get", {"taskId": "no"}))["error"]["code"] == -32602

    run(main())


# -- several rounds (2026-07-28) -------------------------------------------------------------------


QUESTION = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": FORM}}


def rounds(*results: dict[str, Any]) -> Line:
    """A line of 2026-07-28 whose tool answers with these results, the last one for ever."""
    left = list(results)

    def serve(message: dict[str, Any], line: Line) -> None:
        line.result(message, left.pop(0) if len(left) > 1 else left[0])

    return script(serve, revision=MODERN)


@pytest.mark.verifies("C11", "C12", "C13")
def test_state_is_returned_exactly_or_not_at_all() -> None:
    state = 'ünï "quoted" \\ \u2028 state=='
    asked = {"resultType": "input_required", "inputRequests": {"k": QUESTION}}
    done = {"resultType": "complete", "content": []}

    async def main() -> None:
        line = rounds({**asked, "requestState": state}, asked, done)
        async with over(line, on_elicit=lambda q: {"a": "b"}) as client:
            await client.call("add", {"x": 1})
            await client.call("add", {"y": 1})
        calls = [m for m in line.received if m["method"] == "tools/call"]
        params = [call["params"] for call in calls]
        assert params[1]["requestState"] == state
        assert params[1]["inputResponses"] == {"k": {"action": "accept", "content": {"a": "b"}}}
        assert params[1]["arguments"] == {"x": 1}
        assert "requestState" not in params[2]
        assert "inputResponses" in params[2]
        assert not {"requestState", "inputResponses"} & params[3].keys()
        assert len({call["id"] for call in calls}) == 4

    run(main())


def test_the_server_cannot_ask_for_ever() -> None:
    asked = {"resultType": "input_required", "inputRequests": {"k": QUESTION}}

    async def main() -> None:
        line = rounds(asked)
        async with over(line, on_elicit=lambda q: {}, max_rounds=3) as client:
            with pytest.raises(RemoteProtocolError, match="still asks after 3 rounds"):
                await client.call("add")
        assert sum(m["method"] == "tools/call" for m in line.received) == 4

    run(main())


def test_a_request_that_is_only_to_be_repeated_is_repeated() -> None:
    async def main() -> None:
        done = {"resultType": "complete", "content": []}
        line = rounds({"resultType": "input_required", "requestState": "later"}, done)
        async with over(line) as client:
            await client.call("add")
        last = line.received[-1]["params"]
        assert last["requestState"] == "later"
        assert "inputResponses" not in last

    run(main())


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": {"k": {"method": "tools/call"}}},
        {"resultType": "input_required", "inputRequests": {"k": {"method": "roots/list"}}},
        {"resultType": "input_required", "inputRequests": 5},
    ],
)
def test_questions_that_must_not_be_asked(result: dict[str, Any]) -> None:
    async def main() -> None:
        async with over(rounds(result), on_elicit=lambda q: {}) as client:
            with pytest.raises(RemoteProtocolError):
                await client.call("add")

    run(main())


@pytest.mark.verifies("C7")
def test_the_type_of_a_result() -> None:
    async def main() -> None:
        async with over(rounds({"content": [{"type": "text", "text": "old"}]})) as client:
            assert (await client.call("add")).text == "old"
        async with over(rounds({"resultType": "riddle", "content": []})) as client:
            with pytest.raises(RemoteProtocolError, match="unknown type"):
                await client.call("add")

    run(main())


# -- logging -----------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", MODERN])
def test_log_messages(revision: str) -> None:
    server = Server("talker")

    @server.tool
    async def talk(*, ctx: Context[Any]) -> str:
        ctx.log("debug", "quiet")
        ctx.log("warning", {"loud": True})
        return "said"

    async def main() -> None:
        heard: list[Any] = []
        options = {"on_log": heard.append, "log_level": "warning", "revision": revision}
        async with connected(server, **options) as (client, _):
            await client.call("talk")
            await client.set_log_level("debug")
            await client.call("talk")
        assert [entry.data for entry in heard] == [{"loud": True}, "quiet", {"loud": True}]

    run(main())


def test_choices_have_titles() -> None:
    from dovetail.client.answer import Question
    from dovetail.spec.types import ElicitRequestParams

    def question(field: dict[str, Any]) -> Question:
        schema = {"type": "object", "properties": {"f": field}}
        return Question(ElicitRequestParams(message="?", requested_schema=schema))

    titled = {"type": "string", "oneOf": [{"const": "s", "title": "Small"}]}
    assert question(titled).choices("f") == {"s": "Small"}
    old = {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}
    assert question(old).choices("f") == {"a": "A", "b": "B"}
    many = {"type": "array", "items": {"type": "string", "enum": ["x"]}}
    assert question(many).choices("f") == {"x": "x"}
    assert question({"type": "string"}).choices("f") == {}
