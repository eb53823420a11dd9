"""The programs in ``examples/`` as a person starts them."""

import json
from pathlib import Path
from typing import Any

import pytest
from process import Process

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.verifies("F-examples-run")


def start(name: str, **env: str) -> Process:
    return Process([EXAMPLES / name], env=env)


def structured(server: Process, tool: str, **arguments: Any) -> Any:
    result = server.request("tools/call", {"name": tool, "arguments": arguments})
    assert result["isError"] is False, result
    return result["structuredContent"]


def test_every_example_is_tried_here_or_by_the_real_clients() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    names = {name for name in names if not name.startswith("mounted_")}  # tests/http has those
    assert names >= {"quickstart", "notes", "everything"}
    for name in names:
        with start(f"{name}.py") as server:
            assert server.initialize()["protocolVersion"] == "2025-11-25"
            assert server.request("tools/list")["tools"]
            assert server.finish() == 0


def test_quickstart() -> None:
    with start("quickstart.py") as server:
        server.initialize()
        assert structured(server, "add", a=1, b=2) == {"result": 3}
        read = server.request("resources/read", {"uri": "greeting://World"})
        assert read["contents"][0]["text"] == "Hello, World!"
        got = server.request("prompts/get", {"name": "review", "arguments": {"code": "x = 1"}})
        assert got["messages"][0]["content"]["text"].endswith("x = 1")


def test_notes_are_kept_found_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "new directory" / "notes.json"
    with start("notes.py", NOTES_FILE=str(path)) as server:
        server.initialize()
        first = structured(server, "add_note", text="Tea is at four", tags=["tea", "time"])
        assert (first["id"], first["tags"]) == (1, ["tea", "time"])
        structured(server, "add_note", text="Buy green TEA", tags=["tea"])
        structured(server, "add_note", text="Water the plants")
        assert server.finish() == 0
    with start("notes.py", NOTES_FILE=str(path)) as server:
        server.initialize()
        assert ids(structured(server, "search_notes", query="tea")) == [1, 2]
        assert ids(structured(server, "search_notes", query="", tag="time")) == [1]
        assert ids(structured(server, "list_notes", limit=2)) == [3, 2]
        read = server.request("resources/read", {"uri": "notes://2"})
        assert read["contents"][0]["text"] == "Buy green TEA"
        assert completed(server, {"type": "ref/resource", "uri": "notes://{id}"}, "id", "") == [
            *("1", "2", "3")
        ]
        assert completed(server, {"type": "ref/prompt", "name": "summarise"}, "tag", "t") == [
            *("tea", "time")
        ]
        got = server.request("prompts/get", {"name": "summarise", "arguments": {"tag": "time"}})
        assert "Tea is at four (note 1)" in got["messages"][0]["content"]["text"]
        assert structured(server, "remove_note", id=2)["text"] == "Buy green TEA"
        assert [note["id"] for note in json.loads(path.read_bytes())] == [1, 3]


def test_notes_that_are_not_there(tmp_path: Path) -> None:
    with start("notes.py", NOTES_FILE=str(tmp_path / "notes.json")) as server:
        server.initialize()
        assert structured(server, "list_notes") == {"result": []}
        result = server.request("tools/call", {"name": "remove_note", "arguments": {"id": 7}})
        assert result["isError"] is True
        assert result["content"][0]["text"].startswith("There is no note 7")
        error = server.answer(server.start("resources/read", {"uri": "notes://7"}))["error"]
        assert error["message"] == "Resource not found"
        assert error["data"] == {"uri": "notes://7"}


def test_notes_added_at_once_all_stay(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    with start("notes.py", NOTES_FILE=str(path)) as server:
        server.initialize()
        for number in range(50):
            server.call("add_note", text=f"note {number}")
        assert server.finish() == 0
    assert [note["id"] for note in json.loads(path.read_bytes())] == list(range(1, 51))


def ids(listed: Any) -> list[int]:
    return [note["id"] for note in listed["result"]]


def completed(server: Process, ref: dict[str, str], name: str, value: str) -> list[str]:
    params = {"ref": ref, "argument": {"name": name, "value": value}}
    values: list[str] = server.request("completion/complete", params)["completion"]["values"]
    return values
