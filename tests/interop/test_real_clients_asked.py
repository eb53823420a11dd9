"""Real clients are asked and told things by ``server_asks.py``.

Each client runs one plan: a list of steps, each written down with what the client's callbacks
heard while it ran. What a client cannot do, or does in its own way, is data here (``KNOWN``).
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from test_real_clients import CLIENTS, LEGACY, MODERN, PATIENCE, PEERS, ROOT, read_wire, served

from dovetail.testing import Recorder

pytestmark = pytest.mark.verifies("F-real-peers")

HERE = Path(__file__).parent
NODE = ROOT / ".peers" / "bin" / "node"
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
RELATED = "io.modelcontextprotocol/related-task"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
Json = dict[str, Any]


# -- the clients, and what is known about them -------------------------------------------------

KNOWN = {
    "loses progress": "forgets the progress callback of a request when the answer arrives in the "
    "same read as the last progress (typescript-sdk issue 2580, which blames the error it reports)",
    "invents progress": "reports each round of questions as progress of the call",
    "asks for all logs": "names the level debug in every request that names none itself",
    "own error": "answers with -32603 whatever its handler raises",
    "core tasks": "has the tasks of 2025-11-25, and runs questions as tasks of its own",
    "no result of failure": "never fetches the result of a failed task",
    "refuses tasks": "takes nothing but a tool result from tools/call: the test looks the task "
    "up in tasks/list or, in 2026-07-28, where there is no list, on the transport",
    "claims tasks": "has no tasks, but lets an extension claim the result type",
    "raw tasks": "has no tasks, but sends any request whose result is given a schema",
    "kills its probe": "asks a server of its own for the revision, and does not wait for its end",
    "leaks roots.listChanged": "2026-07-28 has no such member of the capability",
    "leaks task": "repeats the `task` of tools/call in the tasks/get and tasks/result after it",
}

# Messages of these clients that the closed schemas refuse; the server must not mind them.
LEAKS = {
    "leaks roots.listChanged": "clientCapabilities'].roots: Additional properties are not allowed "
    "('listChanged' was unexpected)",
    "leaks task": "$.params: Additional properties are not allowed ('task' was unexpected)",
}


@dataclass(frozen=True)
class Case:
    """A client, how it chooses the revision, and the words of ``KNOWN`` that are true of it."""

    name: str
    mode: Any
    revision: str
    known: frozenset[str]
    transport: str = "stdio"

    @property
    def modern(self) -> bool:
        return self.revision == MODERN

    @property
    def command(self) -> list[str]:
        if self.name.startswith("ts-"):
            return [str(NODE), str(CLIENTS / "asked_ts.mjs")]
        return [str(PEERS), str(CLIENTS / f"asked_{self.name}.py")]

    def __str__(self) -> str:
        return f"{self.name}-{self.revision}-{self.transport}"


def case(name: str, mode: Any, revision: str, *known: str) -> Case:
    assert set(known) <= KNOWN.keys()
    return Case(name, mode, revision, frozenset(known))


CASES = [
    case("mcp", "legacy", LEGACY, "refuses tasks"),
    case("mcp", "auto", MODERN, "claims tasks", "leaks roots.listChanged"),
    case("fastmcp", "legacy", LEGACY, "refuses tasks"),
    case(
        *("fastmcp", "auto", MODERN),
        *("claims tasks", "leaks roots.listChanged", "asks for all logs", "own error"),
    ),
    case(
        *("ts-v1", None, LEGACY),
        *("core tasks", "no result of failure", "leaks task", "loses progress"),
    ),
    case("ts-v2", "legacy", LEGACY, "raw tasks", "loses progress"),
    case(
        *("ts-v2", {"pin": MODERN}, MODERN),
        *("raw tasks", "refuses tasks", "invents progress", "loses progress", "kills its probe"),
    ),
]
CASES += [replace(case, transport="http") for case in CASES]


# -- the plan ----------------------------------------------------------------------------------

CONTACT = {"name": "Ada", "age": 36, "size": "large", "born": "1815-12-10", "news": True}
ACCEPT = {"action": "accept", "content": CONTACT}
ROOTS = [{"uri": "file:///projects/a", "name": "a"}, {"uri": "file:///projects/b"}]


def sampled(content: Any, reason: str) -> Json:
    return {"role": "assistant", "content": content, "model": "test-model", "stopReason": reason}


USE = {"type": "tool_use", "id": "call-1", "name": "weather", "input": {"city": "Oslo"}}
ANSWERS: Json = {
    "elicit": {
        "accept": [ACCEPT],
        "decline": [{"action": "decline"}],
        "cancel": [{"action": "cancel"}],
        "wrong at first": [{"action": "accept", "content": {"name": 5}}, ACCEPT],
        "open": [{"action": "accept"}],
        "do not open": [{"action": "decline"}],
        "Sign in first": [{"action": "accept"}],
    },
    "sample": {
        "text": sampled({"type": "text", "text": "hello"}, "endTurn"),
        "tool": sampled([USE], "toolUse"),
        "after": sampled({"type": "text", "text": "Take an umbrella"}, "endTurn"),
    },
    "roots": ROOTS,
}


def step(name: str, op: str, until: dict[str, int] | None = None, **arguments: Any) -> Json:
    return {"name": name, "op": op, "with": arguments, "until": until or {}}


def call(
    name: str, tool: str, given: Json | None = None, until: dict[str, int] | None = None, **m: Any
) -> Json:
    return step(name, "call", until, tool=tool, arguments=given or {}, **m)


def paced(name: str, tool: str, given: Json, progress: int) -> Json:
    """A call that ends only after the client has seen so much of its progress."""
    return step(name, "paced", tool=tool, arguments=given, progress=progress)


QUESTIONS = [
    call("form accepted", "form", {"message": "accept"}),
    call("form declined", "form", {"message": "decline"}),
    call("form cancelled", "form", {"message": "cancel"}),
    call("form wrong at first", "form", {"message": "wrong at first"}),
    call("form as a task", "form_as_task", {"message": "accept"}),
    call("page declined", "page", {"message": "do not open"}),
    call("page first", "page_first"),
    call("sample", "sample", {"text": "Say hello"}),
    call("sample rejected", "sample", {"text": "reject"}),
    call("sample with a tool", "sample_with_tool", {"text": "Need an umbrella?"}),
    call("roots", "roots"),
    call("three things", "three_things"),
    call("one by one", "one_by_one"),
    step("a prompt asks", "get", prompt="letter", arguments={"to": "Bob"}),
    step("a resource asks", "read", uri="asks://home"),
]
NEWS = [
    paced("steps", "steps", {"count": 5, "wait": True}, 5),
    paced("steps in a thread", "steps_in_a_thread", {"count": 3}, 3),
    call("warnings", "talk", {}, {"log": 5}, level="warning"),
    call("all logs", "talk", {}, {"log": 8}, level="debug"),
]
CHANGES = [
    step("listen", "listen", uri="asks://count"),
    call("tools added", "add_tools", {"names": ["x", "y", "z"]}, {"tools_changed": 1}),
    step("tools after adding", "tools"),
    call("tools removed", "remove_tools", {"names": ["x", "y"]}, {"tools_changed": 1}),
    step("tools after removing", "tools"),
    call("count", "add_one", {}, {"updated": 1}),
    step("counted", "read", uri="asks://count"),
    step("stop listening", "unlisten", uri="asks://count"),
    step("a request between", "tools"),  # a stream is closed by a message without an answer
    call("count unheard", "add_one"),
]
BARE = [
    call("form", "form", {"message": "accept"}),
    call("page", "page", {"message": "open"}),
    call("page first", "page_first"),
    call("sample", "sample", {"text": "Say hello"}),
    call("sample with a tool", "sample_with_tool", {"text": "Need an umbrella?"}),
    call("roots", "roots"),
    call("only as a task", "only_as_task"),
]


def plan(case: Case) -> Json:
    modern = case.modern
    at_once = {} if "loses progress" in case.known else {"progress": 5}
    steps = [
        *QUESTIONS,
        call("page opened", "page", {"message": "open"}, {} if modern else {"complete": 1}),
        *NEWS,
        call("steps at once", "steps", {"count": 5, "wait": False}, at_once),
        *CHANGES,
        # 2026-07-28 has no way to say it.
        *([] if modern else [step("roots changed", "roots_changed")]),
        call("roots counted", "times_roots_changed"),
        step("bake", "task", {} if modern else {"task": 1}, tool="bake", arguments={"what": "rye"}),
        step(
            *("deliver", "task", {"task": 2 if modern else 3}),
            **{"tool": "deliver", "arguments": {}, "told": 2},
        ),
        step("burn", "task", {} if modern else {"task": 1}, tool="burn", arguments={}),
        step("only", "task", {} if modern else {"task": 1}, tool="only_as_task", arguments={}),
        step(
            *("cancelled", "task_cancelled", {} if modern else {"task": 1}),
            **{"tool": "wait_forever", "arguments": {}},
        ),
    ]
    logs = bare_logs(case)
    talk = call("talk", "talk", {}, {"log": len(logs)})
    hot = {"log": 1} if "error" in logs else {}
    risen = {} if "loses progress" in case.known else {"progress": 2}
    bake = call("bake", "bake", {"what": "rye"}, {**hot, **risen})
    return {**ANSWERS, "steps": steps, "bare": [*BARE, talk, bake]}


def bare_logs(case: Case) -> list[str]:
    """The levels that a client hears which has never named one."""
    if "asks for all logs" in case.known:
        return LEVELS
    return [] if case.modern else LEVELS[1:]


# -- the visits --------------------------------------------------------------------------------


@dataclass
class Visit:
    """What one client saw, and what the tee and the client's stderr tell about it."""

    case: Case
    seen: Json
    stderr: str
    logs: Path
    conversations: list[list[tuple[Any, bytes]]] = field(default_factory=list)

    @property
    def modern(self) -> bool:
        return self.case.modern

    def knows(self, what: str) -> bool:
        assert what in KNOWN
        return what in self.case.known

    def result(self, name: str, part: str = "steps") -> Any:
        return clean(self.seen[part][name]["result"])

    def heard(self, name: str, part: str = "steps") -> dict[str, list[Json]]:
        """By kind: the clients handle messages of different kinds in any order."""
        by_kind: dict[str, list[Json]] = defaultdict(list)
        for event in self.seen[part][name]["heard"]:
            what = {key: value for key, value in event.items() if key != "kind"}
            if not (self.knows("invents progress") and _is_invented(what)):
                by_kind[event["kind"]].append(what)
        return dict(by_kind)

    def messages(self) -> list[tuple[str, Json]]:
        """Of the longest conversation: the one with callbacks, not the probes and the bare one."""
        lines = max(self.conversations, key=len)
        return [(sender, json.loads(line)) for sender, line in lines]

    def sent(self, sender: str, method: str) -> list[Json]:
        return [m for who, m in self.messages() if who == sender and m.get("method") == method]


def _is_invented(event: Json) -> bool:
    return (event.get("message") or "").startswith("Fulfilling input required by")


STAMPS = {"resultType", "ttlMs", "cacheScope"}


def clean(result: Any) -> Any:
    """Without what 2026-07-28 stamps on a result, or what the client fills in for it."""
    if not isinstance(result, dict):
        return result
    kept = {key: value for key, value in result.items() if key not in STAMPS}
    meta = {key: value for key, value in kept.pop("_meta", {}).items() if key != SERVER_INFO}
    return kept | ({"_meta": meta} if meta else {})


@pytest.fixture(scope="module")
def peers() -> None:
    """Install the clients; does nothing if they are there."""
    subprocess.run([ROOT / "scripts" / "peers"], check=True)


@pytest.fixture(scope="module", params=CASES, ids=str)
def visit(
    peers: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Visit:
    """One client runs the whole plan once; the tests look at different parts of it."""
    case: Case = request.param
    logs = tmp_path_factory.mktemp(case.name)
    with open_servers(case.transport, logs) as target:
        task = {"sdk": case.name.removeprefix("ts-"), "mode": case.mode, "plan": plan(case)}
        run = subprocess.run(
            [*case.command, json.dumps({**task, **target})],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert run.returncode == 0, run.stderr
    made = Visit(case, json.loads(run.stdout), run.stderr, logs)
    made.conversations = [read_wire(path) for path in sorted(logs.glob("*.wire"))]
    return made


@contextmanager
def open_servers(transport: str, logs: Path) -> Iterator[Json]:
    """One server for the client with callbacks and one for the bare one, as over stdio."""
    program = str(HERE / "server_asks.py")
    if transport == "stdio":
        tee = str(HERE / "tee.py")
        yield {"command": [sys.executable, tee, str(logs), sys.executable, program]}
        return
    with served(program, logs, "able") as able, served(program, logs, "bare") as bare:
        yield {"urls": [able, bare]}


# -- what they look like -------------------------------------------------------------------------


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def value(visit: Visit, data: Any) -> Json:
    """The result of a tool that returns ``data``."""
    whole = data if visit.modern or isinstance(data, dict) else {"result": data}
    shown = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return {"content": [text(shown)], "structuredContent": whole, "isError": False}


def failure(message: str) -> Json:
    return {"content": [text(message)], "isError": True}


FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 40, "description": "Who you are"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "size": {"type": "string", "enum": ["large", "small"]},
        "born": {"type": "string", "format": "date"},
        "news": {"type": "boolean", "default": False},
    },
    "required": ["name", "age", "size"],
}


def form(message: str = "accept", **more: Any) -> Json:
    params = {"mode": "form", "message": message, "requestedSchema": FORM, **more}
    return {"params": params, "related": None}


def page(visit: Visit, message: str, url: str) -> Json:
    params = {"mode": "url", "message": message, "url": url}
    return {"params": params if visit.modern else {**params, "elicitationId": ANY}, "related": None}


def sampling(*messages: tuple[str, Any], **more: Any) -> Json:
    written = [{"role": role, "content": content} for role, content in messages]
    return {"params": {"messages": written, **more}}


def test_the_revision(visit: Visit) -> None:
    assert visit.seen["revision"] == visit.case.revision


# -- questions ---------------------------------------------------------------------------------


def test_a_form_is_filled_in_or_not(visit: Visit) -> None:
    accepted = value(visit, {"action": "accept", "contact": CONTACT})
    assert visit.result("form accepted") == accepted
    assert visit.heard("form accepted") == {"elicit": [form()]}
    for action in ("decline", "cancel"):
        name = {"decline": "form declined", "cancel": "form cancelled"}[action]
        assert visit.result(name) == value(visit, {"action": action, "contact": None})
        assert visit.heard(name) == {"elicit": [form(action)]}


def test_an_answer_that_does_not_fit_the_form(visit: Visit) -> None:
    """In 2026-07-28 the client is asked again, before it is an error."""
    name = "form wrong at first"
    question = form("wrong at first")
    if visit.modern:
        assert visit.result(name) == value(visit, {"action": "accept", "contact": CONTACT})
        assert visit.heard(name) == {"elicit": [question, question]}
    else:
        assert visit.result(name) == failure(
            "The client's answer makes no sense: field 'age': expected a value, got nothing"
        )
        assert visit.heard(name) == {"elicit": [question]}


def test_a_question_as_a_task_of_the_client(visit: Visit) -> None:
    name = "form as a task"
    assert visit.result(name) == value(visit, {"action": "accept", "contact": CONTACT})
    tasks = visit.knows("core tasks")
    assert visit.heard(name) == {"elicit": [form(task={}) if tasks else form()]}
    assert len(visit.sent("server", "tasks/result")) == tasks


def test_a_page_is_opened_or_not(visit: Visit) -> None:
    url = "https://example.org/consent?for=asks"
    assert visit.result("page declined") == value(visit, {"action": "decline", "contact": None})
    assert visit.heard("page declined") == {"elicit": [page(visit, "do not open", url)]}
    assert visit.result("page opened") == value(visit, {"action": "accept", "contact": None})
    heard = visit.heard("page opened")
    complete = heard.pop("complete", [])
    assert heard == {"elicit": [page(visit, "open", url)]}
    if visit.modern:
        assert not complete, "2026-07-28 has no such notification"
    else:
        assert complete == [{"id": heard["elicit"][0]["params"]["elicitationId"]}]


def test_a_page_that_is_needed_first(visit: Visit) -> None:
    question = page(visit, "Sign in first", "https://example.org/sign-in")
    seen = visit.result("page first")
    if visit.modern:
        assert seen == value(visit, {"action": "accept", "contact": None})
        assert visit.heard("page first") == {"elicit": [question]}
    else:
        error = seen["error"]
        assert error["code"] == -32042
        assert error["message"].endswith("Sign in first")
        assert error["data"] == {"elicitations": [question["params"]]}
        assert visit.heard("page first") == {}


def test_sampling(visit: Visit) -> None:
    options = {
        "maxTokens": 100,
        "systemPrompt": "Be short.",
        "temperature": 0.5,
        "stopSequences": ["END"],
        "modelPreferences": {"speedPriority": 1},
    }
    said = {"text": "hello", "model": "test-model", "stop": "endTurn"}
    assert visit.result("sample") == value(visit, said)
    asked = sampling(("user", text("Say hello")), **options)
    assert visit.heard("sample") == {"sample": [asked]}
    refusal = "User rejected sampling request"
    if not visit.modern:
        assert visit.result("sample rejected") == failure(f"The client refused: {refusal}")
    else:  # the client ends the call itself, for there is no way to say it
        code = -32603 if visit.knows("own error") else -1
        assert visit.result("sample rejected") == {"error": {"code": code, "message": refusal}}
    assert visit.heard("sample rejected") == {
        "sample": [sampling(("user", text("reject")), **options)]
    }


def test_sampling_with_a_tool(visit: Visit) -> None:
    said = {"uses": ["weather"], "text": "Take an umbrella"}
    assert visit.result("sample with a tool") == value(visit, said)
    tool = {
        "name": "weather",
        "description": "How it is outside",
        "inputSchema": {"type": "object"},
    }
    question = ("user", text("Need an umbrella?"))
    first = sampling(question, maxTokens=100, tools=[tool], toolChoice={"mode": "required"})
    asked, again = visit.heard("sample with a tool")["sample"]
    assert asked == first
    result = {"type": "tool_result", "toolUseId": "call-1", "content": [text("rain in Oslo")]}
    given = again["params"]["messages"][-1]["content"][0]
    given.pop("isError", None)  # false, which some fill in
    assert again == sampling(
        *(question, ("assistant", [USE]), ("user", [result])), maxTokens=100, tools=[tool]
    )


def test_roots(visit: Visit) -> None:
    assert visit.result("roots") == value(visit, ["a: file:///projects/a", "file:///projects/b"])
    assert visit.heard("roots") == {"roots": [{}]}
    assert visit.result("roots counted") == value(visit, 0 if visit.modern else 1)


def test_several_questions(visit: Visit) -> None:
    """At once, and each depending on the one before."""
    said = value(visit, {"name": "Ada", "text": "hello", "roots": 2})
    for name, message in (("three things", "Say hello"), ("one by one", "Greet Ada")):
        assert visit.result(name) == said
        assert visit.heard(name) == {
            "elicit": [form()],
            "sample": [sampling(("user", text(message)), maxTokens=10)],
            "roots": [{}],
        }


def test_prompts_and_resources_ask_too(visit: Visit) -> None:
    content = text("Write a letter to Bob, from Ada")
    assert visit.result("a prompt asks")["messages"] == [{"role": "user", "content": content}]
    assert visit.heard("a prompt asks") == {"elicit": [form()]}
    (read,) = visit.result("a resource asks")["contents"]
    assert read["text"] == "file:///projects/a, file:///projects/b"
    assert visit.heard("a resource asks") == {"roots": [{}]}


def test_a_client_that_declares_nothing(visit: Visit) -> None:
    needed: dict[str, Json] = {
        "form": {"elicitation": {}},
        "page": {"elicitation": {"url": {}}},
        "page first": {"elicitation": {"url": {}}},
        "sample": {"sampling": {}},
        "sample with a tool": {"sampling": {"tools": {}}},
        "roots": {"roots": {}},
    }
    for name, capability in needed.items():
        seen = visit.result(name, "bare")
        assert visit.heard(name, "bare") == {}
        if visit.modern:
            assert seen["error"]["code"] == -32021
            assert seen["error"]["data"] == {"requiredCapabilities": capability}
        else:
            (word, modes), *_ = capability.items()
            assert seen == failure(f"The client does not support {'.'.join([word, *modes])}")


# -- progress, logs, changes ---------------------------------------------------------------------


def stepped(count: int) -> list[Json]:
    return [
        {"progress": number, "total": count, "message": f"step {number}"}
        for number in range(1, count + 1)
    ]


def test_progress(visit: Visit) -> None:
    assert visit.result("steps") == value(visit, "5 steps")
    assert visit.heard("steps") == {"progress": stepped(5)}
    assert visit.result("steps in a thread") == value(visit, "3 steps")
    halves = [{"progress": n / 2, "total": None, "message": None} for n in (1, 2, 3)]
    assert visit.heard("steps in a thread") == {"progress": halves}


def test_progress_right_before_the_answer(visit: Visit) -> None:
    assert visit.result("steps at once") == value(visit, "5 steps")
    heard = visit.heard("steps at once").get("progress", [])
    if visit.knows("loses progress"):
        assert all(one in stepped(5) for one in heard)
    else:
        assert heard == stepped(5)
    sent = visit.sent("server", "notifications/progress")
    assert [s["params"].get("message") for s in sent].count("step 5") == 2, "but it was sent"


def logs(levels: list[str]) -> list[Json]:
    return [{"level": one, "logger": "asks", "data": {"text": f"it is {one}"}} for one in levels]


def test_logs(visit: Visit) -> None:
    assert visit.heard("warnings") == {"log": logs(LEVELS[3:])}
    assert visit.heard("all logs") == {"log": logs(LEVELS)}
    expected = logs(bare_logs(visit.case))
    assert visit.heard("talk", "bare") == ({"log": expected} if expected else {})


def test_tools_come_and_go(visit: Visit) -> None:
    before, after = visit.result("tools after adding"), visit.result("tools after removing")
    assert before[-3:] == ["x", "y", "z"]
    assert after == [*before[:-3], "z"]
    for name in ("tools added", "tools removed"):
        assert visit.heard(name) == {"tools_changed": [{}]}, "once for a burst"
    assert len(visit.sent("server", "notifications/tools/list_changed")) == 2


def test_a_subscribed_resource(visit: Visit) -> None:
    honoured = {"toolsListChanged": True, "resourceSubscriptions": ["asks://count"]}
    assert visit.result("listen") == (honoured if visit.modern else {})
    assert visit.result("count") == value(visit, 1)
    assert visit.heard("count") == {"updated": [{"uri": "asks://count"}]}
    assert visit.result("counted")["contents"][0]["text"] == "1"
    assert visit.result("count unheard") == value(visit, 2)
    assert visit.heard("count unheard") == {}
    assert len(visit.sent("server", "notifications/resources/updated")) == 1


# -- tasks -------------------------------------------------------------------------------------


def check_task(visit: Visit, name: str, result: Json, *statuses: str) -> Json:
    """Compare what came of a task; ``working`` is seen or not, as it happens."""
    seen: Json = visit.seen["steps"][name]["result"]
    passed = [status for status in seen["statuses"] if status != "working"]
    assert tuple(dict.fromkeys(passed)) == statuses
    if visit.modern:
        assert clean(seen["result"]) == result
    else:
        assert clean(seen["result"]) == {**result, "_meta": related(seen["taskId"])}
    assert seen.get("listed", True) is True
    check_refusal(visit, seen.get("refused"))
    return seen


def check_refusal(visit: Visit, refused: Any) -> None:
    if not visit.knows("refuses tasks"):
        assert refused is None
    elif visit.modern:
        assert refused["error"]["message"] == "Unsupported result type 'task' for tools/call"
    else:
        assert refused == "CallToolResult"  # the model it did not fit


def related(task_id: str) -> Json:
    return {RELATED: {"taskId": task_id}}


def statuses(visit: Visit, name: str) -> list[str]:
    """Those of the notifications; all of them name their task."""
    told = visit.heard(name).get("task", [])
    assert len({task["taskId"] for task in told}) <= 1
    return [task["status"] for task in told]


def test_a_task(visit: Visit) -> None:
    seen = check_task(visit, "bake", value(visit, {"baked": "rye"}), "completed")
    heard = visit.heard("bake")
    if visit.modern:  # the extension has no logs and no progress
        assert heard.keys() <= {"task"}
        return
    assert statuses(visit, "bake") == ["completed"]
    meta = {"_meta": related(seen["taskId"])}
    assert heard["log"] == [{"level": "error", "data": "rye is hot", **meta}]
    if visit.knows("core tasks"):
        assert heard["progress"] == [{"progress": n, "total": 2} for n in (1, 2)]


def test_a_task_that_asks(visit: Visit) -> None:
    result = value(visit, {"action": "accept", "contact": CONTACT})
    seen = check_task(visit, "deliver", result, "input_required", "completed")
    heard = visit.heard("deliver")
    if visit.modern:
        assert heard["elicit"] == [form()]
        assert statuses(visit, "deliver") == ["working", "completed"]
        assert clean(heard["task"][-1]["result"]) == result
    else:
        meta = related(seen["taskId"])
        assert heard["elicit"] == [{**form(_meta=meta), "related": seen["taskId"]}]
        assert statuses(visit, "deliver") == ["input_required", "working", "completed"]


def test_a_task_that_fails(visit: Visit) -> None:
    """A tool error is the failure of a task in 2025-11-25, and a result in the extension."""
    if visit.modern:
        check_task(visit, "burn", failure("it is black"), "completed")
        return
    assert statuses(visit, "burn") == ["failed"]
    if visit.knows("no result of failure"):
        seen = visit.result("burn")
        text = f"MCP error -32603: Task {seen['taskId']} failed"
        assert seen["result"] == {"error": {"code": -32603, "message": text}}
        assert seen["statuses"][-1] == "failed"
    else:
        check_task(visit, "burn", failure("it is black"), "failed")


def test_a_task_that_is_cancelled(visit: Visit) -> None:
    seen = visit.result("cancelled")
    assert seen["status"] == "cancelled"
    if visit.modern:
        assert clean(seen["cancelled"]) == {}
    else:
        assert seen["cancelled"]["status"] == "cancelled"
        assert statuses(visit, "cancelled") == ["cancelled"]


def test_a_tool_that_runs_only_as_a_task(visit: Visit) -> None:
    check_task(visit, "only", value(visit, "as a task"), "completed")
    error = visit.result("only as a task", "bare")["error"]
    if visit.modern:
        extension: Json = {"extensions": {TASKS_EXTENSION: {}}}
        assert (error["code"], error["data"]["requiredCapabilities"]) == (-32021, extension)
    else:
        assert error["code"] == -32601
        assert error["data"] == "Tool 'only_as_task' runs only as a task"


def test_a_tool_that_need_not_be_a_task(visit: Visit) -> None:
    """A client that has not heard of tasks calls it as any other."""
    assert visit.result("bake", "bare") == value(visit, {"baked": "rye"})
    heard = visit.heard("bake", "bare")
    both = [{"progress": n, "total": 2, "message": None} for n in (1, 2)]
    if visit.knows("loses progress"):
        assert all(one in both for one in heard.get("progress", []))
    else:
        assert heard["progress"] == both
    assert ("log" in heard) == ("error" in bare_logs(visit.case))


# -- what the tee and the processes tell -----------------------------------------------------------


def test_every_message_was_legal(visit: Visit) -> None:
    assert visit.conversations
    leaks = [LEAKS[known] for known in visit.case.known if known in LEAKS]
    found = set()
    for lines in visit.conversations:
        recorder = Recorder()
        for sender, message in lines:
            recorder.sent(sender, message)
            for problem in recorder.problems:
                known = [leak for leak in leaks if str(problem).endswith(leak)]
                assert sender == "client", problem
                assert known, problem
                found.update(known)
            recorder.problems.clear()
    assert found == set(leaks), "what is said about this client is not true any more"


def test_every_request_was_answered_once(visit: Visit) -> None:
    """In both directions; a stream that the client cancels has no answer."""
    for lines in visit.conversations:
        messages = [(sender, json.loads(line)) for sender, line in lines]
        for asker, answerer in (("client", "server"), ("server", "client")):
            asked = [m["id"] for who, m in messages if who == asker and "id" in m and "method" in m]
            answered = [m["id"] for who, m in messages if who == answerer and "method" not in m]
            dropped = cancelled(messages) if asker == "client" else []
            if visit.case.transport == "http" and asker == "client":  # it hangs up, or says so
                streams = listens(messages)
                dropped += [id for id in streams if id not in dropped and id not in answered]
            assert sorted(map(str, [*answered, *dropped])) == sorted(map(str, asked))


def listens(messages: list[tuple[str, Json]]) -> list[Any]:
    return [m["id"] for _, m in messages if m.get("method") == "subscriptions/listen"]


def cancelled(messages: list[tuple[str, Json]]) -> list[Any]:
    return [
        m["params"]["requestId"]
        for who, m in messages
        if who == "client" and m.get("method") == "notifications/cancelled"
    ]


def test_questions_are_requests_or_results(visit: Visit) -> None:
    """The server of 2026-07-28 sends no requests; each of its questions is retried once."""
    messages = visit.messages()
    requests = [
        m["method"] for who, m in messages if who == "server" and {"id", "method"} <= m.keys()
    ]
    if not visit.modern:
        asked = {"elicitation/create", "sampling/createMessage", "roots/list"}
        assert set(requests) - {"tasks/result"} == asked
        return
    assert requests == []
    states = [m["result"]["requestState"] for m in questions(messages)]
    retried = [
        m["params"]["requestState"]
        for who, m in messages
        if who == "client" and "requestState" in m.get("params", {})
    ]
    assert len(states) == len(retried) + 1, "the rejected sampling is not tried again"
    assert set(retried) < set(states)


def questions(messages: list[tuple[str, Json]]) -> Iterator[Json]:
    for who, message in messages:
        result = message.get("result", {})
        if who == "server" and result.get("resultType") == "input_required":
            yield message


def test_progress_ends_with_the_answer(visit: Visit) -> None:
    """No progress after the answer to its request, unless that was a task."""
    messages = visit.messages()
    tokens = {
        m["params"]["_meta"]["progressToken"]: m["id"]
        for who, m in messages
        if who == "client" and "progressToken" in m.get("params", {}).get("_meta", {})
    }
    over = set()
    for who, message in messages:
        if who == "server" and "result" in message and "task" not in message["result"]:
            over.add(message["id"])
        if message.get("method") == "notifications/progress":
            assert tokens[message["params"]["progressToken"]] not in over


def test_streams_are_acknowledged_first_and_tagged(visit: Visit) -> None:
    if not visit.modern:
        assert visit.sent("server", "notifications/subscriptions/acknowledged") == []
        return
    opened = [m["id"] for m in visit.sent("client", "subscriptions/listen")]
    told: dict[Any, list[Json]] = defaultdict(list)
    for who, message in visit.messages():
        if who == "server" and SUBSCRIPTION in message.get("params", {}).get("_meta", {}):
            told[message["params"]["_meta"][SUBSCRIPTION]].append(message)
    assert list(told) == opened
    first, *others = told.values()
    assert [message["method"] for message in first] == [
        "notifications/subscriptions/acknowledged",
        *["notifications/tools/list_changed"] * 2,
        "notifications/resources/updated",
    ]
    assert len(others) == 4  # one for each task that is followed to its end
    for acknowledged, *rest in others:
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        (watched,) = acknowledged["params"]["notifications"]["taskIds"]
        assert {m["method"] for m in rest} <= {"notifications/tasks"}
        assert {m["params"]["taskId"] for m in rest} <= {watched}


def test_nobody_complained(visit: Visit) -> None:
    lines = visit.stderr.splitlines()
    if visit.knows("loses progress"):
        lost = "client error: Received a progress notification for an unknown token:"
        lines = [line for line in lines if not line.startswith(lost)]
    assert lines == []
    assert [path.read_text() for path in visit.logs.glob("*.stderr") if path.stat().st_size] == []
    for path in visit.logs.glob("*.wire"):
        is_probe = visit.knows("kills its probe") and len(read_wire(path)) == 2
        code = path.with_suffix(".exit").read_text()
        assert code in (("0", "-15") if is_probe else ("0",))
