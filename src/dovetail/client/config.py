"""Servers by name, from the ``mcpServers`` file that other clients keep as well."""

import os
import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from dovetail.client.client import Client

__all__ = ["ConfigError", "Entry", "client_of", "load"]

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class ConfigError(ValueError):
    """The file, or an entry of it, cannot be used; the text says why."""


class Entry(Struct, rename="camel"):
    """One server: a command, or a URL. Members we do not know are others' business."""

    command: str | UnsetType = UNSET
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    headers: dict[str, str] = {}
    type: str | UnsetType = UNSET
    disabled: bool = False


class _File(Struct):
    mcpServers: dict[str, Entry] | UnsetType = UNSET
    servers: dict[str, Entry] | UnsetType = UNSET  # what one editor calls it


def load(path: str | Path) -> dict[str, Entry]:
    """The servers of a file, by name."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    try:
        file = msgspec.json.decode(data, type=_File)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no configuration of MCP servers: {error}") from None
    entries = file.mcpServers if file.mcpServers is not UNSET else file.servers
    if entries is UNSET:
        raise ConfigError(f"{path} has no 'mcpServers'")
    return entries


def client_of(entry: Entry, **options: Any) -> Client:
    """A client of an entry; ``${NAME}`` and ``${NAME:-default}`` are filled in."""
    if entry.url is not UNSET:
        url = _filled(entry.url)
        headers = {name: _filled(value) for name, value in entry.headers.items()}
        if url.startswith(("ws://", "wss://")):
            return Client.ws(url, headers=headers, **options)
        if entry.type == "sse":
            raise ConfigError("the old HTTP+SSE transport is not supported")
        return Client.http(url, headers=headers, **options)
    if entry.command is UNSET:
        raise ConfigError("an entry needs a 'command' or a 'url'")
    options.pop("auth", None)
    return Client.stdio(
        _filled(entry.command),
        *map(_filled, entry.args),
        env={name: _filled(value) for name, value in entry.env.items()},
        cwd=None if entry.cwd is UNSET else _filled(entry.cwd),
        **options,
    )


def _filled(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        found = os.environ.get(name, default)
        if found is None:
            raise ConfigError(f"the environment has no {name}")
        return found

    return _VARIABLE.sub(value, text)
