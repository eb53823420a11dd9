"""What an author may decide about a server's behaviour, and what is decided by default.

Where a requirement of a product and MCP disagree, MCP is the default and the
product sets its policy (docs/design.md lists the cases).
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from dovetail.errors import INVALID_PARAMS
from dovetail.spec.revisions import ALL, BY_ID, Revision

__all__ = ["Policy", "checked_policy", "chosen_revisions"]


class Policy(Struct, frozen=True, kw_only=True):
    # "minimal" leaves the explaining data out of errors.
    errors: Literal["full", "minimal"] = "full"
    # MCP says -32602. In 2026-07-28 it is always that: -32601 means a method there.
    unknown_tool: int = INVALID_PARAMS
    # MCP since 2025-11-25: a result the model can learn from, not a protocol error.
    bad_arguments: Literal["result", "error"] = "result"
    # "strict" refuses requests until notifications/initialized has come.
    handshake: Literal["lenient", "strict"] = "lenient"
    # Arrays of messages, which only 2025-03-26 has.
    batches: bool = True
    # How many definitions one page of a list holds; None: all of them, because
    # many clients never ask for a second page.
    page_size: Annotated[int, Meta(ge=1)] | None = None
    # How long, and for whom, a client of 2026-07-28 may keep lists and resources.
    ttl_ms: Annotated[int, Meta(ge=0)] = 0
    cache_scope: Literal["public", "private"] = "private"
    # Whether lists may change while serving. False declares them as static, and
    # nobody is told when they change all the same.
    list_changed: bool = True


def checked_policy(**policies: Any) -> Policy:
    """ValueError for a policy that does not exist: it is found at import, not in service."""
    try:
        return msgspec.convert(policies, Policy)
    except msgspec.ValidationError as error:
        name = str(error).rpartition("$.")[2].rstrip("`")
        what = str(error).partition(" - at")[0]
        raise ValueError(f"{name}={policies.get(name)!r} is no policy: {what}") from None


def chosen_revisions(names: Sequence[str] | None, batches: bool) -> tuple[Revision, ...]:
    """The revisions to serve, oldest first. Whoever refuses batches cannot offer 2025-03-26."""
    if names is None:
        return tuple(revision for revision in ALL if batches or not revision.batches)
    if isinstance(names, str):
        raise TypeError(f"revisions must be a list of names: [{names!r}]")
    if unknown := [name for name in names if name not in BY_ID]:
        raise ValueError(f"unknown revisions {unknown}; there are {list(BY_ID)}")
    chosen = tuple(revision for revision in ALL if revision.id in names)
    if not chosen:
        raise ValueError("a server must offer at least one revision")
    if not batches and any(revision.batches for revision in chosen):
        raise ValueError("2025-03-26 must receive batches: leave it out, or allow them")
    return chosen
