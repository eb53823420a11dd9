"""Several servers at once, under prefixes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from dovetail.client.client import Client
from dovetail.client.results import CallResult
from dovetail.errors import LocalProtocolError, McpError
from dovetail.spec import types

__all__ = ["Clients"]


class Clients:
    """``async with Clients(files=Client.stdio(...), web=Client.http(...)) as servers``.

    A tool ``read`` of ``files`` is called ``files_read``: the prefix is ours, so that two
    servers with the same names, or one that lies about its own, do no harm. With
    ``partial=True`` servers that cannot be reached are left out; ``failed`` says why.
    """

    def __init__(self, *, partial: bool = False, **clients: Client) -> None:
        for name in clients:
            if any(other.startswith(f"{name}_") for other in clients):
                raise ValueError(f"the prefix {name!r} is the beginning of another one")
        self._all = clients
        self._open = dict(clients)
        self._partial = partial
        self.failed: dict[str, Exception] = {}

    def __getitem__(self, name: str) -> Client:
        return self._open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._open)

    async def __aenter__(self) -> "Clients":
        async def enter(name: str, client: Client) -> None:
            try:
                await client.__aenter__()
            except Exception as error:
                self.failed[name] = error
                del self._open[name]

        await asyncio.wait([asyncio.ensure_future(enter(*item)) for item in self._all.items()])
        if self.failed and not self._partial:
            await self.close()
            raise next(iter(self.failed.values()))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        closing = [asyncio.ensure_future(client.close()) for client in self._all.values()]
        if closing:
            await asyncio.wait(closing)

    def _split(self, name: str) -> tuple[Client, str]:
        for prefix, client in self._open.items():
            if name.startswith(f"{prefix}_"):
                return client, name.removeprefix(f"{prefix}_")
        raise LocalProtocolError(f"{name!r} has no prefix of a server: {', '.join(self._open)}")

    async def tools(self) -> AsyncIterator[types.Tool]:
        for prefix, client in self._open.items():
            if client.capabilities.tools is not UNSET:
                async for tool in client.tools():
                    yield replace(tool, name=f"{prefix}_{tool.name}")

    async def prompts(self) -> AsyncIterator[types.Prompt]:
        for prefix, client in self._open.items():
            if client.capabilities.prompts is not UNSET:
                async for prompt in client.prompts():
                    yield replace(prompt, name=f"{prefix}_{prompt.name}")

    async def resources(self) -> AsyncIterator[types.Resource]:
        """A URI says where it belongs; the first server that has it is asked."""
        for client in self._open.values():
            if client.capabilities.resources is not UNSET:
                async for resource in client.resources():
                    yield resource

    async def call(self, name: str, arguments: Any = None, **options: Any) -> CallResult[Any]:
        client, its_name = self._split(name)
        return await client.call(its_name, arguments, **options)

    async def prompt(
        self, name: str, arguments: dict[str, str] | None = None
    ) -> types.GetPromptResult:
        client, its_name = self._split(name)
        return await client.prompt(its_name, arguments)

    async def read(self, uri: str) -> list[types.ResourceContents]:
        error: Exception = LocalProtocolError("none of the servers offers resources")
        for client in self._open.values():
            if client.capabilities.resources is UNSET:
                continue
            try:
                return await client.read(uri)
            except McpError as refusal:
                error = refusal
        raise error
