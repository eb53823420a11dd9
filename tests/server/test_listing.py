"""Lists: pages, cursors, the cache, and what a server declares to have."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import pytest

from dovetail import Server
from dovetail.server import listing
from dovetail.testing import TestClient, connect

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": E,
    "io.modelcontextprotocol/clientCapabilities": {},
}
INVALID = {"code": -32602, "message": "Invalid params", "data": "Invalid cursor"}


def add_tool(server: Server, name: str) -> None:
    server.tool(name=name)(lambda: None)


def add_prompt(server: Server, name: str) -> None:
    server.prompt(name=name)(lambda: "")


def add_resource(server: Server, name: str) -> None:
    server.resource(f"x://{name}", name=name)(lambda: "")


def add_template(server: Server, name: str) -> None:
    server.resource(f"x://{name}/{{y}}", name=name)(lambda y: y)


Adder = Callable[[Server, str], None]
LISTS: list[tuple[str, str, Adder]] = [
    ("tools/list", "tools", add_tool),
    ("prompts/list", "prompts", add_prompt),
    ("resources/list", "resources", add_resource),
    ("resources/templates/list", "resourceTemplates", add_template),
]
every_list = pytest.mark.parametrize(("method", "member", "add"), LISTS)


def run(server: Server, revision: str, scenario: Callable[[TestClient], Any]) -> Any:
    async def main() -> Any:
        async with connect(server, revision) as client:
            return await scenario(client)

    return asyncio.run(main())


async def page(client: TestClient, method: str, cursor: str | None = None) -> Any:
    return await client.request(method, None if cursor is None else {"cursor": cursor})


def names(result: Any, member: str) -> list[str]:
    return [item["name"] for item in result[member]]


# --- pages ----------------------------------------------------------------------------------------


@every_revision
@every_list
@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [1]), (2, [2]), (3, [2, 1]), (4, [2, 2]), (5, [2, 2, 1])]
)
@pytest.mark.verifies("F-pagination", "S42", "S41")
def test_pages_hold_everything_once(
    revision: str, method: str, member: str, add: Adder, count: int, sizes: list[int]
) -> None:
    server = Server("s", version="1", page_size=2, ttl_ms=9, cache_scope="public")
    wanted = [f"n{number}" for number in range(count)]
    for name in wanted:
        add(server, name)

    async def scenario(client: TestClient) -> list[Any]:
        pages = [await page(client, method)]
        while "nextCursor" in pages[-1]:
            pages.append(await page(client, method, pages[-1]["nextCursor"]))
        return pages

    pages = run(server, revision, scenario)
    assert [len(one[member]) for one in pages] == sizes
    assert [name for one in pages for name in names(one, member)] == wanted
    hints = {(one.get("ttlMs"), one.get("cacheScope")) for one in pages}
    assert hints == {(9, "public") if revision == E else (None, None)}


@every_revision
@every_list
@pytest.mark.verifies("F-pagination")
def test_without_a_page_size_there_is_one_page(
    revision: str, method: str, member: str, add: Adder
) -> None:
    server = Server("s", version="1")
    wanted = [f"n{number}" for number in range(200)]
    for name in wanted:
        add(server, name)
    result = run(server, revision, lambda client: page(client, method))
    assert names(result, member) == wanted
    assert "nextCursor" not in result


@every_revision
@every_list
@pytest.mark.verifies("F-pagination", "F-cursor")
def test_items_that_come_and_go_between_pages(
    revision: str, method: str, member: str, add: Adder
) -> None:
    server = Server("s", version="1", page_size=2)
    for name in ("a", "b", "c", "d", "e"):
        add(server, name)
    registries: dict[str, dict[str, Any]] = {
        "tools": server.tools,
        "prompts": server.prompts,
        "resources": server.resources,
        "resourceTemplates": server.templates,
    }
    registry = registries[member]

    async def scenario(client: TestClient) -> None:
        first = await page(client, method)
        assert names(first, member) == ["a", "b"]
        # Whatever goes before the cursor or comes after it, nothing is skipped or repeated.
        del registry[next(key for key in registry if "a" in key)]
        del registry[next(key for key in registry if "d" in key)]
        add(server, "f")
        second = await page(client, method, first["nextCursor"])
        assert names(second, member) == ["c", "e"]
        third = await page(client, method, second["nextCursor"])
        assert names(third, member) == ["f"]
        assert "nextCursor" not in third
        # Where the cursor's own place is gone, the client has to start again.
        del registry[next(key for key in registry if "b" in key)]
        add(server, "g")
        message = await client.answer(method, {"cursor": first["nextCursor"]})
        assert message["error"] == INVALID
        assert names(await page(client, method), member) == ["c", "e"]

    run(server, revision, scenario)


def forged(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


@every_revision
@every_list
@pytest.mark.parametrize("page_size", [None, 1])
@pytest.mark.verifies("SH-bad-cursor", "F-cursor")
def test_a_cursor_that_is_not_ours(
    revision: str, method: str, member: str, add: Adder, page_size: int | None
) -> None:
    server = Server("s", version="1", page_size=page_size)
    add(server, "a")
    add(server, "b")
    # The empty text is a cursor like any other: not the first page.
    cursors = ["", " ", "0", "1", "a", "é", "\x00", "YQ", "YQ=", "/w==", "{}", forged("nobody")]

    async def scenario(client: TestClient) -> None:
        for cursor in cursors:
            message = await client.answer(method, {"cursor": cursor})
            assert message["error"] == INVALID, cursor

    run(server, revision, scenario)


@every_revision
@every_list
@pytest.mark.parametrize("cursor", ["1", "true", "[]", "{}", "null"])
def test_a_cursor_that_is_no_text(
    revision: str, method: str, member: str, add: Adder, cursor: str
) -> None:
    """Null too: every schema says string, and leaving it out is the way to ask for the start."""
    server = Server("s", version="1")
    add(server, "a")

    async def scenario(client: TestClient) -> Any:
        meta = "" if revision != E else ',"_meta":' + str(ENVELOPE).replace("'", '"')
        params = '{"cursor":' + cursor + meta + "}"
        client.send(f'{{"jsonrpc":"2.0","id":"x","method":"{method}","params":{params}}}'.encode())
        return await client.receive()

    message = run(server, revision, scenario)
    assert (message["id"], message["error"]["code"]) == ("x", -32602)
    assert message["error"]["data"].startswith("Expected `str`, got ")


def test_a_cursor_belongs_to_its_list() -> None:
    server = Server("s", version="1", page_size=1)
    for name in ("a", "b"):
        add_tool(server, name)
        add_resource(server, name)

    async def scenario(client: TestClient) -> Any:
        cursor = (await page(client, "tools/list"))["nextCursor"]
        return await client.answer("resources/list", {"cursor": cursor})

    assert run(server, D, scenario)["error"] == INVALID


# --- the cache ------------------------------------------------------------------------------------


@every_list
@pytest.mark.verifies("F-listing-cache")
def test_a_page_is_made_once_per_revision_and_anew_after_a_change(
    method: str, member: str, add: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    project = listing.project

    def counted(value: Any, revision: Any) -> Any:
        made.append(f"{value.name} {revision.id}")
        return project(value, revision)

    monkeypatch.setattr(listing, "project", counted)
    server = Server("s", version="1")
    add(server, "a")

    async def scenario(client: TestClient) -> list[str]:
        await page(client, method)
        return names(await page(client, method), member)

    for revision in REVISIONS:
        assert run(server, revision, scenario) == ["a"]
        assert run(server, revision, scenario) == ["a"]
    assert made == [f"a {revision}" for revision in REVISIONS]
    add(server, "b")
    made.clear()
    assert run(server, C, scenario) == ["a", "b"]
    assert made == [f"a {C}", f"b {C}"]


@every_revision
@every_list
@pytest.mark.verifies("F-listing-cache")
def test_an_open_connection_sees_what_was_added(
    revision: str, method: str, member: str, add: Adder
) -> None:
    server = Server("s", version="1")
    add(server, "a")

    async def scenario(client: TestClient) -> Any:
        before = names(await page(client, method), member)
        add(server, "b")
        return before, names(await page(client, method), member)

    assert run(server, revision, scenario) == (["a"], ["a", "b"])


@every_revision
@every_list
@pytest.mark.verifies("SH-tool-order", "S14")
def test_the_order_is_that_of_registration_on_every_connection(
    revision: str, method: str, member: str, add: Adder
) -> None:
    server = Server("s", version="1")
    wanted = ["z", "a", "m", "B", "10", "9"]
    for name in wanted:
        add(server, name)
    add_tool(server, "called")

    async def call_first(client: TestClient) -> Any:
        await client.call("called")
        return await page(client, method)

    plain = run(server, revision, lambda client: page(client, method))
    assert names(plain, member)[: len(wanted)] == wanted
    assert run(server, revision, call_first) == plain


# --- what is declared -----------------------------------------------------------------------------

FEATURES = {
    "tools": {"tools/list": {}, "tools/call": {"name": "a"}},
    "prompts": {"prompts/list": {}, "prompts/get": {"name": "a"}},
    "resources": {
        "resources/list": {},
        "resources/templates/list": {},
        "resources/read": {"uri": "x://a"},
    },
    "completions": {
        "completion/complete": {
            "ref": {"type": "ref/prompt", "name": "p"},
            "argument": {"name": "y", "value": ""},
        }
    },
}


def declares(feature: str) -> Server:
    server = Server("s", version="1")
    if feature in ("prompts", "tools"):
        {"prompts": add_prompt, "tools": add_tool}[feature](server, "a")
    elif feature == "resources":
        add_resource(server, "a")
    elif feature == "completions":
        prompt = server.prompt(name="p")(lambda y: y)
        prompt.complete("y")(lambda prefix: [])
    return server


async def declared(client: TestClient) -> Any:
    if client.revision == E:
        return (await client.request("server/discover"))["capabilities"]
    answers = [message for sender, message in client.recorder.messages if sender == "server"]
    return answers[0]["result"]["capabilities"]


@every_revision
@pytest.mark.parametrize("feature", [*FEATURES, "nothing"])
@pytest.mark.verifies("S12", "X14", "R002-14", "R002-15", "S13", "F-no-leak")
def test_what_is_declared_is_served_and_nothing_else(revision: str, feature: str) -> None:
    async def scenario(client: TestClient) -> tuple[Any, dict[str, Any]]:
        answers = {
            method: await client.answer(method, params)
            for methods in FEATURES.values()
            for method, params in methods.items()
        }
        return await declared(client), answers

    capabilities, answers = run(declares(feature), revision, scenario)
    wanted = {feature} - {"nothing"}
    if feature == "completions":
        wanted.add("prompts")
        if revision == A:
            wanted.remove("completions")  # 2024-11-05 has completion, but no capability for it
    assert capabilities.keys() & FEATURES.keys() == wanted
    served = set(FEATURES.get(feature, ()))
    if feature == "completions":
        served |= set(FEATURES["prompts"])
    for method, message in answers.items():
        if method in served:
            assert message.get("error", {}).get("code") != -32601, method
        else:
            data = f"Method '{method}' is not supported"
            error = {"code": -32601, "message": "Method not found", "data": data}
            assert message["error"] == error


@every_revision
@pytest.mark.verifies("R000-5")
def test_a_list_that_never_changes_is_declared_without_more(revision: str) -> None:
    server = Server("static", list_changed=False)
    add_tool(server, "one")
    assert run(server, revision, declared)["tools"] == {}


@pytest.mark.verifies("S12", "S13")
def test_what_discover_declares_on_an_open_connection_is_served() -> None:
    """No handshake fixes the capabilities: a later registration is declared and served."""
    server = declares("tools")

    async def scenario(client: TestClient) -> Any:
        add_prompt(server, "late")
        assert (await declared(client)).keys() >= {"tools", "prompts"}
        return await client.answer("prompts/list")

    assert names(run(server, E, scenario)["result"], "prompts") == ["late"]
