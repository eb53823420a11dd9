"""Whether the parentheses of a text close, before anything of it is evaluated."""

import re

from msgspec import Struct

__all__ = ["Imbalance", "imbalance"]

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
    position = 0
    while found := _TOKEN.search(code, position):
        position = found.end()
        kind = found.lastgroup
        if kind == "open":
            opened.append(found.start())
        elif kind == "close":
            if not opened:
                return _extra(code, found.start())
            opened.pop()
        elif kind == "block":
            end = _block_end(code, position)
            if end is None:
                return _unended(code, found.start(), "block comment #|", "|#")
            position = end
        elif kind == "quote":
            what = "string" if found.group() == '"' else "symbol in |bars|"
            return _unended(code, found.start(), what, found.group())
    return _unclosed(code, opened) if opened else None


def _block_end(code: str, position: int) -> int | None:
    """Block comments nest."""
    depth = 1
    for found in _BLOCK.finditer(code, position):
        depth += 1 if found.group() == "#|" else -1
        if depth == 0:
            return found.end()
    return None


def _place(code: str, position: int) -> tuple[int, int]:
    """Line from 1, column from 1."""
    return code.count("\n", 0, position) + 1, position - code.rfind("\n", 0, position)


def _line_text(code: str, line: int) -> str:
    text = code.split("\n")[line - 1].strip()
    return text if len(text) <= 60 else f"{text[:60]}…"


def _extra(code: str, position: int) -> Imbalance:
    line, column = _place(code, position)
    problem = f"Extra closing parenthesis at line {line}, column {column}: {_line_text(code, line)}"
    hint = "Hint: remove it, or add the opening parenthesis that it should match."
    return Imbalance("READER-ERROR", line, column, problem, hint)


def _unended(code: str, position: int, what: str, ending: str) -> Imbalance:
    line, column = _place(code, position)
    problem = f"The {what} that starts at line {line}, column {column} does not end."
    return Imbalance("END-OF-FILE", line, column, problem, f"Hint: add {ending} where it ends.")


def _unclosed(code: str, opened: list[int]) -> Imbalance:
    """A form that starts at the margin inside another is most often where the lack shows."""
    line, column = _place(code, _culprit(code, opened))
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
