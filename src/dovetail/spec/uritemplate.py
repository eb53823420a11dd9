"""URI templates: RFC 6570 levels 1 to 3, expanded and matched.

Matching is our own, because RFC 6570 only defines expansion:

- ``{x}``, ``{.x}``, ``{/x}`` take one or more characters, never ``/ ? #``;
  ``{+x}`` and ``{#x}`` take reserved characters too.
- ``{;a,b}``, ``{?a,b}``, ``{&a,b}`` are optional and take their parameters in
  any order, each at most once, and no others; a variable before them never
  takes the character they begin with.
- Of several ways to match, the one with the longest leading values wins.

Values come percent-decoded: a ``%2F`` becomes ``/``, so a value is not safe as
a file name just because ``{x}`` cannot match a slash.

Time is linear in the length of the URI, whatever it contains: a variable that
failed to end at some position is never tried there again (see ``_Match``).
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote, unquote

__all__ = ["UriTemplate"]

_RESERVED = ":/?#[]@!$&'()*+,;="
_UNRESERVED = "-._~"  # besides letters and digits, which quote() always keeps
_NAME = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*\Z")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LITERAL_ERROR = re.compile(r"[\x00-\x20\"'<>\\^`|}\x7f]|" + _BAD_PERCENT.pattern)


class _Operator(NamedTuple):
    first: str
    separator: str
    named: bool = False
    reserved: bool = False


# RFC 6570, appendix A.
_OPERATORS = {
    "": _Operator("", ","),
    "+": _Operator("", ",", reserved=True),
    "#": _Operator("#", ",", reserved=True),
    ".": _Operator(".", "."),
    "/": _Operator("/", "/"),
    ";": _Operator(";", ";", named=True),
    "?": _Operator("?", "&", named=True),
    "&": _Operator("&", "&", named=True),
}


class _Text(NamedTuple):
    text: str


class _Variable(NamedTuple):
    name: str
    stops: frozenset[str]  # characters it never takes


class _Parameters(NamedTuple):
    operator: _Operator
    names: tuple[str, ...]
    stops: frozenset[str]


_Atom = _Text | _Variable | _Parameters


class UriTemplate:
    """A parsed template; ValueError if it is malformed or beyond level 3."""

    __slots__ = ("_atoms", "_parts", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = list(_parse(text))
        self.names = tuple(
            name for part in self._parts if not isinstance(part, str) for name in part[1]
        )
        for at, name in enumerate(self.names):
            if name in self.names[:at]:
                raise ValueError(f"URI template {text!r}: variable '{name}' appears twice")
        self._atoms = _atoms(text, self._parts)

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def expand(self, **values: str | int | float | None) -> str:
        """The URI; None leaves a variable out, and query parameters may be missing."""
        if surplus := values.keys() - set(self.names):
            raise ValueError(f"{self!r} has no variable {', '.join(sorted(surplus))}")
        return "".join(
            part if isinstance(part, str) else _expand(*part, values, self) for part in self._parts
        )

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables of a URI, percent-decoded, or None."""
        try:
            uri = _normal(uri)
            if _BAD_PERCENT.search(uri):
                return None
            found = _Match(self._atoms, uri).run()
            return None if found is None else {name: _decode(raw) for name, raw in found}
        except UnicodeError:  # lone surrogates, or percent-encoded bytes that are not UTF-8
            return None


_Part = str | tuple[_Operator, tuple[str, ...]]


def _parse(text: str) -> Iterator[_Part]:
    at = 0
    while at < len(text):
        start = text.find("{", at)
        literal = text[at:] if start < 0 else text[at:start]
        if error := _LITERAL_ERROR.search(literal):
            raise _malformed(text, at + error.start(), f"unexpected {error[0]!r}")
        if literal:
            yield _normal(literal)
        if start < 0:
            return
        end = text.find("}", start)
        if end < 0:
            raise _malformed(text, start, "'{' is never closed")
        yield _expression(text, start, text[start + 1 : end])
        at = end + 1


def _expression(text: str, start: int, body: str) -> tuple[_Operator, tuple[str, ...]]:
    sign = body[:1] if body[:1] in _OPERATORS else ""
    names = body[len(sign) :].split(",")
    at = start + 1 + len(sign)
    for name in names:
        if name.endswith("*") or ":" in name:
            raise _malformed(text, at, f"'{name}' has a level 4 modifier, which is not supported")
        if not _NAME.match(name):
            raise _malformed(text, at, f"'{name}' is no variable name")
        at += len(name) + 1
    return _OPERATORS[sign], tuple(names)


def _malformed(text: str, at: int, why: str) -> ValueError:
    return ValueError(f"URI template {text!r}, position {at}: {why}")


def _normal(text: str) -> str:
    """Characters that no URI may contain, percent-encoded, as RFC 6570 does with literals."""
    return quote(text, safe=_RESERVED + _UNRESERVED + "%")


def _decode(raw: str) -> str:
    if _BAD_PERCENT.search(raw):
        raise UnicodeError("a value ends inside a percent-encoded byte")
    return unquote(raw, errors="strict")


def _expand(
    operator: _Operator,
    names: tuple[str, ...],
    values: dict[str, str | int | float | None],
    template: UriTemplate,
) -> str:
    items = []
    for name in names:
        if name not in values and not operator.named:
            raise ValueError(f"{template!r} needs a value for '{name}'")
        if (value := values.get(name)) is not None:
            items.append(_item(operator, name, str(value)))
    return operator.first + operator.separator.join(items) if items else ""


def _item(operator: _Operator, name: str, value: str) -> str:
    text = _keep_reserved(value) if operator.reserved else quote(value, safe=_UNRESERVED)
    if not operator.named:
        return text
    # RFC 6570, 3.2.7: a path parameter without a value has no "=".
    return name if operator.first == ";" and not text else f"{name}={text}"


def _keep_reserved(value: str) -> str:
    """Percent-encoded bytes stay as they are; other percent signs are encoded."""
    return _normal(_BAD_PERCENT.sub("%25", value))


def _atoms(text: str, parts: list[_Part]) -> tuple[_Atom, ...]:
    """The parts as a flat list of what must follow what."""
    atoms: list[_Atom] = []
    optional: set[str] = set()
    for part in reversed(parts):
        if isinstance(part, str):
            atoms.append(_Text(part))
        elif part[0].named:
            atoms.append(_parameters(text, part, atoms[-1] if atoms else None))
            # A value before optional parameters would otherwise swallow them.
            optional.add(part[0].first)
        else:
            atoms += reversed(_variables(*part, optional))
    return tuple(reversed(atoms))


def _variables(operator: _Operator, names: tuple[str, ...], optional: set[str]) -> list[_Atom]:
    stops = frozenset(optional | (set() if operator.reserved else set("/?#")))
    if len(names) > 1:
        stops |= {operator.separator}
    atoms: list[_Atom] = [_Text(operator.first)] if operator.first else []
    for at, name in enumerate(names):
        atoms += [_Text(operator.separator)] * (at > 0)
        atoms.append(_Variable(name, stops))
    return atoms


def _parameters(
    text: str, part: tuple[_Operator, tuple[str, ...]], after: _Atom | None
) -> _Parameters:
    operator, names = part
    stops = frozenset("/?#" if operator.first == ";" else "#")
    follower = after.text[0] if isinstance(after, _Text) else None
    if isinstance(after, _Parameters):
        follower = after.operator.first
    if after is not None and follower not in stops:
        allowed = " or ".join(sorted(stops))
        raise ValueError(
            f"URI template {text!r}: only {allowed} may follow "
            f"{{{operator.first}{','.join(names)}}}, or it could not be matched"
        )
    return _Parameters(operator, names, stops)


class _Match:
    """One attempt. Positions only ever shrink for a variable, which makes it linear.

    A variable tries its possible ends from right to left. All ends inside one
    run of allowed characters that failed once fail for every start in that
    run, so ``failed`` keeps the lowest of them and nothing is tried twice.
    """

    __slots__ = ("atoms", "failed", "found", "stops", "uri")

    def __init__(self, atoms: tuple[_Atom, ...], uri: str) -> None:
        self.atoms = atoms
        self.uri = uri
        self.failed: dict[tuple[int, int], int] = {}
        self.found: list[tuple[str, str]] = []
        self.stops: dict[frozenset[str], list[int]] = {}

    def run(self) -> list[tuple[str, str]] | None:
        return self.found[::-1] if self._from(0, 0) else None

    def _from(self, at: int, start: int) -> bool:
        """True if the atoms from ``at`` match the URI from ``start`` to its end."""
        if at == len(self.atoms):
            return start == len(self.uri)
        atom = self.atoms[at]
        if isinstance(atom, _Text):
            fits = self.uri.startswith(atom.text, start)
            return fits and self._from(at + 1, start + len(atom.text))
        if isinstance(atom, _Variable):
            return self._variable(at, atom, start)
        return self._parameters(at, atom, start)

    def _variable(self, at: int, atom: _Variable, start: int) -> bool:
        run_end = self._run_end(atom.stops, start)
        highest = self.failed.get((at, run_end), run_end + 1) - 1
        for end in self._ends(at + 1, start + 1, highest):
            if self._from(at + 1, end):
                self.found.append((atom.name, self.uri[start:end]))
                return True
        self.failed[at, run_end] = min(start, highest) + 1
        return False

    def _ends(self, following: int, lowest: int, highest: int) -> Iterable[int]:
        """Where a variable may end, from right to left."""
        if following == len(self.atoms):
            return [len(self.uri)] if lowest <= len(self.uri) <= highest else []
        after = self.atoms[following]
        if isinstance(after, _Text):
            return self._occurrences(after.text, lowest, highest)
        return range(highest, lowest - 1, -1)

    def _occurrences(self, text: str, lowest: int, highest: int) -> Iterator[int]:
        at = highest + 1
        while at > lowest and (at := self.uri.rfind(text, lowest, at - 1 + len(text))) >= 0:
            yield at

    def _run_end(self, stops: frozenset[str], start: int) -> int:
        """The first position from ``start`` on that holds a stop."""
        if stops not in self.stops:
            places = [at for at, char in enumerate(self.uri) if char in stops]
            self.stops[stops] = [*places, len(self.uri)]
        places = self.stops[stops]
        return places[bisect_left(places, start)]

    def _parameters(self, at: int, atom: _Parameters, start: int) -> bool:
        operator = atom.operator
        if not self.uri.startswith(operator.first, start):
            return self._from(at + 1, start)
        # What follows begins with a stop, so the parameters reach to the next one.
        end = self._run_end(atom.stops, start + 1)
        if not self._from(at + 1, end):
            return False
        pairs = [
            item.partition("=") for item in self.uri[start + 1 : end].split(operator.separator)
        ]
        names = [name for name, _, _ in pairs]
        if len(set(names)) < len(names) or not set(names) <= set(atom.names):
            return False
        self.found += [(name, value) for name, _, value in reversed(pairs)]
        return True
