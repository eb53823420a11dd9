"""Where in a JSON text something stands: for messages that name the line to change."""

from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import NUMBER_RE

__all__ = ["Path", "line_of", "repeated_key"]

Path = tuple[str | int, ...]
_SPACE = " \t\r\n"


def line_of(text: str, path: Path) -> int:
    """The line of the value at ``path``, or of the innermost part of it that is there."""
    best, found = 0, -1
    for place, at in _places(text):
        if len(place) > found and place == path[: len(place)]:
            best, found = at, len(place)
            if found == len(path):
                break
    return text.count("\n", 0, best) + 1


def repeated_key(text: str) -> Path | None:
    """A key that an object has twice; JSON leaves open which of the two counts."""
    seen: set[Path] = set()
    for place, _ in _places(text):
        if place in seen:
            return place
        seen.add(place)
    return None


def _places(text: str) -> Iterator[tuple[Path, int]]:
    """Every value of a valid JSON text with its path and where it begins (a key, in objects)."""
    yield (), 0
    try:
        yield from _inside(text, _skip(text, 0), ())
    except (IndexError, ValueError, RecursionError):
        return  # not valid: what was found so far has to do


def _inside(text: str, at: int, path: Path) -> Iterator[tuple[Path, int]]:
    """The parts of the value at ``at``, last its end under the path ``()``."""
    if text[at] not in "[{":
        return
    is_object, number = text[at] == "{", 0
    at = _skip(text, at + 1)
    while text[at] not in "]}":
        start = at
        key: str | int = number
        if is_object:
            key, at = scanstring(text, at + 1)
            at = _skip(text, _skip(text, at) + 1)  # the colon
        yield (*path, key), start
        yield from _inside(text, at, (*path, key))
        at = _skip(text, _end(text, at))
        if text[at] == ",":
            at = _skip(text, at + 1)
        number += 1


def _end(text: str, at: int) -> int:
    """Where the value at ``at`` ends."""
    if text[at] == '"':
        end: int = scanstring(text, at + 1)[1]
        return end
    if text[at] not in "[{":
        number = NUMBER_RE.match(text, at)
        return number.end() if number else at + (5 if text[at] == "f" else 4)
    depth = 0
    while True:
        if text[at] == '"':
            at = scanstring(text, at + 1)[1]
            continue
        depth += (text[at] in "[{") - (text[at] in "]}")
        at += 1
        if depth == 0:
            return at


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
