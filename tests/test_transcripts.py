"""Golden transcripts: whole conversations, one file each, compared member by member.

A file of ``tests/transcripts/`` has one JSON object a line:

    {">": message}      the client sends a legal message (checked against its schema)
    {">raw": "text"}    the client sends this text, legal or not
    {"<": message}      the server answers; an array for a batch
    {"#": "text"}       a remark

All that the server sends until the client speaks again must be there, in order,
with exactly these members. ``DOVETAIL_UPDATE=1`` writes the answers anew; review
what changed against the specification before committing it.

``requirement-001/`` holds every message of requirement 001. There, as decided,
only the members the document shows are compared, and ``"..."`` stands for what it
leaves out.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from dovetail import McpError, Server, ToolError
from dovetail.spec.types import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    Icon,
    ImageContent,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from dovetail.testing import TestClient, connect

FOLDER = Path(__file__).parent / "transcripts"
UPDATE = bool(os.environ.get("DOVETAIL_UPDATE"))
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
NAMES = ("tools_list", "tools_call", "resources", "prompts", "completion", "errors", "malformed")
NOTES = Annotations(audience=["user"], priority=0.5, last_modified="2026-01-01T00:00:00Z")
SHARED: dict[str, Any] = {
    "title": "Title",
    "icons": [Icon(src="https://example.org/i.svg", mime_type="image/svg+xml", sizes=["any"])],
    "meta": {"example.org/level": 1},
}


class Point(Struct):
    x: int
    y: float


def golden() -> Server:
    """A server with one of each, so that every member has its place in a transcript."""
    server = Server(
        "golden",
        version="1.0.0",
        title="Golden",
        description="For transcripts.",
        instructions="Call add.",
        website_url="https://example.org",
        icons=[Icon(src="https://example.org/server.png")],
    )
    add_tools(server)
    add_resources(server)
    add_prompts(server)
    return server


def add_tools(server: Server) -> None:
    @server.tool(read_only=True, idempotent=True, **SHARED)
    async def add(a: int, b: Annotated[int, Meta(ge=0)] = 1) -> int:
        """Add two numbers.

        Args:
            a: The first.
        """
        return a + b

    @server.tool
    async def point(x: int) -> Point:
        return Point(x, 0.5)

    @server.tool
    async def show() -> list[TextContent | ImageContent | AudioContent | EmbeddedResource]:
        return [
            TextContent(text="text", annotations=NOTES, meta={"example.org/k": 1}),
            ImageContent.of(b"png", "image/png"),
            AudioContent.of(b"wav", "audio/wav"),
            EmbeddedResource(resource=ResourceContents.of("note://1", "embedded", "text/plain")),
            ResourceLink(uri="note://2", name="two", **SHARED),  # type: ignore[list-item]
        ]

    @server.tool
    async def fail(how: str) -> None:
        if how == "tool error":
            raise ToolError("The disk is full.")
        if how == "protocol error":
            raise McpError(-31000, "Quota exceeded", {"left": 0})
        raise RuntimeError("not for clients")


def add_resources(server: Server) -> None:
    @server.resource("note://static", mime_type="text/plain", size=5, annotations=NOTES, **SHARED)
    def static() -> str:
        """A note."""
        return "hello"

    @server.resource("note://binary", mime_type="image/png", ttl_ms=60_000)
    def binary() -> bytes:
        return b"\x89PNG"

    @server.resource("note://{folder}/{number}", mime_type="text/plain")
    def numbered(folder: str, number: int) -> str:
        """A note by its number."""
        if number == 0:
            raise McpError(-32002)
        return f"{folder} {number + 1}"

    @numbered.complete("folder")
    def folders(prefix: str) -> list[str]:
        return [f"{prefix}{number:03}" for number in range(101)]


def add_prompts(server: Server) -> None:
    @server.prompt(**SHARED)
    def greet(name: str, mood: str = "happy") -> list[Any]:
        """Greet somebody.

        Args:
            name: Whom.
        """
        return [
            f"Greet {name}, be {mood}.",
            PromptMessage(role="assistant", content=TextContent(text="Hello!")),
            ResourceLink(uri="note://static", name="static"),
        ]

    @greet.complete("mood")
    def moods(prefix: str, given: dict[str, str]) -> list[str]:
        found = ["happy", "hasty", "sad"] + ([f"like {given['name']}"] if given else [])
        return [mood for mood in found if mood.startswith(prefix)]


DIVISION = """[ERROR] DIVISION-BY-ZERO
Arithmetic error signalled.

[Backtrace]
0: (/ 1 0)
..."""
CONDITION = "[ERROR] condition-type\nError message...\n[Backtrace]\n..."


def requirement_001() -> Server:
    """The server of the document, its evaluator played by a table."""
    server = Server("cl-mcp-server", version="0.1.0")

    @server.tool(name="evaluate-lisp")
    async def evaluate(code: str) -> str:
        """Evaluate Common Lisp code in a persistent session

        Args:
            code: The Lisp code to evaluate
        """
        failures = {"(/ 1 0)": DIVISION, "(error 'condition-type)": CONDITION}
        if code in failures:
            raise ToolError(failures[code])
        return {"(+ 1 2 3)": "=> 6", "(+ 1 2)": "=> 3"}[code]

    return server


# --- replaying --------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def send(client: TestClient, line: dict[str, Any]) -> None:
    if ">raw" in line:
        # A byte that is no UTF-8 is written as half a surrogate pair.
        client.send(line[">raw"].encode("utf-8", "surrogateescape"))
        return
    frame = json.dumps(line[">"]).encode()
    client.recorder.sent("client", frame)
    client.connection.feed(frame + b"\n")


async def replay(server: Server, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same lines with the answers that came."""
    out: list[dict[str, Any]] = []
    async with connect(server, handshake=False) as client:
        for line in lines:
            if "<" in line:
                continue
            out.append(line)
            if "#" not in line:
                send(client, line)
                out += [{"<": message} for message in await client.settle()]
    return out


def written(lines: list[dict[str, Any]]) -> list[str]:
    """Text, because in Python 1, 1.0 and True are equal."""
    return [json.dumps(line, sort_keys=True, ensure_ascii=False) for line in lines]


def transcripts(folder: str) -> Iterator[Any]:
    for path in sorted((FOLDER / folder).glob("*.jsonl")):
        yield pytest.param(path, id=f"{folder}/{path.stem}")


@pytest.mark.parametrize(
    "path", [param for revision in REVISIONS for param in transcripts(revision)]
)
@pytest.mark.verifies("D-golden", "F-no-leak", "F-no-stamps", "R000-2", "R000-3", "R000-4")
@pytest.mark.verifies("R000-8", "R000-12", "R000-13", "INV-001", "INV-005", "X1", "X5", "X13")
def test_a_conversation_goes_as_written(path: Path) -> None:
    wanted = read(path)
    found = asyncio.run(replay(golden(), wanted))
    if UPDATE:
        text = [json.dumps(line) for line in found]
        path.write_text("\n".join(text) + "\n", "utf-8")
    assert written(found) == written(read(path))


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_revision_has_its_transcripts(revision: str) -> None:
    start = "discover" if revision == "2026-07-28" else "handshake"
    found = {path.stem for path in (FOLDER / revision).glob("*.jsonl")}
    assert found == {start, *NAMES}


def answers(path: Path) -> list[dict[str, Any]]:
    found = [line["<"] for line in read(path) if "<" in line]
    return [
        one for message in found for one in (message if isinstance(message, list) else [message])
    ]


@pytest.mark.parametrize("path", list(transcripts("2026-07-28")))
@pytest.mark.verifies("S9", "X17", "X33", "S10", "SH-server-info", "X32")
def test_what_a_server_of_2026_sends(path: Path) -> None:
    for message in answers(path):
        assert "method" not in message, "no request leaves it"
        legacy = message.get("id") in (20, 21)  # the handshake at the end of discover.jsonl
        if "result" in message and not legacy:
            assert message["result"]["resultType"] == "complete"
            meta = message["result"]["_meta"]
            assert meta["io.modelcontextprotocol/serverInfo"]["name"] == "golden"
        elif "error" in message:
            assert message["error"]["code"] not in (-32002, -32042)


@pytest.mark.parametrize("revision", REVISIONS[:4])
@pytest.mark.verifies("D-quiet-start", "R002-10")
def test_a_server_does_not_speak_first(revision: str) -> None:
    lines = read(FOLDER / revision / "handshake.jsonl")
    ready = lines.index({">": {"jsonrpc": "2.0", "method": "notifications/initialized"}})
    for before, line in itertools.pairwise(lines[:ready]):
        if "<" in line:
            assert line["<"]["id"] == before[">"]["id"], "an answer, and nothing else"


# --- requirement 001 --------------------------------------------------------------------------


def shows(shown: Any, sent: Any) -> bool:
    """Whether ``sent`` has all the document shows of it."""
    if shown == "...":
        return True
    if isinstance(shown, dict) and isinstance(sent, dict):
        return all(key in sent and shows(value, sent[key]) for key, value in shown.items())
    if isinstance(shown, list) and isinstance(sent, list):
        return len(shown) == len(sent) and all(map(shows, shown, sent))
    return type(shown) is type(sent) and bool(shown == sent)


@pytest.mark.parametrize("path", list(transcripts("requirement-001")))
@pytest.mark.verifies("R001-1", "R001-2", "R001-3", "R001-4", "R001-5", "R001-6", "R001-7")
@pytest.mark.verifies("R001-8", "R001-9", "R001-10", "R001-11", "D-golden", "D-error-data")
def test_the_messages_of_requirement_001(path: Path) -> None:
    wanted = read(path)
    found = asyncio.run(replay(requirement_001(), wanted))
    assert [list(line) for line in found] == [list(line) for line in wanted], found
    for shown, sent in zip(wanted, found, strict=True):
        assert shows(shown, sent), sent


def test_what_a_document_shows() -> None:
    assert shows({"a": {}, "b": "..."}, {"a": {"c": 1}, "b": 2, "d": 3})
    assert not shows({"a": 1}, {"a": True})
    assert not shows({"a": 1}, {})
    assert not shows([1], [1, 2])
    assert not shows([{"a": 1}], [{"a": 2}])
