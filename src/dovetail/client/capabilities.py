"""What a client declares, which is what it has handlers for."""

from typing import Any

from msgspec import UNSET

from dovetail.client.options import Options
from dovetail.spec.meta import TASKS_EXTENSION
from dovetail.spec.revisions import Revision
from dovetail.spec.types import ServerCapabilities

__all__ = ["declared_in", "offered_by"]


def declared_in(options: Options, revision: Revision) -> dict[str, Any]:
    """The capabilities as this revision writes them (digest 7.1, 8.2)."""
    capabilities: dict[str, Any] = {}
    if options.experimental is not UNSET:
        capabilities["experimental"] = options.experimental
    if options.roots is not None:
        capabilities["roots"] = {} if revision.modern else {"listChanged": True}
    if options.on_sample is not None:
        tools = options.sample_tools and revision.letter in "DE"
        capabilities["sampling"] = {"tools": {}} if tools else {}
    if options.on_elicit is not None and (modes := _modes(options, revision)) is not None:
        capabilities["elicitation"] = modes
    if revision.tasks and (asked := _asked_as_tasks(capabilities)):
        capabilities["tasks"] = {"list": {}, "cancel": {}, "requests": asked}
    if revision.modern:
        capabilities["extensions"] = {TASKS_EXTENSION: {}, **options.extensions}
    return capabilities


def _modes(options: Options, revision: Revision) -> dict[str, Any] | None:
    if revision.letter in "AB":
        return None
    if revision.letter == "C":  # forms only, and no way to say so
        return {} if "form" in options.elicit_modes else None
    return {mode: {} for mode in options.elicit_modes}


def _asked_as_tasks(capabilities: dict[str, Any]) -> dict[str, Any]:
    """The questions that we can run as tasks for the server (2025-11-25)."""
    asked: dict[str, Any] = {}
    if "elicitation" in capabilities:
        asked["elicitation"] = {"create": {}}
    if "sampling" in capabilities:
        asked["sampling"] = {"createMessage": {}}
    return asked


def offered_by(capabilities: ServerCapabilities, method: str, revision: Revision) -> bool:
    """Whether the server declared what a method needs (digest X14)."""
    area = method.partition("/")[0]
    if area == "completion":  # 2024-11-05 has no word for it
        return revision.letter == "A" or capabilities.completions is not UNSET
    if area in ("tools", "prompts", "resources", "logging"):
        return getattr(capabilities, area) is not UNSET
    return True
