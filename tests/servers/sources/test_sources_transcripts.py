"""Each decision of requirement 004 as a whole conversation, in every revision.

``transcripts/REVISION/DECISION.jsonl`` has what the client says and what the server answers, in
the form of ``tests/test_transcripts.py``; ``DOVETAIL_UPDATE=1`` writes them anew. A client that
asks for 2025-03-26 is answered 2025-11-25, since a server without batches cannot offer it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sample import write

from dovetail import Server
from dovetail.servers.sources.server import SourcesServer
from dovetail.servers.sources.service import Found, Options, Service
from support import meta
from test_transcripts import UPDATE, read, replay, written

FOLDER = Path(__file__).parent / "transcripts"
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
REVISIONS = (*HANDSHAKE, MODERN)

Line = dict[str, Any]


class Failing(Service):
    def get_sources(self, query: str, threshold: float) -> Found:
        if query == "break":
            raise RuntimeError("not for clients")
        return super().get_sources(query, threshold)


def server(folder: Path) -> Server:
    file = write(folder / "registry.json")
    options = Options(files=[file], today=lambda: date(2026, 11, 15))
    return SourcesServer(Failing(options)).server


# -- what the client says ------------------------------------------------------------------------


def request(revision: str, id: Any, method: str, **params: Any) -> Line:
    if revision == MODERN:
        params["_meta"] = meta()
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return {">": {**message, "params": params} if params else message}


def raw(revision: str, id: Any, method: str, **params: Any) -> Line:
    """The same, not checked: the client is wrong on purpose."""
    return {">raw": json.dumps(request(revision, id, method, **params)[">"])}


def initialize(revision: str) -> Line:
    client = {"name": "agent", "version": "1"}
    return request(
        "", "init", "initialize", protocolVersion=revision, capabilities={}, clientInfo=client
    )


INITIALIZED = {">": {"jsonrpc": "2.0", "method": "notifications/initialized"}}


def opening(revision: str) -> list[Line]:
    return [] if revision == MODERN else [initialize(revision), INITIALIZED]


def call(revision: str, id: Any, name: str, **arguments: Any) -> Line:
    return request(revision, id, "tools/call", name=name, arguments=arguments)


def shapes(revision: str) -> list[Line]:
    names = ("list_categories", "get_provenance", "get_endorsements")
    return [
        *opening(revision),
        {"#": "the full category and all three ranked sources"},
        call(revision, 1, "get_sources", query="feeding a hedgehog"),
        call(revision, 2, "get_sources", query="owls", threshold=0.9),
        {"#": "slug, name and tags; curator, key and instructions; an empty list"},
        *(call(revision, number, name) for number, name in enumerate(names, 3)),
    ]


def no_match(revision: str) -> list[Line]:
    return [
        *opening(revision),
        call(revision, 1, "get_sources", query="quantum chromodynamics"),
        call(revision, 2, "get_sources", query="how to"),
        call(revision, 3, "get_sources", query="my owl plays chess badly", threshold=0.9),
    ]


def unknown_tool(revision: str) -> list[Line]:
    return [
        *opening(revision),
        call(revision, 1, "get_federated_sources"),
        call(revision, 2, "get-sources", query="owls"),
    ]


def invalid_params(revision: str) -> list[Line]:
    wrong: list[Any] = [
        {},
        {"query": 5},
        {"query": ""},
        {"query": "x" * 1001},
        {"query": "owls", "limit": 3},
        {"query": "owls", "threshold": 1.5},
        {"query": "owls", "threshold": "0.5"},
        {"query": "owls", "threshold": None},
    ]
    calls = [
        raw(revision, number, "tools/call", name="get_sources", arguments=arguments)
        for number, arguments in enumerate([*wrong, ["owls"]], 1)
    ]
    more = raw(revision, 20, "tools/call", name="list_categories", arguments={"page": 1})
    allowed = request(revision, 21, "tools/call", name="get_sources", arguments={"query": "owls"})
    allowed[">"]["params"].setdefault("_meta", {})["progressToken"] = "p"
    return [*opening(revision), *calls, more, {"#": "_meta is no argument"}, allowed]


def tool_error(revision: str) -> list[Line]:
    return [
        *opening(revision),
        call(revision, 1, "get_sources", query="break"),
        call(revision, 2, "get_sources", query="owls"),
    ]


def batch(revision: str) -> list[Line]:
    both = [request("", number, "ping")[">"] for number in (1, 2)]
    first, last = (call(revision, id, "get_endorsements") for id in (0, 3))
    return [*opening(revision), first, {">raw": json.dumps(both)}, {">raw": "[]"}, last]


def notifications(revision: str) -> list[Line]:
    names = ("notifications/whatever", "tools/call")
    return [
        *opening(revision),
        *({">raw": json.dumps({"jsonrpc": "2.0", "method": name})} for name in names),
        call(revision, 1, "get_endorsements"),
    ]


def before_initialize(revision: str) -> list[Line]:
    early = [
        request("", 1, "tools/list"),
        call("", 2, "get_endorsements"),
        request("", 3, "ping"),
    ]
    if revision == MODERN:
        alone = call(revision, 5, "get_endorsements")
        return [*early, {"#": "a request of 2026-07-28 carries all that a handshake would"}, alone]
    between = call("", 4, "get_endorsements")
    after = call("", 5, "get_endorsements")
    return [*early, initialize(revision), between, INITIALIZED, after]


def tools_list(revision: str) -> list[Line]:
    return [*opening(revision), request(revision, 1, "tools/list")]


DECISIONS: dict[str, Callable[[str], list[Line]]] = {
    made.__name__: made
    for made in (
        shapes,
        no_match,
        unknown_tool,
        invalid_params,
        tool_error,
        batch,
        notifications,
        before_initialize,
        tools_list,
    )
}


def answers(decision: str, revision: str) -> dict[Any, Any]:
    lines = read(FOLDER / revision / f"{decision}.jsonl")
    return {line["<"].get("id"): line["<"] for line in lines if "<" in line}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.verifies("D-no-match", "D-sources-policy", "D-golden")
def test_a_decision_as_a_conversation(decision: str, revision: str, tmp_path: Path) -> None:
    found = asyncio.run(replay(server(tmp_path), DECISIONS[decision](revision)))
    path = FOLDER / revision / f"{decision}.jsonl"
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, found)) + "\n", "utf-8")
    assert written(found) == written(read(path))


# -- what the conversations must show, whoever wrote them ---------------------------------------


def error(code: int, message: str) -> dict[str, Any]:
    return {"code": code, "message": message}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.verifies("R004-1", "R004-2", "R004-3", "R004-4")
def test_the_shapes(revision: str) -> None:
    found = {
        id: json.loads(answer["result"]["content"][0]["text"])
        for id, answer in answers("shapes", revision).items()
        if id != "init"
    }
    assert list(found[1]) == ["category", "sources", "match", "message"]
    assert list(found[1]["category"]) == ["slug", "name", "description"]
    assert [one["rank"] for one in found[1]["sources"]] == [1, 2, 3]
    assert all(list(one) == ["rank", "title", "url", "description"] for one in found[1]["sources"])
    assert list(found[1]["match"]) == ["score", "threshold", "matched", "runners_up"]
    assert list(found[3]["categories"][0]) == ["slug", "name", "tags"]
    assert list(found[4])[:3] == ["curator", "public_key", "signed"]
    assert found[4]["curator"] == "Ada Curator"
    assert found[4]["public_key"] is None
    assert found[5] == {"endorsements": []}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.verifies("D-no-match")
def test_no_match_is_a_success(revision: str) -> None:
    for id in (1, 2, 3):
        result = answers("no_match", revision)[id]["result"]
        assert result["isError"] is False
        said = json.loads(result["content"][0]["text"])
        assert said["category"] is None
        assert said["sources"] == []
        assert said["message"].startswith("No match: ")


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.verifies("D-sources-policy")
def test_an_unknown_tool_is_an_unknown_method(revision: str) -> None:
    told = (
        error(-32602, "Invalid params") if revision == MODERN else error(-32601, "Method not found")
    )
    assert [answers("unknown_tool", revision)[id]["error"] for id in (1, 2)] == [told, told]


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.verifies("D-sources-policy", "R004-9")
def test_unfit_arguments_get_the_shortest_error(revision: str) -> None:
    found = answers("invalid_params", revision)
    for id in (*range(1, 10), 20):
        assert found[id]["error"] == error(-32602, "Invalid params"), id
    assert found[21]["result"]["isError"] is False


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.verifies("R004-6")
def test_a_failing_tool_is_a_result(revision: str) -> None:
    found = answers("tool_error", revision)
    assert found[1]["result"]["isError"] is True
    assert "not for clients" not in json.dumps(found[1])
    assert found[2]["result"]["isError"] is False


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.verifies("D-sources-policy", "R004-7")
def test_batches_are_refused_and_notifications_ignored(revision: str) -> None:
    refused = [answer for id, answer in answers("batch", revision).items() if id is None]
    assert refused[0]["error"] == error(-32600, "Invalid Request")
    assert "result" in answers("batch", revision)[3]
    assert set(answers("notifications", revision)) <= {"init", 1}


@pytest.mark.parametrize("revision", HANDSHAKE)
@pytest.mark.verifies("D-sources-policy")
def test_the_handshake_is_enforced(revision: str) -> None:
    found = answers("before_initialize", revision)
    for id in (1, 2, 4):
        assert found[id]["error"] == error(-32600, "Invalid Request")
    assert found[3]["result"] == {}
    assert "result" in found[5]
    agreed = "2025-11-25" if revision == "2025-03-26" else revision
    assert found["init"]["result"]["protocolVersion"] == agreed


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.verifies("R004-8", "R004-9")
def test_the_tools_teach(revision: str) -> None:
    tools = answers("tools_list", revision)[1]["result"]["tools"]
    names = ["get_sources", "list_categories", "get_provenance", "get_endorsements"]
    assert [tool["name"] for tool in tools] == names
    for tool in tools:
        assert "Example" in tool["description"]
        assert tool["inputSchema"]["additionalProperties"] is False
        assert ("outputSchema" in tool) == (revision != "2024-11-05")
    schema = tools[0]["inputSchema"]
    assert list(schema["properties"]) == ["query", "threshold"]
    assert schema["required"] == ["query"]
