"""Resources and templates as a client of each revision sees them."""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import Any

import pytest
from msgspec import Struct

from dovetail import Context, McpError, Server
from dovetail.errors import ResourceNotFound
from dovetail.server.resources import is_traversal
from dovetail.spec.types import Annotations, Icon, ResourceContents
from dovetail.testing import connect

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
STAMP = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
META = {"example.org/k": 1}


def make(**options: Any) -> Server:
    return Server("s", version="1", **options)


def answer(
    server: Server, revision: str, method: str, params: dict[str, Any] | None = None
) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        async with connect(server, revision) as client:
            return await client.answer(method, params)

    return asyncio.run(main())


def read(server: Server, revision: str, uri: str) -> list[dict[str, Any]]:
    result = answer(server, revision, "resources/read", {"uri": uri})["result"]
    stamps = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "_meta": STAMP}
    assert {k: v for k, v in result.items() if k != "contents"} == (stamps if revision == E else {})
    return result["contents"]  # type: ignore[no-any-return]


def error(server: Server, revision: str, uri: str) -> dict[str, Any]:
    return answer(server, revision, "resources/read", {"uri": uri})["error"]  # type: ignore[no-any-return]


# --- reading ------------------------------------------------------------------------------------


class Point(Struct):
    x: int


JSON = {"mimeType": "application/json"}
VALUES = [
    ("text", {"text": "text"}),
    ("", {"text": ""}),
    (b"\x00\xff", {"blob": base64.b64encode(b"\x00\xff").decode()}),
    (bytearray(b"a"), {"blob": "YQ=="}),
    (memoryview(b"a"), {"blob": "YQ=="}),
    ({"a": [1]}, {"text": '{"a":[1]}', **JSON}),
    ([1, 2], {"text": "[1,2]", **JSON}),
    (Point(1), {"text": '{"x":1}', **JSON}),
    (None, {"text": "null", **JSON}),
]


@every_revision
@pytest.mark.parametrize(("value", "shown"), VALUES)
@pytest.mark.verifies("F-resource-static", "S36", "S41", "S10", "F-no-stamps")
def test_what_a_function_returns_is_the_contents(
    revision: str, value: Any, shown: dict[str, Any]
) -> None:
    server = make()
    server.resource("x://y")(lambda: value)
    assert read(server, revision, "x://y") == [{"uri": "x://y", **shown}]


@every_revision
def test_the_mime_type_of_the_definition_is_that_of_the_contents(revision: str) -> None:
    server = make()
    server.resource("x://t", mime_type="text/markdown")(lambda: "# a")
    server.resource("x://b", mime_type="image/png")(lambda: b"a")
    server.resource("x://j", mime_type="application/geo+json")(lambda: {})
    for uri, kind in [("t", "text/markdown"), ("b", "image/png"), ("j", "application/geo+json")]:
        (contents,) = read(server, revision, f"x://{uri}")
        assert contents["mimeType"] == kind


@every_revision
@pytest.mark.verifies("F-no-leak")
def test_contents_made_by_hand(revision: str) -> None:
    server = make()
    one = ResourceContents.of("x://y#1", "a", "text/plain", meta=META)
    server.resource("x://one")(lambda: one)
    server.resource("x://two")(lambda: [one, ResourceContents.of("x://y#2", b"a")])
    meta = {} if revision in (A, B) else {"_meta": META}
    first = {"uri": "x://y#1", "text": "a", "mimeType": "text/plain", **meta}
    assert read(server, revision, "x://one") == [first]
    assert read(server, revision, "x://two") == [first, {"uri": "x://y#2", "blob": "YQ=="}]


@every_revision
def test_functions_run_in_a_thread_inline_or_on_the_loop(revision: str) -> None:
    server = make()

    @server.resource("x://sync")
    def sync() -> str:
        return threading.current_thread().name

    @server.resource("x://inline", inline=True)
    def inline() -> str:
        return threading.current_thread().name

    @server.resource("x://async")
    async def later() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert read(server, revision, "x://sync")[0]["text"].startswith("dovetail-worker-")
    assert read(server, revision, "x://inline")[0]["text"] == threading.main_thread().name
    assert read(server, revision, "x://async")[0]["text"] == threading.main_thread().name
    assert sync() == threading.current_thread().name, "a resource can still be called"


@every_revision
def test_a_resource_may_ask_for_the_context(revision: str) -> None:
    server = make()

    @server.resource("x://{name}")
    def who(name: str, ctx: Context) -> str:
        return f"{name} {ctx.method} {ctx.revision}"

    (contents,) = read(server, revision, "x://a")
    assert contents["text"] == f"a resources/read {revision}"


# --- templates ----------------------------------------------------------------------------------


@every_revision
@pytest.mark.verifies("F-resource-template")
def test_variables_are_decoded_and_handed_over(revision: str) -> None:
    server = make()

    @server.resource("db://{table}/rows/{row}{?columns,limit}")
    def row(table: str, row: int, columns: str = "*", limit: float = 1.5) -> Any:
        return [table, row, columns, limit]

    def text(uri: str) -> str:
        (contents,) = read(server, revision, uri)
        assert contents["uri"] == uri
        return contents["text"]  # type: ignore[no-any-return]

    assert text("db://t/rows/7") == '["t",7,"*",1.5]'
    assert text("db://a%2Fb%20%C3%A9/rows/-1") == '["a/b é",-1,"*",1.5]'
    assert text("db://t/rows/7?limit=2&columns=a,b") == '["t",7,"a,b",2.0]'


@every_revision
@pytest.mark.verifies("S36")
def test_a_variable_of_the_wrong_type_never_reaches_the_function(revision: str) -> None:
    server = make()
    ran = []

    @server.resource("db://{row}")
    def row(row: int) -> str:
        ran.append(row)
        return "ok"

    data = "Invalid argument 'row': expected int, got str \"seven\""
    expected = {"code": -32602, "message": "Invalid params", "data": data}
    assert error(server, revision, "db://seven") == expected
    assert not ran


@every_revision
def test_a_static_resource_comes_before_a_template_and_templates_in_order(revision: str) -> None:
    server = make()
    server.resource("x://{+rest}")(lambda rest: f"rest {rest}")
    server.resource("x://a/{b}")(lambda b: f"b {b}")
    server.resource("x://a/static")(lambda: "static")
    assert read(server, revision, "x://a/static")[0]["text"] == "static"
    assert read(server, revision, "x://a/b")[0]["text"] == "rest a/b"


# --- not found ------------------------------------------------------------------------------------


def not_found(revision: str, uri: str) -> dict[str, Any]:
    code = -32602 if revision == E else -32002
    return {"code": code, "message": "Resource not found", "data": {"uri": uri}}


@every_revision
@pytest.mark.parametrize("uri", ["x://none", "", "not a uri", "x://\u0000", "db://a/b", "../etc"])
@pytest.mark.verifies("S38", "S36", "X32", "F-no-leak")
def test_what_is_not_there_is_an_error(revision: str, uri: str) -> None:
    server = make()
    server.resource("x://y")(lambda: "a")
    server.resource("db://{one}")(lambda one: one)
    assert error(server, revision, uri) == not_found(revision, uri)


@every_revision
@pytest.mark.verifies("S38", "X32", "X30")
def test_a_function_can_say_that_there_is_nothing(revision: str) -> None:
    server = make()

    @server.resource("x://{name}")
    def find(name: str) -> str:
        raise ResourceNotFound(f"x://{name}")

    assert error(server, revision, "x://none") == not_found(revision, "x://none")


@every_revision
@pytest.mark.verifies("E-handler-crash")
def test_other_failures_of_a_function(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    server = make()

    @server.resource("x://refused")
    def refused() -> str:
        raise McpError(-31000, "Locked", {"by": "me"})

    @server.resource("x://crash")
    def crash() -> str:
        raise RuntimeError("secret")

    @server.resource("x://inline", inline=True)
    def crash_inline() -> str:
        raise RuntimeError("secret")

    expected = {"code": -31000, "message": "Locked", "data": {"by": "me"}}
    assert error(server, revision, "x://refused") == expected
    assert not caplog.records
    for uri in ("x://crash", "x://inline"):
        assert error(server, revision, uri) == {"code": -32603, "message": "Internal error"}
    assert caplog.text.count("RuntimeError: secret") == 2


@every_revision
@pytest.mark.parametrize(
    "uri",
    [
        "file:///srv/../etc/passwd",
        "file:///srv/a/..",
        "file:///srv/%2e%2e/etc",
        "file:///srv/a%2F..%2F..%2Fetc",
        "file:///srv/..%5Cetc",
        "file:///srv/a%00b",
    ],
)
def test_a_file_template_does_not_climb(revision: str, uri: str) -> None:
    server = make()
    server.resource("file:///srv/{+path}")(lambda path: path)
    server.resource("FILE:///srv/{+path}")(lambda path: path)
    assert error(server, revision, uri) == not_found(revision, uri)
    shouted = "FILE" + uri[4:]
    assert error(server, revision, shouted) == not_found(revision, shouted)


@every_revision
def test_dots_that_do_not_climb_are_fine(revision: str) -> None:
    server = make()
    server.resource("file:///srv/{+path}")(lambda path: path)
    server.resource("git://{+range}")(lambda range: range)
    assert read(server, revision, "file:///srv/a..b/..c/d.")[0]["text"] == "a..b/..c/d."
    assert read(server, revision, "git://a/../b")[0]["text"] == "a/../b", "only files have paths"


def test_traversal() -> None:
    assert all(map(is_traversal, ["..", "a/..", "../a", "a\\..\\b", "a\0"]))
    assert not any(map(is_traversal, ["", "...", "a..", "..a", "a/./b"]))


# --- lists ----------------------------------------------------------------------------------------

DEFINITION: dict[str, Any] = {
    "name": "n",
    "title": "T",
    "description": "d",
    "mime_type": "text/plain",
    "annotations": Annotations(audience=["user"], priority=1, last_modified="2026-01-01T00:00:00Z"),
    "icons": [Icon(src="https://e.org/i.png")],
    "meta": META,
}


def defined(revision: str) -> dict[str, Any]:
    notes: dict[str, Any] = {"audience": ["user"], "priority": 1}
    known = {"name": "n", "description": "d", "mimeType": "text/plain", "annotations": notes}
    if revision not in (A, B):
        notes["lastModified"] = "2026-01-01T00:00:00Z"
        known |= {"title": "T", "_meta": META}
    if revision in (D, E):
        known["icons"] = [{"src": "https://e.org/i.png"}]
    return known


@every_revision
@pytest.mark.verifies("F-metadata", "F-no-leak", "F-resource-static", "F-resource-template")
def test_members_of_a_definition_by_revision(revision: str) -> None:
    server = make()
    server.resource("x://y", size=3, **DEFINITION)(lambda: "abc")
    server.resource("x://{z}", **DEFINITION)(lambda z: z)
    static = answer(server, revision, "resources/list")["result"]["resources"]
    templates = answer(server, revision, "resources/templates/list")["result"]["resourceTemplates"]
    assert static == [{"uri": "x://y", "size": 3, **defined(revision)}]
    assert templates == [{"uriTemplate": "x://{z}", **defined(revision)}]


@every_revision
def test_names_and_descriptions_come_from_the_function(revision: str) -> None:
    server = make()

    @server.resource("x://y")
    def readme() -> str:
        """What to read first."""
        return ""

    (listed,) = answer(server, revision, "resources/list")["result"]["resources"]
    assert listed == {"uri": "x://y", "name": "readme", "description": "What to read first."}


@every_revision
@pytest.mark.verifies("S13")
def test_the_list_without_entries_is_empty_not_missing(revision: str) -> None:
    only_static, only_templates = make(), make()
    only_static.resource("x://y")(lambda: "a")
    only_templates.resource("x://{y}")(lambda y: y)
    result = answer(only_static, revision, "resources/templates/list")["result"]
    assert result["resourceTemplates"] == []
    assert answer(only_templates, revision, "resources/list")["result"]["resources"] == []


# --- caching ----------------------------------------------------------------------------------


@pytest.mark.verifies("S41", "S43", "S42")
def test_how_long_and_for_whom_contents_may_be_kept() -> None:
    server = make(ttl_ms=1000, cache_scope="public")
    server.resource("x://usual")(lambda: "a")
    server.resource("x://own", ttl_ms=5)(lambda: "a")
    server.resource("x://never", ttl_ms=0)(lambda: "a")

    def hints(method: str, **params: Any) -> tuple[int, str]:
        result = answer(server, E, method, params)["result"]
        return result["ttlMs"], result["cacheScope"]

    assert hints("resources/read", uri="x://usual") == (1000, "public")
    assert hints("resources/read", uri="x://own") == (5, "public")
    assert hints("resources/read", uri="x://never") == (0, "public")
    assert hints("resources/list") == hints("resources/templates/list") == (1000, "public")
    assert hints("server/discover") == (1000, "public")


@pytest.mark.verifies("S41", "S43")
def test_by_default_nothing_may_be_kept() -> None:
    server = make()
    server.resource("x://{y}")(lambda y: y)
    server.tool(name="t")(lambda: 1)
    server.prompt(name="p")(lambda: "a")
    for method, params in [
        ("server/discover", None),
        ("tools/list", None),
        ("prompts/list", None),
        ("resources/list", None),
        ("resources/templates/list", None),
        ("resources/read", {"uri": "x://a"}),
    ]:
        result = answer(server, E, method, params)["result"]
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private"), method
