"""All sessions of a server: found by name, made, attached and ended."""

import asyncio
import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from dovetail import ToolError
from dovetail.servers.lisp import descendants
from dovetail.servers.lisp.attach import CONNECTORS, Target
from dovetail.servers.lisp.image import Image
from dovetail.servers.lisp.limits import LispLimits
from dovetail.servers.lisp.process import Isolation, LispProcess, start_process
from dovetail.servers.lisp.sbcl import NoLisp, Sbcl
from dovetail.servers.lisp.session import Session

__all__ = ["DEFAULT", "Config", "Lisp", "NoLispHere"]

DEFAULT = "default"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PREFIX = "dovetail-lisp-"


class NoLispHere(ToolError):
    """The text says how to get one."""


class Config(Struct, frozen=True, kw_only=True):
    sbcl: str = "sbcl"
    folder: str | None = None  # where processes start; the server's own by default
    limits: LispLimits = LispLimits()
    isolation: Isolation = Isolation()
    cache: Path | None = None
    targets: tuple[Target, ...] = ()


class Lisp:
    """The state of a Lisp server. Nothing is started before somebody evaluates."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.limits = config.limits
        self.sessions: dict[str, Session] = {}
        self._sbcl = Sbcl(config.sbcl, config.cache)
        self._spools = _temporary() / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        self._is_prepared = False
        self._on_session: list[Callable[[Session], None]] = []

    async def open(self) -> None:
        self.add(DEFAULT)
        for target in self.config.targets:
            self.expect(target)

    async def close(self) -> None:
        for session in list(self.sessions.values()):
            await session.close()
        self.sessions.clear()
        _remove(self._spools)

    def on_session(self, listener: Callable[[Session], None]) -> None:
        """Be told of every session, those to come included."""
        self._on_session.append(listener)

    # -- by name ---------------------------------------------------------------------------

    def session(self, name: str) -> Session:
        found = self.sessions.get(name)
        if found is None:
            raise ToolError(
                f"There is no session {name!r}; there are: {', '.join(self.sessions)}. "
                "create-session makes one."
            )
        return found

    def add(self, name: str, limits: LispLimits | None = None) -> Session:
        """A session with a process of its own, which starts when it is needed."""
        chosen = limits or self.limits

        async def start() -> Image:
            return await self._start(session.limits)

        session = Session(self.free(name), start, chosen, self._spools)
        return self.keep(session)

    async def attach(self, target: Target) -> Session:
        """A session with a Lisp of somebody else; ToolError if it does not answer."""
        session = self.expect(target)
        try:
            await session.ready()
        except BaseException:
            await self.remove(target.name)
            raise
        return session

    def expect(self, target: Target) -> Session:
        """The same, attached when it is needed."""

        async def connect() -> Image:
            self._prepare()
            return await CONNECTORS[target.kind](target.address)

        session = Session(self.free(target.name), connect, self.limits, self._spools)
        session.kind = target.kind
        session.read_only = not target.read_write
        return self.keep(session)

    def free(self, name: str) -> str:
        """The name, if a session may have it."""
        if not _NAME.fullmatch(name):
            raise ToolError(
                f"{name!r} is no name for a session: use up to 64 letters, digits, - _ and ."
            )
        if name in self.sessions:
            raise ToolError(f"There is a session {name!r} already.")
        if len(self.sessions) >= self.limits.max_sessions:
            raise ToolError(
                f"There are {len(self.sessions)} sessions, which is the limit max-sessions: "
                "close-session ends one."
            )
        return name

    def keep(self, session: Session) -> Session:
        self.sessions[session.name] = session
        for listener in self._on_session:
            listener(session)
        return session

    async def remove(self, name: str) -> None:
        """End it for good; of the default session only the Lisp ends."""
        session = self.session(name)
        del self.sessions[name]
        await session.close()
        if name == DEFAULT:
            self.add(DEFAULT)

    def limit(self, session: Session, **changes: float | None) -> LispLimits:
        """Other limits for a session, from its next call or its next process on."""
        given = {key: value for key, value in changes.items() if value is not None}
        session.limits = msgspec.structs.replace(session.limits, **given)
        session.configure()
        return session.limits

    async def _start(self, limits: LispLimits) -> LispProcess:
        starting = asyncio.create_task(
            start_process(self._sbcl, limits, self.config.isolation, folder=self.config.folder)
        )
        await asyncio.sleep(0)
        self._prepare()  # while SBCL starts
        try:
            return await starting
        except NoLisp as error:
            raise NoLispHere(str(error)) from None
        except asyncio.CancelledError:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            raise

    def _prepare(self) -> None:
        """What the first Lisp needs of us."""
        if not self._is_prepared:
            self._is_prepared = True
            descendants.adopt_orphans()
            _remove_stale()
            self._spools.mkdir(mode=0o700)


def _temporary() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp")


def _remove_stale() -> None:
    """Spool folders of servers that were killed."""
    for folder in _temporary().glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc").exists():
            _remove(folder)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
