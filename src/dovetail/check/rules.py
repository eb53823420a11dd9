"""What a rule is: a sentence of the contract, and the probe that tries it."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from dovetail.spec.revisions import BY_ID

__all__ = [
    "REVISIONS",
    "RULES",
    "Broken",
    "Level",
    "NotApplicable",
    "Probe",
    "Rule",
    "rule",
    "unseen",
]

Level: TypeAlias = Literal["MUST", "SHOULD"]
Probe: TypeAlias = Callable[[Any], Awaitable[None]]  # of a Trial

REVISIONS = dict(zip("ABCDE", sorted(BY_ID), strict=True))


class Broken(Exception):
    """The server broke the rule that is being tried; the text says what came instead."""


class NotApplicable(Exception):
    """This server gives no occasion to try the rule; the text says why."""


class Rule(Struct, frozen=True, kw_only=True):
    id: str
    text: str  # what the server does, in one sentence
    section: str  # where the specification says so
    covers: tuple[str, ...]  # ids of the requirements manifest that it tries
    how: str  # what the probe does; or why there is none
    fix: str = ""  # what its author changes
    level: Level = "MUST"
    should: str = ""  # letters of revisions in which a MUST is only a SHOULD
    revisions: str = "ABCDE"
    transports: tuple[str, ...] = ("stdio", "http", "ws")
    once: bool = False  # one revision tells all: what it tries is the same in every one
    apart: bool = False  # once, and in conversations of its own, beside the other rules
    afterwards: bool = False  # it reads what the other rules left in the logs
    probe: Probe | None = None

    def level_in(self, letter: str) -> Level:
        return "SHOULD" if letter in self.should else self.level

    def applies(self, letter: str, transport: str) -> bool:
        return letter in self.revisions and transport in self.transports


RULES: dict[str, Rule] = {}


def rule(id: str, text: str, **members: Any) -> Callable[[Probe], Probe]:
    """Make the decorated probe a rule; its docstring says what it does."""

    def register(probe: Probe) -> Probe:
        how = " ".join((probe.__doc__ or "").split())
        _add(Rule(id=id, text=text, how=how, probe=probe, **members))
        return probe

    return register


def unseen(id: str, text: str, *, why: str, **members: Any) -> None:
    """A sentence of the contract that cannot be seen from outside; ``why`` says the reason."""
    _add(Rule(id=id, text=text, how=why, **members))


def _add(rule: Rule) -> None:
    if rule.id in RULES:
        raise ValueError(f"two rules are called {rule.id}")
    RULES[rule.id] = rule
