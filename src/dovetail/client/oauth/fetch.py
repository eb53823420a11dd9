"""The one place where the flows meet the network."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from typing import TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies

from dovetail.client.oauth.messages import Flow, Request, Response
from dovetail.client.oauth.urls import Depth, checked, judge_addresses, origin, refuse
from dovetail.errors import AuthorizationError, ConnectionClosed, RemoteProtocolError
from dovetail.transport.http_client import HttpClient, HttpRequest, HttpResponse

T = TypeVar("T")

# Metadata is one or two kilobytes, a token with claims four; more is not an answer.
MAX_BODY = 256 * 1024
# Seconds for one request of a flow. A user may be waiting.
SECONDS = 30.0
# Redirects of a metadata document, within its origin: a slash, a version, no more.
MAX_REDIRECTS = 3


async def run(flow: Flow[T], allowed: Depth, tls: ssl.SSLContext | None = None) -> T:
    """Do what a flow asks for until it returns."""
    driver = _Driver(allowed, tls)
    try:
        request = next(flow)
        while True:
            request = flow.send(await driver.fetch(request))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        flow.close()
        await driver.http.close()


class _Driver:
    def __init__(self, allowed: Depth, tls: ssl.SSLContext | None) -> None:
        self._allowed = allowed
        self._host = ""
        self.http = HttpClient(tls=tls, guard=self._judge)

    async def fetch(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(SECONDS):
                return await self._followed(request)
        except TimeoutError:
            raise AuthorizationError(f"{request.url} did not answer within {SECONDS:g} s") from None
        except (ConnectionClosed, RemoteProtocolError) as error:
            raise AuthorizationError(f"{request.method} {request.url}: {error}") from error

    async def _followed(self, request: Request) -> Response:
        url = request.url
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._once(request, url)
            location = response.headers.get("location")
            if not 300 <= response.status < 400 or location is None:
                body = await response.read(MAX_BODY)
                return Response(status=response.status, headers=response.headers, body=body)
            response.close()
            url = redirected(request, url, location)
        raise AuthorizationError(f"{request.url} redirects again and again")

    async def _once(self, request: Request, url: str) -> HttpResponse:
        self._host = urlsplit(url).hostname or ""
        if _is_address(self._host):  # and so never looked up
            judge_addresses(url, [self._host], self._allowed)
        body = request.body or None
        return await self.http.once(HttpRequest(request.method, url, dict(request.headers), body))

    def _judge(self, host: str, addresses: list[str]) -> None:
        # A proxy of the user's own environment may stand anywhere, unless we are sent to it.
        if host == self._host or host not in _proxies():
            judge_addresses(f"//{host}", addresses, self._allowed)


def _proxies() -> set[str | None]:
    return {urlsplit(url).hostname for url in getproxies().values()}


def redirected(request: Request, url: str, location: str) -> str:
    """Only for reading, only within the origin: everything else could be an errand for others."""
    target = checked(urljoin(url, location), "redirect")
    if request.method != "GET":
        raise refuse(target, f"{request.method} {url} must not be redirected")
    if origin(target) != origin(url):
        raise refuse(target, f"{url} redirects to another origin")
    return target


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
