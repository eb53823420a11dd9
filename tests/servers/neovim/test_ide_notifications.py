"""What clients are told unasked: when, how often, and what not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nvim_process import content, editor

from support import run


def starts_at(line: int) -> Any:
    return lambda params: params["selection"]["start"]["line"] == line


@pytest.mark.verifies("R003-10")
def test_nothing_is_said_before_the_client_is_ready_then_the_selection(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            nvim.write("a.txt", "one\ntwo\n")
            await nvim.call("nvim_command", "edit a.txt")
            loop = asyncio.get_running_loop()
            async with nvim.client(handshake=False) as client:
                await nvim.keys("j")
                await client.initialize()
                greeted = loop.time()
                await nvim.keys("k")
                heard = await client.heard("selection_changed")
                assert loop.time() - greeted >= 0.5
                assert starts_at(0)(heard)
                assert client.notifications == []

    run(main())


def test_ide_connected_again_means_tell_me_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            nvim.write("a.txt", "one\ntwo\n")
            await nvim.call("nvim_command", "edit a.txt")
            async with nvim.client() as client:
                first = await client.heard("selection_changed")
                await client.notify("ide_connected", {"pid": 1})
                assert await client.heard("selection_changed") == first

    run(main())


def test_the_same_selection_is_told_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            nvim.write("a.txt", "one\ntwo\nthree\n")
            await nvim.call("nvim_command", "edit a.txt")
            async with nvim.client() as client:
                await client.heard("selection_changed")
                for _ in range(5):
                    await nvim.lua("vim.api.nvim_exec_autocmds('CursorMoved', {})")
                    await asyncio.sleep(0.03)
                await nvim.keys("j")
                assert starts_at(1)(await client.heard("selection_changed"))

    run(main())


def test_a_quick_selection_is_not_lost_and_survives_the_way_to_a_terminal(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", "one\ntwo\nthree\n")
            await nvim.call("nvim_command", "edit a.txt")
            async with nvim.client() as client:
                await client.heard("selection_changed")
                await nvim.keys("jviw<Esc>:new | setlocal buftype=nofile<CR>")
                heard = await client.heard("selection_changed", lambda p: p["text"])
                assert heard["text"] == "two"
                now = await client.json("getCurrentSelection")
                assert (now["text"], now["filePath"]) == ("two", path)

    run(main())


def test_whole_lines_count_even_if_the_last_is_empty(tmp_path: Path) -> None:
    """A client counts end.line - start.line + 1, less one if end.character is 0."""

    async def main() -> None:
        async with editor(tmp_path) as nvim:
            nvim.write("a.txt", "one\n\nthree\n")
            await nvim.call("nvim_command", "edit a.txt")
            async with nvim.client() as client:
                for keys, end in (("ggVj", (2, 0)), ("ggV", (0, 3)), ("2GV", (2, 0))):
                    await nvim.keys(f"<Esc>{keys}")
                    await nvim.until("vim.fn.mode() == 'V'")
                    found = (await client.json("getCurrentSelection"))["selection"]
                    assert (found["end"]["line"], found["end"]["character"]) == end, keys
                    assert found["isEmpty"] is False

    run(main())


@pytest.mark.parametrize("option", ["inclusive", "exclusive"])
def test_the_end_of_a_selection_is_after_its_last_character(tmp_path: Path, option: str) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            nvim.write("a.txt", "e\u0301 日本 text\n")
            await nvim.call("nvim_command", f"set selection={option} | edit a.txt")
            async with nvim.client() as client:
                await nvim.keys("0v" + ("l" if option == "exclusive" else ""))
                await nvim.until("vim.fn.mode() == 'v'")
                now = await client.json("getCurrentSelection")
                assert now["text"] == "e\u0301"
                assert now["selection"]["end"] == {"line": 0, "character": 2}
                await nvim.keys("<Esc>0v$")
                await nvim.until("vim.fn.mode() == 'v'")
                now = await client.json("getCurrentSelection")
                assert now["text"].rstrip("\n") == "e\u0301 日本 text"
                assert now["selection"]["end"]["character"] == 10

    run(main())


def test_a_huge_selection_is_cut(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            nvim.write("a.txt", "x" * 99 + "\n" + ("y" * 99 + "\n") * 30_000)
            await nvim.call("nvim_command", "edit a.txt")
            async with nvim.client() as client:
                await nvim.keys("ggVG")
                await nvim.until("vim.fn.mode() == 'V'")
                now = await client.json("getCurrentSelection")
                assert len(now["text"]) == 1024 * 1024
                assert now["selection"]["end"]["line"] == 30_000

    run(main())


@pytest.mark.verifies("R003-11")
def test_mentions_wait_for_a_client_but_not_for_ever(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a b.txt", "one\ntwo\n")
            await nvim.call("nvim_cmd", {"cmd": "edit", "args": [path]}, {})
            await nvim.call("nvim_command", "2ClaudeAtMention")
            await nvim.call("nvim_command", "ClaudeAtMention")
            folder = {"cmd": "ClaudeAtMention", "args": [str(nvim.work)]}
            await nvim.call("nvim_cmd", folder, {})
            async with nvim.client() as client:
                lines = {"filePath": path, "lineStart": 1, "lineEnd": 1}
                assert await client.heard("at_mentioned") == lines
                assert await client.heard("at_mentioned") == {"filePath": path}
                assert await client.heard("at_mentioned") == {"filePath": str(nvim.work)}
            await nvim.until("require('dovetail').status().clients == 0")
            await nvim.call("nvim_command", "ClaudeAtMention")
            log = "table.concat(vim.fn.readfile(require('dovetail.process').log_path()), ' ')"
            await nvim.until(
                f"vim.uv.fs_stat(require('dovetail.process').log_path()) and {log}"
                ":find('no client is connected', 1, true)"
            )
            async with nvim.client() as client:
                await client.heard("selection_changed")
                assert client.notifications == []

    run(main())


@pytest.mark.verifies("R003-14")
def test_diagnostics_are_told_in_one_message_after_a_burst(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            paths = [nvim.write(f"{n} x.txt", "one\n") for n in range(3)]
            for path in paths:
                await nvim.call("nvim_cmd", {"cmd": "edit", "args": [path]}, {})
            async with nvim.client() as client:
                await client.heard("selection_changed")
                burst = """local space = vim.api.nvim_create_namespace("t")
                    for i = 1, 50 do
                      for _, path in ipairs({...}) do
                        vim.diagnostic.set(space, vim.fn.bufnr(path), {
                          {lnum = 0, col = 0, message = tostring(i)}})
                      end
                    end"""
                await nvim.lua(burst, *paths)
                heard = await client.heard("diagnostics_changed")
                assert sorted(heard["uris"]) == [f"file://{path}" for path in paths]
                found = await client.json("getDiagnostics", uri=heard["uris"][0])
                assert found[0]["diagnostics"][0]["message"] == "50"
                assert not [n for n in client.notifications if n["method"] == "diagnostics_changed"]
                await nvim.lua("vim.diagnostic.reset()")
                gone = await client.heard("diagnostics_changed")
                assert sorted(gone["uris"]) == [f"file://{path}" for path in paths]
                assert await client.json("getDiagnostics") == []

    run(main())


@pytest.mark.verifies("R003-15")
@pytest.mark.parametrize("wanted", [True, False])
def test_events_are_logged_only_if_wanted(tmp_path: Path, wanted: bool) -> None:
    async def main() -> None:
        setting = "log_events = true," if wanted else ""
        async with editor(tmp_path, setup=setting) as nvim:
            path = nvim.write("a.txt", "one\n")
            async with nvim.client() as client:
                await nvim.call("nvim_command", "edit a.txt")
                await client.heard("selection_changed")
                _, future = client.begin(
                    "openDiff", old_file_path=path, new_file_path=path, new_file_contents="two\n"
                )
                await nvim.until("#require('dovetail.diff').list() == 1")
                await nvim.keys("ga")
                await future
                if wanted:
                    heard = await client.heard("log_event")
                    assert heard == {"eventName": "diff_accepted", "eventData": {"path": path}}
                else:
                    assert await client.request("ping") == {}
                    methods = {n["method"] for n in client.notifications}
                    assert "log_event" not in methods
            assert content(path) == "one\n"

    run(main())


def test_nothing_is_registered_while_nobody_listens(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            count = "return #vim.api.nvim_get_autocmds({event = {'CursorMoved', 'TextChangedI'}})"
            before = await nvim.lua(count)
            async with nvim.client():
                await nvim.until("require('dovetail.watch').is_watching()")
                assert await nvim.lua(count) > before
            await nvim.until("not require('dovetail.watch').is_watching()")
            assert await nvim.lua(count) == before

    run(main())
