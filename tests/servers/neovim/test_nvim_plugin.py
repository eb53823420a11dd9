"""The Lua plugin as its user meets it: setup, commands, health, help, restarts."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from nvim_process import NVIM, PLUGIN, Nvim, editor, messages

import dovetail
from dovetail.servers.neovim.editor import lua_sources
from support import run

COMMANDS = [
    "ClaudeCode",
    "ClaudeCodeStatus",
    "ClaudeCodeStop",
    "ClaudeCodeRestart",
    "ClaudeAtMention",
    "ClaudeCodeLog",
    "ClaudeCodeAccept",
    "ClaudeCodeReject",
]


def test_loading_the_plugin_loads_no_module(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            loaded = "vim.iter(pairs(package.loaded)):map(tostring):totable()"
            names = await nvim.lua(f"return {loaded}")
            assert [name for name in names if name.startswith("dovetail")] == []
            found = await nvim.lua("return vim.tbl_keys(vim.api.nvim_get_commands({}))")
            assert set(COMMANDS) <= set(found)

    run(main())


def test_setup_brings_the_commands_if_nobody_has(tmp_path: Path) -> None:
    """As with a plugin manager that adds the folder after plugins were sourced."""
    script = tmp_path / "late.lua"
    script.write_text(
        f"vim.opt.runtimepath:append({str(PLUGIN)!r})\n"
        "require('dovetail').setup{auto_start = false}\n"
        "io.write(vim.fn.exists(':ClaudeCode'))"
    )
    done = subprocess.run(
        [NVIM, "--headless", "-u", "NONE", "-l", script],
        capture_output=True,
        text=True,
        timeout=20,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert (done.stdout, done.stderr) == ("2", "")


def test_commands_do_what_they_say(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            port, lock = nvim.lock()
            await nvim.call("nvim_command", "ClaudeCodeStatus")
            await screen_shows(nvim, f"dovetail: port {port}, 0 clients connected")
            async with nvim.client() as client:
                await nvim.until("require('dovetail').statusline() == 'claude:1'")
                await nvim.call("nvim_command", "ClaudeCodeStop")
                await client.socket.wait_closed()
            assert nvim.lock_files() == []
            await nvim.call("nvim_command", "ClaudeCodeStatus")
            await screen_shows(nvim, "dovetail: not running")
            await nvim.call("nvim_command", "ClaudeCodeRestart")
            await nvim.until("require('dovetail').status().running")
            await nvim.until("#vim.fn.glob(vim.env.CLAUDE_CONFIG_DIR .. '/ide/*.lock') > 0")
            assert nvim.lock() == (port, lock)
            async with nvim.client() as client:
                assert await client.request("ping") == {}
            await nvim.call("nvim_command", "ClaudeCodeLog")
            assert (await nvim.call("nvim_buf_get_name", 0)).endswith("dovetail.log")

    run(main())


async def screen_shows(nvim: Nvim, text: str) -> None:
    async with asyncio.timeout(10):
        while text not in nvim.screen.text:
            await nvim.call("nvim_get_mode")
            await asyncio.sleep(0.005)


def test_user_autocommands_of_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            await nvim.lua(
                """_G.heard = {}
                vim.api.nvim_create_autocmd("User", {pattern = "ClaudeCode*", callback = function(e)
                  table.insert(heard, e.match)
                end})"""
            )
            await nvim.setup()
            async with nvim.client():
                await nvim.until("#heard == 2")
            await nvim.until("#heard == 3")
            await nvim.call("nvim_command", "ClaudeCodeStop")
            await nvim.until("#heard == 4")
            assert await nvim.lua("return heard") == [
                "ClaudeCodeServerStarted",
                "ClaudeCodeClientConnected",
                "ClaudeCodeClientDisconnected",
                "ClaudeCodeServerStopped",
            ]

    run(main())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("{htpp = true}", "dovetail: unknown setting htpp"),
        ("{diff = {stile = 'side'}}", "dovetail: unknown setting diff.stile"),
        ("{http = 'yes'}", "dovetail: setting http must be a boolean, not a string"),
        ("{claude = {size = 'x'}}", "dovetail: setting claude.size must be a number"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, options: str, text: str) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            told = await nvim.lua(f"return {{pcall(require('dovetail').setup, {options})}}")
            assert told[0] is False
            assert told[1].startswith(text)

    run(main())


def test_a_missing_command_is_said_in_one_line(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            await nvim.lua("require('dovetail').setup({cmd = 'no-such-dovetail'})")
            await screen_shows(nvim, "dovetail: cannot run no-such-dovetail")
            assert (await nvim.call("nvim_get_mode"))["blocking"] is False

    run(main())


def test_checkhealth(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            await nvim.call("nvim_command", "checkhealth dovetail")
            text = "\n".join(await nvim.call("nvim_buf_get_lines", 0, 0, -1, False))
            assert f"OK dovetail {dovetail.__version__}" in text
            assert f"OK serving on port {nvim.lock()[0]}, 0 clients" in text
            assert "OK lock file" in text
            assert "ERROR" not in text

    run(main())


def test_the_help_page_has_every_command_setting_and_key(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            page = (PLUGIN / "doc" / "dovetail.txt").read_text()
            for command in COMMANDS:
                assert f"*:{command}*" in page
            settings = await nvim.lua("return vim.tbl_keys(require('dovetail.config').defaults)")
            for name in settings:
                assert f"*dovetail-{name}*" in page, name
            tags = tmp_path / "doc"
            tags.mkdir()
            (tags / "dovetail.txt").write_text(page)
            await nvim.call("nvim_command", f"helptags {tags}")
            assert max(map(len, page.splitlines())) <= 78
            assert await messages(nvim) == ""

    run(main())


def test_the_plugin_and_the_package_are_of_one_version() -> None:
    assert f'M.version = "{dovetail.__version__}"' in lua_sources()["dovetail.config"]


def test_a_plugin_of_another_version_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            await nvim.lua("require('dovetail.config').version = '0.0.9'")
            await nvim.setup(wait=False)
            text = f"the plugin in Neovim is 0.0.9, dovetail {dovetail.__version__}: update"
            await screen_shows(nvim, text)
            assert await nvim.lua("return require('dovetail').status().running") is False

    run(main())


def test_claude_is_started_with_what_it_needs(tmp_path: Path) -> None:
    """A program of ours in its place writes down how it was called."""

    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            out = tmp_path / "called.json"
            script = tmp_path / "claude-stand-in"
            script.write_text(
                f"#!{sys.executable}\nimport json, os, sys, time\n"
                f"json.dump([sys.argv[1:], dict(os.environ)], open({str(out) + '~'!r}, 'w'))\n"
                f"os.rename({str(out) + '~'!r}, {str(out)!r})\ntime.sleep(60)\n"
            )
            script.chmod(0o755)
            await nvim.lua("vim.env.NO_PROXY = 'corp.example'")
            await nvim.setup(f"write = true, claude = {{cmd = {{{json.dumps(str(script))}}}}},")
            await nvim.call("nvim_command", "ClaudeCode --continue")
            await nvim.until(f"vim.uv.fs_stat({json.dumps(str(out))}) ~= nil")
            arguments, environment = json.loads(out.read_text())
            assert arguments[0] == "--mcp-config"
            assert arguments[2:] == ["--continue"]
            config = Path(arguments[1])
            assert stat.S_IMODE(config.stat().st_mode) == 0o600  # noqa: ASYNC240
            server = json.loads(config.read_text())["mcpServers"]["nvim"]  # noqa: ASYNC240
            assert server["type"] == "stdio"
            assert [server["command"], *server["args"]] == [
                *(sys.executable, "-m", "dovetail"),
                *("serve", "neovim", "--write"),
            ]
            port, lock = nvim.lock()
            assert environment["CLAUDE_CODE_SSE_PORT"] == str(port)
            assert environment["ENABLE_IDE_INTEGRATION"] == "true"
            assert environment["NO_PROXY"] == "corp.example,localhost,127.0.0.1,::1"
            assert lock["authToken"] not in json.dumps([arguments, environment])
            wins = "#vim.api.nvim_tabpage_list_wins(0)"
            assert await nvim.lua(f"return {wins}") == 2
            await nvim.call("nvim_command", "ClaudeCode")
            assert await nvim.lua(f"return {wins}") == 1
            await nvim.call("nvim_command", "ClaudeCode")
            assert await nvim.lua(f"return {wins}") == 2
            await nvim.close()
            assert not config.exists()  # noqa: ASYNC240

    run(main())


def test_an_old_neovim_is_told_so(tmp_path: Path) -> None:
    """With the version check of an old Neovim put in the place of ours."""
    script = tmp_path / "old.lua"
    script.write_text("vim.fn.has = function() return 0 end require('dovetail').setup{}")
    done = subprocess.run(
        [NVIM, "--headless", "-u", "NONE", "--cmd", f"set rtp^={PLUGIN}", "-l", script],
        capture_output=True,
        text=True,
        timeout=20,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.stderr.strip() == "dovetail needs Neovim 0.10 or later"


def test_the_lock_follows_the_folders(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            other = tmp_path / "other"
            other.mkdir()
            await nvim.call("nvim_command", f"cd {other}")
            while nvim.lock()[1]["workspaceFolders"] != [str(other)]:  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.01)
            async with nvim.client() as client:
                assert (await client.json("getWorkspaceFolders"))["rootPath"] == str(other)

    run(main())
