"""The editor as tools for a model: what any MCP client sees over stdio and HTTP.

Lines and columns count from 1, columns in UTF-16 units. What is read is the text
in the editor, saved or not. Tools that change something are there only if allowed.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

import dovetail
from dovetail import Context, Server, ToolError
from dovetail.content import CallToolResult, TextContent
from dovetail.servers.neovim.agent_lsp import add_lsp
from dovetail.servers.neovim.agent_own import add_own_tools
from dovetail.servers.neovim.agent_resources import Resources, add_resources
from dovetail.servers.neovim.diffs import write_file
from dovetail.servers.neovim.editor import EditorError
from dovetail.servers.neovim.finder import Desk, Workplace
from dovetail.servers.neovim.model import Known, Tab
from dovetail.servers.neovim.places import absolute, inside, is_file

__all__ = ["agent_server"]

INSTRUCTIONS = (
    "The user's running Neovim. Read buffers here rather than files on disk: they hold what is "
    "not saved yet. Lines and columns count from 1."
)

MAX_HITS = 1000
# A buffer larger than this is read in parts; one answer is one message to a model.
MAX_TEXT = 1024 * 1024


class Buffer(Struct):
    buffer: int
    path: str
    filetype: str
    lines: int
    modified: bool
    current: bool


class Part(Struct):
    """Lines of a buffer."""

    buffer: int
    path: str
    first_line: int
    last_line: int
    lines: int
    modified: bool
    text: str


class Hit(Struct):
    path: str
    line: int
    column: int
    text: str


class Hits(Struct):
    hits: list[Hit]
    complete: bool


class Entry(Struct):
    path: str
    line: int
    column: int = 1
    text: str = ""
    kind: Literal["error", "warning", "info", "note", "hint", ""] = ""


class Quickfix(Struct):
    title: str
    items: list[Entry]


class Office:
    """Gives tools the editor and words its failures for a model."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def workplace(self) -> Workplace:
        try:
            return await self._desk.workplace()
        except EditorError as error:
            raise ToolError(str(error)) from None

    async def read(self, module: str, name: str, *arguments: Any, kind: Any = Any) -> Any:
        workplace = await self.workplace()
        try:
            return await workplace.editor.read(module, name, *arguments, kind=kind)
        except EditorError as error:
            raise ToolError(str(error)) from None

    async def act(self, module: str, name: str, *arguments: Any, kind: Any = Any) -> Any:
        workplace = await self.workplace()
        try:
            return await workplace.editor.act(module, name, *arguments, kind=kind)
        except EditorError as error:
            raise ToolError(str(error)) from None

    async def path(self, written: str, *, to_write: bool = False) -> str:
        """An absolute path; a relative one counts from the editor's directory."""
        if "\0" in written or not written:
            raise ToolError(f"{written!r} is not a path")
        model = (await self.workplace()).model
        folders = (await model.folders()).value
        path = absolute(written, folders[0] if folders else "/")
        if to_write and not model.settings.get("outside") and not inside(path, folders):
            raise ToolError(f"{path} is outside the workspace folders")
        return path


def agent_server(
    desk: Desk, *, write: bool = False, execute: bool = False, **options: Any
) -> Server:
    server = Server(
        "dovetail-neovim",
        version=dovetail.__version__,
        title="Neovim",
        instructions=INSTRUCTIONS,
        **options,
    )
    office = Office(desk)
    _add_reading(server, office)
    _add_state(server, office)
    _add_proposing(server, office)
    add_lsp(server, office, write)
    if write:
        _add_writing(server, office)
    if execute:
        _add_commands(server, office)
    resources = Resources(server, desk)
    add_resources(server, resources)

    @server.lifespan
    async def attended(_: Server) -> AsyncIterator[None]:
        with suppress(ToolError):  # no editor yet: then none of its tools
            await add_own_tools(server, office)
        async with resources.watched():
            yield

    return server


def _known(value: Any, known: Known[Any]) -> CallToolResult:
    """A value from the model of the editor; old ones are marked."""
    data = msgspec.json.encode(value)
    return CallToolResult(
        content=[TextContent(text=data.decode())],
        structured_content=value,
        meta=UNSET if known.meta is None else known.meta,
    )


# -- reading -------------------------------------------------------------------------------


def _add_reading(server: Server, office: Office) -> None:
    @server.tool(read_only=True)
    async def list_buffers() -> CallToolResult:
        """List the files that are open in the editor."""
        known = await (await office.workplace()).model.editors()
        return _known({"buffers": [_buffer(tab) for tab in known.value.tabs]}, known)

    @server.tool(read_only=True)
    async def read_buffer(
        path: str = "", buffer: int = 0, first_line: int = 1, last_line: int = 0
    ) -> Part:
        """Read a buffer: the text as it is in the editor, saved or not.

        Args:
            path: Path of the file, absolute or from the editor's directory
            buffer: Number of the buffer, if it has no path
            first_line: First line to read
            last_line: Last line to read; 0 is the end
        """
        place = buffer or await office.path(path)
        part: Part = await office.read("buffers", "read", place, first_line, last_line, kind=Part)
        if len(part.text) > MAX_TEXT:
            raise ToolError(
                f"{part.last_line - part.first_line + 1} lines are {len(part.text)} characters, "
                f"more than {MAX_TEXT}: read fewer lines at a time"
            )
        return part

    @server.tool(read_only=True)
    async def search_buffers(pattern: str, regex: bool = False, limit: int = 100) -> Hits:
        """Search the text of all open buffers, saved or not.

        Args:
            pattern: What to look for, on one line
            regex: Whether it is a regular expression (Vim's, very magic)
            limit: The most hits to return
        """
        if not pattern:
            raise ToolError("the pattern is empty")
        most = max(1, min(limit, MAX_HITS))
        hits: Hits = await office.read("buffers", "search", pattern, regex, most, kind=Hits)
        return hits


def _buffer(tab: Tab) -> Buffer:
    return Buffer(tab.buffer, tab.path, tab.language, tab.lines, tab.dirty, tab.active)


# -- state ---------------------------------------------------------------------------------


def _add_state(server: Server, office: Office) -> None:
    @server.tool(read_only=True)
    async def get_selection() -> CallToolResult:
        """Get what the user has selected in the editor, or where the cursor is."""
        known = await (await office.workplace()).model.selection()
        if known.value is None:
            raise ToolError("No file is open in the editor")
        now = known.value
        shape = {
            "path": now.path,
            "text": now.text,
            "first": {"line": now.start[0] + 1, "column": now.start[1] + 1},
            "end": {"line": now.finish[0] + 1, "column": now.finish[1] + 1},
            "empty": now.empty,
        }
        return _known(shape, known)

    @server.tool(read_only=True)
    async def get_diagnostics(path: str = "") -> CallToolResult:
        """Get what language servers and linters report.

        Args:
            path: Path of a file; without it, of all files
        """
        wanted = await office.path(path) if path else None
        known = await (await office.workplace()).model.diagnostics()
        found = [
            _diagnostic(file, item)
            for file, items in known.value.items()
            if wanted in (None, file)
            for item in msgspec.json.decode(items)
        ]
        return _known({"diagnostics": found}, known)

    @server.tool(read_only=True)
    async def get_quickfix() -> Quickfix:
        """Get the quickfix list: compiler errors, search results, whatever filled it."""
        found: Quickfix = await office.read("buffers", "quickfix", kind=Quickfix)
        return found

    @server.tool(read_only=True)
    async def show_file(path: str, line: int = 0) -> str:
        """Show the user a file in the editor. Nothing is changed.

        Args:
            path: Path of the file
            line: Line to go to
        """
        place = await office.path(path, to_write=True)
        if not is_file(place):
            raise ToolError(f"There is no file {place}")
        wanted = {"startText": "", "startLine": line, "endLine": line, "selectToEndOfLine": False}
        asked = {"filePath": place, "makeFrontmost": True, **wanted}
        opened = await office.act("editor", "open_file", asked)
        return str(opened["message"])


def _diagnostic(path: str, item: dict[str, Any]) -> dict[str, Any]:
    place = item.pop("range")
    start, end = place["start"], place["end"]
    return {
        "path": path,
        "line": start["line"] + 1,
        "column": start["character"] + 1,
        "end_line": end["line"] + 1,
        "end_column": end["character"] + 1,
        **item,
    }


# -- changing ------------------------------------------------------------------------------


def _add_proposing(server: Server, office: Office) -> None:
    @server.tool(destructive=False)
    async def propose_change(path: str, text: str, ctx: Context) -> str:
        """Show the user a new version of a file as a diff, and save what they accept.

        Args:
            path: Path of the file
            text: The whole new text
        """
        place = await office.path(path, to_write=True)
        workplace = await office.workplace()
        try:
            outcome = await workplace.diffs.show(ctx.session, place, place, place, text)
            if outcome.text is None:
                reason = f": {outcome.reason}" if outcome.reason else ""
                raise ToolError(f"The user rejected the change{reason}")
            write_file(place, outcome.text)
            await workplace.editor.ask("editor", "reload", place)
        except (EditorError, OSError) as error:
            raise ToolError(str(error)) from None
        changed = "" if outcome.text == text else ", changed by the user: read it again"
        return f"Saved {place}{changed}"


def _add_writing(server: Server, office: Office) -> None:
    @server.tool
    async def edit_buffer(path: str, first_line: int, last_line: int, text: str) -> str:
        """Replace lines of a buffer. It is not saved; the user can undo it.

        Args:
            path: Path of the file, which must be open
            first_line: First line to replace
            last_line: Last line to replace; first_line - 1 inserts before first_line
            text: The new lines; empty removes the old ones
        """
        place = await office.path(path, to_write=True)
        lines = text.removesuffix("\n").split("\n") if text else []
        done = await office.act("buffers", "edit", place, first_line, last_line, lines)
        return f"{place} has {done['lines']} lines now, not saved"

    @server.tool
    async def save_buffer(path: str) -> str:
        """Save a buffer to its file.

        Args:
            path: Path of the file
        """
        place = await office.path(path, to_write=True)
        if await office.act("editor", "save", place) is None:
            raise ToolError(f"{place} is not open in the editor")
        return f"Saved {place}"

    @server.tool
    async def set_quickfix(items: list[Entry], title: str = "agent") -> str:
        """Put places into a new quickfix list, for the user to walk through.

        Args:
            items: The places, in order
            title: Title of the list
        """
        placed = [
            msgspec.structs.replace(item, path=await office.path(item.path)) for item in items
        ]
        done = await office.act(
            "buffers", "set_quickfix", title, [msgspec.to_builtins(item) for item in placed]
        )
        return f"{done['count']} places in the quickfix list"


def _add_commands(server: Server, office: Office) -> None:
    @server.tool(destructive=True, open_world=True)
    async def run_command(command: str) -> str:
        """Run an Ex command in the editor and return what it prints.

        Args:
            command: The command, without a leading colon
        """
        done = await office.act("buffers", "run", command)
        return str(done["output"])
