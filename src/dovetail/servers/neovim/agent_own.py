"""Tools that the user wrote in Lua: ``setup{ tools = {...} }``."""

import logging
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from dovetail import Server

if TYPE_CHECKING:
    from dovetail.servers.neovim.agent import Office

__all__ = ["add_own_tools"]

log = logging.getLogger("dovetail.neovim")


class _Own(Struct):
    name: str
    description: str
    schema: dict[str, Any]


async def add_own_tools(server: Server, office: "Office") -> None:
    """What the editor has now. A tool of ours is not replaced."""
    for own in await office.read("buffers", "own_tools", kind=list[_Own]):
        if own.name not in server.tools:
            try:
                _add(server, office, own)
            except (TypeError, ValueError) as error:  # its name or schema; the others are fine
                log.warning("the tool %r of setup{} is left out: %s", own.name, error)


def _add(server: Server, office: "Office", own: _Own) -> None:
    if not own.schema.get("properties"):
        own.schema["properties"] = {}  # Lua cannot tell an empty table from an empty list

    @server.tool(name=own.name, description=own.description, input_schema=own.schema)
    async def run(arguments: dict[str, Any]) -> Any:
        done = await office.act("buffers", "run_own", own.name, arguments)
        return done.get("result")
