"""Prompts as a client of each revision sees them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from dovetail import Context, McpError, Server
from dovetail.spec.types import (
    AudioContent,
    EmbeddedResource,
    GetPromptResult,
    Icon,
    ImageContent,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from dovetail.testing import TestClient, connect

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
STAMP = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
META = {"example.org/k": 1}


def server_with(fn: Callable[..., Any], **options: Any) -> Server:
    server = Server("s", version="1")
    server.prompt(name="it", **options)(fn)
    return server


def answer(server: Server, revision: str, method: str, params: Any = None) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        async with connect(server, revision) as client:
            return await client.answer(method, params)

    return asyncio.run(main())


def get(server: Server, revision: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
    given = {} if arguments is None else {"arguments": arguments}
    message = answer(server, revision, "prompts/get", {"name": "it", **given})
    if "error" in message:
        return message["error"]  # type: ignore[no-any-return]
    result: dict[str, Any] = message["result"]
    if revision == E:
        assert result.pop("resultType") == "complete"
        assert result.pop("_meta") == STAMP
    assert not result.keys() & {"resultType", "ttlMs", "cacheScope"}
    return result


def user(**content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


# --- definitions --------------------------------------------------------------------------------


@every_revision
@pytest.mark.verifies("F-prompt", "F-metadata", "F-no-leak")
def test_members_of_a_definition_by_revision(revision: str) -> None:
    def review(code: str, style: Annotated[str, Meta(description="How hard.")] = "strict") -> str:
        """Review some code.

        Args:
            code: What to review.
        """
        return code

    icons = [Icon(src="https://e.org/i.png", sizes=["any"])]
    server = server_with(review, title="Review", icons=icons, meta=META)
    expected: dict[str, Any] = {
        "name": "it",
        "description": "Review some code.",
        "arguments": [
            {"name": "code", "description": "What to review.", "required": True},
            {"name": "style", "description": "How hard.", "required": False},
        ],
    }
    if revision not in (A, B):
        expected |= {"title": "Review", "_meta": META}
    if revision in (D, E):
        expected["icons"] = [{"src": "https://e.org/i.png", "sizes": ["any"]}]
    assert answer(server, revision, "prompts/list")["result"]["prompts"] == [expected]


@every_revision
def test_a_prompt_without_arguments_lists_none(revision: str) -> None:
    server = Server("s", version="1")

    @server.prompt
    def hello(ctx: Context) -> str:
        return f"hello from {ctx.method}"

    assert answer(server, revision, "prompts/list")["result"]["prompts"] == [{"name": "hello"}]
    result = answer(server, revision, "prompts/get", {"name": "hello"})["result"]
    assert result["messages"] == [user(type="text", text="hello from prompts/get")]


# --- arguments ----------------------------------------------------------------------------------


def typed(n: int, flag: bool = False, kind: Literal["a", "b"] = "a", x: float = 0.5) -> str:
    return repr((n, flag, kind, x))


@every_revision
@pytest.mark.verifies("F-prompt")
def test_strings_become_what_the_signature_says(revision: str) -> None:
    given = {"n": "42", "flag": "true", "kind": "b", "x": "1"}
    result = get(server_with(typed), revision, given)
    assert result == {"messages": [user(type="text", text="(42, True, 'b', 1.0)")]}
    result = get(server_with(typed), revision, {"n": "-1"})
    assert result == {"messages": [user(type="text", text="(-1, False, 'a', 0.5)")]}


@every_revision
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "Missing required argument 'n'"),
        ({}, "Missing required argument 'n'"),
        ({"n": "x"}, "Invalid argument 'n': expected int, got str \"x\""),
        ({"n": "1.5"}, "Invalid argument 'n': expected int, got str \"1.5\""),
        ({"n": "1", "m": "2"}, "Unknown argument 'm'; known: 'n', 'flag', 'kind', 'x'"),
        (
            {"n": "1", "kind": "c"},
            'Invalid argument \'kind\': expected one of "a", "b", got str "c"',
        ),
    ],
)
@pytest.mark.verifies("X38", "F-prompt")
def test_arguments_are_checked_before_the_prompt_runs(
    revision: str, given: dict[str, str] | None, said: str
) -> None:
    ran = []

    def prompt(n: int, flag: bool = False, kind: Literal["a", "b"] = "a", x: float = 0.5) -> str:
        ran.append(n)
        return ""

    expected = {"code": -32602, "message": "Invalid params", "data": said}
    assert get(server_with(prompt), revision, given) == expected
    assert not ran


@every_revision
@pytest.mark.verifies("X38")
def test_arguments_that_are_no_strings_are_refused(revision: str) -> None:
    async def main() -> Any:
        async with connect(server_with(typed), revision) as client:
            params = '"name":"it","arguments":{"n":42}'
            if revision == E:
                params += (
                    ',"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
                    '"io.modelcontextprotocol/clientCapabilities":{}}'
                )
            frame = '{"jsonrpc":"2.0","id":"x","method":"prompts/get","params":{' + params + "}}"
            client.send(frame.encode())
            return await client.receive()

    message = asyncio.run(main())
    assert message["error"]["code"] == -32602
    assert message["error"]["data"] == "Expected `str`, got `int` - at `$.arguments[...]`"


@every_revision
def test_an_unknown_prompt(revision: str) -> None:
    message = answer(server_with(typed), revision, "prompts/get", {"name": "other"})
    data = "Unknown prompt: 'other'"
    assert message["error"] == {"code": -32602, "message": "Invalid params", "data": data}


# --- messages -----------------------------------------------------------------------------------


@every_revision
@pytest.mark.verifies("F-prompt", "F-downgrade", "F-no-leak", "S40")
def test_messages_of_all_kinds(revision: str) -> None:
    def kinds() -> list[Any]:
        """All of them."""
        return [
            "plain",
            PromptMessage(role="assistant", content=TextContent(text="said", meta=META)),
            ImageContent.of(b"a", "image/png"),
            AudioContent.of(b"a", "audio/wav"),
            EmbeddedResource(resource=ResourceContents.of("x://y", b"a", "image/png")),
            ResourceLink(uri="x://y", name="y"),
        ]

    meta = {} if revision in (A, B) else {"_meta": META}
    audio = user(type="audio", data="YQ==", mimeType="audio/wav")
    if revision == A:
        audio = user(type="text", text="[audio, audio/wav: not supported in 2024-11-05]")
    link = user(type="resource_link", uri="x://y", name="y")
    if revision in (A, B):
        link = user(type="text", text="y: x://y")
    blob = {"uri": "x://y", "blob": "YQ==", "mimeType": "image/png"}
    assert get(server_with(kinds), revision) == {
        "description": "All of them.",
        "messages": [
            user(type="text", text="plain"),
            {"role": "assistant", "content": {"type": "text", "text": "said", **meta}},
            user(type="image", data="YQ==", mimeType="image/png"),
            audio,
            user(type="resource", resource=blob),
            link,
        ],
    }


@every_revision
def test_a_whole_result_and_no_messages(revision: str) -> None:
    def whole() -> GetPromptResult:
        """Of the function."""
        message = PromptMessage(role="user", content=TextContent(text="a"))
        return GetPromptResult(description="Of the result.", messages=[message])

    result = get(server_with(whole), revision)
    message = user(type="text", text="a")
    assert result == {"description": "Of the result.", "messages": [message]}
    assert get(server_with(lambda: []), revision) == {"messages": []}


@every_revision
@pytest.mark.parametrize(
    "value",
    [
        5,
        None,
        {"role": "user"},
        [b"a"],
        PromptMessage(role="user", content="text"),  # type: ignore[arg-type]
        PromptMessage(role="system", content=TextContent(text="a")),  # type: ignore[arg-type]
        GetPromptResult(messages="a"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.verifies("X38", "INV-005")
def test_what_is_no_message_never_leaves(
    revision: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    error = get(server_with(lambda: value), revision)
    assert error == {"code": -32603, "message": "Internal error"}
    assert caplog.records[0].exc_info is not None


@every_revision
@pytest.mark.verifies("E-handler-crash")
def test_failures_of_a_prompt(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> str:
        raise McpError(-31000, "Not today")

    async def crash() -> str:
        raise RuntimeError("secret")

    assert get(server_with(refuse), revision) == {"code": -31000, "message": "Not today"}
    assert not caplog.records
    assert get(server_with(crash), revision) == {"code": -32603, "message": "Internal error"}
    assert "RuntimeError: secret" in caplog.text


@every_revision
def test_prompts_run_in_a_thread_inline_or_on_the_loop(revision: str) -> None:
    def here() -> str:
        return threading.current_thread().name

    async def later() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    def said(server: Server) -> str:
        return get(server, revision)["messages"][0]["content"]["text"]  # type: ignore[no-any-return]

    assert said(server_with(here)).startswith("dovetail-worker-")
    assert said(server_with(here, inline=True)) == threading.main_thread().name
    assert said(server_with(later)) == threading.main_thread().name


def test_a_registered_prompt_can_still_be_called() -> None:
    server = Server("s", version="1")

    @server.prompt
    def twice(text: str) -> str:
        return text * 2

    assert twice("a") == "aa"


def test_prompts_do_not_wait_for_each_other() -> None:
    server = Server("s", version="1")
    gate: list[asyncio.Event] = []

    @server.prompt
    async def slow() -> str:
        gate.append(asyncio.Event())
        await gate[0].wait()
        return "slow"

    @server.prompt
    async def opens() -> str:
        gate[0].set()
        return "opens"

    async def scenario(client: TestClient) -> tuple[Any, Any]:
        _, waiting = client.start("prompts/get", {"name": "slow"})
        second = await client.request("prompts/get", {"name": "opens"})
        return (await waiting)["result"], second

    async def main() -> tuple[Any, Any]:
        async with connect(server, D) as client:
            return await scenario(client)

    first, second = asyncio.run(main())
    assert first["messages"] == [user(type="text", text="slow")]
    assert second["messages"] == [user(type="text", text="opens")]
