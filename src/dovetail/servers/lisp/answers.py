"""What the tools with an operation of their own have in common."""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from dovetail.content import CallToolResult, TextContent
from dovetail.servers.lisp.render import failed, printed
from dovetail.servers.lisp.session import Session

__all__ = ["answered", "plural"]

T = TypeVar("T")


async def answered(
    place: Session,
    operation: str,
    arguments: dict[str, Any],
    kind: type[T],
    text: Callable[[T], str],
    *,
    seconds: float | UnsetType = UNSET,
) -> CallToolResult:
    """Run an operation; its data as structured content and, by ``text``, for people."""
    given = {name: value for name, value in arguments.items() if value is not None}
    outcome = await place.call(operation, given, seconds=seconds)
    if outcome.frame.status != "ok":
        return failed(place, outcome)
    data = outcome.frame.read(kind)
    return CallToolResult(
        content=[TextContent(text=printed(place, outcome) + text(data))],
        structured_content=data,
    )


def plural(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
