"""What an author may decide about a server, and what holds when nothing is decided."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from dovetail import Context, McpError, Server
from dovetail.testing import SchemaViolation, TestClient, connect

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
handshake_revisions = pytest.mark.parametrize("revision", REVISIONS[:4])
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": E,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def make(**options: Any) -> Server:
    server = Server("s", version="1", **options)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def needs(ctx: Context) -> None:
        ctx.require("sampling")

    @server.tool
    def refuses() -> None:
        raise McpError(-31000, "No", "because")

    server.resource("x://y")(lambda: "a")
    server.prompt(name="p")(lambda n: n)
    return server


def run(
    server: Server, revision: str, scenario: Callable[[TestClient], Any], **options: Any
) -> Any:
    async def main() -> Any:
        async with connect(server, revision, **options) as client:
            return await scenario(client)

    return asyncio.run(main())


def answer(server: Server, revision: str, method: str, params: Any = None, **options: Any) -> Any:
    return run(server, revision, lambda client: client.answer(method, params), **options)


async def raw(client: TestClient, **message: Any) -> Any:
    client.send(json.dumps({"jsonrpc": "2.0", "id": "raw", **message}).encode())
    return await client.receive()


def initialize(revision: str) -> dict[str, Any]:
    info = {"name": "c", "version": "1"}
    return {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}


def call(name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": name, "arguments": arguments}


# --- errors="minimal" -----------------------------------------------------------------------------

TEXTS = [
    (("tools/call", {"name": "none"}), -32602),
    (("tools/list", {"cursor": "x"}), -32602),
    (("prompts/get", {"name": "none"}), -32602),
    (("prompts/get", {"name": "p"}), -32602),
    (call("refuses"), -31000),
    (("unknown/method", None), -32601),
    (("completion/complete", None), -32601),
    (("resources/read", {"uri": "x://z"}), None),
]


@every_revision
@pytest.mark.parametrize(("request_", "code"), TEXTS)
@pytest.mark.verifies("D-errors-minimal", "D-error-data")
def test_minimal_errors_have_no_data(revision: str, request_: Any, code: int | None) -> None:
    async def scenario(client: TestClient) -> Any:
        method, params = request_
        if revision == E:
            params = {**(params or {}), "_meta": ENVELOPE}
        return await raw(client, method=method, **({} if params is None else {"params": params}))

    code = (-32602 if revision == E else -32002) if code is None else code
    full = run(make(), revision, scenario)["error"]
    minimal = run(make(errors="minimal"), revision, scenario)["error"]
    assert full["code"] == minimal["code"] == code
    assert full["data"]
    assert minimal == {"code": code, "message": full["message"]}


@every_revision
@pytest.mark.parametrize("frame", [b"{", b"[]", b'{"id":1,"method":"ping"}', b'{"jsonrpc":"2.0"}'])
@pytest.mark.verifies("D-errors-minimal")
def test_malformed_frames_are_answered_minimally_too(revision: str, frame: bytes) -> None:
    async def scenario(client: TestClient) -> Any:
        client.send(frame)
        return await client.receive()

    full = run(make(), revision, scenario)
    minimal = run(make(errors="minimal"), revision, scenario)
    assert full["error"].pop("data")
    assert minimal == full


@pytest.mark.verifies("D-errors-minimal", "S4", "S6")
def test_data_that_the_schema_requires_is_never_left_out() -> None:
    server = make(errors="minimal")
    error = answer(server, E, *call("needs"))["error"]
    assert error == {
        "code": -32021,
        "message": "Missing required client capability",
        "data": {"requiredCapabilities": {"sampling": {}}},
    }
    meta = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}
    error = answer(server, E, "tools/list", {"_meta": meta})["error"]
    assert error == {
        "code": -32022,
        "message": "Unsupported protocol version",
        "data": {"supported": [E], "requested": "2030-01-01"},
    }


@every_revision
def test_results_for_the_model_stay_helpful(revision: str) -> None:
    result = answer(make(errors="minimal"), revision, *call("add", a=1))["result"]
    assert result["content"] == [{"type": "text", "text": "Missing required argument 'b'"}]


# --- unknown_tool, bad_arguments ------------------------------------------------------------------


@every_revision
@pytest.mark.verifies("D-unknown-tool", "X31")
def test_the_code_of_an_unknown_tool(revision: str) -> None:
    data = "Unknown tool: 'none'"
    error = answer(make(unknown_tool=-32601), revision, *call("none"))["error"]
    if revision == E:
        # -32601 would say that there is no tools/call.
        assert error == {"code": -32602, "message": "Invalid params", "data": data}
    else:
        assert error == {"code": -32601, "message": "Method not found", "data": data}


@every_revision
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"a": 1}, "Missing required argument 'b'"),
        ({"a": 1, "b": "2"}, "Invalid argument 'b': expected int, got str \"2\""),
        ({"a": 1, "b": 2, "c": 3}, "Unknown argument 'c'; known: 'a', 'b'"),
    ],
)
@pytest.mark.verifies("D-bad-arguments")
def test_bad_arguments_as_a_protocol_error(
    revision: str, arguments: dict[str, Any], said: str
) -> None:
    server = make(bad_arguments="error")
    error = answer(server, revision, *call("add", **arguments))["error"]
    assert error == {"code": -32602, "message": "Invalid params", "data": said}
    assert "result" in answer(server, revision, *call("add", a=1, b=2.0))


@every_revision
@pytest.mark.verifies("D-bad-arguments", "D-errors-minimal")
def test_bad_arguments_as_a_minimal_protocol_error(revision: str) -> None:
    server = make(bad_arguments="error", errors="minimal")
    error = answer(server, revision, *call("add"))["error"]
    assert error == {"code": -32602, "message": "Invalid params"}


# --- handshake ------------------------------------------------------------------------------------


@handshake_revisions
@pytest.mark.parametrize("policy", ["lenient", "strict"])
@pytest.mark.verifies(
    "D-handshake-strict", "D-handshake-lenient", "D-before-initialize", "R000-9", "R000-11"
)
def test_what_is_served_when(revision: str, policy: str) -> None:
    first = "The first request must be 'initialize'"
    not_yet = "'notifications/initialized' has not been received"
    unknown = {
        "code": -32601,
        "message": "Method not found",
        "data": "Method 'unknown' is not supported",
    }

    async def scenario(client: TestClient) -> None:
        async def error(method: str, params: Any = None) -> Any:
            return (await client.answer(method, params)).get("error")

        async def phase(refusal: str | None) -> None:
            assert await error("ping") is None
            assert await error("unknown") == unknown
            for method, params in [("tools/list", None), call("add", a=1, b=2)]:
                found = await error(method, params)
                wanted = {"code": -32600, "message": "Invalid Request", "data": refusal}
                assert found == (None if refusal is None else wanted), (method, refusal)

        await phase(first)
        client.notify("notifications/initialized")  # too early: it means nothing
        await phase(first)
        assert await error("initialize", initialize(revision)) is None
        await phase(not_yet if policy == "strict" else None)
        client.notify("notifications/initialized")
        await phase(None)
        again = await error("initialize", initialize(revision))
        assert (again["code"], again["data"]) == (-32600, "The connection is already initialized")
        await phase(None)
        assert await client.settle() == [], "a notification gets no answer"

    run(make(handshake=policy), revision, scenario, handshake=False)


@pytest.mark.parametrize("policy", ["lenient", "strict"])
@pytest.mark.verifies("D-modern-no-gate", "F-one-pipe", "S3", "S7")
def test_an_enveloped_request_is_served_at_any_time(policy: str) -> None:
    async def scenario(client: TestClient) -> list[Any]:
        modern: list[Any] = []

        async def ask() -> None:
            for method in ("server/discover", "tools/list"):
                message = await client.answer(method, {"_meta": ENVELOPE})
                modern.append(message["result"])

        await ask()
        await client.request("initialize", initialize(C))
        await ask()
        client.notify("notifications/initialized")
        await ask()
        legacy = await client.request("tools/list")
        assert "resultType" not in legacy
        return modern

    modern = run(make(handshake=policy), C, scenario, handshake=False)
    assert modern[0::2] == [modern[0]] * 3
    assert modern[1::2] == [modern[1]] * 3
    assert modern[0]["supportedVersions"] == [E]


# --- revisions ------------------------------------------------------------------------------------


@handshake_revisions
@pytest.mark.verifies("S1", "S2", "R000-10", "R002-11", "D-revisions", "D-oldest-on-stdio")
def test_the_revision_asked_for_is_the_one_answered(revision: str) -> None:
    result = answer(make(), revision, "initialize", initialize(revision), handshake=False)["result"]
    assert result.pop("capabilities").keys() >= {"tools", "resources", "prompts"}
    info = {"name": "s", "version": "1"}
    assert result == {"protocolVersion": revision, "serverInfo": info}


def agreed(server: Server, asked: str) -> str:
    """What is answered to an ``initialize`` that may ask for anything."""

    async def scenario(client: TestClient) -> Any:
        return await raw(client, method="initialize", params=initialize(asked))

    result = run(server, D, scenario, handshake=False)["result"]
    return result["protocolVersion"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("asked", ["2024-10-07", "2026-07-28", "2030-01-01", "1.0", ""])
@pytest.mark.verifies("S2", "D-revisions", "R002-11")
def test_a_revision_the_handshake_lacks_gets_our_newest(asked: str) -> None:
    assert agreed(make(), asked) == D


@pytest.mark.parametrize(
    ("served", "asked", "answered"),
    [
        ([A, C], A, A),
        ([A, C], B, C),
        ([A, C], D, C),
        ([A], E, A),
        ([D, A, E], B, D),
        ([E, B], D, B),
    ],
)
@pytest.mark.verifies("S2", "D-batch-policy")
def test_only_chosen_revisions_are_offered(served: list[str], asked: str, answered: str) -> None:
    assert agreed(make(revisions=served), asked) == answered


@pytest.mark.verifies("D-batches", "D-batch-policy", "X11")
def test_without_batches_the_revision_that_needs_them_is_not_offered() -> None:
    batch = b'[{"jsonrpc":"2.0","id":"a","method":"ping"}]'

    async def scenario(client: TestClient) -> tuple[Any, Any]:
        result = await client.initialize()
        client.send(batch)
        return result["protocolVersion"], await client.receive()

    refused = {"code": -32600, "message": "Invalid Request"}
    revision, message = run(make(batches=False), B, scenario, handshake=False)
    assert revision == D
    assert message["error"].pop("data") == "Batches are not supported in this revision"
    assert message["error"] == refused
    revision, message = run(make(), B, scenario, handshake=False)
    assert revision == B
    assert message == [{"jsonrpc": "2.0", "id": "a", "result": {}}]


def test_refusing_batches_and_offering_their_revision_is_a_contradiction() -> None:
    with pytest.raises(ValueError, match="2025-03-26"):
        Server("s", revisions=[B, D], batches=False)


@handshake_revisions
def test_a_server_of_the_handshake_alone(revision: str) -> None:
    server = make(revisions=REVISIONS[:4])

    async def scenario(client: TestClient) -> None:
        unknown = {
            "code": -32601,
            "message": "Method not found",
            "data": "Method 'server/discover' is not supported",
        }
        params = {"_meta": ENVELOPE}
        discover = await raw(client, method="server/discover", params=params)
        assert discover["error"] == unknown
        # The envelope means nothing here: these are requests of the handshake.
        early = await raw(client, method="tools/list", params=params)
        assert early["error"]["data"] == "The first request must be 'initialize'"
        await client.initialize()
        discover = await raw(client, method="server/discover", params=params)
        assert discover["error"] == unknown
        listed = await client.request("tools/list")
        client.send(
            json.dumps(
                {"jsonrpc": "2.0", "id": "raw", "method": "tools/list", "params": params}
            ).encode()
        )
        # The recorder goes by the envelope and misses the stamps of 2026-07-28.
        with pytest.raises(SchemaViolation, match="resultType"):
            await client.receive()
        client.recorder.problems.clear()
        _, enveloped = client.recorder.messages[-1]
        assert enveloped["result"] == listed

    run(server, revision, scenario, handshake=False)


@handshake_revisions
@pytest.mark.verifies("SH-name-versions", "S4")
def test_a_server_without_handshake_names_what_it_speaks(revision: str) -> None:
    server = make(revisions=[E])

    async def scenario(client: TestClient) -> Any:
        refused = await client.answer("initialize", initialize(revision))
        without = await client.answer("tools/list")
        served = await client.answer("tools/list", {"_meta": ENVELOPE})
        return refused["error"], without["error"], served["result"]

    refused, without, served = run(server, revision, scenario, handshake=False)
    assert refused == {
        "code": -32022,
        "message": "Unsupported protocol version",
        "data": {"supported": [E], "requested": revision},
    }
    key = "io.modelcontextprotocol/protocolVersion"
    data = f"Missing required _meta field: {key}"
    assert without == {"code": -32602, "message": "Invalid params", "data": data}
    assert [tool["name"] for tool in served["tools"]] == ["add", "needs", "refuses"]


@pytest.mark.parametrize("named", [A, B, C, D, "2030-01-01", ""])
@pytest.mark.verifies("S4", "E-legacy-in-meta")
def test_an_envelope_with_a_revision_that_is_not_served(named: str) -> None:
    meta = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": named}
    error = answer(make(), E, "tools/list", {"_meta": meta})["error"]
    assert error == {
        "code": -32022,
        "message": "Unsupported protocol version",
        "data": {"supported": [E], "requested": named},
    }


@pytest.mark.parametrize("policy", [{}, {"revisions": [E]}, {"revisions": [D, E]}])
@pytest.mark.verifies("F-discover", "S3", "S10", "S41", "SH-server-info", "X26")
def test_discover(policy: dict[str, Any]) -> None:
    server = make(
        instructions="Use it.", title="S", description="d", website_url="https://e.org", **policy
    )
    result = answer(server, E, "server/discover")["result"]
    assert result.pop("capabilities").keys() >= {"tools", "resources", "prompts"}
    assert result == {
        "resultType": "complete",
        "supportedVersions": [E],
        "instructions": "Use it.",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {
            "io.modelcontextprotocol/serverInfo": {
                "name": "s",
                "version": "1",
                "title": "S",
                "description": "d",
                "websiteUrl": "https://e.org",
            }
        },
    }


@handshake_revisions
@pytest.mark.verifies("F-no-leak", "R002-8", "F-metadata")
def test_what_initialize_says_of_the_server(revision: str) -> None:
    server = make(
        instructions="Use it.", title="S", description="d", website_url="https://e.org", icons=[]
    )
    result = answer(server, revision, "initialize", initialize(revision), handshake=False)["result"]
    info: dict[str, Any] = {"name": "s", "version": "1"}
    if revision in (C, D):
        info["title"] = "S"
    if revision == D:
        info |= {"description": "d", "websiteUrl": "https://e.org", "icons": []}
    assert result["serverInfo"] == info
    assert result["instructions"] == "Use it."


@pytest.mark.parametrize("missing", ["protocolVersion", "capabilities", "clientInfo"])
@pytest.mark.verifies("R002-7")
def test_an_incomplete_initialize_is_refused_and_can_be_repeated(missing: str) -> None:
    async def scenario(client: TestClient) -> tuple[Any, Any]:
        params = initialize(D)
        del params[missing]
        return await raw(client, method="initialize", params=params), await client.initialize()

    refused, accepted = run(make(), D, scenario, handshake=False)
    assert refused["error"]["code"] == -32602
    assert refused["error"]["data"] == f"Object missing required field `{missing}`"
    assert accepted["protocolVersion"] == D


# --- policies that do not exist -----------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"errors": "some"},
        {"bad_arguments": "raise"},
        {"handshake": "none"},
        {"cache_scope": "everybody"},
        {"unknown_tool": "-32601"},
        {"page_size": 0},
        {"page_size": -1},
        {"ttl_ms": -1},
        {"revisions": ["2024-10-07"]},
        {"revisions": []},
    ],
)
@pytest.mark.verifies("F-policy-names")
def test_a_policy_that_does_not_exist_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Server("s", **options)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(TypeError):
        Server("s", polite=True)  # type: ignore[call-arg]
