"""HTTP as the client sees it: one request, one response, and who adds the credentials.

``HttpClient`` is the only place that knows the HTTP library (aiohttp, loaded when
the first request is sent). It follows no redirect to another origin, because the
request carries credentials; it translates every error of the library once, here.

``Auth`` is the hook by which credentials come in. The hook sees each request before
it is sent and each 401 or 403 that comes back, and may ask for another try.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import urljoin, urlsplit

from msgspec import Struct, field

from dovetail.errors import ConnectionClosed, LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Auth", "Bearer", "HttpClient", "HttpRequest", "HttpResponse", "origin_of"]

# A server that moved says so once or twice; more is a loop.
MAX_REDIRECTS = 5
# Tries with new credentials for one request: a renewal, a login, a step-up.
MAX_AUTH_RETRIES = 3
# Connections to one server; a hundred calls at once need no more.
MAX_CONNECTIONS = 100
# Seconds to reach a server. An answer may take longer; the caller's deadline sees to that.
CONNECT_SECONDS = 30.0

_SAME_METHOD = (307, 308)  # RFC 9110: the only redirects that keep method and body
_REDIRECTS = (301, 302, 303, *_SAME_METHOD)
_CHALLENGES = (401, 403)


class HttpRequest(Struct):
    """What is sent. A hook may change ``headers``."""

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    # How often it was refused and sent again: a hook gives up sooner or later.
    retries: int = 0


class HttpResponse:
    """What came back. ``headers`` has lower-case names; repeated ones are joined by commas."""

    def __init__(self, response: "aiohttp.ClientResponse") -> None:
        self._response = response
        self.status = response.status
        self.headers = _headers(response)

    @property
    def content_type(self) -> str:
        """Without its parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def read(self, limit: int) -> bytes:
        """The whole body; RemoteProtocolError once it is longer than ``limit``."""
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > limit:
                self.close()
                raise RemoteProtocolError.text(f"The answer is longer than {limit} bytes")
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. ConnectionClosed if it breaks off."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except _library_errors() as error:
            raise ConnectionClosed(f"the HTTP response broke off: {_reason(error)}") from error

    def close(self) -> None:
        """Stop reading. A body that was not read to its end closes the connection."""
        self._response.close()


class Auth(Protocol):
    """Adds credentials to requests, and gets new ones when they are refused.

    One object serves all requests of a client, several at once: what must happen
    once (a login) is for the hook to serialise.
    """

    async def authorize(self, request: HttpRequest) -> None:
        """Called before every try of every request: put credentials into its headers."""

    async def challenged(self, request: HttpRequest, response: HttpResponse) -> bool:
        """A 401 or 403 came back for ``request``. True: credentials are new, try again.

        The hook may read the body. An exception goes to the caller of the request.
        """


# Sees a name and the addresses behind it before any of them is connected to, and raises if
# it must not be. What was judged is what is used: looking up again would let the name change.
Guard: TypeAlias = Callable[[str, list[str]], None]


class HttpClient:
    """Sends requests over connections that are kept open. ``close`` ends them all."""

    def __init__(
        self,
        auth: Auth | None = None,
        tls: ssl.SSLContext | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.auth = auth
        self._tls = tls
        self._guard = guard
        self._renewals = 0  # of credentials, under way
        self._held_until = float("-inf")
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._proxies: dict[str, str | None] = {}

    async def send(self, request: HttpRequest) -> HttpResponse:
        """The response to ``request``, with credentials if there is a hook for them."""
        if self.auth is None:
            return await self._follow(request)
        while True:
            await self.auth.authorize(request)
            response = await self._follow(request)
            if response.status not in _CHALLENGES or request.retries == MAX_AUTH_RETRIES:
                return response
            if not await self._renewed(self.auth, request, response):
                return response
            response.close()
            request.retries += 1

    async def _renewed(self, auth: Auth, request: HttpRequest, response: HttpResponse) -> bool:
        self._renewals += 1
        try:
            return await auth.challenged(request, response)
        finally:
            self._renewals -= 1
            self._held_until = asyncio.get_running_loop().time()

    @property
    def held_until(self) -> float:
        """When credentials were last renewed: now, if a user is just signing in."""
        return asyncio.get_running_loop().time() if self._renewals else self._held_until

    async def _follow(self, request: HttpRequest) -> HttpResponse:
        url = request.url
        for _ in range(MAX_REDIRECTS + 1):
            response = await self.once(request, url)
            if response.status not in _REDIRECTS:
                return response
            url = _redirected(request, url, response)
            response.close()
        raise RemoteProtocolError.text(f"More than {MAX_REDIRECTS} redirects from {request.url}")

    async def once(self, request: HttpRequest, url: str | None = None) -> HttpResponse:
        """One exchange: no credentials are added and no redirect is followed."""
        session = self._opened()
        try:
            response = await session.request(
                request.method,
                url or request.url,
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
                proxy=self._proxy(url or request.url),
            )
        except _library_errors() as error:
            where = origin_of(url or request.url)
            raise ConnectionClosed(f"no answer from {where}: {_reason(error)}") from error
        return HttpResponse(response)

    def _proxy(self, url: str) -> str | None:
        """HTTPS_PROXY and NO_PROXY, as every other tool; looked up once per origin."""
        origin = origin_of(url)
        if origin not in self._proxies:
            self._proxies[origin] = _proxy_of(url)
        return self._proxies[origin]

    def _opened(self) -> "aiohttp.ClientSession":
        if self._closed:
            raise ConnectionClosed("the client is closed")
        if self._session is None:
            self._session = _new_session(self._tls, self._guard)
        return self._session

    async def close(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            with suppress(asyncio.TimeoutError):
                await session.close()


def _new_session(tls: ssl.SSLContext | None, guard: Guard | None) -> "aiohttp.ClientSession":
    try:
        import aiohttp
    except ImportError:
        text = "HTTP needs the extra `http-client`: pip install 'dovetail[http-client]'"
        raise LocalProtocolError(text) from None
    connector = aiohttp.TCPConnector(
        limit=MAX_CONNECTIONS,
        ssl=True if tls is None else tls,
        resolver=None if guard is None else _guarded(guard),
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),  # MCP has no use for cookies
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        auto_decompress=True,
        trust_env=False,  # the library would start a thread per request to look
        raise_for_status=False,
    )


def _guarded(guard: Guard) -> "aiohttp.abc.AbstractResolver":
    import aiohttp

    class Guarded(aiohttp.ThreadedResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> "list[aiohttp.abc.ResolveResult]":
            found = await super().resolve(host, port, family)
            guard(host, [one["host"] for one in found])
            return found

    return Guarded()


def _proxy_of(url: str) -> str | None:
    from urllib.request import getproxies, proxy_bypass

    host = urlsplit(url).hostname or ""
    return None if proxy_bypass(host) else getproxies().get(urlsplit(url).scheme)


def _headers(response: "aiohttp.ClientResponse") -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        name = name.lower()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _library_errors() -> tuple[type[BaseException], ...]:
    import aiohttp

    # UnicodeError and ValueError: a host name or URL that cannot be.
    return (aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def origin_of(url: str) -> str:
    """Scheme, host and port, in lower case and with the default port left out."""
    parts = urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    port = "" if parts.port in (None, default) else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


def _redirected(request: HttpRequest, url: str, response: HttpResponse) -> str:
    """Where to go on; RemoteProtocolError where that would show the request to a stranger."""
    location = response.headers.get("location")
    if location is None:
        raise RemoteProtocolError.text(f"{url} redirects to nowhere")
    try:
        target = urljoin(url, location)
        other = origin_of(target)
    except ValueError:
        raise RemoteProtocolError.text(f"{url} redirects to no URL: {location!r}") from None
    if other != origin_of(url):
        raise RemoteProtocolError.text(f"{url} redirects to another origin: {other}")
    if response.status not in _SAME_METHOD and request.method != "GET":
        raise RemoteProtocolError.text(
            f"{url} answered {request.method} with a redirect ({response.status}) that loses it"
        )
    return target


class Bearer:
    """The simplest hook: a token that somebody else has obtained."""

    def __init__(self, token: str) -> None:
        self._value = f"Bearer {token}"

    async def authorize(self, request: HttpRequest) -> None:
        request.headers["authorization"] = self._value

    async def challenged(self, request: HttpRequest, response: HttpResponse) -> bool:
        return False
