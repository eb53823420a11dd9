"""Attaching to a Lisp that somebody else started."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable

from msgspec import Struct

from dovetail import ToolError
from dovetail.servers.lisp.image import Image, Lost
from dovetail.servers.lisp.swank import connect_slynk, connect_swank

__all__ = ["CONNECTORS", "Target", "connect_socket", "parse_target"]

_TARGET = re.compile(r"(?P<name>[\w.-]{1,64})=(?P<kind>\w+):(?P<address>.+?)(,(?P<mode>rw|ro))?")
_SECONDS = 10.0  # to say hello; a Lisp in the middle of a collection takes a while


class Target(Struct, frozen=True):
    """A Lisp to attach to: under which name, how, and where."""

    name: str
    kind: str
    address: str
    read_write: bool = False


class SocketImage(Image):
    """Our own bridge, loaded into a developer's image, behind a unix socket."""

    async def connect(self, path: str) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self.channel, _expanded(path))
        async with asyncio.timeout(_SECONDS):
            await asyncio.shield(self.hello)


def _expanded(path: str) -> str:
    return os.path.expanduser(path)


async def connect_socket(address: str) -> Image:
    image = SocketImage()
    try:
        await image.connect(address)
    except (OSError, TimeoutError, Lost) as error:
        await image.close()
        raise ToolError(
            f"Cannot attach to the socket {address}: {str(error) or 'no answer'}. In the Lisp, "
            f'load bridge.lisp and evaluate (dovetail-lisp:listen-on "{address}").'
        ) from None
    return image


# By kind: what makes an Image of an address; ToolError if that fails.
CONNECTORS: dict[str, Callable[[str], Awaitable[Image]]] = {
    "socket": connect_socket,
    "swank": connect_swank,
    "slynk": connect_slynk,
}


def parse_target(text: str) -> Target:
    """``name=kind:address``, with ``,rw`` at the end for reading and writing."""
    found = _TARGET.fullmatch(text)
    if found is None or found["kind"] not in CONNECTORS:
        kinds = ", ".join(CONNECTORS)
        raise ValueError(f"{text!r} is not NAME=KIND:ADDRESS[,rw] with a KIND of {kinds}")
    return Target(found["name"], found["kind"], found["address"], found["mode"] == "rw")
