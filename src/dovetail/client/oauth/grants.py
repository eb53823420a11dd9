"""The ways to a token, and what a user of the library constructs."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar, Unpack

from dovetail.client.oauth import clients, enterprise, tokens
from dovetail.client.oauth.assertions import PrivateKey
from dovetail.client.oauth.authorize import begin, endpoint_of, finish
from dovetail.client.oauth.authorizer import Authorizer, Options
from dovetail.client.oauth.browser import Browser, LoopbackBrowser, Visit
from dovetail.client.oauth.clients import Registration
from dovetail.client.oauth.discovery import AuthorizationServer, Place, check_issuer, find_server
from dovetail.client.oauth.fetch import run
from dovetail.client.oauth.messages import Flow
from dovetail.client.oauth.tokens import Identity, Token
from dovetail.client.oauth.urls import Depth, checked
from dovetail.errors import AuthorizationError

T = TypeVar("T")

# Times a user is asked within PROMPT_WINDOW seconds. A server that refuses every token
# must not be able to fill the screen with pages to sign in at.
MAX_PROMPTS = 5
PROMPT_WINDOW = 300.0


class _WithClient(Authorizer):
    """An authorizer with a client id that the user got from somewhere."""

    def __init__(
        self,
        client_id: str | None,
        client_secret: str | None,
        issuer: str | None,
        key: PrivateKey | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        if issuer is not None:
            check_issuer(issuer)
        self._client_id = client_id
        self._secret = client_secret
        self._issuer = issuer
        self._key = key

    def _known_issuers(self) -> tuple[str, ...]:
        return () if self._issuer is None else (self._issuer,)

    def _ours(self, token: Token) -> bool:
        return self._client_id in (None, token.client_id)

    async def _identity(self, place: Place) -> Identity | None:
        return await self._given(place)

    async def _given(self, place: Place) -> Identity:
        """The client id of the user, for the issuer it belongs to and no other (SEP-2352)."""
        assert self._client_id is not None
        bound = self._issuer or await self._records.bound_issuer(self._client_id, place.issuer)
        if bound != place.issuer:
            raise AuthorizationError(
                f"the client id belongs to {bound!r}, but the server names {place.issuer!r}"
            )
        client = Registration(issuer=bound, client_id=self._client_id, client_secret=self._secret)
        return Identity(client=client, key=self._key)


class OAuth(_WithClient):
    """Signs a user in with a browser (authorization code with PKCE).

    Who we are at the authorization server: ``client_id`` if given, else the document at
    ``client_metadata_url`` where that is supported, else a dynamic registration.
    """

    def __init__(
        self,
        client_name: str = "Dovetail",
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        issuer: str | None = None,
        client_metadata_url: str | None = None,
        browser: Browser | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(client_id, client_secret, issuer, **options)
        if client_metadata_url is not None:
            clients.check_document_url(client_metadata_url)
        self._name = client_name
        self._document = client_metadata_url
        self._browser: Browser = LoopbackBrowser() if browser is None else browser
        self._prompts: deque[float] = deque(maxlen=MAX_PROMPTS)

    def _refreshes(self) -> bool:
        return True

    async def _grant(self, place: Place, scopes: tuple[str, ...]) -> Token:
        try:
            return await self._ask_user(place, scopes)
        except AuthorizationError as error:
            # Servers forget dynamic clients; then we introduce ourselves again, once.
            stored = await self._records.registration(place.issuer)
            if error.error != "invalid_client" or stored is None or self._client_id is not None:
                raise
        await self._records.forget_registration(place.issuer)
        return await self._ask_user(place, scopes)

    async def _ask_user(self, place: Place, scopes: tuple[str, ...]) -> Token:
        endpoint_of(place.server)  # before we introduce ourselves for nothing
        self._count_prompt()
        stored = await self._records.registration(place.issuer)
        async with self._browser.visit(() if stored is None else stored.redirect_uris) as visit:
            who = await self._who(place, visit, scopes)
            attempt = begin(place, who.client, visit.redirect_uri, scopes)
            code = finish(attempt, await visit.ask(attempt.url, attempt.state))
        grant = tokens.with_code(code, attempt.verifier, attempt.redirect_uri)
        return await self._ask(place, who, grant, scopes)

    def _count_prompt(self) -> None:
        now = self._clock()
        if len(self._prompts) == MAX_PROMPTS and now - self._prompts[0] < PROMPT_WINDOW:
            raise AuthorizationError(
                f"the user was asked {MAX_PROMPTS} times within {PROMPT_WINDOW:g} s; not again now"
            )
        self._prompts.append(now)

    async def _who(self, place: Place, visit: Visit, scopes: tuple[str, ...]) -> Identity:
        known = await self._identity(place)
        if known is not None and known.client.fits(visit.redirect_uri, scopes):
            return known
        before = () if known is None else known.client.scopes
        everything = tuple(dict.fromkeys((*before, *scopes, *place.scopes_supported)))
        flow = clients.register(place.server, self._name, visit.redirect_uri, everything)
        client = await self._run(flow, place.resource or place.issuer)
        await self._records.keep_registration(client)
        return Identity(client=client)

    async def _identity(self, place: Place) -> Identity | None:
        if self._client_id is not None:
            return await self._given(place)
        if self._document and place.server.client_id_metadata_document_supported:
            return Identity(client=clients.by_document(place.server, self._document))
        stored = await self._records.registration(place.issuer)
        if stored is None or not stored.usable(self._clock()):
            return None
        return Identity(client=stored)


class ClientCredentials(_WithClient):
    """A program of its own, with a secret or (better) a private key; no user is asked.

    Name the ``issuer``: a secret without one goes to the first authorization server that
    the MCP server names, and is bound to it from then on.
    """

    def __init__(
        self,
        client_id: str,
        *,
        client_secret: str | None = None,
        private_key: PrivateKey | None = None,
        issuer: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        if (client_secret is None) == (private_key is None):
            raise ValueError("client credentials are a client_secret or a private_key")
        super().__init__(client_id, client_secret, issuer, private_key, **options)

    async def _grant(self, place: Place, scopes: tuple[str, ...]) -> Token:
        who = await self._given(place)
        return await self._ask(place, who, tokens.with_credentials(scopes), scopes)


class EnterpriseManaged(_WithClient):
    """The identity provider of a company decides what its people may use.

    ``id_token`` gives the ID token of the signed-in user; it is called for each grant. The
    provider is found by ``idp_issuer``, or ``idp_token_endpoint`` is said directly.
    """

    def __init__(
        self,
        client_id: str,
        *,
        id_token: Callable[[], Awaitable[str]],
        idp_issuer: str,
        idp_client_id: str,
        idp_token_endpoint: str | None = None,
        idp_client_secret: str | None = None,
        client_secret: str | None = None,
        private_key: PrivateKey | None = None,
        issuer: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(client_id, client_secret, issuer, private_key, **options)
        check_issuer(idp_issuer)
        if idp_token_endpoint is not None:
            checked(idp_token_endpoint, "idp_token_endpoint")
        self._id_token = id_token
        self._idp_endpoint = idp_token_endpoint
        self._idp_client = Registration(
            issuer=idp_issuer, client_id=idp_client_id, client_secret=idp_client_secret
        )

    async def _grant(self, place: Place, scopes: tuple[str, ...]) -> Token:
        enterprise.check_profile(place.server)
        who = await self._given(place)
        provider = await self._provider()
        flow = enterprise.exchange(
            provider, self._idp_client, await self._id_token(), place, scopes, self._clock()
        )
        assertion = await self._at_provider(flow)
        return await self._ask(place, who, tokens.with_assertion(assertion, scopes), scopes)

    async def _provider(self) -> AuthorizationServer:
        issuer = self._idp_client.issuer
        if self._idp_endpoint is not None:
            return AuthorizationServer(issuer=issuer, token_endpoint=self._idp_endpoint)
        return await self._at_provider(find_server(issuer))

    async def _at_provider(self, flow: Flow[T]) -> T:
        """The user named the provider, so it may stand anywhere, in the company's network too."""
        return await run(flow, Depth.LOOPBACK, self._tls)


class WorkloadIdentity(_WithClient):
    """A program that its platform vouches for (RFC 7523 §2.1): a Kubernetes service account,
    a build job. ``assertion`` gives the platform's signed token; no secret is kept.
    """

    def __init__(
        self,
        client_id: str,
        *,
        assertion: Callable[[], Awaitable[str]],
        issuer: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(client_id, None, issuer, **options)
        self._assertion = assertion

    async def _grant(self, place: Place, scopes: tuple[str, ...]) -> Token:
        who = await self._given(place)
        grant = tokens.with_assertion(await self._assertion(), scopes)
        return await self._ask(place, who, grant, scopes)
