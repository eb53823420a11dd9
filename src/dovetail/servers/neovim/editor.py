"""A running Neovim: how it is reached, asked and listened to.

All that happens inside the editor is in the Lua modules under ``nvim/lua``; this
side calls their functions with plain arguments and never builds a line of code.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

import dovetail
from dovetail.servers.neovim.rpc import Link, LinkClosed, NvimError, text_of, value_of

__all__ = ["DEADLINE", "Blocked", "Editor", "EditorError", "Refused", "TooOld", "decode_json"]

log = logging.getLogger("dovetail.neovim")

T = TypeVar("T")

# Claude Code waits 500 ms for diagnostics and gives up on them after three times: half of it
# for the editor, the rest for the way back.
DEADLINE = 0.25
OLDEST = (0, 10)

_CALL = """
local given, count = { ... }, select("#", ...)
for i = 3, count do
  if given[i] == vim.NIL then given[i] = nil end
end
local run = require("dovetail." .. given[1])[given[2]]
local value, problem = run(unpack(given, 3, count))
if problem then return "!" .. problem end
return vim.json.encode(value)
"""

# The plugin's own Lua if it is there, else ours. It is never replaced: it holds state.
_BOOT = """
local sources = ...
local found, config = pcall(require, "dovetail.config")
if found then return config.version end
if sources == vim.NIL then return vim.NIL end
for name, source in pairs(sources) do
  package.preload[name] = function() return assert(loadstring(source, "@" .. name))() end
end
return require("dovetail.config").version
"""

_WAITING = {"r": "a hit-enter prompt", "rm": "a more-prompt", "r?": "a question"}


class EditorError(Exception):
    """The editor could not do it; the text is for whoever asked."""


class Refused(EditorError):
    """The editor said no."""


class Blocked(EditorError):
    """The editor waits for its user and does nothing else."""


class TooOld(EditorError):
    """A Neovim, or a plugin in it, that we cannot work with."""


def decode_json(data: bytes, kind: Any = Any) -> Any:
    """JSON of the editor's; bytes that are no UTF-8 become U+FFFD."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return msgspec.json.decode(data.decode(errors="replace").encode(), type=kind)


def lua_sources() -> dict[str, str]:
    """Our Lua modules: beside this file when installed, in the repository else."""
    place = Path(str(files(__package__))) / "lua"
    if not place.is_dir():
        place = Path(__file__).parents[4] / "nvim" / "lua"
    found = sorted((place / "dovetail").glob("*.lua"))
    return {f"dovetail.{file.stem}": file.read_text() for file in found}


class Editor:
    """One Neovim, from attaching to it until it is gone."""

    def __init__(self) -> None:
        self.link = Link(self._event)
        self.channel = 0
        self.pid = 0
        self.version = ""
        self._late: set[asyncio.Future[Any]] = set()
        self._listeners: dict[str, Callable[..., None]] = {}

    # -- reaching it ---------------------------------------------------------------------

    @classmethod
    async def on_socket(cls, address: str) -> "Editor":
        """By the address of its server: a socket file, or ``host:port``."""
        editor = cls()
        loop = asyncio.get_running_loop()
        try:
            if os.path.sep in address or ":" not in address:
                await loop.create_unix_connection(lambda: editor.link, address)
            else:
                host, _, port = address.rpartition(":")
                await loop.create_connection(lambda: editor.link, host, int(port))
        except (OSError, ValueError) as error:
            raise EditorError(f"There is no Neovim at {address}: {error}") from None
        await editor.attach()
        return editor

    @classmethod
    async def on_pipes(cls, own_in: int, own_out: int) -> "Editor":
        """The channel of a job that Neovim started."""
        editor = cls()
        loop = asyncio.get_running_loop()
        reading = open(own_in, "rb", buffering=0)  # noqa: SIM115, ASYNC230 - the transport's
        writing = open(own_out, "wb", buffering=0)  # noqa: SIM115, ASYNC230
        await loop.connect_read_pipe(lambda: editor.link, reading)
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, writing)
        editor.link.write_to(transport)
        await editor.attach()
        return editor

    async def attach(self) -> None:
        channel, info = value_of(await self.link.call("nvim_get_api_info"))
        self.channel = channel
        version = info["version"]
        self.version = "{major}.{minor}.{patch}".format(**version)
        if (version["major"], version["minor"]) < OLDEST:
            self.close()
            raise TooOld(f"Neovim {self.version} is too old: dovetail needs 0.10 or later")
        await self._boot()

    async def _boot(self) -> None:
        """Our Lua is in the editor, and it is of our version."""
        theirs = value_of(await self._lua(_BOOT, None))
        if theirs is None:
            theirs = value_of(await self._lua(_BOOT, lua_sources()))
        if theirs != dovetail.__version__:
            self.close()
            raise TooOld(
                f"the plugin in Neovim is {theirs}, dovetail {dovetail.__version__}: "
                "update the older one"
            )

    def close(self) -> None:
        self.link.close()

    @property
    def gone(self) -> bool:
        return self.link.closed.done()

    # -- asking it -----------------------------------------------------------------------

    def _lua(self, code: str, *arguments: Any) -> asyncio.Future[Raw]:
        return self.link.call("nvim_exec_lua", code, arguments)

    async def ask(self, module: str, name: str, *arguments: Any, kind: Any = Any) -> Any:
        """Call a Lua function of ours and wait for its value, however long it takes."""
        try:
            answer = text_of(await self._lua(_CALL, module, name, *arguments))
        except LinkClosed:
            raise EditorError("Neovim is gone") from None
        except NvimError as error:
            log.error("%s.%s failed: %s", module, name, error)
            raise EditorError(f"Neovim failed: {str(error).splitlines()[0]}") from None
        if answer.startswith(b"!"):
            raise Refused(answer[1:].decode(errors="replace"))
        return decode_json(answer, kind)

    async def read(self, module: str, name: str, *arguments: Any, kind: Any = Any) -> Any:
        """The same within the deadline, for what does nothing; Blocked if it is over.

        While an earlier one is unanswered, a blocked editor is not asked again: its
        answers would all come at once when it is free, to nobody.
        """
        if self._late and (blocked := await self.blocked()):
            raise Blocked(f"The editor waits at {blocked}")
        asking = asyncio.ensure_future(self.ask(module, name, *arguments, kind=kind))
        done, _ = await asyncio.wait({asking}, timeout=DEADLINE)
        if not done:
            self._late.add(asking)
            asking.add_done_callback(self._came_late)
            raise Blocked(f"The editor waits at {await self.waits_at()}")
        return asking.result()

    def _came_late(self, asking: "asyncio.Future[Any]") -> None:
        self._late.discard(asking)
        if not asking.cancelled():
            asking.exception()

    async def act(self, module: str, name: str, *arguments: Any, kind: Any = Any) -> Any:
        """For what has an effect: not begun while the editor is blocked, or it would happen
        some time later, when nobody expects it any more."""
        if blocked := await self.blocked():
            raise Blocked(f"The editor waits at {blocked}")
        return await self.ask(module, name, *arguments, kind=kind)

    async def blocked(self) -> str | None:
        """What keeps the editor from answering. Neovim always answers this one."""
        try:
            mode = value_of(await self.link.call("nvim_get_mode"))
        except LinkClosed:
            raise EditorError("Neovim is gone") from None
        return _WAITING.get(mode["mode"], "a key") if mode["blocking"] else None

    async def waits_at(self) -> str:
        try:
            async with asyncio.timeout(DEADLINE):
                return await self.blocked() or "a long command"
        except (TimeoutError, EditorError):
            return "a long command"

    # -- listening to it -----------------------------------------------------------------

    def on(self, event: str, listener: Callable[..., None]) -> None:
        """Call ``listener`` with the raw values of each ``event`` that our Lua sends."""
        self._listeners[event] = listener

    def _event(self, method: str, params: Raw) -> None:
        listener = self._listeners.get(method)
        if listener is not None:
            listener(*msgspec.msgpack.decode(params, type=list[Raw]))
