"""The diffs that wait for the user: each is settled once, whatever ends it."""

import asyncio
import itertools
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Raw, Struct

from dovetail.servers.neovim.editor import Editor, EditorError
from dovetail.servers.neovim.places import read_regular
from dovetail.servers.neovim.rpc import text_of, value_of

__all__ = ["Diffs", "Outcome", "write_file"]


class Outcome(Struct, frozen=True):
    """How a diff ended: with the text to save, or without one and perhaps with a reason."""

    text: str | None = None
    reason: str | None = None


REJECTED = Outcome()


class _Diff(Struct, eq=False):
    id: int
    owner: Any  # the session that asked for it
    name: str
    path: str
    proposed: str
    ended: "asyncio.Future[Outcome]"


class Diffs:
    """Those of one editor, by the number Neovim knows them by."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._open: dict[int, _Diff] = {}
        self._numbers = itertools.count(1)
        self.on_end: list[Callable[[str, bool], None]] = []  # path, and whether it was accepted
        editor.on("diff", self._decided)

    def __len__(self) -> int:
        return len(self._open)

    async def show(self, owner: Any, name: str, path: str, target: str, text: str) -> Outcome:
        """Show a proposal and wait for its end; EditorError if it cannot be shown.

        Whatever ends the wait (a cancelled request, a client that is gone) closes the diff.
        """
        old = await asyncio.to_thread(_read, path)
        self.close(owner, name)  # the same name again: the newer one counts
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        diff = _Diff(next(self._numbers), owner, name, target, text, ended)
        self._open[diff.id] = diff
        try:
            options = {
                "id": diff.id,
                "channel": self._editor.channel,
                "path": target,
                "old_path": path,
                "tab_name": name,
                "old": old,
                "new": text.encode(),
            }
            await self._editor.ask("diff", "open", options)
            return await ended
        finally:
            if self._open.pop(diff.id, None) is not None:
                self._hide(diff)
            self._tell(diff)

    def _tell(self, diff: _Diff) -> None:
        ended = diff.ended
        whole = ended.done() and not ended.cancelled() and ended.exception() is None
        for listener in self.on_end:
            listener(diff.path, whole and ended.result().text is not None)

    def close(self, owner: Any, name: str | None = None) -> list[str]:
        """Reject the diffs of an owner, all or those of a name; the paths they were for."""
        found = [
            diff
            for diff in self._open.values()
            if diff.owner is owner and name in (None, diff.name) and not diff.ended.done()
        ]
        for diff in found:
            diff.ended.set_result(REJECTED)
            del self._open[diff.id]
            self._hide(diff)
        return [diff.path for diff in found]

    def close_all(self) -> None:
        """The editor is gone."""
        for owner in {id(diff.owner): diff.owner for diff in self._open.values()}.values():
            self.close(owner)

    def _hide(self, diff: _Diff) -> None:
        """Neovim does what it is told in order, so a diff that is still opening closes too."""
        if not self._editor.gone:
            code = "require('dovetail.diff').close(...)"
            self._editor.link.notify("nvim_exec_lua", code, [diff.id])

    def _decided(self, id: Raw, outcome: Raw, text: Raw, reason: Raw) -> None:
        diff = self._open.pop(value_of(id), None)
        if diff is None or diff.ended.done():
            return
        if value_of(outcome) != "accepted":
            words = None if bytes(reason) == b"\xc0" else text_of(reason).decode(errors="replace")
            diff.ended.set_result(Outcome(reason=words))
            return
        try:
            final = diff.proposed if bytes(text) == b"\xc0" else text_of(text).decode()
        except UnicodeDecodeError:
            problem = "The accepted text is not UTF-8: saving it would damage the file"
            diff.ended.set_exception(EditorError(problem))
        else:
            diff.ended.set_result(Outcome(text=final))


def _read(path: str) -> bytes:
    try:
        return read_regular(path) or b""
    except OSError as error:
        raise EditorError(f"Cannot read {path}: {error.strerror or error}") from None


def write_file(path: str, text: str) -> None:
    """Replace a file in one step, its mode kept: a crash leaves the old one or the new one."""
    real = os.path.realpath(path)
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(real), prefix=".dovetail-")
    try:
        with open(descriptor, "wb") as file:
            file.write(text.encode())
        mode = 0o666 & ~_umask()
        with suppress(FileNotFoundError):
            mode = os.stat(real).st_mode & 0o7777
        os.chmod(temporary, mode)
        os.replace(temporary, real)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
