"""Completion of prompt arguments and template variables."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dovetail import McpError, Server
from dovetail.spec.types import Completion
from dovetail.testing import connect

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
STAMP = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}

LANGUAGES = ["python", "perl", "pascal", "lisp"]
PROMPT = {"type": "ref/prompt", "name": "review"}
TEMPLATE = {"type": "ref/resource", "uri": "db://{table}/{column}"}


def make() -> Server:
    server = Server("s", version="1")

    @server.prompt
    def review(language: str, level: str = "", other: str = "") -> str:
        return language

    @review.complete("language")
    def languages(prefix: str) -> list[str]:
        return [name for name in LANGUAGES if name.startswith(prefix)]

    @review.complete("level")
    async def levels(prefix: str, given: dict[str, str]) -> list[str]:
        await asyncio.sleep(0)
        return [f"{key}={value}" for key, value in sorted(given.items())]

    @server.resource("db://{table}/{column}")
    def column(table: str, column: str) -> str:
        return table

    @column.complete("table")
    def tables(prefix: str) -> Any:
        return (f"{prefix}{n}" for n in range(250))

    server.resource("db://static")(lambda: "")
    return server


def answer(server: Server, revision: str, ref: Any, argument: Any, **rest: Any) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        async with connect(server, revision) as client:
            params = {"ref": ref, "argument": argument, **rest}
            return await client.answer("completion/complete", params)

    return asyncio.run(main())


def complete(server: Server, revision: str, ref: Any, name: str, value: str, **rest: Any) -> Any:
    message = answer(server, revision, ref, {"name": name, "value": value}, **rest)
    result = message["result"]
    stamps = {"resultType": "complete", "_meta": STAMP} if revision == E else {}
    assert {k: v for k, v in result.items() if k != "completion"} == stamps
    return result["completion"]


@every_revision
@pytest.mark.verifies("F-completion", "F-no-stamps", "SH-server-info")
def test_an_argument_of_a_prompt(revision: str) -> None:
    found = complete(make(), revision, PROMPT, "language", "p")
    assert found == {"values": ["python", "perl", "pascal"], "total": 3, "hasMore": False}
    found = complete(make(), revision, PROMPT, "language", "x")
    assert found == {"values": [], "total": 0, "hasMore": False}


@every_revision
@pytest.mark.verifies("F-completion", "S44")
def test_a_variable_of_a_template_with_more_than_a_hundred_values(revision: str) -> None:
    found = complete(make(), revision, TEMPLATE, "table", "t")
    values = [f"t{n}" for n in range(100)]
    assert found == {"values": values, "total": 250, "hasMore": True}


@every_revision
@pytest.mark.parametrize(("count", "more"), [(99, False), (100, False), (101, True)])
@pytest.mark.verifies("S44")
def test_the_hundredth_value(revision: str, count: int, more: bool) -> None:
    server = Server("s", version="1")

    @server.prompt
    def review(language: str) -> str:
        return language

    @review.complete("language")
    def languages(prefix: str) -> list[str]:
        return ["a"] * count

    found = complete(server, revision, PROMPT, "language", "")
    assert len(found["values"]) == min(count, 100)
    assert (found["total"], found["hasMore"]) == (count, more)


@every_revision
@pytest.mark.verifies("S44")
def test_a_completion_made_by_hand(revision: str) -> None:
    server = Server("s", version="1")

    @server.prompt
    def review(language: str) -> str:
        return language

    @review.complete("language")
    def languages(prefix: str) -> Completion:
        values = ["a"] * (150 if prefix else 1)
        return Completion(values=values, total=10_000)

    few = complete(server, revision, PROMPT, "language", "")
    assert few == {"values": ["a"], "total": 10_000}
    many = complete(server, revision, PROMPT, "language", "a")
    assert many == {"values": ["a"] * 100, "total": 10_000, "hasMore": True}


@pytest.mark.parametrize("revision", [C, D, E])
@pytest.mark.verifies("F-completion-context")
def test_a_completer_sees_what_was_filled_in(revision: str) -> None:
    context = {"arguments": {"language": "lisp", "other": "x"}}
    found = complete(make(), revision, PROMPT, "level", "", context=context)
    assert found["values"] == ["language=lisp", "other=x"]
    assert complete(make(), revision, PROMPT, "level", "", context={})["values"] == []


@every_revision
def test_without_context_nothing_was_filled_in(revision: str) -> None:
    assert complete(make(), revision, PROMPT, "level", "")["values"] == []


@every_revision
def test_an_argument_nobody_completes_has_no_values(revision: str) -> None:
    assert complete(make(), revision, PROMPT, "other", "a") == {"values": []}
    assert complete(make(), revision, TEMPLATE, "column", "a") == {"values": []}


@every_revision
@pytest.mark.parametrize(
    ("ref", "name", "said"),
    [
        (PROMPT, "nope", "Prompt 'review' has no argument 'nope'"),
        (TEMPLATE, "nope", "Resource 'db://{table}/{column}' has no argument 'nope'"),
        (
            {"type": "ref/resource", "uri": "db://static"},
            "nope",
            "Resource 'db://static' has no argument 'nope'",
        ),
        (
            {"type": "ref/prompt", "name": "other"},
            "language",
            'Unknown reference: {"type":"ref/prompt","name":"other"}',
        ),
        (
            {"type": "ref/resource", "uri": "db://{x}"},
            "x",
            'Unknown reference: {"type":"ref/resource","uri":"db://{x}"}',
        ),
    ],
)
@pytest.mark.verifies("X37")
def test_what_cannot_be_completed_is_refused(
    revision: str, ref: dict[str, str], name: str, said: str
) -> None:
    message = answer(make(), revision, ref, {"name": name, "value": ""})
    assert message["error"] == {"code": -32602, "message": "Invalid params", "data": said}


@every_revision
@pytest.mark.parametrize(
    "params",
    [
        '"ref":{"type":"ref/tool","name":"a"},"argument":{"name":"a","value":""}',
        '"ref":{"name":"review"},"argument":{"name":"a","value":""}',
        '"ref":{"type":"ref/prompt","name":"review"},"argument":{"name":"language","value":1}',
        '"ref":{"type":"ref/prompt","name":"review"},"argument":{"name":"language"}',
        '"ref":{"type":"ref/prompt","name":"review"}',
    ],
)
@pytest.mark.verifies("X37")
def test_a_malformed_question_never_reaches_a_completer(revision: str, params: str) -> None:
    async def main() -> Any:
        async with connect(make(), revision) as client:
            meta = (
                ',"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
                '"io.modelcontextprotocol/clientCapabilities":{}}'
            )
            inner = params + (meta if revision == E else "")
            frame = (
                '{"jsonrpc":"2.0","id":"x","method":"completion/complete","params":{' + inner + "}}"
            )
            client.send(frame.encode())
            return await client.receive()

    message = asyncio.run(main())
    assert message["id"] == "x"
    assert (message["error"]["code"], message["error"]["message"]) == (-32602, "Invalid params")


@every_revision
@pytest.mark.verifies("E-handler-crash")
def test_a_completer_that_fails(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s", version="1")

    @server.prompt
    def review(language: str, level: str) -> str:
        return language

    @review.complete("language")
    def crash(prefix: str) -> list[str]:
        raise RuntimeError("secret")

    @review.complete("level")
    def refuse(prefix: str) -> list[str]:
        raise McpError(-31000, "Too fast")

    message = answer(server, revision, PROMPT, {"name": "level", "value": ""})
    assert message["error"] == {"code": -31000, "message": "Too fast"}
    message = answer(server, revision, PROMPT, {"name": "language", "value": ""})
    assert message["error"] == {"code": -32603, "message": "Internal error"}
    assert "RuntimeError: secret" in caplog.text


def test_a_sync_completer_runs_in_a_thread() -> None:
    server = Server("s", version="1")

    @server.prompt
    def review(language: str) -> str:
        return language

    @review.complete("language")
    def where(prefix: str) -> list[str]:
        return [threading.current_thread().name]

    (value,) = complete(server, D, PROMPT, "language", "")["values"]
    assert value.startswith("dovetail-worker-")


@every_revision
@pytest.mark.verifies("S12")
def test_without_completers_there_is_no_completion(revision: str) -> None:
    server = Server("s", version="1")
    server.prompt(name="review")(lambda language: language)
    message = answer(server, revision, PROMPT, {"name": "language", "value": ""})
    assert message["error"] == {
        "code": -32601,
        "message": "Method not found",
        "data": "Method 'completion/complete' is not supported",
    }
