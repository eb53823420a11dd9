"""Asking the client: the same handler in every revision, and clients that do not play along."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from dovetail import (
    ClientError,
    Context,
    Elicit,
    ElicitUrl,
    McpError,
    Roots,
    Sample,
    Server,
    Session,
    ToolError,
)
from dovetail.errors import ConnectionClosed
from dovetail.server.request_state import Seal
from dovetail.spec.types import (
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
)
from dovetail.testing import TestClient, connect, envelope
from support import request, run, until

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
both_eras = pytest.mark.parametrize("revision", [D, E])
FORM, SAMPLING, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
FULL: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}


class Name(Struct):
    name: str


class Age(Struct):
    age: int


def full(revision: str) -> dict[str, Any]:
    """All that a client of the revision can declare."""
    if revision in (A, B):
        return {"sampling": {}, "roots": {"listChanged": True}}
    if revision == C:
        return {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}
    return FULL


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def written(*blocks: Any, stop: str = "endTurn") -> dict[str, Any]:
    content = blocks[0] if len(blocks) == 1 else list(blocks)
    return {"role": "assistant", "content": content, "model": "m", "stopReason": stop}


def block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def text(result: Any) -> str:
    return str(result["content"][0]["text"])


def said(client: TestClient) -> list[Any]:
    return [message for sender, message in client.recorder.messages if sender == "server"]


Replies = dict[str, list[Any]]


async def converse(
    client: TestClient, params: dict[str, Any], replies: Replies, method: str = "tools/call"
) -> tuple[Any, list[dict[str, Any]]]:
    """One request with all the questions it leads to; the answer, and what was asked.

    ``replies`` holds, for each kind of question, the results that the client gives in turn.
    """
    if client.revision == E:
        return await _by_rounds(client, params, replies, method)
    asked: list[dict[str, Any]] = []
    _, future = client.start(method, params)
    while not future.done():
        receiving = asyncio.ensure_future(client.receive())
        await asyncio.wait({receiving, future}, return_when=asyncio.FIRST_COMPLETED)
        if not receiving.done():
            receiving.cancel()
            break
        question = receiving.result()
        asked.append({"method": question["method"], "params": question.get("params", {})})
        reply = replies[question["method"]].pop(0)
        member = "error" if "code" in reply else "result"
        client._send({"id": question["id"], member: reply})
    client.recorder.check()
    return await future, asked


async def _by_rounds(
    client: TestClient, params: dict[str, Any], replies: Replies, method: str
) -> tuple[Any, list[dict[str, Any]]]:
    asked: list[dict[str, Any]] = []
    answer = await client.answer(method, params)
    while answer.get("result", {}).get("resultType") == "input_required":
        questions = answer["result"]["inputRequests"]
        asked += questions.values()
        given = {key: replies[one["method"]].pop(0) for key, one in questions.items()}
        again = {"inputResponses": given, "requestState": answer["result"]["requestState"]}
        answer = await client.answer(method, {**params, **again})
    return answer, asked


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def played(
    server: Server,
    revision: str,
    params: dict[str, Any],
    replies: Replies,
    *,
    capabilities: dict[str, Any] | None = None,
    method: str = "tools/call",
) -> tuple[Any, list[dict[str, Any]]]:
    """A conversation on a connection of its own, which leaves nothing behind."""
    declared = full(revision) if capabilities is None else capabilities

    async def main() -> Any:
        async with connect(server, revision, capabilities=declared) as client:
            outcome = await converse(client, params, replies, method)
            assert_idle(client)
            return outcome

    outcome: tuple[Any, list[dict[str, Any]]] = run(main())
    return outcome


def assert_idle(client: TestClient) -> None:
    connection = client.connection
    assert not connection.busy
    assert not connection._asking._waiters
    assert not connection._home.background
    assert not connection.peer.in_flight
    assert not connection.peer.pending


def tool(function: Callable[..., Any], **options: Any) -> Server:
    server = Server("s", version="1")
    server.tool(**options)(function)
    return server


# --- the same handler everywhere ------------------------------------------------------------------


async def greet(ctx: Context) -> str:
    answer = await ctx.ask("name", Elicit("Who are you?", Name))
    return f"Hello {answer.value.name}" if answer.accepted else f"You said {answer.action}"


@pytest.mark.parametrize("revision", [C, D, E])
@pytest.mark.verifies("S11", "S77", "S15", "S16", "S17", "R002-19")
def test_a_form(revision: str) -> None:
    answer, asked = played(tool(greet), revision, calling("greet"), {FORM: [accept(name="Ada")]})
    assert text(answer["result"]) == "Hello Ada"
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    mode = {} if revision == C else {"mode": "form"}
    params = {**mode, "message": "Who are you?", "requestedSchema": schema}
    assert asked == [{"method": FORM, "params": params}]


@pytest.mark.parametrize("revision", [C, D, E])
@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.verifies("S85")
def test_a_form_that_is_not_filled_in(revision: str, action: str) -> None:
    answer, _ = played(tool(greet), revision, calling("greet"), {FORM: [{"action": action}]})
    assert text(answer["result"]) == f"You said {action}"
    assert not answer["result"]["isError"]


@pytest.mark.parametrize("revision", [C, D, E])
@pytest.mark.parametrize(("action", "verb"), [("decline", "declined"), ("cancel", "cancelled")])
@pytest.mark.verifies("S85")
def test_the_value_of_an_answer_that_is_none(revision: str, action: str, verb: str) -> None:
    async def careless(ctx: Context) -> str:
        return (await ctx.ask("name", Elicit("Who?", Name))).value.name

    server = tool(careless)
    answer, _ = played(server, revision, calling("careless"), {FORM: [{"action": action}]})
    assert answer["result"]["isError"]
    assert text(answer["result"]) == f"The user {verb} the request for input"


async def sign_in(ctx: Context) -> str:
    answer = await ctx.ask("page", ElicitUrl("Sign in", "https://example.com/in"))
    return answer.action


@both_eras
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
@pytest.mark.verifies("S77", "S76", "S85")
def test_a_page_to_visit(revision: str, action: str) -> None:
    answer, asked = played(
        tool(sign_in), revision, calling("sign_in"), {FORM: [{"action": action}]}
    )
    assert text(answer["result"]) == action
    (question,) = asked
    id = question["params"].pop("elicitationId", None)
    assert (id is not None) == (revision == D)
    params = {"mode": "url", "message": "Sign in", "url": "https://example.com/in"}
    assert question == {"method": FORM, "params": params}


@every_revision
@pytest.mark.verifies("S11", "S17", "R002-19")
def test_sampling(revision: str) -> None:
    async def write(ctx: Context) -> str:
        sampled = await ctx.sample("Write a line", max_tokens=50, system_prompt="Be brief")
        return f"{sampled.model}: {sampled.text}"

    reply = written(block("a line"))
    answer, asked = played(tool(write), revision, calling("write"), {SAMPLING: [reply]})
    assert text(answer["result"]) == "m: a line"
    messages = [{"role": "user", "content": block("Write a line")}]
    params = {"messages": messages, "maxTokens": 50, "systemPrompt": "Be brief"}
    assert asked == [{"method": SAMPLING, "params": params}]


@every_revision
@pytest.mark.verifies("S11", "S17", "R002-19")
def test_roots(revision: str) -> None:
    async def look(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    roots = {"roots": [{"uri": "file:///a", "name": "a"}, {"uri": "file:///b"}]}
    answer, asked = played(tool(look), revision, calling("look"), {ROOTS: [roots]})
    assert msgspec.json.decode(text(answer["result"])) == ["file:///a", "file:///b"]
    assert [one["method"] for one in asked] == [ROOTS]


async def agent(ctx: Context) -> str:
    """The loop of an agent: the model calls a tool, hears its result and goes on."""
    add = Tool(name="add", input_schema={"type": "object"})
    messages: list[Any] = [SamplingMessage(role="user", content=TextContent(text="1+2?"))]
    first = await ctx.sample(messages, max_tokens=9, tools=[add], tool_choice="required")
    results = [
        ToolResultContent(
            tool_use_id=use.id, content=[TextContent(text=str(sum(use.input.values())))]
        )
        for use in first.tool_uses
    ]
    messages += [
        SamplingMessage(role="assistant", content=first.blocks),
        SamplingMessage(role="user", content=list(results)),
    ]
    return (await ctx.sample(messages, max_tokens=9, tools=[add])).text


@both_eras
@pytest.mark.verifies("S86", "S87", "X39", "X40")
def test_sampling_with_tools(revision: str) -> None:
    use = {"type": "tool_use", "id": "u1", "name": "add", "input": {"a": 1, "b": 2}}
    other = {"type": "tool_use", "id": "u2", "name": "add", "input": {"a": 3, "b": 4}}
    replies = [written(block("hm"), use, other, stop="toolUse"), written(block("3 and 7"))]
    answer, asked = played(tool(agent), revision, calling("agent"), {SAMPLING: replies})
    assert text(answer["result"]) == "3 and 7"
    first, second = (one["params"] for one in asked)
    assert first["toolChoice"] == {"mode": "required"}
    assert [one["name"] for one in first["tools"]] == ["add"]
    _, used, results = second["messages"]
    assert used == {"role": "assistant", "content": [block("hm"), use, other]}
    assert results["role"] == "user"
    assert [(one["type"], one["toolUseId"]) for one in results["content"]] == [
        ("tool_result", "u1"),
        ("tool_result", "u2"),
    ]


@pytest.mark.verifies("X39", "X40", "S87")
def test_tool_results_out_of_place_never_leave(caplog: pytest.LogCaptureFixture) -> None:
    async def wrong(ctx: Context) -> str:
        result = ToolResultContent(tool_use_id="u1", content=[])
        message = SamplingMessage(role="user", content=[result, TextContent(text="and")])
        return (await ctx.sample([message], max_tokens=9)).text

    answer, asked = played(tool(wrong), D, calling("wrong"), {})
    assert answer["result"]["isError"]
    assert asked == []
    assert "a message with tool results has no other blocks" in caplog.text


@both_eras
@pytest.mark.parametrize("kind", ["prompts/get", "resources/read"])
@pytest.mark.verifies("S15", "S11")
def test_prompts_and_resources_ask_too(revision: str, kind: str) -> None:
    server = Server("s")

    @server.prompt
    async def hello(ctx: Context) -> str:
        return await greet(ctx)

    @server.resource("hello://{x}")
    async def read(x: str, ctx: Context) -> str:
        return f"{x}: {await greet(ctx)}"

    params = {"name": "hello"} if kind == "prompts/get" else {"uri": "hello://a"}
    answer, asked = played(server, revision, params, {FORM: [accept(name="Eva")]}, method=kind)
    assert len(asked) == 1
    result = answer["result"]
    if kind == "prompts/get":
        assert result["messages"][0]["content"]["text"] == "Hello Eva"
    else:
        assert result["contents"][0]["text"] == "a: Hello Eva"


async def survey(ctx: Context) -> str:
    """Two at once, then one that depends on them."""
    both = await ctx.ask_all({"name": Elicit("Name?", Name), "roots": Roots()})
    name = both["name"].value.name
    age = (await ctx.ask("age", Elicit(f"How old, {name}?", Age))).value.age
    return f"{name} {age} {len(both['roots'])}"


@pytest.mark.parametrize("revision", [C, D, E])
@pytest.mark.verifies("S17")
def test_several_questions_and_rounds(revision: str) -> None:
    replies = {FORM: [accept(name="Ada"), accept(age=36)], ROOTS: [{"roots": []}]}
    answer, asked = played(tool(survey), revision, calling("survey"), replies)
    assert text(answer["result"]) == "Ada 36 0"
    assert [one["method"] for one in asked] == [FORM, ROOTS, FORM]
    assert asked[2]["params"]["message"] == "How old, Ada?"


@both_eras
def test_no_exception_handler_of_the_author_is_in_the_way(revision: str) -> None:
    async def careful(ctx: Context) -> str:
        try:
            return await greet(ctx)
        except Exception as error:
            return f"swallowed {error!r}"

    replies = {FORM: [accept(name="Ada")]}
    answer, _ = played(tool(careful), revision, calling("careful"), replies)
    assert text(answer["result"]) == "Hello Ada"


@both_eras
def test_inside_a_task_group(revision: str) -> None:
    """In 2026-07-28 what is asked beside each other is asked in one round."""

    async def both(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(ctx.ask("one", Elicit("One?", Name)))
            two = group.create_task(ctx.ask("two", Elicit("Two?", Name)))
        return f"{one.result().value.name} {two.result().value.name}"

    server = tool(both)

    async def main() -> None:
        async with connect(server, revision, capabilities=FULL) as client:
            replies: Replies = {FORM: [accept(name="a"), accept(name="b")]}
            answer, asked = await converse(client, calling("both"), replies)
            assert text(answer["result"]) == "a b"
            assert len(asked) == 2
            if revision == E:
                assert len([m for m in said(client) if "id" in m]) == 2
            assert_idle(client)

    run(main())


@pytest.mark.verifies("S15")
def test_nested_task_groups_and_groups_without_a_question(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def nested(ctx: Context, fail: bool = False) -> str:
        async with asyncio.TaskGroup() as outer:
            async with asyncio.TaskGroup() as inner:
                if fail:
                    raise ValueError("nothing to do with questions")
                task = inner.create_task(ctx.ask("k", Elicit("?", Name)))
            outer.create_task(asyncio.sleep(0))
        return task.result().value.name

    replies = {FORM: [accept(name="n")]}
    answer, _ = played(tool(nested), E, calling("nested"), replies)
    assert text(answer["result"]) == "n"
    answer, _ = played(tool(nested), E, calling("nested", fail=True), {})
    assert answer["result"]["isError"]
    assert "nothing to do with questions" in caplog.text


@both_eras
def test_a_middleware_may_ask_and_the_tool_inside_it(revision: str) -> None:
    server = tool(greet)

    @server.middleware
    async def confirm(call: Any, next: Any) -> Any:
        if call.method == "tools/call":
            await call.context.ask("sure", Elicit("Sure?", Age))
        return await next(call)

    replies = {FORM: [accept(age=1), accept(name="Ada")]}
    answer, asked = played(server, revision, calling("greet"), replies)
    assert text(answer["result"]) == "Hello Ada"
    assert [one["params"]["message"] for one in asked] == ["Sure?", "Who are you?"]


@pytest.mark.verifies("INV-001")
def test_whatever_a_handler_raises_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(BaseException):
        pass

    async def odd() -> str:
        raise Odd

    answer, _ = played(tool(odd), D, calling("odd"), {})
    assert answer["error"]["code"] == -32603


# --- what may not be asked ------------------------------------------------------------------------

QUESTIONS: dict[str, tuple[Callable[[Context], Coroutine[Any, Any, Any]], dict[str, Any]]] = {
    "form": (lambda ctx: ctx.ask("k", Elicit("?", Name)), {"elicitation": {}}),
    "url": (
        lambda ctx: ctx.ask("k", ElicitUrl("?", "https://a.example/")),
        {"elicitation": {"url": {}}},
    ),
    "required url": (
        lambda ctx: ctx.require_url("k", ElicitUrl("?", "https://a.example/")),
        {"elicitation": {"url": {}}},
    ),
    "sampling": (lambda ctx: ctx.sample("?", max_tokens=1), {"sampling": {}}),
    "tools": (
        lambda ctx: ctx.sample("?", max_tokens=1, tools=[]),
        {"sampling": {"tools": {}}},
    ),
    "context": (
        lambda ctx: ctx.ask("k", Sample("?", max_tokens=1, include_context="thisServer")),
        {"sampling": {"context": {}}},
    ),
    "roots": (lambda ctx: ctx.roots(), {"roots": {}}),
    "all": (
        lambda ctx: ctx.ask_all({"r": Roots(), "k": Elicit("?", Name)}),
        {"elicitation": {}},
    ),
}
LESS = {
    "form": {"elicitation": {"url": {}}},
    "url": {"elicitation": {}},
    "required url": {"elicitation": {"form": {}}},
    "tools": {"sampling": {"context": {}}},
    "context": {"sampling": {"tools": {}}},
    "all": {"roots": {}},
}


@every_revision
@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize("declared", ["nothing", "something else", "too little"])
@pytest.mark.verifies("S6", "S18", "S76", "S86", "X14", "R002-14", "R002-20", "X31", "X32")
def test_what_was_not_declared_is_not_asked(revision: str, kind: str, declared: str) -> None:
    ask, needed = QUESTIONS[kind]

    async def asks(ctx: Context) -> str:
        return str(await ask(ctx))

    others = {name: value for name, value in full(revision).items() if name not in needed}
    capabilities = {
        "nothing": {},
        "something else": others,
        "too little": LESS.get(kind, {}) if revision in (D, E) else {},
    }[declared]
    if kind == "all" and "roots" not in capabilities:
        needed = {"roots": {}, "elicitation": {}}
    answer, asked = played(tool(asks), revision, calling("asks"), {}, capabilities=capabilities)
    assert asked == []
    if revision == E:
        assert answer["error"] == {
            "code": -32021,
            "message": "Missing required client capability",
            "data": {"requiredCapabilities": needed},
        }
    else:
        assert answer["result"]["isError"] is True
        names = ", ".join(".".join([name, *settings]) for name, settings in needed.items())
        assert text(answer["result"]) == f"The client does not support {names}"


@pytest.mark.parametrize("revision", [A, B])
@pytest.mark.verifies("F-no-leak")
def test_a_revision_without_elicitation_never_sees_one(revision: str) -> None:
    """Whatever a confused client declares."""

    async def main() -> None:
        async with connect(tool(greet), revision, handshake=False) as client:
            params = {
                "protocolVersion": revision,
                "capabilities": {"elicitation": {}},
                "clientInfo": {"name": "c", "version": "1"},
            }
            client.send(request(50, "initialize", params))
            client.notify("notifications/initialized")
            result = await client.call("greet")
            assert text(result) == "The client does not support elicitation"

    run(main())


@pytest.mark.verifies("S18", "S7")
def test_in_2026_every_request_declares_for_itself() -> None:
    async def main() -> None:
        async with connect(tool(greet), E, capabilities={"elicitation": {}}) as client:
            first = await client.call("greet", {})
            assert first["resultType"] == "input_required"
            client.capabilities = {}
            refused = await client.answer("tools/call", calling("greet"))
            assert refused["error"]["code"] == -32021
            # The retry must declare it too.
            again = {"inputResponses": {"name": accept(name="A")}, **state(first)}
            refused = await client.answer("tools/call", {**calling("greet"), **again})
            assert refused["error"]["code"] == -32021

    run(main())


@pytest.mark.parametrize("revision", [C, D])
@pytest.mark.verifies("D-quiet-start", "R002-10")
def test_no_question_before_the_handshake_is_done(revision: str) -> None:
    async def main() -> None:
        options: dict[str, Any] = {"capabilities": full(revision), "handshake": False}
        async with connect(tool(greet), revision, **options) as client:
            params = {
                "protocolVersion": revision,
                "capabilities": full(revision),
                "clientInfo": {"name": "c", "version": "1"},
            }
            await client.request("initialize", params)
            result = await client.call("greet", {})
            assert text(result) == "The client has not finished its handshake"
            client.notify("notifications/initialized")
            answer, _ = await converse(client, calling("greet"), {FORM: [accept(name="Ada")]})
            assert text(answer["result"]) == "Hello Ada"

    run(main())


@pytest.mark.verifies("S75")
def test_a_form_asks_for_no_secrets() -> None:
    class Login(Struct):
        user: str
        password: str

    with pytest.raises(TypeError, match="use ElicitUrl"):
        Elicit("Sign in", Login)


@pytest.mark.verifies("S15")
def test_other_requests_of_2026_cannot_ask(caplog: pytest.LogCaptureFixture) -> None:
    server = tool(greet)

    @server.method("example/own")
    async def own(ctx: Context) -> dict[str, Any]:
        return {"name": (await ctx.ask("k", Elicit("?", Name))).value.name}

    async def main() -> None:
        async with connect(server, E, capabilities=FULL) as client:
            answer = await client.answer("example/own")
            assert answer["error"]["code"] == -32603
        assert "example/own cannot ask the client anything" in caplog.text
        async with connect(server, D, capabilities=FULL) as client:
            replies: Replies = {FORM: [accept(name="Ada")]}
            answer, _ = await converse(client, {}, replies, "example/own")
            assert answer["result"] == {"name": "Ada"}

    run(main())


@pytest.mark.verifies("S15")
def test_a_completer_has_nobody_to_ask() -> None:
    server = Server("s")
    prompt = server.prompt(name="p")(lambda x: x)

    async def complete(prefix: str, ctx: Context) -> list[str]:
        return [(await ctx.ask("k", Elicit("?", Name))).value.name]

    with pytest.raises(TypeError, match="a completer gets no ctx"):
        prompt.complete("x")(complete)


@pytest.mark.verifies("S15")
def test_not_even_around_a_completion(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    prompt = server.prompt(name="p")(lambda x: x)
    prompt.complete("x")(lambda prefix: [prefix])

    @server.middleware
    async def nosy(call: Any, next: Any) -> Any:
        await call.context.ask("k", Elicit("?", Name))
        return await next(call)

    async def main() -> None:
        async with connect(server, E, capabilities=FULL) as client:
            ref = {"type": "ref/prompt", "name": "p"}
            params = {"ref": ref, "argument": {"name": "x", "value": ""}}
            answer = await client.answer("completion/complete", params)
            assert answer["error"]["code"] == -32603

    run(main())
    assert "completion/complete cannot ask the client anything" in caplog.text


# --- pages that must be visited first -------------------------------------------------------------


def gate() -> tuple[Server, list[ElicitUrl], list[Context]]:
    """A tool that works once its page has been visited."""
    server = Server("s")
    pages: list[ElicitUrl] = []
    contexts: list[Context] = []

    @server.tool
    async def enter(ctx: Context) -> str:
        if pages:
            return "welcome"
        question = ElicitUrl("Please sign in", "https://example.com/x")
        pages.append(question)
        contexts.append(ctx)
        answer = await ctx.require_url("page", question)
        return answer.action

    return server, pages, contexts


@pytest.mark.verifies("S79", "S77", "S76")
def test_2025_11_25_has_an_error_for_it() -> None:
    server, pages, _ = gate()

    async def main() -> None:
        async with connect(server, D, capabilities=FULL) as client:
            answer = await client.answer("tools/call", calling("enter"))
            (page,) = pages
            elicitation = {
                "mode": "url",
                "message": "Please sign in",
                "url": "https://example.com/x",
                "elicitationId": page.elicitation_id,
            }
            assert answer["error"] == {
                "code": -32042,
                "message": "Please sign in",
                "data": {"elicitations": [elicitation]},
            }
            assert text(await client.call("enter")) == "welcome"
            assert await client.settle() == []

    run(main())


@pytest.mark.verifies("X32", "S79")
def test_2026_asks_instead() -> None:
    server, _, _ = gate()
    answer, asked = played(server, E, calling("enter"), {FORM: [{"action": "accept"}]})
    assert text(answer["result"]) == "welcome"
    assert [one["params"]["mode"] for one in asked] == ["url"]
    assert "elicitationId" not in asked[0]["params"]


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.verifies("S78")
def test_the_client_that_was_asked_is_told_of_the_visit(in_thread: bool) -> None:
    server, pages, contexts = gate()

    async def main() -> None:
        async with (
            connect(server, D, capabilities=FULL) as client,
            connect(server, D, capabilities=FULL) as other,
        ):
            await client.answer("tools/call", calling("enter"))
            tell = contexts[0].elicitation_complete
            if in_thread:
                await asyncio.to_thread(tell, pages[0])
            else:
                tell(pages[0])
            told = await client.receive()
            assert told == {
                "jsonrpc": "2.0",
                "method": "notifications/elicitation/complete",
                "params": {"elicitationId": pages[0].elicitation_id},
            }
            assert await other.settle() == []

    run(main())


@pytest.mark.parametrize("revision", [A, B, C, E])
@pytest.mark.verifies("S78", "F-no-leak")
def test_no_other_revision_has_that_notice(revision: str) -> None:
    async def tell(ctx: Context) -> str:
        ctx.elicitation_complete(ElicitUrl("x", "https://example.com/"))
        return "told"

    async def main() -> None:
        async with connect(tool(tell), revision, capabilities=full(revision)) as client:
            assert text(await client.call("tell")) == "told"
            assert await client.settle() == []

    run(main())


# --- rounds of 2026-07-28 -------------------------------------------------------------------------


def state(result: Any) -> dict[str, Any]:
    return {"requestState": result["requestState"]}


def rounds(server: Server) -> Any:
    """A connection of 2026-07-28 that declares everything."""
    return connect(server, E, capabilities=FULL)


async def retry(client: TestClient, name: str, first: Any, /, **responses: Any) -> Any:
    params = {**calling(name), "inputResponses": responses, **state(first)}
    return await client.answer("tools/call", params)


@pytest.mark.verifies("S16", "S17", "S10", "SH-server-info")
def test_the_shape_of_a_round() -> None:
    async def main() -> None:
        async with rounds(tool(survey)) as client:
            first = await client.call("survey", {})
            assert first.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
            assert first["inputRequests"].keys() == {"name", "roots"}
            assert first["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "s"
            second = (await retry(client, "survey", first, name=accept(name="A"), roots=NO_ROOTS))[
                "result"
            ]
            assert second["inputRequests"].keys() == {"age"}
            third = (await retry(client, "survey", second, age=accept(age=1)))["result"]
            assert text(third) == "A 1 0"
            assert third["resultType"] == "complete"

    run(main())


NO_ROOTS: dict[str, Any] = {"roots": []}


@pytest.mark.verifies("SH-ask-again")
def test_what_is_missing_is_asked_again() -> None:
    async def main() -> None:
        async with rounds(tool(survey)) as client:
            first = await client.call("survey", {})
            second = (await retry(client, "survey", first, name=accept(name="A")))["result"]
            assert second["inputRequests"].keys() == {"roots"}
            third = (await retry(client, "survey", second, roots=NO_ROOTS))["result"]
            assert third["inputRequests"].keys() == {"age"}
            again = (await retry(client, "survey", third))["result"]
            assert again["inputRequests"] == third["inputRequests"]
            last = (await retry(client, "survey", again, age=accept(age=2)))["result"]
            assert text(last) == "A 2 0"

    run(main())


@pytest.mark.parametrize(
    "nonsense",
    [
        accept(name=1),
        accept(),
        {"action": "accept"},
        {"action": "perhaps"},
        {},
        [],
        None,
        "Ada",
        {"action": "accept", "content": [1]},
        {"code": 1, "message": "no"},
    ],
)
@pytest.mark.verifies("SH-ask-again", "S85")
def test_what_does_not_fit_is_asked_again(nonsense: Any) -> None:
    async def main() -> None:
        async with rounds(tool(greet)) as client:
            first = await client.call("greet", {})
            params = {**calling("greet"), "inputResponses": {"name": nonsense}, **state(first)}
            client.send(request(77, "tools/call", {**params, "_meta": envelope(**FULL)}))
            again = (await client.receive())["result"]
            assert again["resultType"] == "input_required"
            assert again["inputRequests"] == first["inputRequests"]
            last = await retry(client, "greet", again, name=accept(name="Ada"))
            assert text(last["result"]) == "Hello Ada"

    run(main())


@pytest.mark.verifies("SH-ask-again")
def test_a_bad_answer_does_not_bring_an_older_one_back() -> None:
    async def main() -> None:
        async with rounds(tool(survey)) as client:
            first = await client.call("survey", {})
            answered = await retry(client, "survey", first, name=accept(name="A"), roots=NO_ROOTS)
            changed = await retry(client, "survey", answered["result"], name=accept(name=7))
            assert changed["result"]["inputRequests"].keys() == {"name"}
            silent = await retry(client, "survey", changed["result"])
            assert silent["result"]["inputRequests"].keys() == {"name"}

    run(main())


@pytest.mark.verifies("S17")
def test_unknown_keys_are_ignored() -> None:
    async def main() -> None:
        async with rounds(tool(greet)) as client:
            first = await client.call("greet", {})
            extra = {"nobody asked": accept(x=1), "other": {"action": "cancel"}}
            answer = await retry(client, "greet", first, name=accept(name="Ada"), **extra)
            assert text(answer["result"]) == "Hello Ada"

    run(main())


@pytest.mark.parametrize("responses", [[], "x", 1, None, True, [{"name": {}}]])
def test_responses_that_are_no_object(responses: Any) -> None:
    async def main() -> None:
        async with rounds(tool(greet)) as client:
            first = await client.call("greet", {})
            params = {**calling("greet"), "inputResponses": responses, **state(first)}
            client.send(request(77, "tools/call", {**params, "_meta": envelope(**FULL)}))
            answer = await client.receive()
            assert answer["error"] == {
                "code": -32602,
                "message": "Invalid params",
                "data": "inputResponses must be an object",
            }
            assert (await client.call("greet", {}))["resultType"] == "input_required"

    run(main())


@pytest.mark.parametrize("value", [1, None, {}, ["x"]])
def test_state_that_is_no_text(value: Any) -> None:
    async def main() -> None:
        async with rounds(tool(greet)) as client:
            params = {**calling("greet"), "requestState": value, "_meta": envelope(**FULL)}
            client.send(request(77, "tools/call", params))
            answer = await client.receive()
            assert answer["error"]["code"] == -32602

    run(main())


def test_answers_without_state_serve_this_round_only() -> None:
    """The state is what remembers: without it earlier answers are asked for again."""

    async def main() -> None:
        async with rounds(tool(survey)) as client:
            first = await client.call("survey", {})
            given = {"name": accept(name="A"), "roots": NO_ROOTS}
            params = {**calling("survey"), "inputResponses": given}
            second = await client.request("tools/call", params)
            assert second["inputRequests"].keys() == {"age"}
            params = {**calling("survey"), "inputResponses": {"age": accept(age=3)}}
            third = await client.request("tools/call", params)
            assert third["inputRequests"] == first["inputRequests"]

    run(main())


REFUSED = {"code": -32602, "message": "Invalid params", "data": "Invalid requestState"}


def asking_and_not() -> Server:
    server = Server("s", state_keys=[b"k" * 32])
    server.tool(name="greet")(greet)
    server.tool(name="other")(greet)

    @server.tool
    async def plain(x: int = 0) -> str:
        return "plain"

    @server.tool
    async def quiet(ctx: Context, x: int = 0) -> str:
        return "quiet"

    @server.prompt(name="greet")
    async def prompt(ctx: Context) -> str:
        return await greet(ctx)

    @server.resource("x://y")
    async def resource() -> str:
        return "read"

    return server


def flipped(text: str) -> str:
    return text[:40] + ("A" if text[40] != "A" else "B") + text[41:]


TAMPERING: dict[str, Callable[[str], str]] = {
    "changed": flipped,
    "cut": lambda text: text[:-1],
    "longer": lambda text: text + "A",
    "empty": lambda text: "",
    "padded": lambda text: text + "=",
    "foreign": lambda text: Seal("s").seal({}, binding=b"x"),
    "words": lambda text: "let me in",
}
TARGETS = {
    "asks": ("tools/call", calling("greet")),
    "has a context": ("tools/call", calling("quiet")),
    "plain": ("tools/call", calling("plain")),
    "prompt": ("prompts/get", {"name": "greet"}),
    "resource": ("resources/read", {"uri": "x://y"}),
}


@pytest.mark.parametrize("how", TAMPERING)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.verifies("S19")
def test_a_broken_state_is_refused_whoever_gets_it(how: str, target: str) -> None:
    method, params = TARGETS[target]

    async def main() -> None:
        async with rounds(asking_and_not()) as client:
            first = await client.call("greet", {})
            bad = {"requestState": TAMPERING[how](first["requestState"])}
            given = {"inputResponses": {"name": accept(name="A")}}
            answer = await client.answer(method, {**params, **given, **bad})
            assert answer["error"] == REFUSED
            right = await retry(client, "greet", first, name=accept(name="A"))
            assert text(right["result"]) == "Hello A"

    run(main())


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", calling("other")),
        ("tools/call", calling("greet", x=1)),
        ("tools/call", {"name": "greet"}),
        ("tools/call", calling("plain", x=1)),
        ("tools/call", calling("quiet")),
        ("prompts/get", {"name": "greet"}),
        ("resources/read", {"uri": "x://y"}),
    ],
)
@pytest.mark.verifies("S19")
def test_a_state_belongs_to_one_request(method: str, params: dict[str, Any]) -> None:
    """Another tool, other arguments or another method: refused, though the seal is whole."""
    server = asking_and_not()

    async def main() -> None:
        async with rounds(server) as client:
            first = await client.call("greet", {})
            answer = await client.answer(method, {**params, **state(first)})
            if params == calling("greet", x=1):  # does not get so far: no such argument
                assert answer["result"]["isError"]
            else:
                assert answer["error"] == REFUSED

    run(main())


@pytest.mark.verifies("S19", "S80", "S81")
def test_a_state_belongs_to_one_user() -> None:
    """Not to a connection: the user may come back on another, others may not use it."""
    server = asking_and_not()

    async def main() -> None:
        async with rounds(server) as mine, rounds(server) as again, rounds(server) as other:
            mine.connection.session.principal = "ada"
            again.connection.session.principal = "ada"
            other.connection.session.principal = "eve"
            first = await mine.call("greet", {})
            stolen = await retry(other, "greet", first, name=accept(name="Eve"))
            assert stolen["error"] == REFUSED
            other.connection.session.principal = None
            stolen = await retry(other, "greet", first, name=accept(name="Eve"))
            assert stolen["error"] == REFUSED
            # A claimed name proves nothing.
            other.capabilities = {**FULL}
            params = {**calling("greet"), **state(first), "_meta": {"user": "ada"}}
            assert (await other.answer("tools/call", params))["error"] == REFUSED
            answer = await retry(again, "greet", first, name=accept(name="Ada"))
            assert text(answer["result"]) == "Hello Ada"

    run(main())


@pytest.mark.verifies("S19")
def test_a_state_expires() -> None:
    server = asking_and_not()
    now = [1_000_000.0]
    server.seal = Seal("s", keys=[b"k" * 32], ttl_seconds=60, clock=lambda: now[0])

    async def main() -> None:
        async with rounds(server) as client:
            first = await client.call("greet", {})
            now[0] += 59
            answer = await retry(client, "greet", first, name=accept(name="A"))
            assert text(answer["result"]) == "Hello A"
            now[0] += 2
            answer = await retry(client, "greet", first, name=accept(name="A"))
            assert answer["error"] == REFUSED

    run(main())


@pytest.mark.verifies("S19")
def test_replicas_share_a_key_and_strangers_do_not() -> None:
    stranger = Server("s")
    stranger.tool(greet)

    async def main() -> None:
        async with (
            rounds(asking_and_not()) as one,
            rounds(asking_and_not()) as two,
            rounds(stranger) as three,
        ):
            first = await one.call("greet", {})
            answer = await retry(two, "greet", first, name=accept(name="A"))
            assert text(answer["result"]) == "Hello A"
            answer = await retry(three, "greet", first, name=accept(name="A"))
            assert answer["error"] == REFUSED

    run(main())


@pytest.mark.verifies("F-no-leak", "D-unknown-members")
def test_before_2026_these_members_mean_nothing() -> None:
    async def main() -> None:
        async with connect(asking_and_not(), D) as client:
            params = {**calling("plain"), "requestState": "x", "inputResponses": 1}
            client.send(request(77, "tools/call", params))
            assert text((await client.receive())["result"]) == "plain"

    run(main())


@pytest.mark.verifies("S21", "S9")
def test_a_question_nobody_comes_back_to_costs_nothing() -> None:
    async def main() -> None:
        async with rounds(tool(greet)) as client:
            for _ in range(50):
                assert (await client.call("greet", {}))["resultType"] == "input_required"
                assert_idle(client)
            assert not [m for m in said(client) if "method" in m]

    run(main())


def test_answers_too_long_to_seal_are_refused() -> None:
    async def main() -> None:
        async with rounds(tool(survey)) as client:
            first = await client.call("survey", {})
            name = accept(name="x" * (1 << 20))
            answer = await retry(client, "survey", first, name=name, roots=NO_ROOTS)
            assert answer["error"]["code"] == -32602
            assert "too long" in answer["error"]["data"]
            assert (await client.call("survey", {}))["resultType"] == "input_required"

    run(main())


# --- clients that do not play along ---------------------------------------------------------------


def caught(catch: type[BaseException] = Exception) -> tuple[Server, list[BaseException]]:
    """A tool that asks, and what it got instead of an answer."""
    server = Server("s")
    errors: list[BaseException] = []

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            return await greet(ctx)
        except catch as error:
            errors.append(error)
            raise

    return server, errors


async def asked_by(client: TestClient, name: str = "ask") -> tuple[Any, Any]:
    """The future of a call, and the question it asked."""
    _, future = client.start("tools/call", calling(name))
    return future, await client.receive()


@pytest.mark.parametrize("revision", [C, D])
@pytest.mark.parametrize(("code", "data"), [(-1, None), (-32601, "x"), (-32000, {"a": 1})])
@pytest.mark.verifies("S85", "X30")
def test_an_error_instead_of_an_answer(revision: str, code: int, data: Any) -> None:
    server, errors = caught()
    reply = {"code": code, "message": "User said no", **({} if data is None else {"data": data})}
    answer, _ = played(server, revision, calling("ask"), {FORM: [reply]})
    assert answer["result"]["isError"] is True
    assert text(answer["result"]) == "The client refused: User said no"
    (error,) = errors
    assert isinstance(error, ClientError)
    assert error.code == code


@pytest.mark.parametrize("revision", [C, D])
@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"action": "perhaps"},
        {"action": 1},
        accept(name=7),
        accept(),
        {"action": "accept", "content": "Ada"},
    ],
)
@pytest.mark.verifies("S85")
def test_nonsense_instead_of_an_answer(revision: str, nonsense: Any) -> None:
    server, errors = caught()

    async def main() -> None:
        async with connect(server, revision, capabilities=full(revision)) as client:
            future, question = await asked_by(client)
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": nonsense}
            client.send(msgspec.json.encode(reply))
            result = (await future)["result"]
            assert result["isError"]
            assert text(result).startswith("The client's answer makes no sense: ")
            assert_idle(client)

    run(main())
    assert [(type(one), getattr(one, "code", "")) for one in errors] == [(ClientError, None)]


@pytest.mark.parametrize("revision", [C, D])
@pytest.mark.verifies("E-result-and-error", "S85")
def test_both_result_and_error_instead_of_an_answer(revision: str) -> None:
    server, errors = caught()

    async def main() -> None:
        async with connect(server, revision, capabilities=full(revision)) as client:
            future, question = await asked_by(client)
            error = {"code": 1, "message": "m"}
            both = {"jsonrpc": "2.0", "id": question["id"], "result": {}, "error": error}
            client.send(msgspec.json.encode(both))
            result = (await future)["result"]
            assert text(result).startswith("The client's answer makes no sense: ")
            assert_idle(client)

    run(main())
    assert [type(one) for one in errors] == [ClientError]


@pytest.mark.parametrize("revision", [C, D])
@pytest.mark.verifies("E-stray-response", "SH-late-answer", "X3")
def test_answers_that_belong_to_nothing(revision: str) -> None:
    async def main() -> None:
        async with connect(tool(greet), revision, capabilities=full(revision)) as client:
            answer = {"jsonrpc": "2.0", "id": 1, "result": accept(name="never asked")}
            client.send(msgspec.json.encode(answer))
            future, question = await asked_by(client, "greet")
            id = question["id"]
            for wrong in (id + 1, str(id), "x", id - 1):
                reply = {"jsonrpc": "2.0", "id": wrong, "result": accept(name="wrong")}
                client.send(msgspec.json.encode(reply))
            await asyncio.sleep(0)
            assert not future.done()
            client._send({"id": id, "result": accept(name="first")})
            client.send(
                msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": accept(name="second")})
            )
            assert text((await future)["result"]) == "Hello first"
            again, question = await asked_by(client, "greet")
            assert question["id"] != id
            client._send({"id": question["id"], "result": accept(name="Ada")})
            assert text((await again)["result"]) == "Hello Ada"
            assert await client.settle() == []
            assert_idle(client)

    run(main())


@pytest.mark.parametrize("revision", [C, D])
@pytest.mark.parametrize("end", ["input", "lost", "close"])
@pytest.mark.verifies("S85", "S21")
def test_a_client_that_vanishes(revision: str, end: str, caplog: pytest.LogCaptureFixture) -> None:
    server, errors = caught(BaseException)

    async def main() -> None:
        async with connect(server, revision, capabilities=full(revision)) as client:
            future, _ = await asked_by(client)
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            if end == "input":
                client.connection.end_of_input()
            elif end == "lost":
                client.connection.lost()
            else:
                await client.connection.close()
            await until(lambda: errors)
            assert isinstance(errors[0], ConnectionClosed | asyncio.CancelledError)
            await until(lambda: not client.connection._tasks)
            assert_idle(client)
            future.cancel()
        async with connect(server, revision, capabilities=full(revision)) as client:
            answer, _ = await converse(client, calling("ask"), {FORM: [accept(name="next")]})
            assert text(answer["result"]) == "Hello next"

    run(main())
    if end != "close":
        assert [type(one) for one in errors] == [ConnectionClosed]


@pytest.mark.parametrize("revision", [C, D])
def test_who_asks_again_after_the_end_is_told_at_once(revision: str) -> None:
    server = Server("s")
    errors: list[str] = []

    @server.tool
    async def insist(ctx: Context) -> str:
        for _ in range(3):
            try:
                return await greet(ctx)
            except ConnectionClosed as error:
                errors.append(str(error))
        raise ToolError("nobody there")

    async def main() -> None:
        async with connect(server, revision, capabilities=full(revision)) as client:
            future, _ = await asked_by(client, "insist")
            client.connection.end_of_input()
            result = (await future)["result"]
            assert text(result) == "nobody there"
            assert len(errors) == 3

    run(main())


@pytest.mark.parametrize("revision", [C, D])
@pytest.mark.verifies("X3")
def test_many_questions_at_once_find_their_answers(revision: str) -> None:
    async def main() -> None:
        async with connect(tool(greet), revision, capabilities=full(revision)) as client:
            futures = [client.start("tools/call", calling("greet"))[1] for _ in range(20)]
            questions = [await client.receive() for _ in futures]
            ids = [one["id"] for one in questions]
            assert len(set(ids)) == 20
            for id in reversed(ids):
                client._send({"id": id, "result": accept(name=str(id))})
            answers = [text((await one)["result"]) for one in futures]
            assert sorted(answers) == sorted(f"Hello {id}" for id in ids)
            assert_idle(client)

    run(main())


@pytest.mark.parametrize("revision", [A, B, C, D])
def test_a_model_that_uses_a_tool_nobody_offered(revision: str) -> None:
    async def write(ctx: Context) -> str:
        return (await ctx.sample("x", max_tokens=5)).text

    async def main() -> None:
        async with connect(tool(write), revision, capabilities=full(revision)) as client:
            future, question = await asked_by(client, "write")
            use = {"type": "tool_use", "id": "u", "name": "n", "input": {}}
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": written(use)}
            client.send(msgspec.json.encode(reply))
            result = (await future)["result"]
            assert text(result).startswith("The client's answer makes no sense: ")

    run(main())


@every_revision
@pytest.mark.parametrize("uri", ["https://example.com/", "relative/path", ""])
def test_roots_that_are_no_files(revision: str, uri: str) -> None:
    async def look(ctx: Context) -> str:
        return str(len(await ctx.roots()))

    server = tool(look)
    wrong = {"roots": [{"uri": uri}]}

    async def main() -> None:
        async with connect(server, revision, capabilities=full(revision)) as client:
            if revision == E:
                first = await client.call("look", {})
                again = await retry(client, "look", first, roots=wrong)
                assert again["result"]["resultType"] == "input_required"
                return
            future, question = await asked_by(client, "look")
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": wrong}
            client.send(msgspec.json.encode(reply))
            assert "a root must be a file:// URI" in text((await future)["result"])

    run(main())


# --- when roots change ----------------------------------------------------------------------------


@pytest.mark.parametrize("revision", [A, B, C, D])
@pytest.mark.verifies("R002-19")
def test_a_callback_for_changed_roots(revision: str) -> None:
    server = Server("s")
    seen: list[Any] = []

    @server.notification("notifications/roots/list_changed")
    async def changed(session: Session) -> None:
        roots = await session.ask(Roots())
        seen.append([root.uri for root in roots])

    async def main() -> None:
        async with connect(server, revision, capabilities=full(revision)) as client:
            client.notify("notifications/roots/list_changed")
            question = await client.receive()
            assert question["method"] == ROOTS
            client._send({"id": question["id"], "result": {"roots": [{"uri": "file:///n"}]}})
            await until(lambda: seen)
            await until(lambda: not client.connection._home.background)
            assert seen == [["file:///n"]]
            assert_idle(client)

    run(main())


@pytest.mark.parametrize("end", ["refused", "closed", "undeclared"])
def test_a_callback_that_fails_is_only_logged(end: str, caplog: pytest.LogCaptureFixture) -> None:
    server = tool(greet)

    @server.notification("notifications/roots/list_changed")
    async def changed(session: Session) -> None:
        await session.ask(Roots())

    async def main() -> None:
        capabilities = {} if end == "undeclared" else FULL
        async with connect(server, D, capabilities=capabilities) as client:
            client.notify("notifications/roots/list_changed")
            if end != "undeclared":
                question = await client.receive()
            if end == "refused":
                error = {"code": -1, "message": "no"}
                client._send({"id": question["id"], "error": error})
            elif end == "closed":
                client.connection.end_of_input()
            await until(lambda: not client.connection._home.background)
            assert_idle(client)
            if end != "closed":
                await client.request("ping")

    run(main())
    assert "notifications/roots/list_changed failed" in caplog.text


# --- questions that the client runs as tasks ------------------------------------------------------

TASK = {
    "taskId": "t-1",
    "status": "working",
    "createdAt": "2025-11-25T10:00:00Z",
    "lastUpdatedAt": "2025-11-25T10:00:00Z",
    "ttl": None,
}
RUNS_TASKS = {
    **FULL,
    "tasks": {
        "list": {},
        "cancel": {},
        "requests": {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}},
    },
}


async def patient(ctx: Context) -> str:
    answer = await ctx.ask("name", Elicit("Who?", Name), as_task=True)
    return f"Hello {answer.value.name}"


@pytest.mark.verifies("R002-19")
def test_the_client_runs_the_question_as_a_task() -> None:
    async def main() -> None:
        async with connect(tool(patient), D, capabilities=RUNS_TASKS) as client:
            future, question = await asked_by(client, "patient")
            assert question["method"] == FORM
            assert question["params"]["task"] == {}
            client._send({"id": question["id"], "result": {"task": TASK}})
            wanted = await client.receive()
            assert (wanted["method"], wanted["params"]) == ("tasks/result", {"taskId": "t-1"})
            related = {"io.modelcontextprotocol/related-task": {"taskId": "t-1"}}
            client._send({"id": wanted["id"], "result": {**accept(name="Ada"), "_meta": related}})
            assert text((await future)["result"]) == "Hello Ada"
            assert_idle(client)

    run(main())


@pytest.mark.verifies("R002-19")
def test_sampling_as_a_task() -> None:
    async def write(ctx: Context) -> str:
        question = Sample("x", max_tokens=5)
        return (await ctx.ask("k", question, as_task=True)).text

    async def main() -> None:
        async with connect(tool(write), D, capabilities=RUNS_TASKS) as client:
            future, question = await asked_by(client, "write")
            assert question["method"] == SAMPLING
            client._send({"id": question["id"], "result": {"task": TASK}})
            wanted = await client.receive()
            client._send({"id": wanted["id"], "result": written(block("a line"))})
            assert text((await future)["result"]) == "a line"

    run(main())


@pytest.mark.parametrize(
    "tasks",
    [
        None,
        {},
        {"requests": {}},
        {"requests": {"sampling": {"createMessage": {}}}},
        {"requests": {"elicitation": {}}},
    ],
)
@pytest.mark.verifies("X14", "R002-14")
def test_no_task_for_a_client_that_cannot(tasks: Any) -> None:
    capabilities = FULL if tasks is None else {**FULL, "tasks": tasks}
    answer, asked = played(
        tool(patient), D, calling("patient"), {FORM: [accept(name="A")]}, capabilities=capabilities
    )
    assert text(answer["result"]) == "Hello A"
    assert "task" not in asked[0]["params"]


@pytest.mark.parametrize("revision", [C, E])
def test_other_revisions_ask_as_usual(revision: str) -> None:
    answer, asked = played(tool(patient), revision, calling("patient"), {FORM: [accept(name="A")]})
    assert text(answer["result"]) == "Hello A"
    assert "task" not in asked[0]["params"]


def test_a_client_that_could_but_answers_at_once() -> None:
    replies: Replies = {FORM: [accept(name="A")]}
    answer, _ = played(tool(patient), D, calling("patient"), replies, capabilities=RUNS_TASKS)
    assert text(answer["result"]) == "Hello A"


@pytest.mark.parametrize("step", ["create", "result"])
@pytest.mark.verifies("S85")
def test_a_task_that_fails(step: str) -> None:
    error = {"code": -32603, "message": "it broke"}

    async def main() -> None:
        async with connect(tool(patient), D, capabilities=RUNS_TASKS) as client:
            future, question = await asked_by(client, "patient")
            if step == "result":
                client._send({"id": question["id"], "result": {"task": TASK}})
                question = await client.receive()
            client._send({"id": question["id"], "error": error})
            assert text((await future)["result"]) == "The client refused: it broke"
            assert_idle(client)

    run(main())


@pytest.mark.parametrize("cancel", ["answered", "refused", "both", "ignored"])
@pytest.mark.verifies("X18")
def test_cancelling_a_question_that_is_a_task(
    cancel: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `tasks/cancel`; and a client that does not answer even that holds nothing up."""

    async def main() -> None:
        async with connect(tool(patient), D, capabilities=RUNS_TASKS) as client:
            id, future = client.start("tools/call", calling("patient"))
            future.cancel()
            question = await client.receive()
            client._send({"id": question["id"], "result": {"task": TASK}})
            wanted = await client.receive()
            client.notify("notifications/cancelled", {"requestId": id})
            stopped, cancelled = await client.receive(), await client.receive()
            assert stopped["method"] == "notifications/cancelled"
            assert stopped["params"]["requestId"] == wanted["id"]
            assert cancelled["method"] == "tasks/cancel"
            assert cancelled["params"] == {"taskId": "t-1"}
            done = {**TASK, "status": "cancelled"}
            if cancel == "answered":
                client._send({"id": cancelled["id"], "result": done})
            elif cancel == "refused":
                error = {"code": -32602, "message": "too late"}
                client._send({"id": cancelled["id"], "error": error})
            elif cancel == "both":
                error = {"code": 1, "message": "m"}
                both = {"jsonrpc": "2.0", "id": cancelled["id"], "result": done, "error": error}
                client.send(msgspec.json.encode(both))
            await until(lambda: not client.connection._home.background)
            assert_idle(client)

    run(main())
    assert not caplog.records


@pytest.mark.verifies("X18")
def test_a_timeout_cancels_the_task_too() -> None:
    server = tool(patient, timeout=0.5)

    async def main() -> None:
        async with connect(server, D, capabilities=RUNS_TASKS) as client:
            future, question = await asked_by(client, "patient")
            client._send({"id": question["id"], "result": {"task": TASK}})
            await client.receive()
            assert "timed out" in text((await future)["result"])
            methods = [(await client.receive())["method"] for _ in range(2)]
            assert methods == ["notifications/cancelled", "tasks/cancel"]

    run(main())


def test_an_error_of_the_authors_choice_still_is_one() -> None:
    """-32042 and others may be raised by hand as well."""

    async def refuse(ctx: Context) -> str:
        raise McpError(1234, "mine", {"a": 1})

    answer, _ = played(tool(refuse), D, calling("refuse"), {})
    assert answer["error"] == {"code": 1234, "message": "mine", "data": {"a": 1}}
