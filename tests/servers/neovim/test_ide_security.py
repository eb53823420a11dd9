"""Strangers at the socket, and hostile words from those who hold the token."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from nvim_process import Nvim, content, diff_shown, editor, ide_client, messages
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dovetail.servers.neovim import lockfile
from support import run


async def unharmed(nvim: Nvim) -> None:
    """The user has seen and felt nothing (defect 15: peers end in a hit-enter prompt)."""
    mode = await nvim.call("nvim_get_mode")
    assert mode == {"mode": "n", "blocking": False}
    assert await messages(nvim) == ""


async def refused(nvim: Nvim, **options: Any) -> int:
    port, lock = nvim.lock()
    token = options.pop("token", lock["authToken"])
    with pytest.raises(InvalidStatus) as caught:
        async with ide_client(port, token, **options):
            pass
    return int(caught.value.response.status_code)


def test_15_no_token_no_service(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            await nvim.lua(
                "_G.heard = 0 vim.api.nvim_create_autocmd('User', {pattern = 'ClaudeCodeClient*',"
                " callback = function() heard = heard + 1 end})"
            )
            _, lock = nvim.lock()
            token = lock["authToken"]
            wrong = ["", "x", token[:-1], token + "0", token.upper(), "é" * 10]
            for each in [None, *wrong]:
                assert await refused(nvim, token=each) == 401
            for origin in ("https://evil.example", "http://localhost:3000", "null"):
                assert await refused(nvim, origin=origin) == 403
            assert await refused(nvim, headers={"Host": "evil.example"}) == 403
            reader, writer = await asyncio.open_connection("127.0.0.1", nvim.lock()[0])
            writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            status = await reader.readline()
            writer.close()
            assert status.startswith(b"HTTP/1.1 4")
            assert await nvim.lua("return heard") == 0
            await unharmed(nvim)
            async with nvim.client() as client:
                assert await client.request("ping") == {}

    run(main())


def test_a_stranger_does_not_disturb_the_client(tmp_path: Path) -> None:
    """Another plugin let an unauthenticated connection drop the authenticated one."""

    async def main() -> None:
        single = "single_client = true,"
        async with editor(tmp_path, setup=single) as nvim, nvim.client() as client:
            assert await refused(nvim, token="x") == 401
            assert await client.request("ping") == {}
            async with nvim.client() as newer:
                assert await newer.request("ping") == {}
                await client.socket.wait_closed()

    run(main())


def test_16_floods_of_headers_and_slow_handshakes_end_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            port, _ = nvim.lock()
            async with nvim.client() as client:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET / HTTP/1.1\r\n")
                sent = 0
                try:
                    while sent < 20_000_000:
                        writer.write(b"X-Flood: " + b"x" * 50_000 + b"\r\n")
                        await asyncio.wait_for(writer.drain(), 5)
                        sent += 50_000
                        await asyncio.sleep(0)
                except (ConnectionError, TimeoutError):
                    pass
                assert sent < 10_000_000
                writer.close()
                idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
                gone = [asyncio.create_task(reader.read()) for reader, _ in idle]
                done, _ = await asyncio.wait(gone, timeout=2)
                assert len(done) >= 24  # no more than 16 strangers at a time
                assert await client.request("ping") == {}
                done, _ = await asyncio.wait(gone, timeout=10)
                assert len(done) == 40  # and none of them for long
                for _, idle_writer in idle:
                    idle_writer.close()
            await unharmed(nvim)

    run(main())


def test_messages_up_to_100_mib_and_no_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            async with nvim.client() as client:
                big = "x" * (60 * 1024 * 1024)
                assert (await client.error("nope", text=big))["code"] == -32602
            async with nvim.client() as stays, nvim.client() as client:
                with pytest.raises((ConnectionClosed, ConnectionError)):
                    await client.call("nope", text="x" * (101 * 1024 * 1024))
                assert client.socket.close_code == 1009
                assert await stays.request("ping") == {}
            await unharmed(nvim)

    run(main())


def test_binary_and_broken_text_end_only_their_own_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim, nvim.client() as stays:
            for frame, code in ((b"\x00\x01", 1003), (None, 1007)):
                async with nvim.client() as client:
                    if frame is None:
                        await client.socket.send(b'{"x":"\xff"}', text=True)
                    else:
                        await client.socket.send(frame)
                    await client.socket.wait_closed()
                    assert client.socket.close_code == code
            assert await stays.request("ping") == {}

    run(main())


HOSTILE = [
    '"]]); os.execute("touch PWNED") --',
    "a | !touch PWNED",
    "`touch PWNED`",
    "$(touch PWNED).txt",
    "+!touch\\ PWNED",
    "%",
    "#",
    "a\nqa!",
    "~",
    "*",
    "[x].txt",
    "\\",
    "a'b\"c",
    "-c qa!",
    "+qa!",
    "é😀",
    "x" * 200,
]


def test_hostile_names_are_names_and_nothing_else(tmp_path: Path) -> None:
    """No line of Lua or Ex is ever built from what a client says."""

    async def main() -> None:
        async with editor(tmp_path) as nvim:
            async with nvim.client() as client:
                for name in HOSTILE:
                    path = nvim.write(name, "text\n")
                    assert await client.texts("openFile", filePath=path) == [f"Opened file: {path}"]
                    now = await client.json("getCurrentSelection")
                    assert now["filePath"] == path
                    dirty = await client.json("checkDocumentDirty", filePath=path)
                    assert dirty["isDirty"] is False
                    saved = await client.json("saveDocument", filePath=path)
                    assert saved["success"] is True, saved
                    _, future = client.begin(
                        "openDiff",
                        old_file_path=path,
                        new_file_path=path,
                        new_file_contents="TEXT\n",
                        tab_name=name,
                    )
                    await diff_shown(nvim)
                    await nvim.keys("ga")
                    answer = await future
                    assert answer["result"]["content"][1]["text"] == "TEXT\n"
                    await client.texts("openFile", filePath=path, startText=name, endText=name)
                    await nvim.keys("<Esc>")
                    await client.json("getDiagnostics", uri=f"file://{path}")
                found = [file.name for file in nvim.work.iterdir()]
                assert "PWNED" not in found
                assert sorted(found) == sorted(HOSTILE)
            await unharmed(nvim)

    run(main())


def test_paths_that_are_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            async with nvim.client() as client:
                for path in ("", "relative.txt", "a\0b", "/a\0b"):
                    assert (await client.error("openFile", filePath=path))["code"] == -32602
                folder = await client.error("openFile", filePath=str(nvim.work))
                assert folder["message"] == "File operation error"
                os.mkfifo(nvim.work / "pipe")
                pipe = str(nvim.work / "pipe")
                error = await client.error("openFile", filePath=pipe)
                assert error["message"] == "File operation error"
                error = await client.error(
                    "openDiff", old_file_path=pipe, new_file_path=pipe, new_file_contents=""
                )
                assert "not a regular file" in error["data"]
            await unharmed(nvim)

    run(main())


@pytest.mark.parametrize("outside", [False, True])
def test_files_outside_the_workspace_need_permission(tmp_path: Path, outside: bool) -> None:
    async def main() -> None:
        setup = "outside = true," if outside else ""
        async with editor(tmp_path, setup=setup) as nvim:
            secret = tmp_path / "secret.txt"
            secret.write_text("secret\n")
            link = nvim.work / "link.txt"
            link.symlink_to(secret)
            climbing = f"{nvim.work}/../secret.txt"
            async with nvim.client() as client:
                for path in (str(secret), str(link), climbing):
                    diff = {"old_file_path": path, "new_file_path": path}
                    if outside:
                        assert await client.texts("openFile", filePath=path)
                        continue
                    for name, arguments in (
                        ("openFile", {"filePath": path}),
                        ("saveDocument", {"filePath": path}),
                        ("openDiff", {**diff, "new_file_contents": "x"}),
                    ):
                        error = await client.error(name, **arguments)
                        assert error["code"] == -32000
                        assert "outside the workspace" in error["data"]

    run(main())


def test_a_file_opened_by_an_agent_sets_no_options(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            await nvim.call("nvim_command", "set modeline modelines=5 shiftwidth=8")
            path = nvim.write("a.txt", "text\n# vim: set sw=3 :\n")
            async with nvim.client() as client:
                await client.texts("openFile", filePath=path)
                assert await nvim.call("nvim_eval", "&shiftwidth") == 8
                assert await nvim.call("nvim_eval", "&g:modeline") == 1

    run(main())


@pytest.mark.parametrize("swaps", ["{home}", "{home}//", "."])
def test_a_file_that_another_editor_has_is_opened_without_a_question(
    tmp_path: Path, swaps: str
) -> None:
    async def main() -> None:
        async with editor(tmp_path / "one", setup=None) as first:
            path = first.write("a.txt", "text\n")
            place = f"set directory={swaps.format(home=first.home)}"
            await first.call("nvim_command", f"{place} updatecount=1 | edit {path}")
            await first.typed("ochanged<Esc>")
            await first.call("nvim_command", "preserve")
            async with editor(tmp_path / "two", setup="outside = true,") as second:
                await second.call("nvim_command", place)
                async with second.client() as client:
                    assert await client.texts("openFile", filePath=path)
                    assert await second.call("nvim_eval", "&readonly") == 1
                await unharmed(second)

    run(main())


def test_saving_over_a_file_that_has_changed_is_refused_not_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", "one\n")
            await nvim.call("nvim_command", "edit a.txt")
            await nvim.typed("omine<Esc>")
            async with nvim.client() as client:
                nvim.write("a.txt", "theirs, and longer\n")
                saved = await client.json("saveDocument", filePath=path)
                assert saved["success"] is False
                assert "changed on disk" in saved["message"]
                assert content(path) == "theirs, and longer\n"
                assert (await nvim.call("nvim_get_mode"))["blocking"] is False
                locked = nvim.write("b.txt", "one\n")
                await nvim.call("nvim_command", "edit! b.txt | set readonly")
                await nvim.typed("omine<Esc>")
                saved = await client.json("saveDocument", filePath=locked)
                assert saved["message"].startswith("Failed to save file: E45:")

    run(main())


def test_the_token_shows_nowhere(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup="log_level = 'debug',") as nvim:
            _, lock = nvim.lock()
            async with nvim.client() as client:
                await client.request("tools/list")
                pid = await nvim.lua("return require('dovetail').status().pid")
                status = json.dumps(await nvim.lua("return require('dovetail').status()"))
                argv = Path(f"/proc/{pid}/cmdline").read_text()  # noqa: ASYNC240
                environment = Path(f"/proc/{pid}/environ").read_text()  # noqa: ASYNC240
                log = Path(await nvim.lua("return require('dovetail.process').log_path()"))
                logged = log.read_text() if log.exists() else ""  # noqa: ASYNC240
                for text in (status, argv, environment, logged, await messages(nvim)):
                    assert lock["authToken"] not in text

    run(main())


def test_only_loopback_is_listened_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            port, _ = nvim.lock()
            pid = await nvim.lua("return require('dovetail').status().pid")
            lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]  # noqa: ASYNC240
            bound = [line.split()[1] for line in lines if line.split()[3] == "0A"]
            ours = [address for address in bound if int(address.split(":")[1], 16) == port]
            assert ours == [f"0100007F:{port:04X}"]
            probe = socket.socket(socket.AF_INET6)
            with probe, pytest.raises(ConnectionRefusedError):
                probe.connect(("::1", port))

    run(main())


SECRET = "AWS_SECRET=hunter2\n"


def test_sensitive_buffers_never_leave_the_editor(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            env = nvim.write(".env", SECRET)
            marked = nvim.write("marked.txt", SECRET)
            plain = nvim.write("plain.txt", "nothing\n")
            await nvim.call("nvim_command", "edit plain.txt")
            async with nvim.client() as client:
                await client.heard("selection_changed")
                await nvim.call("nvim_command", "edit .env")
                await nvim.keys("Vy")
                await nvim.call("nvim_command", "edit marked.txt | let b:dovetail_ignore = 1")
                await nvim.keys("Vy")
                for buffer in (env, marked):
                    await nvim.lua(
                        "vim.diagnostic.set(vim.api.nvim_create_namespace('t'), vim.fn.bufnr(...),"
                        " {{lnum = 0, col = 0, message = 'hunter2'}})",
                        buffer,
                    )
                answers = [
                    await client.call(name)
                    for name in (
                        "getCurrentSelection",
                        "getLatestSelection",
                        "getOpenEditors",
                        "getDiagnostics",
                    )
                ]
                answers.append(await client.call("checkDocumentDirty", filePath=env))
                for path in (env, marked):
                    answers.append(
                        await client.error(
                            "openDiff", old_file_path=path, new_file_path=path, new_file_contents=""
                        )
                    )
                    assert "sensitive" in answers[-1]["data"]
                    await nvim.call("nvim_command", f"ClaudeAtMention {path}")
                await nvim.call("nvim_command", "edit plain.txt")
                await nvim.call("nvim_command", "ClaudeAtMention plain.txt")
                heard = [await client.heard("at_mentioned")]
                text = json.dumps([*answers, *client.notifications, *heard])
                assert "hunter2" not in text
                assert heard == [{"filePath": plain}]
                assert "isDirty" not in json.dumps(answers[4])
                tabs = json.loads(answers[2]["content"][0]["text"])["tabs"]
                assert [tab["fileName"] for tab in tabs] == [plain]

    run(main())


@pytest.mark.parametrize(("key", "ran"), [("y", True), ("n", False), ("<Esc>", False)])
def test_code_is_run_only_after_a_yes(tmp_path: Path, key: str, ran: bool) -> None:
    async def main() -> None:
        enabled = "execute_code = true,"
        async with editor(tmp_path, setup=enabled) as nvim:  # noqa: SIM117
            async with nvim.client() as client:
                names = [tool["name"] for tool in (await client.request("tools/list"))["tools"]]
                assert names[-1] == "executeCode"
                code = "print('said', 1) _G.ran = true return 6 * 7"
                _, future = client.begin("executeCode", code=code)
                await nvim.until("vim.fn.win_gettype() == 'popup'")
                assert code in nvim.screen.text or code in "\n".join(
                    await nvim.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, false)")
                )
                assert await nvim.lua("return ran") is None
                assert await client.request("ping") == {}
                await nvim.keys(key)
                result = (await future)["result"]
                assert result["isError"] is not ran
                expected = "said\t1\n42" if ran else "The user did not allow this code to run"
                assert result["content"][0]["text"] == expected
                assert await nvim.lua("return ran or false") is ran
                id, future = client.begin("executeCode", code="return 1")
                await nvim.until("vim.fn.win_gettype() == 'popup'")
                await client.notify("notifications/cancelled", {"requestId": id})
                await nvim.until("vim.fn.win_gettype() ~= 'popup'")

    run(main())


# -- the lock file -----------------------------------------------------------------------------


def test_17_a_killed_editor_leaves_no_lock_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        nvim = Nvim(tmp_path)
        try:
            await nvim.start()
            await nvim.setup()
            [left] = nvim.lock_files()
            stale = left.with_name("1.lock")
            stale.write_text(json.dumps({"pid": 2**22 + 1, "ideName": "Neovim"}))
            foreign = left.with_name("2.lock")
            foreign.write_text(json.dumps({"pid": 2**22 + 1, "ideName": "VS Code"}))
            broken = left.with_name("3.lock")
            broken.write_text("{")
            assert nvim.process is not None
            nvim.process.kill()
            nvim.process.wait()
        finally:
            await nvim.close()
        async with editor(tmp_path) as after:
            assert left not in after.lock_files()
            assert stale not in after.lock_files()
            assert {foreign, broken} < set(after.lock_files())
            foreign.unlink()
            broken.unlink()
        assert after.lock_files() == []

    run(main())


def test_the_lock_directory_must_be_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "claude").mkdir()
    (tmp_path / "claude" / "ide").symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="symbolic link"):
        lockfile.LockFile(12345, 1, "token")
    (tmp_path / "claude" / "ide").unlink()
    (tmp_path / "claude" / "ide").mkdir(mode=0o755)
    lock = lockfile.LockFile(12345, 1, "token")
    assert lock.path.parent.stat().st_mode & 0o777 == 0o700
    lock.write(["/a"])
    assert lock.path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in lock.path.parent.iterdir()] == ["12345.lock"]
    lockfile.LockFile(12345, 1, "another").remove()
    assert lock.path.exists()
    lock.remove()
    assert not lock.path.exists()


def test_without_the_variable_the_lock_is_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert lockfile.directory() == tmp_path / ".claude" / "ide"


def test_a_client_without_subprotocol_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            async with nvim.client(subprotocols=None) as client:
                assert client.socket.subprotocol is None
                assert await client.request("ping") == {}
            assert await refused(nvim, subprotocols=["other"]) == 400

    run(main())
