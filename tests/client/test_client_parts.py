"""The cache, the check of results, several servers, configuration files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from clientkit import MODERN, Line, connected, demo, over, script, stamped
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import Raw

from dovetail import Client, Server
from dovetail.client import cache as caching
from dovetail.client.cache import Cache, CacheHints
from dovetail.client.config import ConfigError, Entry, client_of, load
from dovetail.client.group import Clients
from dovetail.client.schema import check_of, is_wrapped
from dovetail.errors import ConnectionClosed, LocalProtocolError, McpError, RemoteProtocolError
from support import run

# -- the cache -----------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def hints(ttl: Any, scope: str = "private") -> CacheHints:
    return CacheHints(ttl_ms=ttl, cache_scope=scope)


@pytest.mark.verifies("C17", "X45", "SH-ttl")
def test_what_is_kept_for_how_long_and_for_whom() -> None:
    clock = Clock()
    cache = Cache(clock)
    cache.put("at", "me", ("tools/list", None), Raw(b"[1]"), hints(1000))
    cache.put("at", "me", ("tools/list", "next"), Raw(b"[2]"), hints(1000, "public"))
    for ttl in (0, -5):
        cache.put("at", "me", ("prompts/list", None), Raw(b"[]"), hints(ttl))
    cache.put("at", "me", ("prompts/list", None), Raw(b"[]"), CacheHints())
    assert bytes(cache.get("at", "me", ("tools/list", None)) or b"") == b"[1]"
    assert cache.get("at", "you", ("tools/list", None)) is None
    assert cache.get("elsewhere", "me", ("tools/list", None)) is None
    assert cache.get("at", "you", ("tools/list", "next")) is not None
    assert cache.get("at", "me", ("prompts/list", None)) is None
    clock.now = 1.0
    assert cache.get("at", "me", ("tools/list", None)) is None


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "MAX_ENTRIES", 3)
    monkeypatch.setattr(caching, "MAX_BYTES", 100)
    cache = Cache(Clock())
    for number in range(10):
        cache.put("at", None, ("m", str(number)), Raw(b"[]"), hints(1000))
    assert [n for n in range(10) if cache.get("at", None, ("m", str(n)))] == [7, 8, 9]
    cache.put("at", None, ("m", "big"), Raw(b'"' + b"x" * 200 + b'"'), hints(1000))
    assert cache.get("at", None, ("m", "big")) is None


@pytest.mark.verifies("C17")
def test_lists_and_resources_are_asked_for_once_while_they_are_fresh() -> None:
    async def main() -> None:
        server = demo(ttl_ms=60_000)
        async with connected(server) as (client, recorder):
            for _ in range(3):
                await client.tools.all()
                await client.read("demo://text")
                await client.read("demo://item/1")
            methods = [m.get("method") for who, m in recorder.messages if who == "client"]
            assert methods.count("tools/list") == 1
            assert methods.count("resources/read") == 2
            async with client.listen(tools=True, resources=["demo://text"]) as events:
                server.updated("demo://text")
                await anext(events)
            await client.read("demo://text")
            await client.read("demo://item/1")
            methods = [m.get("method") for who, m in recorder.messages if who == "client"]
            assert methods.count("resources/read") == 3

    run(main())


@pytest.mark.verifies("C17")
def test_what_an_answer_of_the_user_led_to_is_not_kept() -> None:
    form = {"type": "object", "properties": {}}
    question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": form}}

    def serve(message: dict[str, Any], line: Line) -> None:
        if "inputResponses" in message["params"]:
            line.result(message, {**stamped(60_000), "contents": []})
        else:
            asked = {"resultType": "input_required", "inputRequests": {"k": question}}
            line.result(message, asked)

    async def main() -> None:
        line = script(serve, revision=MODERN, capabilities={"resources": {}})
        async with over(line, on_elicit=lambda q: {}) as client:
            await client.read("a://b")
            await client.read("a://b")
        assert sum(m["method"] == "resources/read" for m in line.received) == 4

    run(main())


@pytest.mark.verifies("X45")
def test_a_shared_cache_shares_what_is_public_only() -> None:
    async def main() -> None:
        for scope, asked in (("public", 1), ("private", 2)):
            cache = Cache()
            server = demo(ttl_ms=60_000, cache_scope=scope)
            count = 0
            for _ in range(2):
                async with connected(server, cache=cache) as (client, recorder):
                    await client.tools.all()
                count += sum(m.get("method") == "tools/list" for _, m in recorder.messages)
            assert count == asked

    run(main())


# -- the check of results --------------------------------------------------------------------

SCALAR = st.sampled_from(["string", "integer", "number", "boolean", "null"])
SCHEMA: st.SearchStrategy[Any] = st.recursive(
    SCALAR.map(lambda kind: {"type": kind}),
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        inner.map(lambda one: {"anyOf": [one, {"type": "null"}]}),
        st.builds(
            lambda properties, needed, closed: {
                "type": "object",
                "properties": properties,
                "required": [name for name in properties if needed],
                **({"additionalProperties": False} if closed else {}),
            },
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            st.booleans(),
            st.booleans(),
        ),
    ),
    max_leaves=5,
)
VALUE: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([1.0, 0.5, "x"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(SCHEMA, VALUE)
def test_the_quick_check_agrees_with_the_full_one(schema: Any, value: Any) -> None:
    raw = Raw(msgspec.json.encode(value))
    valid = Draft202012Validator(schema).is_valid(value)
    try:
        check_of("t", schema)(raw)
        accepted = True
    except RemoteProtocolError:
        accepted = False
    assert accepted == valid


def test_schemas_that_need_the_full_check() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 3}, "r": {"$ref": "#/$defs/t"}},
        "$defs": {"t": {"type": "string", "pattern": "^a"}},
    }
    check = check_of("t", schema)
    check(Raw(b'{"n": 3, "r": "ab"}'))
    with pytest.raises(RemoteProtocolError, match=r"does not fit its schema at \$\.n"):
        check(Raw(b'{"n": 2}'))
    with pytest.raises(RemoteProtocolError, match=r"\$\.r"):
        check(Raw(b'{"r": "b"}'))


def test_what_is_wrapped() -> None:
    assert is_wrapped({"type": "object", "properties": {"result": {}}, "required": ["result"]})
    for schema in (None, 5, {}, {"type": "object"}, {"type": "array"}):
        assert not is_wrapped(schema)
    assert not is_wrapped({"type": "object", "properties": {"result": {}, "more": {}}})


# -- several servers ---------------------------------------------------------------------------


def named(name: str) -> Server:
    server = Server(name)

    @server.tool
    async def who() -> str:
        return name

    @server.prompt
    def hello() -> str:
        return f"hello from {name}"

    @server.resource(f"{name}://x")
    def x() -> str:
        return name

    return server


def test_several_servers_under_prefixes() -> None:
    async def main() -> None:
        clients = {"a": Client.memory(named("one")), "b": Client.memory(named("two"))}
        async with Clients(**clients) as servers:
            assert [t.name async for t in servers.tools()] == ["a_who", "b_who"]
            assert [p.name async for p in servers.prompts()] == ["a_hello", "b_hello"]
            assert [r.uri async for r in servers.resources()] == ["one://x", "two://x"]
            assert (await servers.call("a_who")).text == "one"
            assert (await servers.call("b_who")).text == "two"
            prompt = await servers.prompt("b_hello")
            assert prompt.messages[0].content.text == "hello from two"
            assert (await servers.read("two://x"))[0].text == "two"
            assert (await servers["a"].call("who")).text == "one"
            with pytest.raises(LocalProtocolError, match="no prefix"):
                await servers.call("c_who")
            with pytest.raises(McpError):
                await servers.read("three://x")

    run(main())


def test_a_server_that_cannot_be_reached() -> None:
    async def main() -> None:
        good, bad = Client.memory(named("one")), Client.stdio("no-such-command-here")
        with pytest.raises(ConnectionClosed):
            async with Clients(good=good, bad=bad):
                pass
        assert good.closed
        async with Clients(good=Client.memory(named("one")), bad=bad, partial=True) as servers:
            assert list(servers) == ["good"]
            assert isinstance(servers.failed["bad"], ConnectionClosed)
            assert (await servers.call("good_who")).text == "one"

    run(main())


def test_prefixes_must_not_contain_each_other() -> None:
    with pytest.raises(ValueError, match="beginning"):
        Clients(a=Client.memory(named("x")), a_b=Client.memory(named("y")))


# -- configuration files -------------------------------------------------------------------------


def test_a_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3")
    file = tmp_path / "servers.json"
    servers = {
        "local": {"command": "run", "args": ["--x", "${SECRET}"], "env": {"A": "${B:-b}"}, "z": 1},
        "web": {"type": "http", "url": "https://example.com/${SECRET}", "headers": {"K": "v"}},
        "socket": {"url": "ws://example.com"},
    }
    file.write_text(json.dumps({"mcpServers": servers}))
    entries = load(file)
    assert list(entries) == ["local", "web", "socket"]
    local = client_of(entries["local"])
    assert local._endpoint == ("stdio", "run", "--x", "s3")
    assert client_of(entries["web"])._endpoint == ("http", "https://example.com/s3")
    assert client_of(entries["socket"])._endpoint == ("ws", "ws://example.com")
    file.write_text(json.dumps({"servers": servers}))
    assert list(load(file)) == ["local", "web", "socket"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mcpServers": 5}', '{"mcpServers": {"a": 1}}'])
def test_files_that_are_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "servers.json"
    file.write_text(text)
    with pytest.raises(ConfigError):
        load(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "missing.json")


@pytest.mark.verifies("C19")
@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (Entry(), "command"),
        (Entry(command="x", args=["${NOBODY_SET_THIS}"]), "NOBODY_SET_THIS"),
        (Entry(url="http://x", type="sse"), "not supported"),
    ],
)
def test_entries_that_are_none(entry: Entry, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        client_of(entry)


def test_a_client_costs_a_server_nothing() -> None:
    """A program that serves does not load the client, and a client no HTTP library."""

    async def main() -> None:
        code = (
            "import sys, dovetail\n"
            "loaded = set(sys.modules)\n"
            "assert not any(m.startswith('dovetail.client') for m in loaded)\n"
            "dovetail.Client\n"
            "added = set(sys.modules) - loaded\n"
            "for heavy in ('aiohttp', 'websockets', 'jsonschema', 'ssl', 'pydantic'):\n"
            "    assert heavy not in added, heavy\n"
        )
        import sys

        child = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        assert await child.wait() == 0

    run(main())
