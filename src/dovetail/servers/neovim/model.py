"""What is known of the editor: read when needed, remembered until Neovim says it is old.

Every part is either fresh or not. A part that is not fresh is read again by the
first who wants it; if the editor does not answer in time, the last known value is
served and the caller is told so.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct

from dovetail.servers.neovim.editor import Blocked, Editor, decode_json
from dovetail.servers.neovim.places import uri_of
from dovetail.servers.neovim.rpc import text_of

__all__ = ["STALE_KEY", "Known", "Model", "Selection", "Tab", "Tabs"]

T = TypeVar("T")

# In the `_meta` of an answer that came from memory, because the editor did not answer.
STALE_KEY = "dev.dovetail/stale"

# Other plugins may change buffers in ways that no autocommand tells.
EDITORS_SECONDS = 1.0

SEVERITIES = {1: "Error", 2: "Warning", 3: "Info", 4: "Hint"}


class Selection(Struct):
    path: str
    buffer: int
    text: str
    start: tuple[int, int]
    finish: tuple[int, int]
    reversed: bool
    lines: int
    dirty: bool
    empty: bool = False

    def range(self) -> dict[str, Any]:
        return {"start": _place(*self.start), "end": _place(*self.finish)}

    def wire(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "filePath": self.path,
            "fileUrl": uri_of(self.path),
            "selection": {**self.range(), "isEmpty": self.empty},
        }


class Tab(NamedTuple):
    buffer: int
    path: str
    language: str
    lines: int
    dirty: bool
    active: bool

    def wire(self) -> dict[str, Any]:
        return {
            "uri": uri_of(self.path) if self.path else f"untitled:{self.buffer}",
            "isActive": self.active,
            "isPinned": False,
            "isPreview": False,
            "isDirty": self.dirty,
            "label": self.path.rpartition("/")[2] or "[No Name]",
            "groupIndex": 0,
            "viewColumn": 1,
            "isGroupActive": True,
            "fileName": self.path,
            "languageId": self.language,
            "lineCount": self.lines,
            "isUntitled": not self.path,
        }


class Tabs:
    """The open editors. Each is encoded once: there may be hundreds, and one changes at a time."""

    def __init__(self, tabs: list[Tab]) -> None:
        self.tabs = tabs
        self._encoded = [_encoded(tab.wire()) for tab in tabs]

    def json(self, selection: Selection | None) -> str:
        """All of them, the active one as the selection shows it."""
        rows = self._encoded
        for index, tab in enumerate(self.tabs):
            if tab.active and selection is not None and tab.buffer == selection.buffer:
                now = {"lineCount": selection.lines, "isDirty": selection.dirty}
                place = {**selection.range(), "isReversed": selection.reversed}
                shown = _encoded({**tab.wire(), **now, "selection": place})
                rows = [*rows[:index], shown, *rows[index + 1 :]]
        return '{"tabs":[' + ",".join(rows) + "]}"


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class _Item(Struct):
    message: str
    severity: int
    range: tuple[int, int, int, int]
    source: str | None = None
    code: str | None = None

    def wire(self) -> dict[str, Any]:
        line, column, last, last_column = self.range
        shape: dict[str, Any] = {
            "message": self.message,
            "severity": SEVERITIES.get(self.severity, "Info"),
            "range": {"start": _place(line, column), "end": _place(last, last_column)},
        }
        if self.source is not None:
            shape["source"] = self.source
        if self.code is not None:
            shape["code"] = self.code
        return shape


_Rows = list[tuple[int, str, list[_Item]]]


def _place(line: int, character: int) -> dict[str, int]:
    return {"line": line, "character": character}


class Known(NamedTuple, Generic[T]):
    """A value, and why it may be old (None if it is not)."""

    value: T
    stale: str | None = None

    @property
    def meta(self) -> dict[str, Any] | None:
        return None if self.stale is None else {STALE_KEY: self.stale}


class Part(Generic[T]):
    """One value of the editor's, with at most one reading under way."""

    def __init__(self, value: T, read: Callable[[], Awaitable[T]]) -> None:
        self.value = value
        self.fresh = False
        self.watched = False  # whether we would hear of a change; if not, nothing stays fresh
        self._read = read
        self._reading: asyncio.Task[T] | None = None
        self._age = 0  # how often it has become old

    def set(self, value: T) -> None:
        self.value = value
        self.fresh = self.watched

    def expire(self) -> None:
        self.fresh = False
        self._age += 1

    async def get(self) -> Known[T]:
        if self.fresh:
            return Known(self.value)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._refresh())
        try:
            return Known(await asyncio.shield(self._reading))
        except Blocked as error:
            return Known(self.value, str(error))

    async def _refresh(self) -> T:
        age = self._age
        value = await self._read()
        self.value = value
        self.fresh = self.watched and age == self._age
        return value


class Model:
    """The parts, and what the editor's events do to them."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.latest: Selection | None = None
        self.settings: dict[str, bool] = {}
        self._selection = Part[Selection | None](None, self._read_selection)
        self._editors = Part[Tabs](Tabs([]), self._read_editors)
        self._folders = Part[list[str]]([], self._read_folders)
        self._diagnostics = Part[dict[str, bytes]]({}, self._read_diagnostics)
        self._old_buffers: set[int] | None = None  # whose diagnostics changed; None: any
        self._paths: dict[int, str] = {}  # of the buffers that have diagnostics
        self._editors_read = 0.0
        self.on_selection: list[Callable[[Selection], None]] = []
        self.on_diagnostics: list[Callable[[int], None]] = []
        self.on_folders: list[Callable[[], None]] = []
        editor.on("stale", self._selection.expire)
        editor.on("fresh", self._fresh)
        editor.on("selection", self._selected)
        editor.on("editors", self._editors.expire)
        editor.on("folders", self._folders_changed)
        editor.on("diagnostics", self._diagnosed)

    async def start(self) -> None:
        """Read everything once, so that there is something to say if the editor is blocked."""
        raw = await self.editor.ask("editor", "snapshot", kind=dict[str, Raw])
        self.settings = decode_json(bytes(raw["settings"]), dict[str, bool])
        self.editor.pid = decode_json(bytes(raw["pid"]), int)
        self._selection.value = self._note(_selection(bytes(raw["selection"])))
        self._editors.value = Tabs(decode_json(bytes(raw["editors"]), list[Tab]))
        self._folders.value = decode_json(bytes(raw["folders"]), list[str])
        self._take_diagnostics(decode_json(bytes(raw["diagnostics"]), _Rows))

    async def listen(self, wants: dict[str, bool] | None) -> None:
        """Be told of changes, or no more."""
        await self.editor.ask("watch", "listen", self.editor.channel, wants)
        parts: list[Part[Any]] = [self._selection, self._editors, self._diagnostics]
        for part in parts:
            if part.watched != (wants is not None):
                part.watched = wants is not None
                part.expire()
                self._old_buffers = None

    async def follow_folders(self) -> None:
        """Be told of folders for good."""
        await self.editor.ask("watch", "follow_folders", self.editor.channel)
        self._folders.watched = True

    # -- selection -----------------------------------------------------------------------

    async def selection(self) -> Known[Selection | None]:
        return await self._selection.get()

    async def _read_selection(self) -> Selection | None:
        kind = Selection | None
        return self._note(await self.editor.read("watch", "read", "selection", kind=kind))

    def _note(self, selection: Selection | None) -> Selection | None:
        if selection is not None:
            self.latest = selection
        return selection

    def _fresh(self) -> None:
        self._selection.set(self._selection.value)

    def _selected(self, raw: Raw) -> None:
        selection = self._note(_selection(text_of(raw)))
        self._selection.set(selection)
        if selection is not None:
            for listener in self.on_selection:
                listener(selection)

    # -- editors and folders ---------------------------------------------------------------

    async def editors(self) -> Known[Tabs]:
        if time.monotonic() - self._editors_read > EDITORS_SECONDS:
            self._editors.expire()
        return await self._editors.get()

    async def _read_editors(self) -> Tabs:
        tabs = Tabs(await self.editor.read("watch", "read", "editors", kind=list[Tab]))
        self._editors_read = time.monotonic()
        return tabs

    async def folders(self) -> Known[list[str]]:
        return await self._folders.get()

    @property
    def known_folders(self) -> list[str]:
        return self._folders.value

    async def _read_folders(self) -> list[str]:
        folders: list[str] = await self.editor.read("watch", "read", "folders", kind=list[str])
        return folders

    def _folders_changed(self) -> None:
        self._folders.expire()
        for listener in self.on_folders:
            listener()

    # -- diagnostics -----------------------------------------------------------------------

    async def diagnostics(self) -> Known[dict[str, bytes]]:
        """Path -> the JSON array of its diagnostics, for files that have any."""
        return await self._diagnostics.get()

    async def _read_diagnostics(self) -> dict[str, bytes]:
        old, self._old_buffers = self._old_buffers, set()
        wanted = None if old is None else sorted(old)
        try:
            self._take_diagnostics(
                await self.editor.read("watch", "read", "diagnostics", wanted, kind=_Rows),
                wanted is None,
            )
        except BaseException:  # whatever it was, they are still to be read
            self._old_buffers = None
            raise
        return self._diagnostics.value

    def _take_diagnostics(self, rows: _Rows, all_of_them: bool = True) -> None:
        if all_of_them:
            self._paths.clear()
            self._diagnostics.value = {}
        known = self._diagnostics.value
        for buffer, path, items in rows:
            known.pop(self._paths.pop(buffer, ""), None)
            if items:
                self._paths[buffer] = path
                known[path] = msgspec.json.encode([item.wire() for item in items])

    def _diagnosed(self, raw: Raw) -> None:
        buffer: int = msgspec.msgpack.decode(raw, type=int)
        if self._old_buffers is not None:
            self._old_buffers.add(buffer)
        self._diagnostics.expire()
        for listener in self.on_diagnostics:
            listener(buffer)

    def path_of_buffer(self, buffer: int) -> str | None:
        return self._paths.get(buffer)


def _selection(data: bytes) -> Selection | None:
    selection: Selection | None = decode_json(data, Selection | None)
    return selection
