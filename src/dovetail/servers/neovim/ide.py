"""The tools of Claude Code's IDE protocol, in the shapes it knows.

All answers are text; where it says JSON, the text is a JSON document. Clients
look at these words and members, so they are as the first editors made them.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct

import dovetail
from dovetail import Context, Limits, McpError, Server
from dovetail.content import CallToolResult, TextContent
from dovetail.servers.neovim.confirm import Confirm
from dovetail.servers.neovim.diffs import Diffs, write_file
from dovetail.servers.neovim.editor import Blocked, Editor, EditorError, Refused
from dovetail.servers.neovim.model import Model
from dovetail.servers.neovim.places import inside, is_file, path_of, raw_uri, uri_of

__all__ = ["LIMITS", "NAME", "ide_server"]

NAME = "Claude Code Neovim MCP"  # requirement 003; clients may look at it
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

# openDiff carries whole files, twice the size when escaped.
LIMITS = Limits(max_frame=100 * 1024 * 1024, max_queued_bytes=256 * 1024 * 1024)

EDITOR_FAILED = -32000
REASON_KEY = "dev.dovetail/reason"

_NO_EDITOR = {"success": False, "message": "No active editor found"}
_NO_SELECTION = {"success": False, "message": "No selection available"}


def _texts(*texts: str, meta: Mapping[str, Any] | None = None) -> CallToolResult:
    content: list[Any] = [TextContent(text=text) for text in texts]
    return CallToolResult(content=content, meta=UNSET if meta is None else dict(meta))


def _json(value: Any, meta: Mapping[str, Any] | None = None) -> CallToolResult:
    return _texts(msgspec.json.encode(value).decode(), meta=meta)


class _Tools(Struct):
    """What the tools work with."""

    editor: Editor
    model: Model
    diffs: Diffs

    async def check_place(self, what: str, *paths: str) -> None:
        """Files outside the workspace are none of the agent's business, unless allowed."""
        for path in paths:
            if "\0" in path or not path.startswith("/"):
                raise McpError(-32602, data=f"{path!r} is not an absolute path")
        if self.model.settings.get("outside"):
            return
        folders = (await self.model.folders()).value
        for path in paths:
            if not inside(path, folders):
                raise McpError(EDITOR_FAILED, what, f"{path} is outside the workspace folders")


def ide_server(editor: Editor, model: Model, diffs: Diffs, confirm: Confirm) -> Server:
    server = Server(
        NAME,
        version=dovetail.__version__,
        revisions=HANDSHAKE,
        bad_arguments="error",
        list_changed=False,
        limits=LIMITS,
    )
    tools = _Tools(editor, model, diffs)
    _add_files(server, tools)
    _add_diffs(server, tools)
    _add_state(server, tools)
    if model.settings.get("execute_code"):
        _add_code(server, confirm)
    return server


# -- files ---------------------------------------------------------------------------------


def _add_files(server: Server, tools: _Tools) -> None:
    editor = tools.editor

    @server.tool
    async def openFile(
        filePath: str,
        preview: bool = False,
        startText: str = "",
        endText: str = "",
        selectToEndOfLine: bool = False,
        makeFrontmost: bool = True,
        startLine: int = 0,
        endLine: int = 0,
    ) -> CallToolResult:
        """Open a file in the editor and optionally select a range of text.

        Args:
            filePath: Path of the file to open
            preview: Whether to open the file as a preview
            startText: Text pattern where the selection starts
            endText: Text pattern where the selection ends
            selectToEndOfLine: Whether the selection extends to the end of its last line
            makeFrontmost: Whether the file becomes the active editor
            startLine: First line to select, counted from 1
            endLine: Last line to select, counted from 1
        """
        what = "File operation error"
        await tools.check_place(what, filePath)
        if not is_file(filePath):
            raise McpError(EDITOR_FAILED, what, f"File not found: {filePath}")
        arguments = {
            "filePath": filePath,
            "startText": startText,
            "endText": endText,
            "selectToEndOfLine": selectToEndOfLine,
            "makeFrontmost": makeFrontmost,
            "startLine": startLine,
            "endLine": endLine,
        }
        try:
            opened = await editor.act("editor", "open_file", arguments)
        except EditorError as error:
            raise McpError(EDITOR_FAILED, what, str(error)) from None
        if makeFrontmost:
            return _texts(opened.pop("message"))
        del opened["message"]
        return _json({"success": True, "filePath": filePath, **opened})

    @server.tool
    async def checkDocumentDirty(filePath: str) -> CallToolResult:
        """Check whether a document has unsaved changes.

        Args:
            filePath: Path of the file to check
        """
        found = await _ask(editor.read("editor", "is_dirty", filePath))
        if found is None:
            return _json({"success": False, "message": f"Document not open: {filePath}"})
        known = {"filePath": filePath, "isDirty": found["dirty"], "isUntitled": False}
        return _json({"success": True, **known})

    @server.tool
    async def saveDocument(filePath: str) -> CallToolResult:
        """Save a document with unsaved changes.

        Args:
            filePath: Path of the file to save
        """
        await tools.check_place("File operation error", filePath)
        try:
            saved = await _ask(editor.act("editor", "save", filePath), Refused)
        except Refused as error:
            return _json({"success": False, "message": f"Failed to save file: {error}"})
        if saved is None:
            return _json({"success": False, "message": f"Document not open: {filePath}"})
        done = {"saved": True, "message": "Document saved successfully"}
        return _json({"success": True, "filePath": filePath, **done})


async def _ask(asking: Any, *but: type[EditorError]) -> Any:
    """What the editor answers; its failures as errors, except those the tool words itself."""
    try:
        return await asking
    except but:
        raise
    except EditorError as error:
        raise McpError(EDITOR_FAILED, "Editor error", str(error)) from None


# -- diffs ---------------------------------------------------------------------------------


def _add_diffs(server: Server, tools: _Tools) -> None:
    diffs, editor = tools.diffs, tools.editor

    @server.tool
    async def openDiff(
        old_file_path: str,
        new_file_path: str,
        new_file_contents: str,
        ctx: Context,
        tab_name: str = "",
    ) -> CallToolResult:
        """Show a diff in the editor and wait until the user accepts or rejects it.

        Args:
            old_file_path: Path of the file to compare with
            new_file_path: Path of the file to be written
            new_file_contents: The proposed contents
            tab_name: Name of the tab that shows the diff
        """
        what = "Diff setup failed"
        await tools.check_place(what, old_file_path, new_file_path)
        name = tab_name or new_file_path
        try:
            outcome = await diffs.show(
                ctx.session, name, old_file_path, new_file_path, new_file_contents
            )
        except EditorError as error:
            raise McpError(EDITOR_FAILED, what, str(error)) from None
        if outcome.text is None:
            meta = None if outcome.reason is None else {REASON_KEY: outcome.reason}
            return _texts("DIFF_REJECTED", name, meta=meta)
        if tools.model.settings.get("write_on_accept"):
            await asyncio.to_thread(write_file, new_file_path, outcome.text)
            await _ask(editor.ask("editor", "reload", new_file_path))
        return _texts("FILE_SAVED", outcome.text)

    @server.tool
    async def close_tab(tab_name: str, ctx: Context) -> CallToolResult:
        """Close the tab of a diff.

        Args:
            tab_name: Name of the tab
        """
        diffs.close(ctx.session, tab_name)
        return _texts("TAB_CLOSED")

    close_tab.listed = False  # for the client itself, never for the model

    @server.tool
    async def closeAllDiffTabs(ctx: Context) -> CallToolResult:
        """Close all diff tabs of this client in the editor."""
        return _texts(f"CLOSED_{len(diffs.close(ctx.session))}_DIFF_TABS")


# -- state ---------------------------------------------------------------------------------


def _add_state(server: Server, tools: _Tools) -> None:
    model = tools.model

    @server.tool
    async def getCurrentSelection() -> CallToolResult:
        """Get the text selection in the active editor."""
        known = await _ask(model.selection())
        if known.value is None:
            return _json(_NO_EDITOR, known.meta)
        return _json({"success": True, **known.value.wire()}, known.meta)

    @server.tool
    async def getLatestSelection() -> CallToolResult:
        """Get the most recent text selection, even if it is not in the active editor."""
        known = await _ask(model.selection())
        latest = known.value or model.latest
        if latest is None:
            return _json(_NO_SELECTION, known.meta)
        return _json({"success": True, **latest.wire()}, known.meta)

    @server.tool
    async def getOpenEditors() -> CallToolResult:
        """Get the editors that are open."""
        tabs = await _ask(model.editors())
        selection = await _ask(model.selection())
        return _texts(tabs.value.json(selection.value), meta=tabs.meta or selection.meta)

    @server.tool
    async def getWorkspaceFolders() -> CallToolResult:
        """Get the workspace folders that are open."""
        known = await _ask(model.folders())
        return _json(_folders(known.value), known.meta)

    @server.tool
    async def getDiagnostics(uri: str = "") -> CallToolResult:
        """Get the diagnostics of the language servers.

        Args:
            uri: URI of the file; without it, diagnostics of all files
        """
        known = await _ask(model.diagnostics())
        return _texts(_diagnostics(known.value, uri), meta=known.meta)


def _folders(paths: list[str]) -> dict[str, Any]:
    folders = [
        {"name": path.rpartition("/")[2], "uri": uri_of(path), "path": path} for path in paths
    ]
    return {"success": True, "folders": folders, "rootPath": paths[0] if paths else None}


def _diagnostics(known: dict[str, bytes], uri: str) -> str:
    """Of all files, or of one: then the client gets back the URI it wrote."""
    if not uri:
        rows = [_row(raw_uri(path), items) for path, items in known.items()]
    else:
        written, resolved = path_of(uri)
        rows = [_row(uri, known.get(written) or known.get(resolved) or b"[]")]
    return "[" + ",".join(rows) + "]"


def _row(uri: str, items: bytes) -> str:
    return f'{{"uri":{msgspec.json.encode(uri).decode()},"diagnostics":{items.decode()}}}'


# -- code ----------------------------------------------------------------------------------


def _add_code(server: Server, confirm: Confirm) -> None:
    @server.tool
    async def executeCode(code: str) -> CallToolResult:
        """Run Lua code in the editor, after its user has confirmed it.

        Args:
            code: The code; what it returns or prints is the result
        """
        try:
            answer = await confirm.run_lua(code)
        except Blocked as error:
            raise McpError(EDITOR_FAILED, "Editor error", str(error)) from None
        except EditorError as error:
            return CallToolResult(content=[TextContent(text=str(error))], is_error=True)
        return _texts(answer)
