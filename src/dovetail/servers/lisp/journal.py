"""The definitions a session has made, so that a fresh Lisp can have them again."""

import itertools
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from dovetail.servers.lisp.frames import Definition

__all__ = ["Journal", "Recorded", "kind_of"]

# Several of the same name may stand beside each other, or their order matters.
_NEVER_REPLACED = ("DEFMETHOD", "IN-PACKAGE", "LOAD", "EVAL-WHEN", "DECLAIM", "PROCLAIM")
_KINDS = {
    "DEFUN": "function",
    "DEFGENERIC": "function",
    "DEFMACRO": "macro",
    "DEFVAR": "variable",
    "DEFPARAMETER": "variable",
    "DEFCONSTANT": "variable",
    "DEFCLASS": "class",
    "DEFSTRUCT": "class",
    "DEFMETHOD": "method",
    "DEFPACKAGE": "package",
}
_PLURALS = {"class": "classes"}


class Recorded(Struct):
    operator: str
    name: str
    package: str
    code: str


def kind_of(entry: Recorded) -> str:
    """``function``, ``class``…, for people."""
    return _KINDS.get(entry.operator, "other form")


class Journal:
    """In the order they were made last: a redefinition replaces the older one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._recorded: dict[object, Recorded] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._recorded)

    @property
    def entries(self) -> list[Recorded]:
        return list(self._recorded.values())

    def add(self, code: str, definitions: Sequence[Definition]) -> None:
        for made in definitions:
            text = code[made.start : made.end].strip()
            self._append(Recorded(made.operator, made.name, made.package, text))
        while len(self._recorded) > self._limit:
            del self._recorded[next(iter(self._recorded))]

    def _append(self, new: Recorded) -> None:
        key: object = next(self._numbers)
        if new.operator not in _NEVER_REPLACED:
            key = new.operator, new.name, new.package
        self._recorded.pop(key, None)
        self._recorded[key] = new

    def counts(self) -> str:
        """``2 functions, 1 variable``."""
        kinds = Counter(map(kind_of, self.entries))
        return ", ".join(
            f"{count} {kind if count == 1 else _PLURALS.get(kind, kind + 's')}"
            for kind, count in kinds.items()
        )

    def epitaph(self) -> str:
        """What a loss of the Lisp means."""
        if not self._recorded:
            return "No definitions had been made."
        forms = f"{len(self)} recorded definition form{'s' * (len(self) != 1)}"
        return (
            f"All state is gone, definitions included: {self.counts()}. "
            f"Use replay-session to evaluate the {forms} again."
        )

    def clear(self) -> None:
        self._recorded.clear()
