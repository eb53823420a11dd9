"""What the server remembers of the editor: how often it asks, and how often it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nvim_process import Nvim, editor

from dovetail.servers.neovim.editor import Editor
from dovetail.servers.neovim.model import Model
from support import run, until


class Counted:
    """An editor whose calls and events are counted."""

    def __init__(self, attached: Editor) -> None:
        self.editor = attached
        self.model = Model(attached)
        self.calls = 0
        self.events: list[str] = []
        call, event = attached.link.call, attached._event

        def counting(method: str, *params: Any) -> Any:
            self.calls += 1
            return call(method, *params)

        def listening(method: str, params: Any) -> None:
            self.events.append(method)
            event(method, params)

        attached.link.call = counting  # type: ignore[method-assign]
        attached.link._on_event = listening


@asynccontextmanager
async def counted(place: Path, settings: str = "") -> AsyncIterator[tuple[Nvim, Counted]]:
    async with editor(place, setup=None) as nvim:
        await nvim.lua(f"require('dovetail.config').set({{{settings}}})")
        nvim.write("a.txt", "".join(f"line {n}\n" for n in range(2000)))
        await nvim.call("nvim_command", "edit a.txt")
        counter = Counted(await Editor.on_socket(await nvim.call("nvim_eval", "v:servername")))
        await counter.model.start()
        yield nvim, counter
        counter.editor.close()


def test_what_has_not_changed_is_not_asked_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with counted(tmp_path) as (nvim, counter):
            model = counter.model
            await model.listen({"ide": True})
            await model.selection()
            await model.diagnostics()
            counter.calls = 0
            for _ in range(1000):
                await model.selection()
                await model.diagnostics()
            assert counter.calls <= 1
            counter.calls = 0
            await nvim.lua("vim.diagnostic.set(vim.api.nvim_create_namespace('t'), 0, {})")
            await until(lambda: "diagnostics" in counter.events)
            for _ in range(100):
                await model.diagnostics()
            assert counter.calls <= 2

    run(main())


def test_many_at_once_are_one_question(tmp_path: Path) -> None:
    async def main() -> None:
        async with counted(tmp_path) as (_, counter):
            counter.calls = 0
            await asyncio.gather(*(counter.model.editors() for _ in range(100)))
            assert counter.calls == 1

    run(main())


def test_who_is_not_told_of_changes_asks_every_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with counted(tmp_path) as (nvim, counter):
            for line in (5, 10):
                await nvim.call("nvim_win_set_cursor", 0, [line, 0])
                found = (await counter.model.selection()).value
                assert found is not None
                assert found.start == (line - 1, 0)
            assert counter.events == []

    run(main())


def test_on_the_typing_path_one_word_is_said_until_somebody_looks(tmp_path: Path) -> None:
    async def main() -> None:
        async with counted(tmp_path, "throttle_ms = 60000") as (nvim, counter):
            await counter.model.listen({"ide": True})
            await counter.model.selection()
            counter.events.clear()
            move = """for i = 1, 1000 do
                vim.api.nvim_win_set_cursor(0, {1 + i % 900, 0})
                vim.api.nvim_exec_autocmds('CursorMoved', {})
                vim.api.nvim_exec_autocmds('TextChangedI', {})
              end"""
            await nvim.lua(move)
            await counter.editor.blocked()  # what was sent before this has arrived
            assert counter.events == ["stale"]
            await counter.model.selection()
            await nvim.lua(move)
            await counter.editor.blocked()
            assert counter.events == ["stale", "stale"]

    run(main())


def test_bytes_that_are_no_utf8_are_shown_as_such(tmp_path: Path) -> None:
    async def main() -> None:
        async with counted(tmp_path) as (nvim, counter):
            await nvim.lua("vim.api.nvim_buf_set_lines(0, 0, 1, false, {'a\\255b'})")
            await nvim.call("nvim_win_set_cursor", 0, [1, 0])
            await nvim.keys("V")
            await nvim.until("vim.fn.mode() == 'V'")
            found = (await counter.model.selection()).value
            assert found is not None
            assert found.text == "a\ufffdb"
            await nvim.lua(
                "vim.diagnostic.set(vim.api.nvim_create_namespace('t'), 0,"
                " {{lnum = 0, col = 0, message = 'bad \\255'}})"
            )
            [items] = (await counter.model.diagnostics()).value.values()
            assert "bad \ufffd" in items.decode()

    run(main())
