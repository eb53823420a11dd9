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
EVERYWHERE = ("stdio", "http", "ws")


class Broken(Exception):
    """The server broke the rule that is being tried; the text says what came instead."""


class NotApplicable(Exception):
    """This server gives no occasion to try the rule; the text says why."""


class Rule(Struct, frozen=True):
    id: str
    text: str  # what the server does, in one sentence
    section: str  # where the specification says so
    fix: str  # what its author changes
    level: Level
    should: str  # letters of revisions in which a MUST is only a SHOULD
    revisions: str  # letters
    transports: tuple[str, ...]
    covers: tuple[str, ...]  # ids of the requirements manifest that it tries
    once: bool  # whether one revision tells all: what it tries is the same in every one
    afterwards: bool  # whether it reads what the other rules left in the logs
    probe: Probe | None
    how: str  # what the probe does; or why there is none

    def level_in(self, letter: str) -> Level:
        return "SHOULD" if letter in self.should else self.level

    def applies(self, letter: str, transport: str) -> bool:
        return letter in self.revisions and transport in self.transports


RULES: dict[str, Rule] = {}


def rule(
    id: str,
    text: str,
    *,
    section: str,
    fix: str,
    level: Level = "MUST",
    should: str = "",
    revisions: str = "ABCDE",
    transports: tuple[str, ...] = EVERYWHERE,
    covers: tuple[str, ...] = (),
    once: bool = False,
    afterwards: bool = False,
) -> Callable[[Probe], Probe]:
    """Make the decorated probe a rule; its docstring says what it does."""

    def register(probe: Probe) -> Probe:
        how = " ".join((probe.__doc__ or "").split())
        _add(
            Rule(
                id,
                text,
                section,
                fix,
                level,
                should,
                revisions,
                transports,
                covers,
                once,
                afterwards,
                probe,
                how,
            )
        )
        return probe

    return register


def unseen(
    id: str,
    text: str,
    *,
    section: str,
    why: str,
    covers: tuple[str, ...],
    revisions: str = "ABCDE",
    transports: tuple[str, ...] = EVERYWHERE,
) -> None:
    """A sentence of the contract that cannot be seen from outside; ``why`` says the reason."""
    _add(
        Rule(
            id,
            text,
            section,
            "",
            "MUST",
            "",
            revisions,
            transports,
            covers,
            False,
            False,
            None,
            why,
        )
    )


def _add(rule: Rule) -> None:
    if rule.id in RULES:
        raise ValueError(f"two rules are called {rule.id}")
    RULES[rule.id] = rule
