"""The file by which Claude Code finds the editor: ``<dir>/ide/<port>.lock``."""

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["IDE_NAME", "LockFile", "directory", "remove_stale"]

IDE_NAME = "Neovim"


def directory() -> Path:
    """Where Claude Code looks; it obeys the same variable."""
    config = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(config) if config else Path.home() / ".claude") / "ide"


def _own_directory() -> Path:
    """The directory, ours alone: whoever can write there decides whom clients talk to."""
    place = directory()
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    found = place.lstat()
    if place.is_symlink() or found.st_uid != os.getuid():
        raise PermissionError(f"{place} is a symbolic link or belongs to somebody else")
    if found.st_mode & 0o077:
        place.chmod(0o700)
    return place


class LockFile:
    """Ours. Written in one step, because clients delete what they cannot read."""

    def __init__(self, port: int, pid: int, token: str) -> None:
        self.path = _own_directory() / f"{port}.lock"
        self._pid = pid
        self._token = token

    def write(self, folders: list[str]) -> None:
        content = {
            "pid": self._pid,  # Neovim's: its life is what clients look at
            "workspaceFolders": folders,
            "ideName": IDE_NAME,
            "transport": "ws",
            "authToken": self._token,
            "runningInWindows": False,
        }
        descriptor, temporary = tempfile.mkstemp(dir=self.path.parent)  # O_EXCL, 0600
        with open(descriptor, "w") as file:
            json.dump(content, file)
        os.replace(temporary, self.path)

    def remove(self) -> None:
        """Only if it is still ours: another editor may have got the port since."""
        if _read(self.path).get("authToken") == self._token:
            self.path.unlink(missing_ok=True)


def remove_stale() -> None:
    """Remove what editors of our kind left behind when they were killed."""
    for path in directory().glob("*.lock"):
        content = _read(path)
        pid = content.get("pid")
        if content.get("ideName") == IDE_NAME and isinstance(pid, int) and not _is_alive(pid):
            path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        content = json.loads(path.read_bytes())
        if isinstance(content, dict):
            return content
    return {}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(max(pid, 1), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
