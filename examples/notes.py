"""A notebook that a model can write to, search and read.

The notes are kept in the JSON file named by the environment variable
NOTES_FILE, or in ``dovetail/notes.json`` of the user's state directory.
"""

import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from dovetail import ResourceNotFound, Server, ToolError

server = Server(
    "notes",
    version="1.0.0",
    title="Notebook",
    instructions="Add what is worth remembering, and search before you ask the user again.",
)

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
Tag = Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]{1,40}$")]


class Note(msgspec.Struct):
    """One note of the notebook."""

    id: int
    text: str
    tags: list[str]
    created: datetime


class Notebook:
    """The notes of one file. Tools run in threads, so changes take turns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def notes(self) -> list[Note]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[Note])
        except FileNotFoundError:
            return []

    def add(self, text: str, tags: list[str]) -> Note:
        with self._lock:
            notes = self.notes()
            id = max((note.id for note in notes), default=0) + 1
            note = Note(id, text, tags, datetime.now(UTC))
            self._write([*notes, note])
        return note

    def remove(self, id: int) -> Note | None:
        with self._lock:
            notes = self.notes()
            found = next((note for note in notes if note.id == id), None)
            if found is not None:
                self._write([note for note in notes if note is not found])
        return found

    def find(self, id: int) -> Note | None:
        return next((note for note in self.notes() if note.id == id), None)

    def _write(self, notes: list[Note]) -> None:
        """Replace the file in one step, so that a crash leaves the old notes."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(self._path.name + ".new")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(notes), indent=2) + b"\n")
        draft.replace(self._path)


def notes_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(os.environ.get("NOTES_FILE") or Path(state) / "dovetail" / "notes.json")


notebook = Notebook(notes_file())


@server.tool(title="Add a note", destructive=False)
def add_note(text: Text, tags: list[Tag] | None = None) -> Note:
    """Keep a note.

    Args:
        text: What to remember.
        tags: Words to find it by, in lower case.
    """
    return notebook.add(text, tags or [])


@server.tool(title="Search the notes", read_only=True)
def search_notes(query: str, tag: Tag | None = None) -> list[Note]:
    """Find notes that contain a text, in any case.

    Args:
        query: The text to look for; an empty one finds every note.
        tag: Only notes that carry this tag.
    """
    return [
        note
        for note in notebook.notes()
        if query.casefold() in note.text.casefold() and (tag is None or tag in note.tags)
    ]


@server.tool(title="List the notes", read_only=True)
def list_notes(limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 50) -> list[Note]:
    """List the newest notes first.

    Args:
        limit: How many at most.
    """
    return notebook.notes()[::-1][:limit]


@server.tool(title="Remove a note", destructive=True, idempotent=False)
def remove_note(id: int) -> Note:
    """Remove a note for good and return what it said.

    Args:
        id: The number of the note.
    """
    note = notebook.remove(id)
    if note is None:
        raise ToolError(f"There is no note {id}; list_notes shows those there are")
    return note


@server.resource("notes://{id}", name="note", mime_type="text/plain")
def read_note(id: int) -> str:
    """The text of one note."""
    found = notebook.find(id)
    if found is None:
        raise ResourceNotFound(f"notes://{id}")
    return found.text


@read_note.complete("id")
def complete_id(prefix: str) -> list[str]:
    return [str(note.id) for note in notebook.notes() if str(note.id).startswith(prefix)]


@server.prompt(title="Summarise the notes")
def summarise(tag: str | None = None) -> str:
    """Ask for a summary of the notes.

    Args:
        tag: Only notes that carry this tag.
    """
    chosen = [note for note in notebook.notes() if tag is None or tag in note.tags]
    listed = "\n".join(f"- {note.text} (note {note.id})" for note in chosen)
    return f"Summarise these notes in a few sentences, and cite their numbers:\n\n{listed}"


@summarise.complete("tag")
def complete_tag(prefix: str) -> list[str]:
    tags = {tag for note in notebook.notes() for tag in note.tags}
    return sorted(tag for tag in tags if tag.startswith(prefix))


if __name__ == "__main__":
    server.run()
