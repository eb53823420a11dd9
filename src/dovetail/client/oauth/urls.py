"""Which addresses a stranger may send us to.

Every URL of a flow but the server's own comes from a document somebody else wrote: the
server, or an authorization server it names. Two questions are asked about each. Is it a
web address we may speak to at all (``checked``)? And, once its name has been looked up,
does it lead further inside than the server itself stands (``judge_addresses``)? A server
on the internet must not make us knock at the doors of our own network (SSRF), while a
server on this machine may well have its authorization server beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

from dovetail.errors import AuthorizationError

# Longer than any real endpoint; authorization URLs that we build ourselves are not checked here.
MAX_URL = 2048
_NAT64 = IPv6Network("64:ff9b::/96")
_PORTS = {"https": 443, "http": 80}
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")


class Depth(IntEnum):
    """How far inside an address lies."""

    PUBLIC = 0
    PRIVATE = 1
    LOOPBACK = 2


def refuse(url: object, why: str) -> AuthorizationError:
    shown = "".join(c if c.isprintable() else "?" for c in str(url)[:120])
    return AuthorizationError(f"the address {shown!r} is not safe: {why}")


def is_loopback(host: str) -> bool:
    """Names and literals that mean this machine without being looked up (RFC 6761 §6.3)."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return _bare(ip_address(host)).is_loopback
    except ValueError:
        return False


def checked(url: object, what: str) -> str:
    """``url`` unchanged, if it is https, or http on this machine; else an error."""
    split(url, what)
    assert isinstance(url, str)
    return url


def split(url: object, what: str) -> SplitResult:
    if not isinstance(url, str) or not url:
        raise refuse(url, f"{what} is missing")
    if len(url) > MAX_URL:
        raise refuse(url, f"{what} is longer than {MAX_URL} characters")
    # Browsers read `\` as `/` and drop tabs and newlines, so that what they open is
    # not what was judged here.
    if not url.isascii() or any(c <= " " or c in '\\"<>^`{|}\x7f' for c in url):
        raise refuse(url, f"{what} contains characters no URL has")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refuse(url, f"{what} is no URL") from None
    if parts.scheme not in _PORTS:
        raise refuse(url, f"{what} must be an https URL")
    if not host or port == 0 or not _is_host(host):
        raise refuse(url, f"{what} names no host")
    if parts.username is not None or parts.password is not None:
        raise refuse(url, f"{what} carries a user name")
    if "#" in url:
        raise refuse(url, f"{what} has a fragment")
    if parts.scheme == "http" and not is_loopback(host):
        raise refuse(url, f"{what} must use https, except on this machine")
    return parts


def _is_host(host: str) -> bool:
    """A name or an address as everybody writes it. Percent signs, empty labels and zones are
    read differently by different libraries, so that they would judge another host than is used.
    """
    try:
        ip_address(host)
    except ValueError:
        return _NAME.fullmatch(host) is not None
    return "%" not in host


def origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme]


def origin_text(url: str) -> str:
    """Scheme, host and port as they were written."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def covers(resource: str, server: str) -> bool:
    """Whether a token for ``resource`` is one for ``server``: same origin, path at or above it."""
    if origin(resource) != origin(server):
        return False
    above, below = urlsplit(resource).path.rstrip("/"), urlsplit(server).path
    return below == above or below.startswith(above + "/") or not above


def _bare(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 address wraps, since that is where packets go."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def depth(address: str) -> Depth | None:
    """Where an address lies; None for those nobody has business at.

    Link-local is the important one of those: 169.254.169.254 hands out the
    credentials of cloud machines.
    """
    bare = _bare(ip_address(address.partition("%")[0]))
    if bare.is_loopback:
        return Depth.LOOPBACK
    if bare.is_link_local or bare.is_multicast or bare.is_unspecified or bare.is_reserved:
        return None
    return Depth.PUBLIC if bare.is_global else Depth.PRIVATE


def depth_of_server(url: str, private_network: bool) -> Depth:
    """How far inside the metadata of this server may point.

    The URL the user wrote decides, not what its name resolves to: a hostile name resolves
    to an inner address as soon as that pays.
    """
    host = urlsplit(url).hostname or ""
    if is_loopback(host):
        return Depth.LOOPBACK
    try:
        literal = depth(host)
    except ValueError:
        literal = None
    return Depth.PRIVATE if private_network or literal == Depth.PRIVATE else Depth.PUBLIC


def judge_addresses(url: str, addresses: Iterable[str], allowed: Depth) -> None:
    """Refuse if any address behind the name is further inside than allowed.

    Any, not all: which of them would be used is not ours to know.
    """
    for address in addresses:
        where = depth(address)
        if where is None or where > allowed:
            raise refuse(url, f"it leads to {address}, further inside than the server stands")
