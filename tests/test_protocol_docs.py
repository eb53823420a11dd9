"""The pages of ``docs/protocol/`` say what the server does.

Every fenced block ``json-rpc`` is a conversation on a new connection: ``→`` is sent,
``←`` must be answered, exactly, members and order of messages. Words after
``json-rpc`` are options of the server, and ``after=REVISION`` opens a session first.
``DOVETAIL_UPDATE=1`` writes the answers anew.

The tables of the malformed-request page are sent row by row in every revision, and
the transcripts hold the same frames.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from dovetail import Limits, Server, ToolError
from dovetail.testing import TestClient, connect, envelope

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs" / "protocol"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
MALFORMED = DOCS / "scenarios" / "malformed-request.md"
UPDATE = bool(os.environ.get("DOVETAIL_UPDATE"))

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
FENCE = re.compile(r"^```json-rpc(.*)\n((?:.*\n)*?)```$", re.MULTILINE)


def demo(**options: Any) -> Server:
    server = Server("demo", version="1.0.0", **options)

    @server.tool(read_only=True)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def divide(a: float, b: float) -> float:
        """Divide a number by another."""
        if b == 0:
            raise ToolError("Nothing can be divided by 0.")
        if b < 0:
            raise RuntimeError("a fault of the tool")
        return a / b

    return server


def options(words: str) -> tuple[dict[str, Any], str | None]:
    """Options of the server, and the revision to open a session with."""
    found: dict[str, Any] = dict(word.split("=") for word in words.split())
    after = found.pop("after", None)
    if "page_size" in found:
        found["page_size"] = int(found["page_size"])
    if "revisions" in found:
        found["revisions"] = [found["revisions"]]
    return found, after


def talk(server: Server, after: str | None, frames: list[bytes]) -> list[list[Any]]:
    """What is answered to each frame."""

    async def main() -> list[list[Any]]:
        revision = D if after in (None, E) else str(after)
        async with connect(server, revision, handshake=after not in (None, E)) as client:
            if after == E:
                await client.request("server/discover", {"_meta": envelope()})
            return [await ask(client, frame) for frame in frames]

    return asyncio.run(main())


async def ask(client: TestClient, frame: bytes) -> list[Any]:
    client.send(frame)
    return await client.settle()


def conversation(words: str, body: str) -> str:
    """The block with the answers that came."""
    asked = [line for line in body.splitlines() if line.startswith("→ ")]
    server, after = options(words)
    answers = talk(demo(**server), after, [line[2:].encode() for line in asked])
    lines = []
    for line, messages in zip(asked, answers, strict=True):
        lines += [line, *(f"← {compact(message)}" for message in messages)]
    return "".join(f"{line}\n" for line in lines)


def compact(message: Any) -> str:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.verifies("R000-14", "R000-12", "R000-4")
def test_conversations_go_as_the_page_says(page: str) -> None:
    path = DOCS / page
    text = path.read_text("utf-8")
    if UPDATE:
        text = FENCE.sub(
            lambda block: f"```json-rpc{block[1]}\n{conversation(block[1], block[2])}```", text
        )
        path.write_text(text, "utf-8")
    for words, body in FENCE.findall(text):
        assert normal(body) == normal(conversation(words, body))
    assert text.count("```json-rpc") == len(FENCE.findall(text)), "a block that is not closed"
    assert not re.search(r"^[→←]", FENCE.sub("", text), re.MULTILINE), "messages nobody checks"


def normal(body: str) -> list[Any]:
    """The lines with their messages parsed, so that the order of members does not matter."""
    return [
        (line[0], line[1:] if line[0] == "→" else json.dumps(json.loads(line[2:]), sort_keys=True))
        for line in body.splitlines()
    ]


@pytest.mark.verifies("R000-14", "R000-15")
def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([^)#]+)\)", index))
    assert linked == set(PAGES) - {"README.md"}
    for wanted in ("initialization", "tools-list", "tools-call", "transport", "vocabulary"):
        assert f"{wanted}.md" in linked
    for page in PAGES:
        for link in re.findall(r"\]\(([^):#]+)\)", (DOCS / page).read_text("utf-8")):
            assert (DOCS / page).parent.joinpath(link).exists(), f"{page}: {link}"


# --- malformed requests -----------------------------------------------------------------------


def table(title: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    section = MALFORMED.read_text("utf-8").partition(f"\n## {title}\n")[2]
    lines = section.partition("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def frame(cell: str) -> bytes:
    assert cell[0] == cell[-1] == "`", cell
    return cell[1:-1].encode().replace("⟨FF⟩".encode(), b"\xff")


FRAMES = table("Frames")
IGNORED = table("Frames that are ignored")
ARRAYS = table("Arrays")
STATES = (None, *REVISIONS)
DISCOVER = {"id": "on", "method": "server/discover", "params": {"_meta": envelope()}}
GO_ON = (
    b'{"jsonrpc":"2.0","id":"on","method":"ping"}',
    json.dumps({"jsonrpc": "2.0", **DISCOVER}).encode(),
)


def unreadable(state: str | None) -> dict[str, None]:
    """The id of an error whose request had none that could be read."""
    return {} if state in (D, E) else {"id": None}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("row", FRAMES, ids=lambda row: row[0])
@pytest.mark.verifies("R000-13", "R001-6", "R001-7", "R001-8", "R001-9", "R001-10")
@pytest.mark.verifies("D-error-id", "D-error-data", "D-null-id", "INV-002", "X5")
def test_a_malformed_frame_is_answered_as_the_table_says(row: list[str], state: str | None) -> None:
    _, sent, code, message, data, id = row
    (answer,), (after,) = talk(demo(), state, [frame(sent), GO_ON[state == E]])
    wanted_id = unreadable(state) if id == "–" else {"id": json.loads(id)}
    error = {"code": int(code), "message": message, "data": data}
    assert answer == {"jsonrpc": "2.0", **wanted_id, "error": error}
    assert (after["id"], "result" in after) == ("on", True), "the server goes on"
    (plain,) = talk(demo(errors="minimal"), state, [frame(sent)])[0]
    del error["data"]
    assert plain == {"jsonrpc": "2.0", **wanted_id, "error": error}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("row", IGNORED, ids=lambda row: row[0])
@pytest.mark.verifies("X10", "E-unknown-notification", "E-stray-response", "E-empty-line", "X19")
def test_what_is_ignored_as_the_table_says(row: list[str], state: str | None) -> None:
    assert talk(demo(), state, [frame(row[1])]) == [[]]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("row", ARRAYS, ids=lambda row: row[0])
@pytest.mark.verifies("D-batches", "E-empty-batch")
def test_arrays_are_answered_as_the_table_says(row: list[str], state: str | None) -> None:
    sent, batched, other = row
    said = batched if state == B else other
    code, _, data = said.strip("[]").partition(", ")
    error = {"code": int(code), "message": "Invalid Request", "data": data}
    wanted: Any = {"jsonrpc": "2.0", **unreadable(state), "error": error}
    assert talk(demo(), state, [frame(sent)]) == [[[wanted] if said.startswith("[") else wanted]]


def test_the_codes_and_messages_are_those_of_the_table() -> None:
    listed = {row[0]: row[1] for row in table("Codes and messages")}
    assert {row[2]: row[3] for row in FRAMES}.items() <= listed.items()
    assert listed["-32603"] == "Internal error"


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.verifies("R000-14")
def test_the_transcripts_hold_the_same_frames(revision: str) -> None:
    path = TESTS / "transcripts" / revision / "malformed.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    sent = [line[">raw"].encode("utf-8", "surrogateescape") for line in lines if ">raw" in line]
    shown = [row[1] for row in FRAMES + IGNORED] + [row[0] for row in ARRAYS]
    assert sent == [frame(cell) for cell in shown]


LIMITS = Limits(max_frame=1000, max_depth=10)
LONG = b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"' + b"a" * 1000 + b'"}}'
DEEP = b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":' + b"[" * 20 + b"]" * 20 + b"}}"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("sent", "said"),
    [(LONG, "Message longer than 1000 bytes"), (DEEP, "Nesting deeper than 10 levels")],
)
@pytest.mark.verifies("E-oversize", "E-overdeep")
def test_limits_are_answered_as_the_page_says(state: str | None, sent: bytes, said: str) -> None:
    page = " ".join(MALFORMED.read_text("utf-8").split())
    assert f'"{re.sub("[0-9]+", "N", said)}"' in page
    error = {"code": -32600, "message": "Invalid Request", "data": said}
    assert talk(demo(limits=LIMITS), state, [sent]) == [
        [{"jsonrpc": "2.0", "id": 7, "error": error}]
    ]


@pytest.mark.verifies("E-duplicate-id")
def test_an_id_in_use_is_refused_as_the_page_says() -> None:
    server = demo()
    gates: list[asyncio.Event] = []

    @server.tool
    async def wait() -> str:
        await gates[0].wait()
        return "done"

    async def main() -> list[Any]:
        gates.append(asyncio.Event())
        async with connect(server, D) as client:
            client.send(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wait"}}')
            client.send(b'{"jsonrpc":"2.0","id":7,"method":"ping"}')
            first = await client.receive()
            gates[0].set()
            return [first, *await client.settle()]

    refused, answered = asyncio.run(main())
    said = "Request id 7 is already in use"
    error = {"code": -32600, "message": "Invalid Request", "data": said}
    assert refused == {"jsonrpc": "2.0", "id": 7, "error": error}
    assert answered["result"]["content"] == [{"type": "text", "text": "done"}]
    assert f'"{said}"' in " ".join(MALFORMED.read_text("utf-8").split())
