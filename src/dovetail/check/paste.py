"""A conversation as a command that can be pasted into a shell."""

import shlex
from collections.abc import Iterable, Sequence

from dovetail.check.conversation import Writer, written
from dovetail.spec.revisions import Revision

__all__ = ["curl", "pipe"]


def pipe(command: Sequence[str], revision: Revision, frames: Iterable[bytes]) -> str:
    """The frames, with the greeting before them, as standard input of a server."""
    lines = [*_opening(revision), *frames]
    quoted = "".join(f"  {_shell(line)} \\\n" for line in lines)
    return f"printf '%b\\n' \\\n{quoted}  | {shlex.join(command)}"


def curl(url: str, headers: dict[str, str], frame: bytes) -> str:
    """One frame as an HTTP request."""
    fields = " ".join(f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items())
    return f"printf '%b' {_shell(frame)} | curl -sS {fields} --data-binary @- {shlex.quote(url)}"


def _opening(revision: Revision) -> list[bytes]:
    if revision.modern:
        return []
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    return [written(Writer(revision).greeting()), written(ready)]


def _shell(line: bytes) -> str:
    """Quoted for `printf %b`: bytes that are not plain text as escapes."""
    text = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\\'" else f"\\0{byte:03o}"
        for byte in line
    )
    return f"'{text}'"
