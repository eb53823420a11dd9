"""One server inside another: what the guest offers, the host offers too."""

from typing import TYPE_CHECKING, Any

from dovetail.server.registry import Handle, Registry

if TYPE_CHECKING:
    from dovetail.server.app import Server

__all__ = ["Mount"]


class Mount:
    """Keeps copies of the guest's tools, resources and prompts in the host's registries.

    Tools and prompts get the prefix and an underscore, because their names share
    one space; a URI says by itself where it belongs and stays as it is.
    """

    def __init__(self, host: "Server", guest: "Server", prefix: str) -> None:
        self._host = host
        self._guest = guest
        self._prefix = f"{prefix}_" if prefix else ""
        self._copies: dict[str, list[Handle]] = {}

    def sync(self, kind: str) -> None:
        """Take over what the guest has now."""
        for copy in self._copies.pop(kind, []):
            copy.remove()
        made = self._copies.setdefault(kind, [])
        for registry, key, copy in self._wanted(kind):
            registry.add(key, copy)
            made.append(copy)

    def _wanted(self, kind: str) -> list[tuple[Registry[Any], str, Handle]]:
        host, guest = self._host, self._guest
        if kind == "tools":
            tools = [tool.copied(self._prefix, host) for tool in guest.tools.values()]
            return [(host.registry("tools"), tool.name, tool) for tool in tools]
        if kind == "prompts":
            prompts = [prompt.copied(self._prefix) for prompt in guest.prompts.values()]
            return [(host.registry("prompts"), prompt.name, prompt) for prompt in prompts]
        resources = [(host.registry("resources"), item) for item in guest.resources.values()]
        templates = [(host.registry("templates"), item) for item in guest.templates.values()]
        return [(where, item.uri, item.copied()) for where, item in [*resources, *templates]]
