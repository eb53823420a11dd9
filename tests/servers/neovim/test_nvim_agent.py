"""The tools and resources that any agent gets, with a real editor and a real language server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nvim_process import Nvim, content, diff_shown, editor

from dovetail.servers.neovim.agent import agent_server
from dovetail.servers.neovim.finder import Finder, _closeness
from dovetail.servers.neovim.model import STALE_KEY
from dovetail.testing import TestClient, connect
from support import run

CODE = """import os


def hello(name):
    return name


hello(1)
hello(2)
"""

READING = {
    "list_buffers",
    "read_buffer",
    "search_buffers",
    "get_selection",
    "get_diagnostics",
    "get_quickfix",
    "show_file",
    "propose_change",
    "hover",
    "definition",
    "references",
    "symbols",
    "code_actions",
}
WRITING = {"edit_buffer", "save_buffer", "set_quickfix", "rename", "apply_code_action"}


@asynccontextmanager
async def agent(
    nvim: Nvim, revision: str = "2025-11-25", **options: Any
) -> AsyncIterator[TestClient]:
    address = await nvim.call("nvim_eval", "v:servername")
    async with connect(agent_server(Finder(address), **options), revision) as client:
        yield client


async def value(client: TestClient, name: str, **arguments: Any) -> Any:
    result = await client.call(name, arguments)
    assert result["isError"] is False, result
    return result["structuredContent"]


async def failure(client: TestClient, name: str, **arguments: Any) -> str:
    result = await client.call(name, arguments)
    assert result["isError"] is True, result
    text: str = result["content"][0]["text"]
    return text


async def with_server(nvim: Nvim) -> str:
    """A Python file with a language server attached to it."""
    path = nvim.write("a.py", CODE)
    await nvim.call("nvim_command", "edit a.py")
    program = str(Path(sys.executable).with_name("jedi-language-server"))
    await nvim.lua(
        "vim.lsp.start({name = 'jedi', cmd = {...}, root_dir = vim.fn.getcwd()})", program
    )
    await nvim.until(
        "#vim.lsp.get_clients({bufnr = 0}) > 0 and vim.lsp.get_clients({bufnr = 0})[1].initialized"
    )
    return path


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, READING),
        ({"write": True}, READING | WRITING),
        ({"execute": True}, READING | {"run_command"}),
    ],
)
def test_read_only_unless_allowed(
    tmp_path: Path, options: dict[str, bool], names: set[str]
) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim, agent(nvim, **options) as client:
            tools = (await client.request("tools/list"))["tools"]
            assert {tool["name"] for tool in tools} == names
            for tool in tools:
                hints = tool.get("annotations", {})
                changes = tool["name"] in WRITING | {"run_command", "propose_change"}
                assert hints.get("readOnlyHint", False) is not changes
            unknown = await client.answer("tools/call", {"name": "getCurrentSelection"})
            assert unknown["error"]["code"] == -32602  # the IDE's tools are the IDE's

    run(main())


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2026-07-28"])
def test_every_revision_can_use_them(tmp_path: Path, revision: str) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim, agent(nvim, revision) as client:
            path = nvim.write("a.txt", "one\n")
            await nvim.call("nvim_command", "edit a.txt")
            result = await client.call("read_buffer", {"path": "a.txt"})
            assert json.loads(result["content"][0]["text"])["path"] == path

    run(main())


def test_buffers_as_they_are_in_the_editor(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim, agent(nvim, write=True) as client:
            path = nvim.write("sub/a.txt", "one\ntwo\nthree\n")
            await nvim.call("nvim_command", "edit sub/a.txt")
            await nvim.keys("ggOunsaved naïve 😀 x<Esc>")
            await nvim.until("vim.fn.mode() == 'n' and vim.fn.line('$') == 4")
            [buffer] = (await value(client, "list_buffers"))["buffers"]
            assert buffer == {
                "buffer": 1,
                "path": path,
                "filetype": "text",
                "lines": 4,
                "modified": True,
                "current": True,
            }
            part = await value(client, "read_buffer", path="sub/a.txt")
            assert part["text"] == "unsaved naïve 😀 x\none\ntwo\nthree"
            part = await value(client, "read_buffer", buffer=1, first_line=2, last_line=3)
            assert (part["text"], part["first_line"], part["last_line"]) == ("one\ntwo", 2, 3)
            assert (await value(client, "read_buffer", path=path, first_line=99))["text"] == ""
            hit = {"path": path, "line": 1, "column": 18, "text": "unsaved naïve 😀 x"}
            found = await value(client, "search_buffers", pattern=" x")
            assert found == {"hits": [{**hit, "column": 17}], "complete": True}
            found = await value(client, "search_buffers", pattern="^t[a-z]+", regex=True)
            assert [each["line"] for each in found["hits"]] == [3, 4]
            found = await value(client, "search_buffers", pattern="e", limit=2)
            assert (len(found["hits"]), found["complete"]) == (2, False)
            assert "not a Vim regular expression" in await failure(
                client, "search_buffers", pattern="(", regex=True
            )
            assert "empty" in await failure(client, "search_buffers", pattern="")
            assert "is not open" in await failure(client, "read_buffer", path="nope.txt")
            edit = {"path": path, "first_line": 2, "last_line": 2, "text": "ONE\nMORE\n"}
            await value(client, "edit_buffer", **edit)
            await value(client, "edit_buffer", path=path, first_line=1, last_line=1, text="")
            insert = {"path": path, "first_line": 1, "last_line": 0, "text": "first"}
            await value(client, "edit_buffer", **insert)
            assert content(path) == "one\ntwo\nthree\n"
            await value(client, "save_buffer", path=path)
            assert content(path) == "first\nONE\nMORE\ntwo\nthree\n"
            wrong = {"path": path, "first_line": 9, "last_line": 12, "text": "x"}
            assert "are not in the buffer" in await failure(client, "edit_buffer", **wrong)
            outside = tmp_path / "outside.txt"
            outside.write_text("x")
            for name in ("save_buffer", "show_file"):
                said = await failure(client, name, path=str(outside))
                assert "outside the workspace" in said

    run(main())


def test_language_servers(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim, agent(nvim, write=True) as client:
            path = await with_server(nvim)
            there = {"path": "a.py", "line": 8, "column": 2}
            assert "def hello(name)" in (await value(client, "hover", **there))["result"]
            [place] = (await value(client, "definition", **there))["result"]
            assert place == {"path": path, "line": 4, "column": 5}
            places = (await value(client, "references", **there))["result"]
            assert [each["line"] for each in places] == [4, 8, 9]
            names = (await value(client, "symbols", path="a.py"))["result"]
            assert [(each["name"], each["kind"]) for each in names] == [
                ("os", "module"),
                ("hello", "function"),
            ]
            [found] = (await value(client, "symbols", query="hello"))["result"]
            assert (found["path"], found["line"]) == (path, 4)
            files = (await value(client, "rename", **there, new_name="greet"))["result"]
            assert files == [path]
            text = (await value(client, "read_buffer", path="a.py"))["text"]
            assert text.count("greet") == 3
            actions = (await value(client, "code_actions", path="a.py", line=8))["result"]
            title = next(each["title"] for each in actions if "variable" in each["title"])
            wanted = {"path": "a.py", "line": 8, "title": title}
            assert (await value(client, "apply_code_action", **wanted))["result"] == [path]
            text = (await value(client, "read_buffer", path="a.py"))["text"]
            assert "jls_extract_var" in text
            assert content(path) == CODE
            said = await failure(client, "apply_code_action", path="a.py", line=8, title="nope")
            assert said == "No code action there is called 'nope'"
            assert "there is no line" in await failure(
                client, "hover", path="a.py", line=999, column=1
            )
            nvim.write("b.txt", "x\n")
            await nvim.call("nvim_command", "edit b.txt")
            said = await failure(client, "hover", path="b.txt", line=1, column=1)
            assert said == "no language server here answers textDocument/hover"

    run(main())


def test_quickfix_diagnostics_selection_and_commands(tmp_path: Path) -> None:
    async def main() -> None:
        everything = {"write": True, "execute": True}
        async with editor(tmp_path, setup=None) as nvim, agent(nvim, **everything) as client:
            assert await failure(client, "get_selection") == "No file is open in the editor"
            path = nvim.write("a.txt", "one\ntwo\n")
            await value(client, "show_file", path="a.txt", line=2)
            await nvim.keys("<Esc>0vl")
            await nvim.until("vim.fn.mode() == 'v'")
            assert await value(client, "get_selection") == {
                "path": path,
                "text": "tw",
                "first": {"line": 2, "column": 1},
                "end": {"line": 2, "column": 3},
                "empty": False,
            }
            await nvim.keys("<Esc>")
            await nvim.lua(
                "vim.diagnostic.set(vim.api.nvim_create_namespace('t'), 0,"
                " {{lnum = 1, col = 0, end_col = 3, message = 'm', severity = 2}})"
            )
            expected = {
                "path": path,
                "line": 2,
                "column": 1,
                "end_line": 2,
                "end_column": 4,
                "message": "m",
                "severity": "Warning",
            }
            assert await value(client, "get_diagnostics") == {"diagnostics": [expected]}
            assert await value(client, "get_diagnostics", path="b") == {"diagnostics": []}
            item = {"path": "a.txt", "line": 2, "column": 1, "text": "look", "kind": "error"}
            await value(client, "set_quickfix", items=[item], title="mine")
            found = await value(client, "get_quickfix")
            assert found == {"title": "mine", "items": [{**item, "path": path}]}
            said = await value(client, "run_command", command="echo 6 * 7")
            assert said == {"result": "42"}
            said = await failure(client, "run_command", command="nonsense")
            assert said == "E492: Not an editor command: nonsense"

    run(main())


@pytest.mark.parametrize(
    ("keys", "said", "saved"),
    [
        ("ga", "Saved {path}", "two\n"),
        ("ggcwmine<Esc>ga", "Saved {path}, changed by the user: read it again", "mine\n"),
        ("gx", "The user rejected the change", "one\n"),
        ("gRtoo long<CR>", "The user rejected the change: too long", "one\n"),
    ],
)
def test_a_proposed_change_is_saved_if_the_user_accepts(
    tmp_path: Path, keys: str, said: str, saved: str
) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim, agent(nvim) as client:
            path = nvim.write("a.txt", "one\n")
            await nvim.call("nvim_command", "edit a.txt")
            proposal = {"path": "a.txt", "text": "two\n"}
            _, future = client.start(
                "tools/call", {"name": "propose_change", "arguments": proposal}
            )
            await diff_shown(nvim)
            await nvim.keys(keys)
            result = (await future)["result"]
            assert result["content"][0]["text"] == said.format(path=path)
            assert content(path) == saved
            await nvim.until(f"vim.fn.getline(1) == {saved.strip()!r}")

    run(main())


async def heard_of(nvim: Nvim, client: TestClient, uri: str, code: str) -> None:
    """Make a change, again and again: of what is polled, the first look is the measure."""
    while True:
        await nvim.lua(code)
        try:
            async with asyncio.timeout(0.5):
                while (await client.receive())["params"] != {"uri": uri}:
                    pass
                return
        except TimeoutError:
            continue


def test_resources_and_their_subscribers(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim, agent(nvim) as client:
            path = nvim.write("a.txt", "one\ntwo\n")
            await nvim.call("nvim_command", "edit a.txt")

            async def read(uri: str) -> str:
                [found] = (await client.request("resources/read", {"uri": uri}))["contents"]
                text: str = found["text"]
                return text

            assert await read("nvim://buffer/1") == "one\ntwo"
            assert json.loads(await read("nvim://selection"))["filePath"] == path
            assert json.loads(await read("nvim://diagnostics")) == {}
            assert json.loads(await read("nvim://quickfix"))["items"] == []
            assert await read("nvim://messages") == ""
            missing = await client.answer("resources/read", {"uri": "nvim://buffer/99"})
            assert missing["error"]["code"] == -32002

            changes = {
                "nvim://buffer/1": "vim.api.nvim_buf_set_lines(0, 0, 0, false, {'new'})"
                " vim.api.nvim_exec_autocmds('TextChanged', {buffer = 0})",
                "nvim://selection": "vim.api.nvim_win_set_cursor(0, {2, 0})"
                " vim.api.nvim_exec_autocmds('CursorMoved', {})",
                "nvim://diagnostics": "vim.diagnostic.set(vim.api.nvim_create_namespace('t'), 0,"
                " {{lnum = 0, col = 0, message = 'm'}})",
                "nvim://quickfix": "vim.fn.setqflist({{text = 'x'}})",
                "nvim://messages": "vim.api.nvim_echo({{'said'}}, true, {})",
            }
            for uri in changes:
                await client.request("resources/subscribe", {"uri": uri})
            await nvim.until("require('dovetail.watch').is_watching()")
            for uri, code in changes.items():
                await heard_of(nvim, client, uri, code)
            for uri in changes:
                await client.request("resources/unsubscribe", {"uri": uri})
            await nvim.until("not require('dovetail.watch').is_watching()")

    run(main())


def test_sensitive_buffers_stay_in_the_editor(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim, agent(nvim, write=True) as client:
            nvim.write(".env", "SECRET=hunter2\n")
            await nvim.call("nvim_command", "edit .env")
            await nvim.call("nvim_command", "vimgrep /SECRET/ .env")
            seen = [
                await client.call("list_buffers"),
                await client.call("read_buffer", {"path": ".env"}),
                await client.call("read_buffer", {"buffer": 1}),
                await client.call("search_buffers", {"pattern": "SECRET"}),
                await client.call("get_selection"),
                await client.call("get_quickfix"),
                await client.call("hover", {"path": ".env", "line": 1, "column": 1}),
                await client.call("propose_change", {"path": ".env", "text": ""}),
                await client.call(
                    "edit_buffer", {"path": ".env", "first_line": 1, "last_line": 1, "text": "x"}
                ),
                await client.answer("resources/read", {"uri": "nvim://buffer/1"}),
                await client.request("resources/read", {"uri": "nvim://selection"}),
                await client.request("resources/read", {"uri": "nvim://quickfix"}),
            ]
            assert "hunter2" not in json.dumps(seen)
            assert content(str(nvim.work / ".env")) == "SECRET=hunter2\n"

    run(main())


def test_a_blocked_editor(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim, agent(nvim, write=True) as client:
            nvim.write("a.txt", "one\n")
            await nvim.call("nvim_command", "edit a.txt")
            known = await value(client, "list_buffers")
            await nvim.keys('"')
            result = await client.call("list_buffers")
            assert result["structuredContent"] == known
            assert result["_meta"] == {STALE_KEY: "The editor waits at a key"}
            said = await failure(client, "read_buffer", path="a.txt")
            assert said == "The editor waits at a key"
            await nvim.keys("<Esc>")
            assert (await value(client, "read_buffer", path="a.txt"))["text"] == "one"

    run(main())


# -- which editor --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "folder", "rank"),
    [
        ("/a/b", "/a/b", 2),
        ("/a/b/c", "/a/b", 2),
        ("/a", "/a/b", 1),
        ("/a/b", "/a/c", 0),
        ("/a/bc", "/a/b", 0),
        ("/a", "/", 0),
    ],
)
def test_how_close_an_editor_is(here: str, folder: str, rank: int) -> None:
    assert _closeness(here, folder) == rank


def test_the_editor_is_found_by_directory_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.delenv("NVIM", raising=False)
        runtime = tmp_path / "run"
        runtime.mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        (runtime / "nvim.1.0").touch()  # left by an editor that was killed
        one, two = Nvim(tmp_path / "one"), Nvim(tmp_path / "two")
        for nvim in (one, two):
            nvim.home = runtime
        inner = two.work / "inner"
        inner.mkdir()
        server = agent_server(Finder(directory=str(inner)))
        try:
            async with connect(server) as client:
                said = await failure(client, "list_buffers")
                assert said.startswith(f"No Neovim works in {inner}: start one there")
                for nvim in (one, two):
                    await nvim.start()
                    nvim.write("a.txt", "x\n")
                    await nvim.call("nvim_command", "edit a.txt")
                [buffer] = (await value(client, "list_buffers"))["buffers"]
                assert buffer["path"] == str(two.work / "a.txt")
                await two.close()
                assert "No Neovim works in" in await failure(client, "list_buffers")
        finally:
            await one.close()
            await two.close()

    run(main())


def test_an_editor_without_the_plugin_is_sent_what_it_needs(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None, plugin=False) as nvim, agent(nvim) as client:
            assert (
                await nvim.lua("return #vim.api.nvim_get_runtime_file('lua/dovetail', true)") == 0
            )
            path = nvim.write("a.txt", "one\n")
            await nvim.call("nvim_command", "edit a.txt")
            [buffer] = (await value(client, "list_buffers"))["buffers"]
            assert buffer["path"] == path
            proposal = {"name": "propose_change", "arguments": {"path": path, "text": "two\n"}}
            _, future = client.start("tools/call", proposal)
            await diff_shown(nvim)
            await nvim.keys("ga")
            assert (await future)["result"]["isError"] is False
            assert content(path) == "two\n"

    run(main())


def test_over_stdio_as_a_client_starts_it(tmp_path: Path) -> None:
    """`dovetail serve neovim`, with $NVIM as it is in a terminal of Neovim."""

    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            nvim.write("a.txt", "one\n")
            await nvim.call("nvim_command", "edit a.txt")
            address = await nvim.call("nvim_eval", "v:servername")
            said = await asyncio.to_thread(converse, {**nvim.environment(), "NVIM": address})
            assert json.loads(said)["buffers"][0]["path"] == str(nvim.work / "a.txt")

    run(main())


def converse(environment: dict[str, str]) -> str:
    info = {"name": "t", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_buffers"}},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", "serve", "neovim"],
        input="".join(json.dumps(frame) + "\n" for frame in frames),
        capture_output=True,
        text=True,
        timeout=20,
        env=environment,
    )
    assert done.stderr == ""
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    text: str = answers[-1]["result"]["content"][0]["text"]
    return text


def test_the_command_line_says_what_is_wrong(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "dovetail", "serve", "neovim"]
    for option in ("--ws", "--http"):
        done = subprocess.run(
            [*words, option, "127.0.0.1:0"], capture_output=True, text=True, timeout=20
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "dovetail: neovim is not served to everybody" in done.stderr
    done = subprocess.run(
        [*words, "--editor-stdio"], input="not msgpack", capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "dovetail: Neovim is gone"
    assert "Traceback" not in done.stderr
