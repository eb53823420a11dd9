"""openDiff: what the user sees, every way it can end, and the text that comes back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from nvim_process import Ide, Nvim, content, diff_shown, editor, messages

from support import run

OLD = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"
NEW = "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\neleven\n"
TAB = "✻ [Claude Code] a.txt (abc123) ⧉"


def begin(client: Ide, path: str, text: str = NEW, name: str = TAB) -> Any:
    return client.begin(
        "openDiff",
        old_file_path=path,
        new_file_path=path,
        new_file_contents=text,
        tab_name=name,
    )


def texts(answer: dict[str, Any]) -> list[str]:
    assert answer["result"]["isError"] is False
    return [item["text"] for item in answer["result"]["content"]]


def diff_test(
    place: Path,
    script: Callable[[Nvim, Ide, str, Any], Awaitable[None]],
    *,
    old: str | bytes = OLD,
    new: str = NEW,
    setup: str = "",
    name: str = "a.txt",
) -> None:
    """A diff of ``name`` is on the screen; the script ends it."""

    async def main() -> None:
        async with editor(place, setup=setup) as nvim:
            path = nvim.write(name, old)
            async with nvim.client() as client:
                _, future = begin(client, path, new)
                await diff_shown(nvim)
                await script(nvim, client, path, future)
                await asyncio.wait([future], timeout=5)
                assert future.done()
            assert await nvim.lua("return #vim.api.nvim_list_tabpages()") == 1
            assert await messages(nvim) == ""
            names = await nvim.lua(
                "return vim.tbl_map(vim.api.nvim_buf_get_name, vim.api.nvim_list_bufs())"
            )
            assert not [name for name in names if name.startswith("dovetail://")]

    run(main())


# -- the ways it ends ------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["<CR>", "ga", ":w<CR>", ":ClaudeCodeAccept<CR>"])
@pytest.mark.parametrize("style", ["side", "inline"])
def test_accepted(tmp_path: Path, keys: str, style: str) -> None:
    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        await nvim.keys(keys)
        assert texts(await future) == ["FILE_SAVED", NEW]
        assert content(path) == OLD  # Claude Code writes it itself

    diff_test(tmp_path, script, setup=f"diff = {{style = '{style}'}},")


@pytest.mark.parametrize(
    ("style", "keys"),
    [
        *itertools.product(["side", "inline"], ["q", "gx", ":q<CR>", ":tabclose<CR>", ":bd!<CR>"]),
        ("side", "<C-w>o"),
        ("side", "<C-w>hq"),
    ],
)
def test_rejected(tmp_path: Path, keys: str, style: str) -> None:
    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        await nvim.keys(keys)
        assert texts(await future) == ["DIFF_REJECTED", TAB]

    diff_test(tmp_path, script, setup=f"diff = {{style = '{style}'}},")


def test_rejected_by_close_tab(tmp_path: Path) -> None:
    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        assert await client.texts("close_tab", tab_name="another") == ["TAB_CLOSED"]
        assert not future.done()
        assert await client.texts("close_tab", tab_name=TAB) == ["TAB_CLOSED"]
        assert texts(await future) == ["DIFF_REJECTED", TAB]
        await diff_shown(nvim, 0)

    diff_test(tmp_path, script)


def test_rejected_by_the_same_name_again(tmp_path: Path) -> None:
    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        _, second = begin(client, path, "other\n")
        assert texts(await future) == ["DIFF_REJECTED", TAB]
        await nvim.until("(require('dovetail.diff').list()[1] or {}).id == 2")
        await nvim.keys("ga")
        assert texts(await second) == ["FILE_SAVED", "other\n"]

    diff_test(tmp_path, script)


@pytest.mark.verifies("R003-09")
def test_a_cancelled_diff_closes_and_is_not_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", OLD)
            async with nvim.client() as client:
                id, future = begin(client, path)
                await diff_shown(nvim)
                await client.notify("notifications/cancelled", {"requestId": id})
                await diff_shown(nvim, 0)
                assert await client.request("ping") == {}
                assert not future.done()
                assert await client.texts("closeAllDiffTabs") == ["CLOSED_0_DIFF_TABS"]

    run(main())


def test_a_diff_cancelled_before_it_is_shown_is_never_seen(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", OLD)
            async with nvim.client() as client:
                await nvim.keys('"')  # a pending register: Neovim answers nothing
                id, future = begin(client, path)
                assert await client.request("ping") == {}
                await client.notify("notifications/cancelled", {"requestId": id})
                assert await client.request("ping") == {}
                await nvim.keys("<Esc>")
                await diff_shown(nvim, 0)
                assert await nvim.lua("return #vim.api.nvim_list_tabpages()") == 1
                assert not future.done()

    run(main())


def test_a_client_that_is_gone_takes_its_diffs_along(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", OLD)
            async with nvim.client() as stays:
                _, kept = begin(stays, path, name="kept")
                await diff_shown(nvim)
                async with nvim.client() as leaves:
                    begin(leaves, path, name="lost")
                    await diff_shown(nvim, 2)
                    leaves.socket.transport.abort()
                await diff_shown(nvim, 1)
                assert not kept.done()
                assert await stays.texts("closeAllDiffTabs") == ["CLOSED_1_DIFF_TABS"]

    run(main())


def test_closing_all_closes_only_those_of_the_client_and_never_the_users(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", OLD)
            nvim.write("b.txt", NEW)
            await nvim.call("nvim_command", "edit a.txt | vert diffsplit b.txt")
            async with nvim.client() as one, nvim.client() as other:
                _, future = begin(other, path)
                await diff_shown(nvim)
                assert await one.texts("closeAllDiffTabs") == ["CLOSED_0_DIFF_TABS"]
                assert not future.done()
                assert await other.texts("closeAllDiffTabs") == ["CLOSED_1_DIFF_TABS"]
                await diff_shown(nvim, 0)
                wins = await nvim.lua(
                    "return vim.tbl_map(function(w) return vim.wo[w].diff end, "
                    "vim.api.nvim_list_wins())"
                )
                assert wins == [True, True]

    run(main())


def test_an_editor_that_ends_settles_its_diffs(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", OLD)
            async with nvim.client() as client:
                _, future = begin(client, path)
                await diff_shown(nvim)
                nvim.link.notify("nvim_command", "qa!")
                assert texts(await asyncio.wait_for(future, 5)) == ["DIFF_REJECTED", TAB]

    run(main())


# -- deciding in parts ------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["side", "inline"])
@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ("gXGgA", ["FILE_SAVED", OLD + "eleven\n"]),
        ("gAGgX", ["FILE_SAVED", NEW.replace("eleven\n", "")]),
        ("gAGgA", ["FILE_SAVED", NEW]),
        ("gXGgX", ["DIFF_REJECTED", TAB]),
        ("gXga", ["FILE_SAVED", OLD + "eleven\n"]),
        ("gAgx", ["DIFF_REJECTED", TAB]),
    ],
)
def test_hunks_are_decided_one_by_one(
    tmp_path: Path, style: str, keys: str, answer: list[str]
) -> None:
    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        await nvim.keys(keys)
        assert texts(await future) == answer

    diff_test(tmp_path, script, setup=f"diff = {{style = '{style}'}},")


@pytest.mark.parametrize(
    ("old", "new"),
    [("a\nb\nc\n", "a\nc\n"), ("b\nc\n", "c\n"), ("b\n", ""), ("", "new\n"), ("a\n", "a\nb\n")],
)
@pytest.mark.parametrize("style", ["side", "inline"])
@pytest.mark.parametrize("accepted", [True, False])
def test_lines_that_are_only_removed_or_only_added(
    tmp_path: Path, old: str, new: str, style: str, accepted: bool
) -> None:
    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        await nvim.keys("gA" if accepted else "gX")  # the only hunk: all is decided
        answer = ["FILE_SAVED", new] if accepted else ["DIFF_REJECTED", TAB]
        assert texts(await future) == answer

    diff_test(tmp_path, script, old=old, new=new, setup=f"diff = {{style = '{style}'}},")


@pytest.mark.parametrize("style", ["side", "inline"])
def test_the_proposal_can_be_edited_before_it_is_accepted(tmp_path: Path, style: str) -> None:
    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        await nvim.keys("ggcwmine<Esc>")
        await nvim.keys("ga")
        assert texts(await future) == ["FILE_SAVED", NEW.replace("ONE", "mine")]

    diff_test(tmp_path, script, setup=f"diff = {{style = '{style}'}},")


def test_edited_text_can_be_undone_to_what_was_proposed_and_no_further(tmp_path: Path) -> None:
    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        await nvim.keys("ggdd:silent! undo 0<CR>:silent! undo<CR>")
        await nvim.keys("ga")
        assert texts(await future) == ["FILE_SAVED", NEW]

    diff_test(tmp_path, script)


def test_rejected_with_a_reason(tmp_path: Path) -> None:
    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        await nvim.keys("gRuse a loop<CR>")
        answer = await future
        assert texts(answer) == ["DIFF_REJECTED", TAB]
        assert answer["result"]["_meta"] == {"dev.dovetail/reason": "use a loop"}

    diff_test(tmp_path, script)


def test_the_reason_prompt_can_be_left(tmp_path: Path) -> None:
    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        await nvim.keys("gR<Esc>")
        assert not future.done()
        await nvim.keys("ga")
        assert texts(await future) == ["FILE_SAVED", NEW]

    diff_test(tmp_path, script)


# -- byte for byte ------------------------------------------------------------------------------

EXACT = {
    "plain": "a\nb\n",
    "no final newline": "a\nb",
    "only newlines": "\n\n\n",
    "one newline": "\n",
    "empty": "",
    "crlf": "a\r\nb\r\n",
    "crlf, no final newline": "a\r\nb",
    "mixed": "a\r\nb\nc\r\n",
    "bom": "\ufeffa\nb\n",
    "bom and crlf": "\ufeffa\r\nb\r\n",
    "nul": "a\0b\n\0\n",
    "controls": "\x01\x1b[31m\x7f\t\n",
    "lone cr": "a\rb\rc\n",
    "unicode": "naïve 😀 \u2028 \u0085 日本\n",
    "form feed": "a\fb\vc\n",
}


@pytest.mark.parametrize("style", ["side", "inline"])
def test_accepted_as_it_was_proposed(tmp_path: Path, style: str) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=f"diff = {{style = '{style}'}},") as nvim:
            path = nvim.write("a.txt", "something else\n")
            async with nvim.client() as client:
                for what, text in EXACT.items():
                    assert await decided(nvim, client, path, text, "ga") == text, what

    run(main())


def test_an_edit_changes_nothing_but_itself(tmp_path: Path) -> None:
    """A line is put before the first and removed again: all else is as it was."""

    async def main() -> None:
        async with editor(tmp_path) as nvim, nvim.client() as client:
            for what, text in EXACT.items():
                path = nvim.write("a.txt", "old\r\n" if "\r\n" in text else "old\n")
                found = await decided(nvim, client, path, text, "ggOnew<Esc>ddga")
                # A buffer without lines and one with an empty line look the same.
                assert found == ("" if text == "\n" else text), what

    run(main())


async def decided(nvim: Nvim, client: Ide, path: str, text: str, keys: str) -> str:
    _, future = begin(client, path, text)
    await diff_shown(nvim)
    await nvim.keys(keys)
    [word, final] = texts(await future)
    assert word == "FILE_SAVED"
    await diff_shown(nvim, 0)
    return final


def test_an_old_file_that_is_not_utf8_is_shown_and_not_damaged(tmp_path: Path) -> None:
    """Keeping a line of it cannot be answered in JSON: an error, and the file stays."""
    old = b"caf\xe9\n1\n2\n3\n4\n5\n6\n7\n8\nend\n"
    new = "cafe\n1\n2\n3\n4\n5\n6\n7\n8\nEND\n"

    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", old)
            async with nvim.client() as client:
                _, future = begin(client, path, new)
                await diff_shown(nvim)
                await nvim.keys("gXga")
                error = (await future)["error"]
                assert (error["code"], error["message"]) == (-32000, "Diff setup failed")
                assert "not UTF-8" in error["data"]
                _, future = begin(client, path, new)
                await diff_shown(nvim)
                await nvim.keys("ga")
                assert texts(await future) == ["FILE_SAVED", new]
            assert (nvim.work / "a.txt").read_bytes() == old

    run(main())


def test_five_megabytes(tmp_path: Path) -> None:
    old = "".join(f"line {n}: some words to make it longer\n" for n in range(120_000))
    new = old.replace("line 60000:", "LINE 60000:")

    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        await nvim.keys("ga")
        assert texts(await future) == ["FILE_SAVED", new]

    diff_test(tmp_path, script, old=old, new=new)


# -- around it ----------------------------------------------------------------------------------


def test_a_new_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = str(nvim.work / "new.py")
            async with nvim.client() as client:
                _, future = begin(client, path, "x = 1\n")
                await diff_shown(nvim)
                await nvim.keys("ga")
                assert texts(await future) == ["FILE_SAVED", "x = 1\n"]

    run(main())


def test_our_own_buffers_are_never_reported_as_files(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", OLD)
            await nvim.call("nvim_command", "edit a.txt")
            async with nvim.client() as client:
                await client.heard("selection_changed")
                begin(client, path)
                await diff_shown(nvim)
                await nvim.keys("jjvjj<Esc>G")
                now = await client.json("getCurrentSelection")
                assert now["filePath"] == path
                tabs = (await client.json("getOpenEditors"))["tabs"]
                assert [tab["fileName"] for tab in tabs] == [path]
                await nvim.keys("ga")
                await diff_shown(nvim, 0)
                await nvim.keys("3G")
                heard = await client.heard(
                    "selection_changed", lambda p: p["selection"]["start"]["line"] == 2
                )
                assert heard["filePath"] == path
                assert {n["params"]["filePath"] for n in client.notifications} <= {path}

    run(main())


def test_somebody_who_types_is_not_interrupted(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", OLD)
            await nvim.call("nvim_command", "enew")
            async with nvim.client() as client:
                await nvim.keys("ihello ")
                begin(client, path)
                await diff_shown(nvim)
                await nvim.keys("world")
                await nvim.until("vim.api.nvim_get_current_line() == 'hello world'")
                assert (await nvim.call("nvim_get_mode"))["mode"] == "i"

    run(main())


def test_a_second_diff_waits_its_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", OLD)
            async with nvim.client() as client:
                _, first = begin(client, path, name="first")
                await diff_shown(nvim)
                _, second = begin(client, path, name="second")
                await diff_shown(nvim, 2)
                await nvim.keys("ga")
                assert texts(await first) == ["FILE_SAVED", NEW]
                assert not second.done()
                await nvim.keys("gx")
                assert texts(await second) == ["DIFF_REJECTED", "second"]
            assert await nvim.lua("return #vim.api.nvim_list_tabpages()") == 1

    run(main())


def test_buffers_are_read_again_when_the_agent_writes(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", OLD)
            other = nvim.write("b.txt", "kept\n")
            await nvim.call("nvim_command", "edit b.txt")
            await nvim.typed("omine<Esc>")
            await nvim.call("nvim_command", "edit a.txt")
            async with nvim.client():
                nvim.write("a.txt", NEW)
                nvim.write("b.txt", "from the agent\n")
                await nvim.until("vim.fn.getline(1) == 'ONE'")
                lines = await nvim.lua("return vim.fn.getbufline(..., 1, '$')", other)
                assert lines == ["kept", "mine"]  # unsaved work stays
                assert (await nvim.call("nvim_get_mode"))["blocking"] is False
            assert content(path) == NEW

    run(main())


def test_the_server_writes_if_it_is_told_to(tmp_path: Path) -> None:
    async def script(nvim: Nvim, client: Ide, path: str, future: Any) -> None:
        Path(path).chmod(0o750)  # noqa: ASYNC240
        await nvim.keys("ga")
        assert texts(await future) == ["FILE_SAVED", NEW]
        assert content(path) == NEW
        assert Path(path).stat().st_mode & 0o777 == 0o750  # noqa: ASYNC240

    diff_test(tmp_path, script, setup="diff = {write_on_accept = true},")


def test_user_autocommands_tell_how_it_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", OLD)
            await nvim.lua(
                """_G.heard = {}
                vim.api.nvim_create_autocmd("User", {pattern = "ClaudeCode*", callback = function(e)
                  local data = e.data or {}
                  table.insert(heard, {e.match, data.tab_name or "", data.reason or ""})
                end})"""
            )
            async with nvim.client() as client:
                for keys in ("ga", "gx", "gRno<CR>"):
                    _, future = begin(client, path)
                    await diff_shown(nvim)
                    await nvim.keys(keys)
                    await future
            await nvim.until("#heard == 5")
            assert await nvim.lua("return heard") == [
                ["ClaudeCodeClientConnected", "", ""],
                ["ClaudeCodeDiffAccepted", TAB, ""],
                ["ClaudeCodeDiffRejected", TAB, ""],
                ["ClaudeCodeDiffRejected", TAB, "no"],
                ["ClaudeCodeClientDisconnected", "", ""],
            ]

    run(main())
