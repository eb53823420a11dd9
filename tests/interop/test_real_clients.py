"""Real clients, run by their own interpreters, against ``examples/everything.py``.

A tee between the two writes down every line, and the recorder checks them all.
"""

import base64
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.testing import Recorder

pytestmark = pytest.mark.verifies("F-real-peers", "F-examples-run")

ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).parent / "clients"
PEERS = ROOT / ".peers" / "venv" / "bin" / "python"
LEGACY, MODERN = "2025-11-25", "2026-07-28"
PATIENCE = 180  # a cold start of FastMCP on a busy machine takes many seconds
TEMPLATE = "planets://{name}/{detail}"

PLAN: dict[str, list[Any]] = {
    "calls": [
        ["add", {"a": 2, "b": 3}],
        ["wait", {"seconds": 0.01}],
        ["shout", {"text": "zwölf 🦆"}],
        ["order", {"size": "large", "toppings": [{"name": "egg", "grams": 60}], "count": 2}],
        ["distance", {"x": 3, "y": 4}],
        ["whoami", {}],
        ["picture", {}],
        ["sound", {}],
        ["link", {}],
        ["attachment", {}],
        ["mixed", {}],
        ["table", {"rows": 2}],
        ["fail", {"text": "on purpose"}],
        ["crash", {}],
        ["add", {"a": "2", "b": 3}],
        ["order", {"size": "huge"}],
        ["distance", {"x": 3}],
        ["nobody", {}],
    ],
    "reads": [
        "text://motto",
        "bytes://pixel",
        "planets://mars/order",
        "planets://pluto/order",
        "text://nothing",
    ],
    "gets": [
        ["hello", {}],
        ["describe", {"planet": "mars", "words": "5"}],
        ["look", {}],
        ["describe", {}],
        ["nobody", {}],
    ],
    "completions": [
        [{"type": "ref/prompt", "name": "describe"}, "planet", "m", {}],
        [{"type": "ref/resource", "uri": TEMPLATE}, "detail", "", {"name": "mars"}],
        [{"type": "ref/prompt", "name": "nobody"}, "planet", "m", {}],
    ],
}


@dataclass(frozen=True)
class Case:
    """A client, how it chooses the revision, and what it makes of a missing resource."""

    name: str
    mode: Any
    revision: str
    not_found: int
    transport: str = "stdio"

    @property
    def command(self) -> list[str]:
        if self.name.startswith("ts-"):
            return [str(ROOT / ".peers" / "bin" / "node"), str(CLIENTS / "ts_client.mjs")]
        return [str(PEERS), str(CLIENTS / f"{self.name}_client.py")]

    @property
    def label(self) -> str:
        mode = self.mode["pin"] if isinstance(self.mode, dict) else self.mode
        return f"{self.name}-{mode}-{self.transport}"


CASES = [
    Case("mcp", "legacy", LEGACY, -32002),
    Case("mcp", "auto", MODERN, -32602),
    Case("mcp", MODERN, MODERN, -32602),
    Case("fastmcp", "legacy", LEGACY, -32002),
    Case("fastmcp", "auto", MODERN, -32602),
    Case("ts-v1", None, LEGACY, -32002),
    # Version 2 shows the old code as the new one to its callers.
    Case("ts-v2", "legacy", LEGACY, -32602),
    Case("ts-v2", "auto", MODERN, -32602),
    Case("ts-v2", {"pin": MODERN}, MODERN, -32602),
]
CASES += [replace(case, transport="http") for case in CASES]


@dataclass
class Visit:
    """What one client saw, and what the tee and the client's stderr tell about it."""

    case: Case
    seen: dict[str, Any]
    stderr: str
    logs: Path
    conversations: list[list[tuple[Any, bytes]]] = field(default_factory=list)

    @property
    def modern(self) -> bool:
        return self.case.revision == MODERN


@pytest.fixture(scope="session")
def peers() -> None:
    """Install the clients; does nothing if they are there."""
    subprocess.run([ROOT / "scripts" / "peers"], check=True)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.label)
def visit(
    peers: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Visit:
    """One client does everything once; the tests look at different parts of it."""
    case: Case = request.param
    logs = tmp_path_factory.mktemp(case.name)
    with open_server(case.transport, logs) as target:
        task = {"sdk": case.name.removeprefix("ts-"), "mode": case.mode, "plan": PLAN, **target}
        run = subprocess.run(
            [*case.command, json.dumps(task)], capture_output=True, text=True, timeout=PATIENCE
        )
    assert run.returncode == 0, run.stderr
    made = Visit(case, json.loads(run.stdout), run.stderr, logs)
    made.conversations = [read_wire(path) for path in sorted(logs.glob("*.wire"))]
    return made


@contextmanager
def open_server(transport: str, logs: Path) -> Iterator[dict[str, Any]]:
    """What the client is told. Over stdio it starts the server itself, behind a tee."""
    example = str(ROOT / "examples" / "everything.py")
    if transport == "stdio":
        tee = str(Path(__file__).with_name("tee.py"))
        yield {"command": [sys.executable, tee, str(logs), sys.executable, example]}
        return
    with served(example, logs) as url:
        yield {"url": url}


@contextmanager
def served(program: str, logs: Path, name: str = "http") -> Iterator[str]:
    """The server over HTTP; it leaves the same files as the tee does."""
    wire = logs / f"{name}.jsonl"
    command = [sys.executable, "-m", "dovetail.cli.main", "serve", program]
    command += ["--http", "127.0.0.1:0", "--wire-log", str(wire)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert "serving http://" in line, line
        yield line.split()[-1]
    finally:
        server.terminate()
        _, errors = server.communicate(timeout=PATIENCE)
    # A line and its end are two writes: the end may come alone when the reading began between.
    said = [line for line in errors.splitlines(True) if line.strip()]
    complaints = [line for line in said if not line.startswith("dovetail: ")]
    (logs / f"{name}.stderr").write_text("".join(complaints))
    # uvicorn ends in order, and then by the signal that it was sent.
    ended = server.returncode in (0, -signal.SIGTERM)
    (logs / f"{name}.exit").write_text("0" if ended else str(server.returncode))
    entries = [json.loads(entry) for entry in wire.read_bytes().splitlines()]
    senders = {"in": b"client ", "out": b"server "}
    lines = [senders[one["dir"]] + json.dumps(one["message"]).encode() for one in entries]
    (logs / f"{name}.wire").write_bytes(b"\n".join(lines))


def read_wire(path: Path) -> list[tuple[Any, bytes]]:
    lines = (line.partition(b" ") for line in path.read_bytes().splitlines())
    return [(sender.decode(), message) for sender, _, message in lines]


STAMPS = {"_meta", "resultType", "ttlMs", "cacheScope"}


def bare(result: Any) -> Any:
    """A result without what 2026-07-28 stamps on it, or what the client fills in for it."""
    return {key: value for key, value in result.items() if key not in STAMPS}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def names(definitions: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in definitions]


# -- what every client saw --------------------------------------------------------------------


def test_the_revision_and_the_server(visit: Visit) -> None:
    seen = visit.seen
    assert seen["revision"] == visit.case.revision
    if visit.case.mode == MODERN:
        return  # this client asks nobody, so it does not know who it talks to
    assert seen["server"]["name"] == "everything"
    assert seen["server"]["version"] == "1.2.3"
    assert seen["server"]["title"] == "Everything"
    assert seen["instructions"].startswith("Call whatever you like")
    assert seen["capabilities"].keys() >= {"tools", "resources", "prompts", "completions"}


def test_the_tools(visit: Visit) -> None:
    tools = {tool["name"]: tool for tool in visit.seen["tools"]}
    assert list(tools) == [
        *("add", "wait", "shout", "order", "distance", "whoami", "picture", "sound", "link"),
        *("attachment", "mixed", "table", "fail", "crash"),
    ]
    assert tools["add"]["inputSchema"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    number = {"type": "integer"}
    wrapped = {"type": "object", "properties": {"result": number}, "required": ["result"]}
    assert tools["add"]["outputSchema"] == (number if visit.modern else wrapped)
    order = tools["order"]
    assert order["title"] == "Order a pizza"
    assert order["annotations"]["openWorldHint"] is True
    assert order["annotations"]["destructiveHint"] is False
    assert order["icons"][0]["src"] == "https://example.org/pizza.png"
    assert order["_meta"] == {"example.org/kitchen": "north"}
    assert order["inputSchema"]["properties"]["count"]["maximum"] == 10
    assert order["inputSchema"]["properties"]["size"]["description"] == "How large."
    assert order["inputSchema"]["required"] == ["size"]
    assert "outputSchema" not in tools["picture"]


def test_the_resources_and_prompts(visit: Visit) -> None:
    seen = visit.seen
    assert [one["uri"] for one in seen["resources"]] == ["text://motto", "bytes://pixel"]
    assert seen["resources"][0]["size"] == 21
    assert seen["resources"][0]["annotations"]["audience"] == ["assistant"]
    assert [one["uriTemplate"] for one in seen["templates"]] == [TEMPLATE]
    assert names(seen["prompts"]) == ["hello", "describe", "look"]
    words = seen["prompts"][1]["arguments"][1]
    assert words == {"name": "words", "description": "How long it may be.", "required": False}


def expected_calls(visit: Visit) -> list[dict[str, Any]]:
    """The results of ``PLAN["calls"]``, but for the last, which is an error."""

    def value(data: Any, shown: str | None = None) -> dict[str, Any]:
        whole = data if visit.modern or isinstance(data, dict) else {"result": data}
        shown = shown or json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        return {"content": [text(shown)], "structuredContent": whole, "isError": False}

    def blocks(*content: dict[str, Any]) -> dict[str, Any]:
        return {"content": list(content), "isError": False}

    def failure(message: str) -> dict[str, Any]:
        return {"content": [text(message)], "isError": True}

    pizza = {
        "summary": "2 large pizza with a thin crust",
        "price": 27.0,
        "toppings": ["60 g egg"],
    }
    client = "ts-client" if visit.case.name.startswith("ts-") else "mcp"
    caller = {
        "client": client,
        "revision": visit.case.revision,
        "sampling": False,
        "method": "tools/call",
    }
    motto = {"uri": "text://motto", "mimeType": "text/plain", "text": "One message per line."}
    link = {"type": "resource_link", "uri": "text://motto", "name": "motto"}
    return [
        value(5),
        value("waited 0.01 seconds", "waited 0.01 seconds"),
        value("ZWÖLF 🦆", "ZWÖLF 🦆"),
        value(pizza),
        value({"distance": 5.0}),
        value(caller),
        blocks({"type": "image", "data": ANY_DATA, "mimeType": "image/png"}),
        blocks({"type": "audio", "data": ANY_DATA, "mimeType": "audio/wav"}),
        blocks({**link, "mimeType": "text/plain"}),
        blocks({"type": "resource", "resource": motto, "annotations": {"audience": ["user"]}}),
        blocks(
            {**text("A picture:"), "annotations": {"priority": 0.5}},
            {"type": "image", "data": ANY_DATA, "mimeType": "image/png"},
        ),
        blocks(text("[0,1]")),
        failure("on purpose"),
        failure("Internal error in tool 'crash'"),
        failure("Invalid argument 'a': expected int, got str \"2\""),
        failure('Invalid argument \'size\': expected one of "large", "small", got str "huge"'),
        failure(ANY_TEXT),
    ]


ANY_DATA = "<base64>"
ANY_TEXT = "<text>"


def fits(seen: Any, expected: Any) -> bool:
    """Equality, with the two wild cards."""
    if isinstance(expected, dict):
        return (
            isinstance(seen, dict)
            and seen.keys() == expected.keys()
            and all(fits(seen[key], expected[key]) for key in expected)
        )
    if isinstance(expected, list):
        return (
            isinstance(seen, list) and len(seen) == len(expected) and all(map(fits, seen, expected))
        )
    if expected == ANY_DATA:
        return len(base64.b64decode(seen, validate=True)) > 20
    if expected == ANY_TEXT:
        return bool(seen)
    return bool(seen == expected)


def test_the_calls(visit: Visit) -> None:
    *results, unknown = visit.seen["calls"]
    for (name, arguments), result, expected in zip(
        PLAN["calls"], results, expected_calls(visit), strict=False
    ):
        assert fits(bare(result), expected), (name, arguments, result, expected)
    assert len(results) == len(expected_calls(visit))
    assert unknown["error"]["code"] == -32602
    if visit.case.name == "fastmcp":
        assert visit.seen["data"] == 42


def test_the_stamps_of_the_new_revision(visit: Visit) -> None:
    """They reach the client in 2026-07-28 and nobody else (some clients hide the type)."""
    answers = [
        json.loads(message)["result"]
        for lines in visit.conversations
        for sender, message in lines
        if sender == "server" and "result" in json.loads(message)
    ]
    assert answers
    for result in answers:
        assert ("resultType" in result) == visit.modern
        info = result.get("_meta", {}).get("io.modelcontextprotocol/serverInfo")
        assert (info is not None and info["name"] == "everything") == visit.modern
    motto = visit.seen["reads"][0]
    if visit.modern:
        assert motto["ttlMs"] == 3_600_000


def test_reading(visit: Visit) -> None:
    motto, pixel, planet, pluto, nothing = visit.seen["reads"]
    text = {"uri": "text://motto", "mimeType": "text/plain", "text": "One message per line."}
    assert bare(motto) == {"contents": [text]}
    assert base64.b64decode(pixel["contents"][0]["blob"]).startswith(b"\x89PNG\r\n")
    assert planet["contents"][0]["mimeType"] == "application/json"
    assert json.loads(planet["contents"][0]["text"]) == {
        "planet": "mars",
        "order": 4,
        "revision": visit.case.revision,
    }
    assert pluto["error"]["code"] == -32602
    assert "There is no planet 'pluto'" in pluto["error"]["message"]
    assert nothing["error"]["code"] == visit.case.not_found
    assert "Resource not found" in nothing["error"]["message"]


def test_prompts(visit: Visit) -> None:
    hello, describe, look, incomplete, unknown = visit.seen["gets"]
    assert hello["messages"] == [{"role": "user", "content": text("Say hello.")}]
    assert describe["messages"] == [
        {"role": "user", "content": text("Describe mars in at most 5 words.")},
        {"role": "assistant", "content": text("Mars is")},
    ]
    assert [message["content"]["type"] for message in look["messages"]] == ["text", "image"]
    assert incomplete["error"]["code"] == -32602
    assert unknown["error"]["code"] == -32602


def test_completion(visit: Visit) -> None:
    planets, details, unknown = visit.seen["completions"]
    assert planets["completion"]["values"] == ["mercury", "mars"]
    assert details["completion"]["values"] == ["letters", "order"]
    assert unknown.get("error", unknown.get("completion", {}).get("error"))["code"] == -32602


# -- what the tee and the processes tell ---------------------------------------------------------


def test_every_message_was_legal(visit: Visit) -> None:
    assert visit.conversations
    for lines in visit.conversations:
        recorder = Recorder()
        for sender, message in lines:
            recorder.sent(sender, message)
        recorder.check()
        assert {sender for sender, _ in recorder.messages} == {"client", "server"}


def test_every_request_was_answered_once(visit: Visit) -> None:
    for lines in visit.conversations:
        messages = [(sender, json.loads(line)) for sender, line in lines]
        asked = [m["id"] for sender, m in messages if sender == "client" and "id" in m]
        answered = [m["id"] for sender, m in messages if sender == "server"]
        assert sorted(map(str, answered)) == sorted(map(str, asked))


def test_nobody_complained(visit: Visit) -> None:
    """No warning of the client, and on the server's stderr the one crash that was asked for."""
    assert visit.stderr == ""
    said = "".join(path.read_text() for path in visit.logs.glob("*.stderr"))
    assert said.count("Traceback") == 1
    assert "RuntimeError: a secret" in said
    codes = [path.read_text() for path in visit.logs.glob("*.exit")]
    assert len(codes) == len(visit.conversations)
    # TypeScript v2 asks a process of its own for the revision, and sends it SIGTERM at once.
    probes = len(codes) - 1
    assert sorted(codes) in [
        ["-15"] * killed + ["0"] * (len(codes) - killed) for killed in range(probes + 1)
    ]
