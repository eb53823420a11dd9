"""Which Neovim an agent works with: the one named, the one around us, or the one at our place."""

import asyncio
import glob
import os
import tempfile
from typing import Protocol

from dovetail.servers.neovim.confirm import Confirm
from dovetail.servers.neovim.diffs import Diffs
from dovetail.servers.neovim.editor import Editor, EditorError, TooOld
from dovetail.servers.neovim.lsp import Lsp
from dovetail.servers.neovim.model import Model

__all__ = ["Desk", "Finder", "Workplace", "sockets"]

ATTACH_SECONDS = 1.0  # a Neovim that is blocked does not keep us from the next one


class Workplace:
    """An editor and what we keep about it."""

    def __init__(self, editor: Editor, model: Model | None = None, diffs: Diffs | None = None):
        self.editor = editor
        self.model = model or Model(editor)
        self.diffs = diffs or Diffs(editor)
        self.confirm = Confirm(editor)
        self.lsp = Lsp(editor)
        self._wants: dict[str, dict[str, bool]] = {}

    async def listen(self, who: str, wants: dict[str, bool] | None) -> None:
        """Be told of changes for ``who``, or for them no more."""
        if wants is None:
            self._wants.pop(who, None)
        else:
            self._wants[who] = wants
        together: dict[str, bool] = {}
        for wish in self._wants.values():
            together |= {name: True for name, wanted in wish.items() if wanted}
        await self.model.listen(together or None)


class Desk(Protocol):
    """Where tools find the editor."""

    async def workplace(self) -> Workplace: ...


def sockets() -> list[str]:
    """The sockets that running Neovims of this user listen on, newest first."""
    places = [
        os.path.join(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent", "nvim.*.0"),
        os.path.join(tempfile.gettempdir(), f"nvim.{_user()}", "*", "nvim.*.0"),
    ]
    found = {path for place in places for path in glob.glob(place)}
    return sorted(found, key=_modified, reverse=True)


def _user() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or "*"


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


class Finder:
    """Attaches when first needed, and again when the editor was left and another started."""

    def __init__(self, address: str | None = None, directory: str | None = None) -> None:
        self._address = address or os.environ.get("NVIM")
        self._directory = os.path.realpath(directory or os.getcwd())
        self._found: Workplace | None = None
        self._finding = asyncio.Lock()

    async def workplace(self) -> Workplace:
        async with self._finding:
            if self._found is None or self._found.editor.gone:
                self._found = await self._attach()
            return self._found

    async def _attach(self) -> Workplace:
        editor = await (Editor.on_socket(self._address) if self._address else self._nearest())
        workplace = Workplace(editor)
        await workplace.model.start()
        return workplace

    async def _nearest(self) -> Editor:
        """Of the editors whose directory holds ours, or lies in it, the closest one."""
        best: tuple[int, Editor] | None = None
        problems: list[str] = []
        for address in sockets():
            try:
                async with asyncio.timeout(ATTACH_SECONDS):
                    editor = await Editor.on_socket(address)
                    folders = await editor.ask("editor", "folders", kind=list[str])
            except TooOld as error:
                problems.append(str(error))
                continue
            except (EditorError, TimeoutError):
                continue
            rank = max((_closeness(self._directory, folder) for folder in folders), default=0)
            if rank and (best is None or rank > best[0]):
                if best is not None:
                    best[1].close()
                best = (rank, editor)
            else:
                editor.close()
        if best is None:
            raise EditorError(
                problems[0]
                if problems
                else f"No Neovim works in {self._directory}: start one there, "
                "or name its socket with --editor (:echo v:servername)"
            )
        return best[1]


def _closeness(here: str, folder: str) -> int:
    """How many parts of the path both share, if one lies in the other; else 0."""
    real = os.path.realpath(folder)
    common = os.path.commonpath([here, real])
    return len(common.strip("/").split("/")) if common != "/" and common in (here, real) else 0
