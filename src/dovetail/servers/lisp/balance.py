"""Whether the parentheses of a text close, before anything of it is evaluated."""

import re
from collections.abc import Iterator

from msgspec import Struct

__all__ = ["Imbalance", "imbalance", "partner", "place_of"]

# What can hide or open a delimiter, in the order they must be tried. ``#\\(`` is a
# character, ``|(|`` and ``\\(`` are parts of symbols.
_TOKEN = re.compile(
    r"""
      (?P<skip> \#\\. [^\s()"';`,|]* | \\. | ;[^\n]* | "(?:[^"\\]|\\.)*" | \|(?:[^|\\]|\\.)*\| )
    | (?P<block> \#\| )
    | (?P<open> \( )
    | (?P<close> \) )
    | (?P<quote> ["|] )
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK = re.compile(r"#\||\|#")


class Imbalance(Struct):
    type: str
    line: int
    column: int
    problem: str
    hint: str

    @property
    def message(self) -> str:
        return f"{self.problem}\n{self.hint}\nNothing was evaluated."


def imbalance(code: str) -> Imbalance | None:
    """The first thing that is wrong, with the line to look at."""
    opened: list[int] = []
    for kind, start in _delimiters(code):
        if kind == "open":
            opened.append(start)
        elif kind != "close":
            what, ending = _ENDINGS[kind]
            return _unended(code, start, what, ending)
        elif not opened:
            return _extra(code, start)
        else:
            opened.pop()
    return _unclosed(code, opened) if opened else None


def partner(code: str, position: int) -> int | None:
    """Where the parenthesis is that belongs to the one at ``position``."""
    opened: list[int] = []
    for kind, start in _delimiters(code):
        if kind == "open":
            opened.append(start)
        elif kind == "close" and opened:
            pair = opened.pop(), start
            if position in pair:
                return pair[position == pair[0]]
    return None


_ENDINGS = {
    "block": ("block comment #|", "|#"),
    '"': ("string", '"'),
    "|": ("symbol in |bars|", "|"),
}


def _delimiters(code: str) -> Iterator[tuple[str, int]]:
    """Parentheses in order, and at last what does not end: a string, a symbol, a comment."""
    position = 0
    while found := _TOKEN.search(code, position):
        position = found.end()
        kind = found.lastgroup or ""
        if kind == "block":
            end = _block_end(code, position)
            if end is not None:
                position = end
                continue
        if kind != "skip":
            yield (found.group() if kind == "quote" else kind), found.start()
        if kind in ("block", "quote"):
            return


def _block_end(code: str, position: int) -> int | None:
    """Block comments nest."""
    depth = 1
    for found in _BLOCK.finditer(code, position):
        depth += 1 if found.group() == "#|" else -1
        if depth == 0:
            return found.end()
    return None


def place_of(code: str, position: int) -> tuple[int, int]:
    """Line from 1, column from 1."""
    return code.count("\n", 0, position) + 1, position - code.rfind("\n", 0, position)


def _line_text(code: str, line: int) -> str:
    text = code.split("\n")[line - 1].strip()
    return text if len(text) <= 60 else f"{text[:60]}…"


def _extra(code: str, position: int) -> Imbalance:
    line, column = place_of(code, position)
    problem = f"Extra closing parenthesis at line {line}, column {column}: {_line_text(code, line)}"
    hint = "Hint: remove it, or add the opening parenthesis that it should match."
    return Imbalance("READER-ERROR", line, column, problem, hint)


def _unended(code: str, position: int, what: str, ending: str) -> Imbalance:
    line, column = place_of(code, position)
    problem = f"The {what} that starts at line {line}, column {column} does not end."
    return Imbalance("END-OF-FILE", line, column, problem, f"Hint: add {ending} where it ends.")


def _unclosed(code: str, opened: list[int]) -> Imbalance:
    """A form that starts at the margin inside another is most often where the lack shows."""
    line, column = place_of(code, _culprit(code, opened))
    count = len(opened)
    problem = (
        f"{count} unclosed parenthes{'is' if count == 1 else 'es'}; the first to look at opens "
        f"at line {line}, column {column}: {_line_text(code, line)}"
    )
    hint = f"Hint: add {')' * min(count, 20)} at the end of that form."
    return Imbalance("END-OF-FILE", line, column, problem, hint)


def _culprit(code: str, opened: list[int]) -> int:
    """The last open one before the next top-level form, or else the outermost."""
    margins = [at for at in opened[1:] if at == 0 or code[at - 1] == "\n"]
    if not margins:
        return opened[0]
    return next(at for at in reversed(opened) if at < margins[-1])
