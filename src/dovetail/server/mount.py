"""One server inside another: what the guest offers, the host offers too."""

from typing import TYPE_CHECKING, Any

from dovetail.server.registry import Handle, Registry

if TYPE_CHECKING:
    from dovetail.server.app import Server

__all__ = ["Mount"]

_Copy = tuple[Registry[Any], str, Handle]


class Mount:
    """Keeps copies of the guest's tools, resources and prompts in the host's registries.

    Tools and prompts get the prefix and an underscore, because their names share
    one space; a URI says by itself where it belongs and stays as it is.
    """

    def __init__(self, host: "Server", guest: "Server", prefix: str) -> None:
        self.host = host
        self._guest = guest
        self._prefix = f"{prefix}_" if prefix else ""
        self._copies: dict[str, list[_Copy]] = {}
        _refuse_circle(host, guest)

    def sync(self, kind: str) -> None:
        """Take over what the guest has now; if a name is taken, nothing changes."""
        before = self._copies.get(kind)
        wanted = self._wanted(kind)
        self._remove(before or [])
        try:
            self._copies[kind] = self._add(wanted)
        except ValueError:
            if before is None:  # we are just being mounted: undo the other kinds as well
                for copies in self._copies.values():
                    self._remove(copies)
            else:
                self._add(before)
            raise

    def _add(self, copies: "list[_Copy]") -> "list[_Copy]":
        for number, (registry, key, copy) in enumerate(copies):
            try:
                registry.add(key, copy)
            except ValueError:
                self._remove(copies[:number])
                raise
        return copies

    def _remove(self, copies: "list[_Copy]") -> None:
        for _, _, copy in copies:
            copy.remove()

    def _wanted(self, kind: str) -> "list[_Copy]":
        host, guest = self.host, self._guest
        if kind == "tools":
            tools = [tool.copied(self._prefix, host) for tool in guest.tools.values()]
            return [(host.registry("tools"), tool.name, tool) for tool in tools]
        if kind == "prompts":
            prompts = [prompt.copied(self._prefix) for prompt in guest.prompts.values()]
            return [(host.registry("prompts"), prompt.name, prompt) for prompt in prompts]
        resources = [(host.registry("resources"), item) for item in guest.resources.values()]
        templates = [(host.registry("templates"), item) for item in guest.templates.values()]
        return [(where, item.uri, item.copied()) for where, item in [*resources, *templates]]


def _refuse_circle(host: "Server", guest: "Server") -> None:
    if host is guest:
        raise ValueError(f"{guest.name!r} cannot be mounted on itself")
    for mount in host._mounts:
        _refuse_circle(mount.host, guest)
