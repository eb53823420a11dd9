"""A whole conversation as Claude Code has it, shape by shape, and what peers get wrong in it.

The numbers in the names of the tests are those of a list of defects that were measured in the
best other plugin; each is a rule here.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from nvim_process import Nvim, content, diff_shown, editor, messages

import dovetail
from support import run

HELLO = '''import os


def hello(name):
    """Say hello."""
    print("hello", name)
    return undefined_name


class Thing:
    x = 1
    y = "naïve 😀 text"
'''
TAB = "✻ [Claude Code] a.py (abc123) ⧉"


def place(line: int, character: int) -> dict[str, int]:
    return {"line": line, "character": character}


def selection(path: str, text: str, start: Any, end: Any) -> dict[str, Any]:
    between = {"start": place(*start), "end": place(*end), "isEmpty": not text}
    url = "file://" + path.replace(" ", "%20").replace("#", "%23")
    return {"text": text, "filePath": path, "fileUrl": url, "selection": between}


@pytest.mark.verifies("R003-01", "R003-02", "R003-03", "R003-04", "R003-05", "D-editor-name")
def test_the_recorded_conversation(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path, setup=None) as nvim:
            a = nvim.write("src/a.py", HELLO)
            b = nvim.write("src/b.py", "x = 1\n")
            c = nvim.write("sp ace/c #1.txt", "text\n")
            await nvim.call("nvim_cmd", {"cmd": "edit", "args": [a]}, {})
            await nvim.setup()
            port, lock = nvim.lock()
            assert lock.keys() >= {"pid", "authToken", "workspaceFolders", "ideName", "transport"}
            assert (lock["ideName"], lock["transport"]) == ("Neovim", "ws")
            assert nvim.process is not None
            assert lock["pid"] == nvim.process.pid
            assert str(nvim.work) in lock["workspaceFolders"]
            assert 10000 <= port <= 65535
            assert len(lock["authToken"]) >= 32
            [file] = nvim.lock_files()
            assert file.stat().st_mode & 0o777 == 0o600
            assert file.parent.stat().st_mode & 0o777 == 0o700
            async with nvim.client(handshake=False) as client:
                assert client.socket.subprotocol == "mcp"
                hello = await client.initialize("2025-03-26")
                assert hello["protocolVersion"] == "2025-03-26"
                assert hello["capabilities"]["tools"] == {}
                info = {"name": "Claude Code Neovim MCP", "version": dovetail.__version__}
                assert hello["serverInfo"] == info
                await check_list(client)
                await check_state(nvim, client, a)
                await check_selections(nvim, client, a)
                await check_mentions(nvim, client, a)
                await check_diagnostics(nvim, client, a)
                await check_files(nvim, client, a, b, c)
                await check_diffs(nvim, client, a)

    run(main())


async def check_list(client: Any) -> None:
    tools = (await client.request("tools/list", {}))["tools"]
    names = [tool["name"] for tool in tools]
    assert names == [
        "openFile",
        "checkDocumentDirty",
        "saveDocument",
        "openDiff",
        "closeAllDiffTabs",
        "getCurrentSelection",
        "getLatestSelection",
        "getOpenEditors",
        "getWorkspaceFolders",
        "getDiagnostics",
    ]
    arguments = {
        tool["name"]: {
            name: schema["type"] for name, schema in tool["inputSchema"]["properties"].items()
        }
        for tool in tools
    }
    assert arguments["openFile"] == {
        "filePath": "string",
        "preview": "boolean",
        "startText": "string",
        "endText": "string",
        "selectToEndOfLine": "boolean",
        "makeFrontmost": "boolean",
        "startLine": "integer",
        "endLine": "integer",
    }
    text = "string"
    assert arguments["openDiff"] == dict.fromkeys(
        ["old_file_path", "new_file_path", "new_file_contents", "tab_name"], text
    )
    assert arguments["getDiagnostics"] == {"uri": text}
    assert all(tool["inputSchema"]["additionalProperties"] is False for tool in tools)


async def check_state(nvim: Nvim, client: Any, a: str) -> None:
    here = selection(a, "", (0, 0), (0, 0))
    assert await client.json("getCurrentSelection") == {"success": True, **here}
    assert await client.json("getLatestSelection") == {"success": True, **here}
    root = str(nvim.work)
    folder = {"name": "work", "uri": f"file://{root}", "path": root}
    found = {"success": True, "folders": [folder], "rootPath": root}
    assert await client.json("getWorkspaceFolders") == found
    [tab] = (await client.json("getOpenEditors"))["tabs"]
    assert tab == {
        "uri": f"file://{a}",
        "isActive": True,
        "isPinned": False,
        "isPreview": False,
        "isDirty": False,
        "label": "a.py",
        "groupIndex": 0,
        "viewColumn": 1,
        "isGroupActive": True,
        "fileName": a,
        "languageId": "python",
        "lineCount": 12,
        "isUntitled": False,
        "selection": {"start": place(0, 0), "end": place(0, 0), "isReversed": False},
    }


async def check_selections(nvim: Nvim, client: Any, a: str) -> None:
    """Cursor, charwise, linewise and blockwise; columns count UTF-16 units (7)."""
    assert await client.heard("selection_changed") == selection(a, "", (0, 0), (0, 0))
    await nvim.keys("4Gw")
    assert await client.heard("selection_changed") == selection(a, "", (3, 4), (3, 4))
    await nvim.keys("viwj")
    both = selection(a, 'hello(name):\n    """Sa', (3, 4), (4, 9))
    assert await client.heard("selection_changed", lambda p: p["text"].count("\n")) == both
    assert await client.json("getCurrentSelection") == {"success": True, **both}
    await nvim.keys("<Esc>")
    assert await client.json("getCurrentSelection") == {"success": True, **both}
    assert await client.json("getLatestSelection") == {"success": True, **both}
    await nvim.keys("12GV")
    line = selection(a, '    y = "naïve 😀 text"', (11, 0), (11, 23))
    assert await client.heard("selection_changed", lambda p: "naïve" in p["text"]) == line
    await nvim.keys("<Esc>0fnvft")
    chars = selection(a, "naïve 😀 t", (11, 9), (11, 19))
    assert await client.heard("selection_changed", lambda p: "😀 t" in p["text"]) == chars
    await nvim.keys("<Esc>4G0l<C-v>jjll")
    block = selection(a, "ef \n   \n   ", (3, 1), (5, 4))
    assert await client.heard("selection_changed", lambda p: p["text"].count("\n") == 2) == block
    await nvim.keys("<Esc>gg0")
    await client.heard("selection_changed", lambda p: p["selection"]["isEmpty"])


async def check_mentions(nvim: Nvim, client: Any, a: str) -> None:
    await nvim.call("nvim_command", "4,6ClaudeAtMention")
    lines = {"filePath": a, "lineStart": 3, "lineEnd": 5}
    assert await client.heard("at_mentioned") == lines
    await nvim.call("nvim_command", "ClaudeAtMention src/b.py")
    assert await client.heard("at_mentioned") == {"filePath": str(nvim.work / "src/b.py")}


async def check_diagnostics(nvim: Nvim, client: Any, a: str) -> None:
    assert await client.json("getDiagnostics") == []
    await nvim.lua(
        """vim.diagnostic.set(vim.api.nvim_create_namespace("t"), 0, {
          {lnum = 6, col = 11, end_lnum = 6, end_col = 25, severity = 1, message = "undefined name",
           source = "pyflakes", code = "F821"},
          {lnum = 11, col = 16, end_lnum = 11, end_col = 21, severity = 2, message = "emoji"},
          {lnum = 1, col = 0, severity = 3, message = "info"},
          {lnum = 1, col = 0, severity = 4, message = "hint", code = 7},
        })"""
    )
    expected = [
        {
            "message": "undefined name",
            "severity": "Error",
            "range": {"start": place(6, 11), "end": place(6, 25)},
            "source": "pyflakes",
            "code": "F821",
        },
        {
            "message": "emoji",
            "severity": "Warning",
            "range": {"start": place(11, 15), "end": place(11, 18)},
        },
        {
            "message": "info",
            "severity": "Info",
            "range": {"start": place(1, 0), "end": place(1, 0)},
        },
        {
            "message": "hint",
            "severity": "Hint",
            "range": {"start": place(1, 0), "end": place(1, 0)},
            "code": "7",
        },
    ]
    uri = f"file://{a}"
    assert await client.json("getDiagnostics") == [{"uri": uri, "diagnostics": expected}]
    assert await client.json("getDiagnostics", uri=uri) == [{"uri": uri, "diagnostics": expected}]
    assert await client.heard("diagnostics_changed") == {"uris": [uri]}
    nothing = [{"uri": "file:///nope.py", "diagnostics": []}]
    assert await client.json("getDiagnostics", uri="file:///nope.py") == nothing
    answer = await client.answer("tools/call", {"name": "getDiagnostics"})
    assert json.loads(answer["result"]["content"][0]["text"])[0]["uri"] == uri


async def check_files(nvim: Nvim, client: Any, a: str, b: str, c: str) -> None:
    assert await client.texts("openFile", filePath=b) == [f"Opened file: {b}"]
    assert (await client.heard("selection_changed"))["filePath"] == b
    wanted = {"startText": "def hello", "endText": "return", "selectToEndOfLine": True}
    said = await client.texts("openFile", filePath=a, **wanted)
    assert said == ['Opened file and selected text from "def hello" to "return"']
    chosen = "\n".join(HELLO.splitlines()[3:7])
    heard = await client.heard("selection_changed", lambda p: p["text"])
    assert heard == selection(a, chosen, (3, 0), (6, 25))
    opened = await client.json("openFile", filePath=b, makeFrontmost=False)
    assert opened == {"success": True, "filePath": b, "languageId": "python", "lineCount": 1}
    assert await client.texts("openFile", filePath=c) == [f"Opened file: {c}"]
    assert await client.heard("selection_changed") == selection(c, "", (0, 0), (0, 0))
    tabs = (await client.json("getOpenEditors"))["tabs"]
    assert [(tab["label"], tab["isActive"]) for tab in tabs] == [
        ("a.py", False),
        ("b.py", False),
        ("c #1.txt", True),
    ]
    assert tabs[2]["uri"].endswith("/sp%20ace/c%20%231.txt")
    assert tabs[2]["languageId"] == "text"
    missing = str(nvim.work / "nope")
    error = await client.error("openFile", filePath=missing)
    assert error == {
        "code": -32000,
        "message": "File operation error",
        "data": f"File not found: {missing}",
    }
    assert (await client.error("openFile"))["code"] == -32602
    await client.texts("openFile", filePath=b)
    await nvim.typed("Goy = 2<Esc>")
    dirty = {"success": True, "filePath": b, "isDirty": True, "isUntitled": False}
    assert await client.json("checkDocumentDirty", filePath=b) == dirty
    refused = await client.error(
        "openDiff", old_file_path=b, new_file_path=b, new_file_contents="x\n", tab_name="t"
    )
    assert (refused["code"], refused["message"]) == (-32000, "Diff setup failed")
    assert "file has unsaved changes" in refused["data"]
    saved = {"success": True, "filePath": b, "saved": True}
    expected = {**saved, "message": "Document saved successfully"}
    assert await client.json("saveDocument", filePath=b) == expected
    assert content(b) == "x = 1\ny = 2\n"
    assert (await client.json("checkDocumentDirty", filePath=b))["isDirty"] is False
    closed = {"success": False, "message": f"Document not open: {missing}"}
    assert await client.json("checkDocumentDirty", filePath=missing) == closed
    assert await client.json("saveDocument", filePath=missing) == closed


async def check_diffs(nvim: Nvim, client: Any, a: str) -> None:
    proposed = "import os\n\n\ndef hello(name):\n    return name\n"
    paths = {"old_file_path": a, "new_file_path": a, "new_file_contents": proposed}
    _, accepted = client.begin("openDiff", **paths, tab_name=TAB)
    await diff_shown(nvim)
    await nvim.keys("ga")
    items = (await accepted)["result"]["content"]
    assert items == [{"type": "text", "text": t} for t in ("FILE_SAVED", proposed)]
    assert content(a) == HELLO
    assert await client.texts("close_tab", tab_name=TAB) == ["TAB_CLOSED"]
    _, rejected = client.begin("openDiff", **paths, tab_name=TAB)
    await diff_shown(nvim)
    await nvim.keys("gx")
    items = (await rejected)["result"]["content"]
    assert items == [{"type": "text", "text": t} for t in ("DIFF_REJECTED", TAB)]
    id, cancelled = client.begin("openDiff", **paths, tab_name=TAB)
    await diff_shown(nvim)
    await client.notify("notifications/cancelled", {"requestId": id, "reason": "user"})
    await diff_shown(nvim, 0)
    assert not cancelled.done()
    _, first = client.begin("openDiff", **paths, tab_name="one")
    _, second = client.begin("openDiff", **paths, tab_name="two")
    await diff_shown(nvim, 2)
    assert await client.texts("closeAllDiffTabs") == ["CLOSED_2_DIFF_TABS"]
    for name, future in (("one", first), ("two", second)):
        items = (await future)["result"]["content"]
        assert [item["text"] for item in items] == ["DIFF_REJECTED", name]
    assert await client.texts("closeAllDiffTabs") == ["CLOSED_0_DIFF_TABS"]
    assert await client.texts("close_tab", tab_name="nothing") == ["TAB_CLOSED"]
    for name in ("executeCode", "nope"):
        assert (await client.error(name, code="print(1)"))["code"] == -32602


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-10-07", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ],
)
@pytest.mark.verifies("D-editor-socket", "R003-06")
def test_1_revisions_are_negotiated_and_discover_is_unknown(
    tmp_path: Path, asked: str, answered: str
) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim, nvim.client(handshake=False) as client:
            answer = await client.answer("server/discover", {"_meta": {}})
            assert answer["error"]["code"] == -32601
            hello = await client.initialize(asked)
            assert hello["protocolVersion"] == answered

    run(main())


@pytest.mark.verifies("R003-07", "R003-08", "R003-12", "R003-13")
def test_2_3_4_5_broken_messages_are_answered_and_hurt_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            async with nvim.client(handshake=False) as client:
                await client.initialize("2025-03-26")
                assert await client.request("ping") == {}
                for method in ("no/such", "prompts/list", "resources/list"):
                    assert (await client.answer(method))["error"]["code"] == -32601
                for text, code in (
                    ("{bad json", -32700),
                    ("[]", -32600),
                    ("5", -32600),
                    ("null", -32600),
                    ('"x"', -32600),
                    ('{"jsonrpc":"2.0","id":null,"method":"tools/list"}', -32600),
                ):
                    answer = await client.raw(text)
                    assert answer["id"] is None, text
                    assert answer["error"]["code"] == code, text
                for text, id, code in (
                    ('{"id":902,"method":"tools/list"}', 902, -32600),
                    ('{"jsonrpc":"2.0","id":903}', 903, -32600),
                    ('{"jsonrpc":"2.0","id":904,"method":"tools/call","params":[]}', 904, -32602),
                    ('{"jsonrpc":"2.0","id":905,"method":"tools/call"}', 905, -32602),
                ):
                    answer = await client.raw(text)
                    assert (answer["id"], answer["error"]["code"]) == (id, code)
                ping = '{"jsonrpc":"2.0","id":900,"method":"ping"}'
                batch = await client.raw(f"[{ping},{ping.replace('900', '901')}]")
                assert batch == [{"jsonrpc": "2.0", "id": id, "result": {}} for id in (900, 901)]
                unknown = await client.error("getWorkspaceFolders", bogus=1)
                assert unknown["code"] == -32602
                assert "bogus" in unknown["data"]
                await client.socket.send(['{"jsonrpc":"2.0","id":77,', '"method":"pi', 'ng"}'])
                answer = await asyncio.wait_for(client._other.get(), 5)
                assert answer == {"jsonrpc": "2.0", "id": 77, "result": {}}
            assert await messages(nvim) == ""
            assert (await nvim.call("nvim_get_mode"))["mode"] == "n"

    run(main())


def test_11_the_selection_is_the_current_one(tmp_path: Path) -> None:
    """No debounced copy: asked right after a key, the answer knows the key."""

    async def main() -> None:
        async with editor(tmp_path, setup="throttle_ms = 5000,") as nvim:
            nvim.write("a.txt", "".join(f"line {n}\n" for n in range(1, 200)))
            await nvim.call("nvim_command", "edit a.txt")
            async with nvim.client() as client:
                for line in range(1, 100, 7):
                    await nvim.call("nvim_win_set_cursor", 0, [line, 3])
                    await nvim.typed("<Esc>")
                    await nvim.lua("vim.api.nvim_exec_autocmds('CursorMoved', {})")
                    now = await client.json("getCurrentSelection")
                    assert now["selection"]["start"] == place(line - 1, 3)

    run(main())


def test_12_constant_movement_does_not_starve_notifications(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            nvim.write("a.txt", "".join(f"line {n}\n" for n in range(1, 400)))
            await nvim.call("nvim_command", "edit a.txt")
            async with nvim.client() as client:
                await client.heard("selection_changed")
                for _ in range(200):
                    await nvim.keys("j")
                    await asyncio.sleep(0.005)
                assert len(client.notifications) >= 10
                await client.heard(
                    "selection_changed", lambda p: p["selection"]["start"]["line"] == 200
                )

    run(main())


def test_13_the_list_of_tools_is_always_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim, nvim.client() as one, nvim.client() as other:
            lists = [await client.request("tools/list") for client in (one, other, one)]
            assert lists[0] == lists[1] == lists[2]

    run(main())


def test_14_saving_does_not_wait_for_a_message_to_be_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with editor(tmp_path) as nvim:
            path = nvim.write("a.txt", "x\n")
            await nvim.call("nvim_command", "edit a.txt")
            async with nvim.client() as client:
                await nvim.lua("vim.api.nvim_echo({{'an error'}}, true, {err = true})")
                await nvim.typed("ohello<Esc>")
                assert (await client.json("saveDocument", filePath=path))["saved"] is True
                assert (await nvim.call("nvim_get_mode"))["blocking"] is False
            assert content(path) == "x\nhello\n"

    run(main())
