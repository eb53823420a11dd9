"""The public keys of an authorization server: found, fetched, kept, renewed."""

import asyncio
import logging
import time
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dovetail.errors import DovetailError
from dovetail.ext.auth import VerifierUnavailable, checked_url

__all__ = ["Fetch", "FetchFailed", "KeySet", "RemoteKeys", "fetch"]

log = logging.getLogger("dovetail")

# Bytes of a document. A key has some 500, and nobody rotates through hundreds.
MAX_DOCUMENT: Final = 256 * 1024
# Seconds for a whole fetch: a request waits for it.
FETCH_SECONDS: Final = 5.0
# Seconds until keys are fetched again although nothing asks for it.
MAX_AGE: Final = 3600.0
# Seconds between two fetches: tokens with invented key ids must not flood the issuer.
MIN_INTERVAL: Final = 10.0
# Seconds that known keys are good for while the issuer does not answer.
MAX_STALE: Final = 24 * 3600.0

Fetch = Callable[[str], Awaitable[bytes]]
Key = dict[str, Any]


class FetchFailed(DovetailError):
    """A document could not be fetched, or makes no sense."""


class KeySet(Struct):
    """RFC 7517, 5. Members nobody asked for are kept: a key has many."""

    keys: list[Key]

    def find(self, kid: str | None) -> list[Key]:
        """The signing keys of this id. A token without one fits if there is a single key."""
        signing = [key for key in self.keys if key.get("use", "sig") == "sig"]
        if kid is None:
            return signing if len(signing) == 1 else []
        return [key for key in signing if key.get("kid") == kid]


class _IssuerMetadata(Struct):
    issuer: str
    jwks_uri: str


class RemoteKeys:
    """The keys of an issuer, by the URL given or else by the issuer's own metadata."""

    def __init__(
        self,
        issuer: str,
        url: str | None,
        *,
        fetch: Fetch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = checked_url(issuer)
        self._url = None if url is None else checked_url(url)
        self._fetch = fetch
        self._clock = clock
        self._known: KeySet | None = None
        self._renewed = self._tried = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None) -> list[Key]:
        """The keys for a token; fetched first if there are none, or none that fit."""
        if self._clock() - self._renewed >= MAX_AGE:
            await self._renew()
        found = self._usable().find(kid)
        if not found:
            await self._renew()  # the issuer may have a new key
            found = self._usable().find(kid)
        return found

    def _usable(self) -> KeySet:
        if self._known is None or self._clock() - self._renewed >= MAX_STALE:
            raise VerifierUnavailable(f"there are no keys of {self._issuer}")
        return self._known

    async def _renew(self) -> None:
        """One fetch for all who wait, and none so soon after another."""
        if self._fetching is None:
            if self._clock() - self._tried < MIN_INTERVAL:
                return
            self._tried = self._clock()
            self._fetching = asyncio.create_task(self._fetch_keys())
        # One who gives up must not end it for the others.
        await asyncio.shield(self._fetching)

    async def _fetch_keys(self) -> None:
        try:
            url = self._url or await self._locate()
            self._known = _decoded(await self._fetch(url), KeySet, url)
            self._renewed = self._clock()
        except FetchFailed as error:
            log.warning("the keys of %s cannot be renewed: %s", self._issuer, error)
        finally:
            self._fetching = None

    async def _locate(self) -> str:
        """Ask the issuer's metadata, in the order of digest 11."""
        refusals = []
        for url in _metadata_urls(self._issuer):
            try:
                metadata = _decoded(await self._fetch(url), _IssuerMetadata, url)
            except FetchFailed as error:
                refusals.append(str(error))
                continue
            if metadata.issuer != self._issuer:  # byte for byte (RFC 8414, 3.3)
                raise FetchFailed(f"{url} is the metadata of {metadata.issuer!r}")
            try:
                return checked_url(metadata.jwks_uri)
            except ValueError as error:
                raise FetchFailed(f"{url}: {error}") from None
        raise FetchFailed("; ".join(refusals))


def _metadata_urls(issuer: str) -> list[str]:
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    names = ("oauth-authorization-server", "openid-configuration")
    urls = [f"{origin}/.well-known/{name}{path}" for name in names]
    return [*urls, f"{origin}{path}/.well-known/openid-configuration"] if path else urls


def _decoded(data: bytes, kind: type[Any], url: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FetchFailed(f"{url}: {error}") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Keys come from where they were looked for, and from nowhere else."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


async def fetch(url: str) -> bytes:
    """A document by HTTPS. In a thread: it happens once an hour, and needs no library."""
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            return await asyncio.to_thread(_get, url)
    except TimeoutError:
        raise FetchFailed(f"{url} does not answer") from None


def _get(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=FETCH_SECONDS) as answer:
            data: bytes = answer.read(MAX_DOCUMENT + 1)
    except HTTPError as error:
        error.close()
        raise FetchFailed(f"{url} answers {error.code}") from None
    except OSError as error:
        raise FetchFailed(f"{url}: {error}") from None
    if len(data) > MAX_DOCUMENT:
        raise FetchFailed(f"{url} has more than {MAX_DOCUMENT} bytes")
    return data
