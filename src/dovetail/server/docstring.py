"""Reads descriptions out of docstrings: Google, numpy and reST styles."""

import inspect
import re
from collections.abc import Callable
from typing import Any

_GOOGLE = (
    r"(Args|Arguments|Parameters|Params|Returns?|Raises|Yields|Examples?|Notes?|Attributes):\s*\Z"
)
_NUMPY_RULE = r"-{3,}\s*\Z"
_REST = r":(param|type|returns?|rtype|raises?)\b\s*([^:]*):\s*(.*)\Z"
_GOOGLE_ITEM = r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)\Z"
_NUMPY_ITEM = r"\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?\Z"
_PARAMETERS = frozenset({"Args", "Arguments", "Parameters", "Params", "Other Parameters"})
_NUMPY_SECTIONS = _PARAMETERS | {
    "Returns",
    "Yields",
    "Raises",
    "Examples",
    "Notes",
    "See Also",
    "References",
    "Attributes",
    "Warns",
    "Receives",
}
# These tell the model how to use the tool, so they stay in the description.
_KEPT = frozenset({"Example", "Examples", "Note", "Notes", "See Also", "References"})


def describe(fn: Callable[..., Any]) -> tuple[str | None, dict[str, str]]:
    """The description of a function and of its parameters."""
    doc = getattr(fn, "__doc__", None)
    # An instance (a partial, a callable object) would answer with the text of its class.
    if not doc or (not inspect.isroutine(fn) and doc == type(fn).__doc__):
        return None, {}
    return parse(inspect.cleandoc(doc))


def parse(doc: str) -> tuple[str | None, dict[str, str]]:
    """Split a cleaned docstring into description and parameter texts."""
    if "\n" not in doc and not doc.startswith(":"):
        return doc.strip() or None, {}
    lines = doc.split("\n")
    kept: list[str] = []
    found: dict[str, str] = {}
    at = 0
    while at < len(lines):
        at = _section(lines, at, kept, found)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return text or None, found


def _section(lines: list[str], at: int, kept: list[str], found: dict[str, str]) -> int:
    """Take one line or one whole section; the number of the next line."""
    line = lines[at]
    if match := re.match(_GOOGLE, line):
        end = _block_end(lines, at + 1)
        if end > at + 1:
            return _take(match[1], lines, at, at + 1, end, _GOOGLE_ITEM, kept, found)
    elif (
        line.strip() in _NUMPY_SECTIONS
        and at + 1 < len(lines)
        and re.match(_NUMPY_RULE, lines[at + 1])
    ):
        end = _numpy_end(lines, at + 2)
        return _take(line.strip(), lines, at, at + 2, end, _NUMPY_ITEM, kept, found)
    elif match := re.match(_REST, line):
        end = _rest_end(lines, at + 1)
        if match[1] == "param" and match[2].split():
            found[match[2].split()[-1]] = _join([match[3], *lines[at + 1 : end]])
        return end
    kept.append(line)
    return at + 1


def _take(
    name: str,
    lines: list[str],
    at: int,
    start: int,
    end: int,
    item: str,
    kept: list[str],
    found: dict[str, str],
) -> int:
    if name in _PARAMETERS:
        found.update(_items(lines[start:end], item))
    elif name in _KEPT:
        kept += lines[at:end]
    return end


def _items(lines: list[str], item: str) -> dict[str, str]:
    """``name: text`` entries; deeper lines belong to the entry above them."""
    indent = min((_indent(line) for line in lines if line.strip()), default=0)
    texts: dict[str, list[str]] = {}
    names: list[str] = []
    for line in lines:
        match = re.match(item, line.strip()) if _indent(line) == indent and line.strip() else None
        if match:
            names = re.split(r"\s*,\s*", match[1])
            # numpy puts the type after the colon, Google the text.
            first = [match[2]] if item == _GOOGLE_ITEM else []
            texts.update({name: list(first) for name in names})
        else:
            for name in names:
                texts[name].append(line)
    return {name: text for name, part in texts.items() if (text := _join(part))}


def _join(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _block_end(lines: list[str], at: int) -> int:
    while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > 0):
        at += 1
    return at


def _rest_end(lines: list[str], at: int) -> int:
    while at < len(lines) and lines[at].strip() and _indent(lines[at]) > 0:
        at += 1
    return at


def _numpy_end(lines: list[str], at: int) -> int:
    """The section runs to the next underlined heading."""
    while at < len(lines) and not (at + 1 < len(lines) and re.match(_NUMPY_RULE, lines[at + 1])):
        at += 1
    return at
