"""What a server declares: the capabilities that follow from what it has."""

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from dovetail.spec import types
from dovetail.spec.meta import TASKS_EXTENSION

if TYPE_CHECKING:
    from dovetail.server.app import Server

__all__ = ["declared"]

# What 2025-11-25 is told when a tool can run as a task (digest 7.1).
CORE_TASKS: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


def declared(
    server: "Server",
    extensions: dict[str, Any] | UnsetType,
    experimental: dict[str, Any] | UnsetType,
) -> types.ServerCapabilities:
    announced = True if server.policy.list_changed else UNSET
    changing = types.ListChangedCapability(list_changed=announced)
    subscribed = types.ResourcesCapability(subscribe=True, list_changed=announced)
    if server.tasks is not None:
        extensions = {**({} if extensions is UNSET else extensions), TASKS_EXTENSION: {}}
    return types.ServerCapabilities(
        experimental=experimental,
        extensions=extensions,
        tasks=UNSET if server.tasks is None else CORE_TASKS,
        logging={} if server.may_log else UNSET,
        tools=changing if server.offers("tools") else UNSET,
        resources=subscribed if server.offers("resources") else UNSET,
        prompts=changing if server.offers("prompts") else UNSET,
        completions={} if server.completes else UNSET,
    )
