"""Try every rule that applies, in every revision the server speaks."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

import dovetail.check.probes  # noqa: F401 - registers the rules
from dovetail.check.channel import Closed, Entry
from dovetail.check.conversation import code_of
from dovetail.check.rules import RULES, Broken, Level, NotApplicable, Rule
from dovetail.check.target import Target
from dovetail.check.trial import Trial
from dovetail.spec.revisions import BY_ID, Revision

__all__ = ["CannotStart", "Report", "Result", "check"]

Outcome: TypeAlias = Literal["pass", "fail", "skip"]

# Rules that one revision is enough for are tried in the first of these that is spoken.
_PREFERENCE = "DECBA"
# Servers started at the same time for rules that want one of their own.
_AT_ONCE = 3
# What a finding shows of the wire: the last frames before it.
_EXCERPT = 6


class CannotStart(Exception):
    """There is no server to check: it did not start, or speaks no revision at all."""


class Result(Struct, frozen=True):
    rule: Rule
    revision: str
    outcome: Outcome
    level: Level
    detail: str = ""
    wire: tuple[Entry, ...] = ()


class Report(Struct, frozen=True):
    target: str
    transport: str
    server: dict[str, object]
    revisions: tuple[str, ...]
    results: tuple[Result, ...]
    seconds: float

    def failures(self, level: Level | None = None) -> list[Result]:
        return [
            result
            for result in self.results
            if result.outcome == "fail" and level in (None, result.level)
        ]


async def check(
    target: Target,
    revisions: Sequence[Revision] | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> Report:
    """``revisions`` None: all that the server speaks."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    trials = await _open_all(target, revisions or list(BY_ID.values()))
    letters = {trial.revision.letter for trial in trials}
    try:
        plans = [(trial, _plan(trial, letters)) for trial in trials]
        found = await asyncio.gather(*(_try_all(t, plan, on_result) for t, plan in plans))
        talk = await trials[-1].talk()
        server = talk.greeting.get("serverInfo") or _modern_info(talk.greeting)
    finally:
        await asyncio.gather(*(trial.close() for trial in trials))
    results = tuple(result for part in found for result in part)
    spoken = tuple(trial.revision.id for trial in trials)
    return Report(str(target), target.transport, server, spoken, results, loop.time() - began)


def _modern_info(greeting: dict[str, object]) -> dict[str, object]:
    meta = greeting.get("_meta")
    info = meta.get("io.modelcontextprotocol/serverInfo") if isinstance(meta, dict) else None
    return info if isinstance(info, dict) else {}


async def _open_all(target: Target, revisions: Sequence[Revision]) -> list[Trial]:
    """A trial for each revision that the server agrees to."""
    trials = [Trial(target, revision) for revision in revisions]
    verdicts = await asyncio.gather(*(_spoken(trial) for trial in trials))
    spoken = [trial for trial, verdict in zip(trials, verdicts, strict=True) if verdict is None]
    await asyncio.gather(
        *(trial.close() for trial, verdict in zip(trials, verdicts, strict=True) if verdict)
    )
    if not spoken:
        reasons = dict.fromkeys(v.partition(": ")[2] for v in verdicts if v)
        raise CannotStart("\n".join(reasons))
    return spoken


async def _spoken(trial: Trial) -> str | None:
    """Why this revision cannot be tried, or None."""
    revision = trial.revision
    try:
        talk = await trial.talk()
    except (Broken, Closed, OSError) as error:
        return f"{revision.id}: {error}{await _last_words(trial)}"
    if revision.modern:
        versions = talk.greeting.get("supportedVersions")
        spoken = isinstance(versions, list) and revision.id in versions
    else:
        spoken = talk.greeting.get("protocolVersion") == revision.id
    return None if spoken else f"{revision.id}: the server does not speak it"


async def _last_words(trial: Trial) -> str:
    words = trial.last_words()
    return f"; it said: {words}" if words else ""


def _plan(trial: Trial, letters: set[str]) -> list[Rule]:
    """The rules for one revision."""
    own = trial.revision.letter
    chosen = []
    for rule in RULES.values():
        if rule.probe is None or not rule.applies(own, trial.transport):
            continue
        first = next(x for x in _PREFERENCE if x in letters and x in rule.revisions)
        if not (rule.once or rule.apart) or first == own:
            chosen.append(rule)
    return chosen


async def _try_all(
    trial: Trial, rules: list[Rule], on_result: Callable[[Result], None]
) -> list[Result]:
    """Rules that share the conversation one after the other, those apart from it meanwhile."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def try_apart(rule: Rule) -> Result:
        async with places:
            own = Trial(trial.target, trial.revision)
            try:
                return await _try(own, rule, on_result)
            finally:
                trial.others += own.logs
                await own.close()

    apart = [asyncio.create_task(try_apart(rule)) for rule in rules if rule.apart]
    shared = [rule for rule in rules if not rule.apart and not rule.afterwards]
    results = [await _try(trial, rule, on_result) for rule in shared]
    results += await asyncio.gather(*apart)
    results += [await _try(trial, rule, on_result) for rule in rules if rule.afterwards]
    return results


async def _try(trial: Trial, rule: Rule, on_result: Callable[[Result], None]) -> Result:
    result = await _judge(trial, rule)
    on_result(result)
    return result


async def _judge(trial: Trial, rule: Rule) -> Result:
    revision, level = trial.revision.id, rule.level_in(trial.revision.letter)
    before = {id(log): len(log) for log in trial.logs}
    assert rule.probe is not None
    try:
        await rule.probe(trial)
    except NotApplicable as reason:
        return Result(rule, revision, "skip", level, str(reason))
    except (Broken, Closed) as broken:
        new = [entry for log in trial.logs for entry in log[before.get(id(log), 0) :]]
        if not rule.apart:
            await _recover(trial)
        return Result(rule, revision, "fail", level, str(broken), tuple(new[-_EXCERPT:]))
    return Result(rule, revision, "pass", level)


async def _recover(trial: Trial) -> None:
    """A conversation that does not answer any more is given up."""
    try:
        talk = await trial.talk()
        answer = await talk.request("server/discover" if trial.revision.modern else "ping")
        if code_of(answer) is not None:
            trial.give_up()
    except (Broken, Closed):
        trial.give_up()
