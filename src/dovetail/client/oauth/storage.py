"""Where registrations and tokens are kept.

A store is a dictionary of bytes; what is in them, and that each belongs to one issuer, is
the business of ``Records``. So a store for a keyring or a database is three short methods.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from dovetail.client.oauth.clients import Registration
from dovetail.client.oauth.discovery import Place
from dovetail.client.oauth.tokens import Token
from dovetail.errors import AuthorizationError

T = TypeVar("T")


class Store(Protocol):
    async def load(self, key: str) -> bytes | None: ...
    async def save(self, key: str, value: bytes) -> None: ...
    async def delete(self, key: str) -> None: ...


class MemoryStore:
    """Forgets with the process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    async def load(self, key: str) -> bytes | None:
        return self._values.get(key)

    async def save(self, key: str, value: bytes) -> None:
        self._values[key] = value

    async def delete(self, key: str) -> None:
        self._values.pop(key, None)


class FileStore:
    """A file per record, in a folder that only its owner can open (0700, files 0600)."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser()

    async def load(self, key: str) -> bytes | None:
        return await asyncio.to_thread(self._load, self._path(key))

    async def save(self, key: str, value: bytes) -> None:
        path = self._path(key)
        try:
            await asyncio.to_thread(self._save, path, value)
        except OSError as error:
            raise AuthorizationError(f"cannot write {path}: {error.strerror}") from None

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self._path(key).unlink, missing_ok=True)

    def _path(self, key: str) -> Path:
        # A hash, because a key holds URLs that strangers chose.
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def _load(self, path: Path) -> bytes | None:
        try:
            # Not through a link: somebody who can write here could point it anywhere.
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AuthorizationError(f"cannot read {path}: {error.strerror}") from None
        with os.fdopen(file, "rb") as opened:
            _check_private(path, os.fstat(opened.fileno()), 0o077)
            return opened.read()

    def _save(self, path: Path, value: bytes) -> None:
        """Written beside it and moved over it: a reader sees the old record or the new one."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(self.folder, self.folder.stat(), 0o022)
        draft = path.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "wb") as opened:
                opened.write(value)
            os.replace(draft, path)
        except OSError:
            with suppress(OSError):
                os.unlink(draft)
            raise


def _check_private(path: Path, info: os.stat_result, forbidden: int) -> None:
    """Others may not read a record, nor write to the folder and so put one there."""
    if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & forbidden:
        raise AuthorizationError(f"{path} is open to other users, so no tokens are kept there")


class Kept(Struct, frozen=True, kw_only=True):
    """A token and where it came from: enough to renew it after a restart."""

    token: Token
    place: Place


class Records:
    """The typed view of a store: every record carries its issuer and is read only for it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def registration(self, issuer: str) -> Registration | None:
        found = await self._load(f"client {issuer}", Registration)
        return found if found is not None and found.issuer == issuer else None

    async def keep_registration(self, client: Registration) -> None:
        await self._store.save(f"client {client.issuer}", msgspec.json.encode(client))

    async def forget_registration(self, issuer: str) -> None:
        await self._store.delete(f"client {issuer}")

    async def token(self, server: str) -> Kept | None:
        found = await self._load(f"token {server}", Kept)
        return found if found is not None and found.token.issuer == found.place.issuer else None

    async def keep_token(self, server: str, kept: Kept) -> None:
        await self._store.save(f"token {server}", msgspec.json.encode(kept))

    async def proof_key(self, issuer: str) -> str | None:
        """The key that tokens of an issuer are bound to."""
        found = await self._store.load(f"key {issuer}")
        return None if found is None else found.decode()

    async def keep_proof_key(self, issuer: str, pem: str) -> None:
        await self._store.save(f"key {issuer}", pem.encode())

    async def bound_issuer(self, client_id: str, issuer: str) -> str:
        """The issuer a client id given by the user belongs to: the first one it met."""
        key = f"issuer of {client_id}"
        known = await self._store.load(key)
        if known is None:
            await self._store.save(key, issuer.encode())
            return issuer
        return known.decode()

    async def _load(self, key: str, type: type[T]) -> T | None:
        """A record that cannot be read is none: signing in again mends it."""
        value = await self._store.load(key)
        if value is None:
            return None
        try:
            return msgspec.json.decode(value, type=type)
        except msgspec.DecodeError:
            return None
