"""The hook of the HTTP client: holds the token of a server, renews it, asks for more.

What differs between the grants (a user in front of a browser, a program with a key, an
employee of a company) is one method, ``_grant``. Everything else is here, once.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable
from typing import TypedDict, TypeVar

import msgspec

from dovetail.client.oauth import challenge, tokens
from dovetail.client.oauth.challenge import Challenge
from dovetail.client.oauth.discovery import Place, discover
from dovetail.client.oauth.dpop import NONCE_WANTED, ProofKey, check_support
from dovetail.client.oauth.fetch import run
from dovetail.client.oauth.messages import Flow, printable
from dovetail.client.oauth.storage import Kept, MemoryStore, Records, Store
from dovetail.client.oauth.tokens import Identity, Token
from dovetail.client.oauth.urls import checked, covers, depth_of_server, origin
from dovetail.errors import AuthorizationError
from dovetail.transport.http_client import HttpRequest, HttpResponse

T = TypeVar("T")

_HEADER = "authorization"

# Seconds before its end at which a token is renewed: a request may take a while to arrive.
MARGIN = 30.0
# Refusals of one request after which no step up is tried. A server that wants yet another
# scope after each is not serious.
MAX_REFUSALS = 2
# Answers to a refresh after which the refresh token may still be good.
_PASSING = (None, "temporarily_unavailable", "server_error")


class Options(TypedDict, total=False):
    """What every authorizer can be told; see docs/client-auth.md."""

    scopes: Iterable[str]
    store: Store | None
    private_network: bool
    tls: ssl.SSLContext | None
    clock: Callable[[], float]


class _Server:
    """What is known about one MCP server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kept: Kept | None = None
        self.loaded = False
        self.nonce: str | None = None  # what proofs for it must contain
        self.asked = False  # the token comes from a grant of this process, not from a refresh
        self.lock = asyncio.Lock()  # one login at a time; who waited takes its result

    def serves(self, url: str) -> bool:
        """Whether the token we hold (or will) is one for this URL too."""
        if url == self.url or self.kept is None:
            return url == self.url
        resource = self.kept.place.resource
        return origin(url) == origin(self.url) if resource is None else covers(resource, url)


class Authorizer:
    """The base of ``OAuth`` and the other grants: an ``Auth`` of the HTTP client."""

    def __init__(
        self,
        *,
        scopes: Iterable[str] = (),
        store: Store | None = None,
        private_network: bool = False,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._scopes = tuple(scopes)
        self._records = Records(MemoryStore() if store is None else store)
        self._private_network = private_network
        self._tls = tls
        self._clock = clock
        self._servers: list[_Server] = []
        self._proof_keys: dict[str, ProofKey] = {}  # by issuer

    # -- the hook of HttpClient ------------------------------------------------------------------

    async def authorize(self, request: HttpRequest) -> None:
        server = self._server(request.url)
        await self._load(server)
        if server.kept is not None and not server.kept.token.fresh(self._clock(), MARGIN):
            await self._renew_early(server, server.kept)
        if server.kept is None:
            request.headers.pop(_HEADER, None)
        else:
            await self._put(server, server.kept, request)

    async def _put(self, server: _Server, kept: Kept, request: HttpRequest) -> None:
        token = kept.token
        request.headers[_HEADER] = token.header
        if token.scheme == "DPoP":
            key = await self._proof_key(kept.place)
            request.headers["dpop"] = key.proof(
                request.method, request.url, self._clock(), server.nonce, token.access_token
            )

    async def challenged(self, request: HttpRequest, response: HttpResponse) -> bool:
        wanted = challenge.read(response.headers.get("www-authenticate"))
        if wanted is None or (response.status == 403 and wanted.error != "insufficient_scope"):
            return False
        response.close()
        server = self._server(request.url)
        nonce = response.headers.get("dpop-nonce")
        if wanted.error == NONCE_WANTED and nonce not in (None, server.nonce):
            server.nonce = nonce  # RFC 9449 §9: the token is good, the proof lacked this
            return True
        async with server.lock:
            held = None if server.kept is None else server.kept.token.header
            if held == request.headers.get(_HEADER):
                await self._answer(server, request, response.status, wanted)
        return True

    # -- what a grant has to say -----------------------------------------------------------------

    async def _grant(self, place: Place, scopes: tuple[str, ...]) -> Token:
        raise NotImplementedError

    async def _identity(self, place: Place) -> Identity | None:
        """Who we are where a token shall be renewed; None if that is not known any more."""
        raise NotImplementedError

    def _ours(self, token: Token) -> bool:
        """Whether a stored token was made for the client we are."""
        return True

    def _known_issuers(self) -> tuple[str, ...]:
        """Issuers that the user named; of several servers one of these is taken."""
        return ()

    def _refreshes(self) -> bool:
        """Whether refresh tokens are of use: a program with credentials simply asks again."""
        return False

    # -- the ways to a token ---------------------------------------------------------------------

    async def _answer(
        self, server: _Server, request: HttpRequest, status: int, wanted: Challenge
    ) -> None:
        kept = server.kept
        if status == 403 and kept is not None:
            self._check_step_up(request, kept.token, wanted)
        elif request.retries and server.asked:
            raise AuthorizationError(f"{server.url} refuses the token that was made for it")
        elif not request.retries and await self._adopted(server):
            return
        place = await self._run(discover(server.url, wanted, self._known_issuers()), server.url)
        token = None
        if status == 401 and kept is not None and not request.retries:
            token = await self._refreshed(kept, place)
        server.asked = token is None
        if token is None:
            before = kept.token.scopes if status == 403 and kept is not None else ()
            token = await self._grant(place, self._wanted_scopes(place, wanted, before))
        await self._keep(server, Kept(token=token, place=place))

    def _check_step_up(self, request: HttpRequest, token: Token, wanted: Challenge) -> None:
        missing = [scope for scope in wanted.scopes if scope not in token.scopes]
        if not missing:
            raise AuthorizationError(
                "the server says the scopes do not suffice, but names none that is missing",
                wanted.error,
            )
        if request.retries >= MAX_REFUSALS:
            text = f"the server wants still more scopes: {printable(' '.join(missing))}"
            raise AuthorizationError(text, wanted.error)

    def _wanted_scopes(
        self, place: Place, wanted: Challenge, before: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The challenge decides; else what the user said; else all that the server lists.

        Scopes held before are asked for again, or the step up would be a step aside.
        """
        scopes = wanted.scopes or self._scopes or place.scopes_supported
        offered = place.server.scopes_supported or ()
        everything = dict.fromkeys((*before, *scopes))
        everything.pop("offline_access", None)
        if self._refreshes() and "offline_access" in offered:
            everything["offline_access"] = None
        return tuple(everything)

    async def _refreshed(self, kept: Kept, place: Place) -> Token | None:
        """A new token for the old refresh token, which only its own issuer gets to see."""
        old = kept.token
        if old.refresh_token is None or old.issuer != place.issuer:
            return None
        who = await self._identity(place)
        if who is None or who.client.client_id != old.client_id:
            return None
        grant = tokens.with_refresh_token(old.refresh_token)
        try:
            new = await self._ask(place, who, grant, old.scopes)
        except AuthorizationError as error:
            if error.error in _PASSING:
                raise
            return None
        # RFC 6749 §6: no new refresh token means that the old one stays.
        return _with_refresh(new, new.refresh_token or old.refresh_token)

    async def _renew_early(self, server: _Server, kept: Kept) -> None:
        """Before the request is sent. If it fails, the server's 401 leads to the rest."""
        async with server.lock:
            if server.kept is not kept or kept.token.refresh_token is None:
                return
            if await self._adopted(server):
                return
            try:
                token = await self._refreshed(kept, kept.place)
            except AuthorizationError:
                return
            if token is None:
                server.kept = Kept(token=_with_refresh(kept.token, None), place=kept.place)
            else:
                await self._keep(server, Kept(token=token, place=kept.place))

    # -- small things ----------------------------------------------------------------------------

    def _server(self, url: str) -> _Server:
        for server in self._servers:
            if server.serves(url):
                return server
        checked(url.partition("?")[0], "the server")  # X42: tokens travel over https or not at all
        self._servers.append(server := _Server(url))
        return server

    async def _load(self, server: _Server) -> None:
        if server.loaded:
            return
        async with server.lock:
            if not server.loaded:
                server.kept = await self._stored(server.url)
                server.loaded = True

    async def _adopted(self, server: _Server) -> bool:
        """Whether another process that shares our store has renewed the token meanwhile."""
        newest = await self._stored(server.url)
        held = None if server.kept is None else server.kept.token.header
        if newest is None or newest.token.header == held:
            return False
        server.kept = newest
        return True

    async def _stored(self, url: str) -> Kept | None:
        found = await self._records.token(url)
        return found if found is not None and self._ours(found.token) else None

    async def _keep(self, server: _Server, kept: Kept) -> None:
        server.kept = kept
        await self._records.keep_token(server.url, kept)

    async def _ask(
        self, place: Place, who: Identity, grant: dict[str, str], scopes: tuple[str, ...]
    ) -> Token:
        if place.dpop:
            check_support(place.server)
            who = msgspec.structs.replace(who, proof=await self._proof_key(place))
        flow = tokens.ask(place, who, grant, scopes, self._clock())
        return await self._run(flow, place.resource or place.issuer)

    async def _proof_key(self, place: Place) -> ProofKey:
        """One key for each issuer, kept as long as its tokens are."""
        if (key := self._proof_keys.get(place.issuer)) is None:
            stored = await self._records.proof_key(place.issuer)
            key = self._proof_keys.setdefault(place.issuer, ProofKey(stored))
            if stored is None:
                await self._records.keep_proof_key(place.issuer, key.pem)
        return key

    async def _run(self, flow: Flow[T], server: str) -> T:
        return await run(flow, depth_of_server(server, self._private_network), self._tls)


def _with_refresh(token: Token, refresh_token: str | None) -> Token:
    return msgspec.structs.replace(token, refresh_token=refresh_token)
