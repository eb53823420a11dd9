"""The generated tables and schemas: what they say, and that they are what the sources give."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.spec import _surface as surface
from dovetail.spec import types as t

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
SCHEMAS = SHARED / "spec"

needs_sources = pytest.mark.skipif(
    not SHARED.exists() and not os.environ.get("CI"), reason="needs the official schemas"
)


@pytest.fixture(scope="module")
def generator() -> Any:
    path = ROOT / "tools" / "gen_surface.py"
    spec = importlib.util.spec_from_file_location("gen_surface", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- the tables ---------------------------------------------------------------------------------


def test_revisions() -> None:
    assert surface.REVISIONS == (
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
    )


TABLES = [
    surface.CLIENT_REQUESTS,
    surface.SERVER_REQUESTS,
    surface.CLIENT_NOTIFICATIONS,
    surface.SERVER_NOTIFICATIONS,
    surface.CONTENT,
    surface.SAMPLING_CONTENT,
]


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_every_revision(table: dict[str, frozenset[str]]) -> None:
    assert tuple(table) == surface.REVISIONS


def revisions_of(table: dict[str, frozenset[str]], name: str) -> str:
    return "".join(
        letter for letter, found in zip("ABCDE", table.values(), strict=True) if name in found
    )


# The tables of the digest, sections 2.1 to 2.3.
CLIENT_REQUESTS = {
    "initialize": "ABCD",
    "ping": "ABCD",
    "server/discover": "E",
    "subscriptions/listen": "E",
    "tools/list": "ABCDE",
    "tools/call": "ABCDE",
    "resources/list": "ABCDE",
    "resources/templates/list": "ABCDE",
    "resources/read": "ABCDE",
    "resources/subscribe": "ABCD",
    "resources/unsubscribe": "ABCD",
    "prompts/list": "ABCDE",
    "prompts/get": "ABCDE",
    "completion/complete": "ABCDE",
    "logging/setLevel": "ABCD",
    "tasks/get": "D",
    "tasks/result": "D",
    "tasks/list": "D",
    "tasks/cancel": "D",
}
SERVER_REQUESTS = {
    "ping": "ABCD",
    "sampling/createMessage": "ABCD",
    "roots/list": "ABCD",
    "elicitation/create": "CD",
    "tasks/get": "D",
    "tasks/result": "D",
    "tasks/list": "D",
    "tasks/cancel": "D",
}
CLIENT_NOTIFICATIONS = {
    "notifications/initialized": "ABCD",
    "notifications/cancelled": "ABCDE",
    "notifications/progress": "ABCD",
    "notifications/roots/list_changed": "ABCD",
    "notifications/tasks/status": "D",
}
SERVER_NOTIFICATIONS = {
    "notifications/cancelled": "ABCDE",
    "notifications/progress": "ABCDE",
    "notifications/message": "ABCDE",
    "notifications/tools/list_changed": "ABCDE",
    "notifications/prompts/list_changed": "ABCDE",
    "notifications/resources/list_changed": "ABCDE",
    "notifications/resources/updated": "ABCDE",
    "notifications/elicitation/complete": "D",
    "notifications/tasks/status": "D",
    "notifications/subscriptions/acknowledged": "E",
}
CONTENT = {
    "text": "ABCDE",
    "image": "ABCDE",
    "resource": "ABCDE",
    "audio": "BCDE",
    "resource_link": "CDE",
}
SAMPLING_CONTENT = {
    "text": "ABCDE",
    "image": "ABCDE",
    "audio": "BCDE",
    "tool_use": "DE",
    "tool_result": "DE",
}


EXPECTED = [
    CLIENT_REQUESTS,
    SERVER_REQUESTS,
    CLIENT_NOTIFICATIONS,
    SERVER_NOTIFICATIONS,
    CONTENT,
    SAMPLING_CONTENT,
]


@pytest.mark.parametrize(("table", "expected"), list(zip(TABLES, EXPECTED, strict=True)))
def test_tables(table: dict[str, frozenset[str]], expected: dict[str, str]) -> None:
    names = frozenset().union(*table.values())
    assert {name: revisions_of(table, name) for name in names} == expected


def test_the_tasks_extension() -> None:
    assert {"tasks/get", "tasks/update", "tasks/cancel"} == surface.TASKS_REQUESTS
    assert {"notifications/tasks"} == surface.TASKS_NOTIFICATIONS


@pytest.mark.parametrize(
    ("type_name", "member", "letters"),
    [
        ("Tool", "inputSchema", "ABCDE"),
        ("Tool", "annotations", "BCDE"),
        ("Tool", "outputSchema", "CDE"),
        ("Tool", "execution", "D"),
        ("CallToolResult", "structuredContent", "CDE"),
        ("CallToolResult", "resultType", "E"),
        ("ListToolsResult", "ttlMs", "E"),
        ("Implementation", "title", "CDE"),
        # 2024-11-05 has the annotations inline.
        ("Annotations", "audience", "ABCDE"),
        ("Annotations", "lastModified", "CDE"),
        # Up to 2025-06-18 the params are inline, and do not list what they inherit.
        ("CallToolRequestParams", "name", "ABCDE"),
        ("CallToolRequestParams", "_meta", "ABCDE"),
        ("CallToolRequestParams", "task", "D"),
        ("ProgressNotificationParams", "message", "BCDE"),
        ("ClientCapabilities.roots", "listChanged", "ABCD"),
        ("ServerCapabilities", "completions", "BCDE"),
        # Two official types in one Struct.
        ("ResourceContents", "text", "ABCDE"),
        ("ResourceContents", "blob", "ABCDE"),
        ("ElicitRequestParams", "requestedSchema", "CDE"),
        ("ElicitRequestParams", "url", "DE"),
        ("ElicitRequestParams", "elicitationId", "D"),
        # The core tasks and the extension.
        ("Task", "ttl", "D"),
        ("Task", "ttlMs", "E"),
        ("GetTaskResult", "inputRequests", "E"),
        ("SubscriptionFilter", "taskIds", "E"),
    ],
)
def test_fields(type_name: str, member: str, letters: str) -> None:
    assert surface.FIELDS[type_name][member] == letters


# Members of our Structs that the table of the same name does not have, and why.
NOT_IN_TABLE = {
    # No revision gives these a result type (2026-07-28 made the first three payloads, not
    # results); our Structs share the base of all results.
    "CreateMessageResult": {"resultType"},
    "ElicitResult": {"resultType"},
    "ListRootsResult": {"resultType"},
    "InitializeResult": {"resultType"},
    # One base for all pages, and one for both forms of a task.
    "ListTasksResult": {"resultType", "ttlMs", "cacheScope"},
    "PaginatedResult": {"ttlMs", "cacheScope"},
    "TaskStatusNotificationParams": {"resultType"},
}
# Members of official types that our Structs read in another way.
NOT_IN_STRUCT = {
    # The extension's form of this result is a GetTaskResult.
    "CreateTaskResult": {
        "createdAt",
        "lastUpdatedAt",
        "pollIntervalMs",
        "status",
        "statusMessage",
        "taskId",
        "ttlMs",
    },
}


def structs() -> list[Any]:
    found = [getattr(t, name) for name in t.__all__ if name in surface.FIELDS]
    return [pytest.param(struct, id=struct.__name__) for struct in found]


@pytest.mark.parametrize("struct", structs())
def test_structs_have_the_members_of_the_schemas(struct: type[msgspec.Struct]) -> None:
    name = struct.__name__
    config = struct.__struct_config__
    tag = {config.tag_field} if config.tag_field else set()
    ours = set(struct.__struct_encode_fields__) | tag
    official = set(surface.FIELDS[name])
    assert ours - official == NOT_IN_TABLE.get(name, set())
    assert official - ours == NOT_IN_STRUCT.get(name, set())


def test_the_comparison_is_not_empty() -> None:
    assert len(structs()) > 70


# --- the files ----------------------------------------------------------------------------------

NAMES = [*surface.REVISIONS, "ext-tasks"]


def shipped(name: str) -> Any:
    return json.loads(files("dovetail.spec").joinpath("schema", f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_shipped_schemas_have_no_prose(name: str) -> None:
    def prose(node: Any, *, names: bool = False) -> list[Any]:
        if isinstance(node, list):
            return [found for item in node for found in prose(item)]
        if not isinstance(node, dict):
            return []
        keys = {"description", "title", "examples", "$comment"}
        here = [] if names else [node[key] for key in keys & node.keys()]
        for key, sub in node.items():
            here += prose(sub, names=not names and key in ("properties", "$defs", "definitions"))
        return here

    assert prose(shipped(name)) == []


def test_members_called_like_prose_stay() -> None:
    tool = shipped("2026-07-28")["$defs"]["Tool"]["properties"]
    assert {"title", "description"} <= tool.keys()


def test_pins() -> None:
    pinned = shipped("PINNED")
    assert {path.partition("/")[0] for path in pinned["sha256"]} == set(NAMES)
    assert len(pinned["patches"]) == 6
    for patch in pinned["patches"]:
        assert patch["reason"]
        node = shipped(patch["file"])
        for step in patch["pointer"].strip("/").split("/"):
            node = node[int(step)] if isinstance(node, list) else node[step]
        assert node == patch["new"] != patch["old"]


# --- the generator ------------------------------------------------------------------------------


def test_strip_keeps_structure(generator: Any) -> None:
    node = {
        "$schema": "x",
        "description": "prose",
        "properties": {
            "title": {"type": "string", "title": "prose", "examples": ["prose"]},
            "kind": {"const": {"title": "data"}, "$comment": "prose"},
        },
        "anyOf": [{"$schema": "x", "description": "prose", "minimum": 0}, True],
    }
    assert generator.strip(node) == {
        "$schema": "x",
        "properties": {"title": {"type": "string"}, "kind": {"const": {"title": "data"}}},
        "anyOf": [{"minimum": 0}, True],
    }


def test_a_patch_that_no_longer_fits_is_reported(generator: Any) -> None:
    schema = shipped("2025-06-18")  # already patched
    with pytest.raises(SystemExit, match="ElicitResult"):
        generator.apply_patches("2025-06-18", schema)


@needs_sources
@pytest.mark.verifies("F-surface-drift")
def test_no_drift(generator: Any) -> None:
    assert generator.drift(SCHEMAS) == []
    assert generator.main(["--check"]) == 0


@needs_sources
@pytest.mark.verifies("F-surface-drift")
def test_drift_is_found(generator: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        shutil.copytree(SCHEMAS / name, tmp_path / name, ignore=shutil.ignore_patterns("examples"))
    path = tmp_path / "2024-11-05" / "schema.json"
    schema = json.loads(path.read_bytes())
    schema["definitions"]["Tool"]["properties"]["colour"] = {"type": "string"}
    path.write_text(json.dumps(schema), "utf-8")
    assert generator.main(["--check", "--source", str(tmp_path)]) == 1
    problems = capsys.readouterr().err.splitlines()
    assert problems == [
        "2024-11-05/schema.json: not the pinned file",
        "schema/2024-11-05.json: differs from what the sources give",
        "schema/PINNED.json: differs from what the sources give",
        "_surface.py: differs from what the sources give",
    ]


@needs_sources
def test_writing(generator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(generator.drift(SCHEMAS, tmp_path)) == 8
    monkeypatch.setattr(generator, "TARGET", tmp_path)
    assert generator.main(["--source", str(SCHEMAS)]) == 0
    assert generator.drift(SCHEMAS, tmp_path) == []
