"""What the flows say to the world: requests out, responses in, and nothing that does it.

A flow is a generator: it yields a request, is sent the response, and returns what it
found out. So every rule of OAuth here can be tested as a table, without a socket.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from dovetail.errors import AuthorizationError

T = TypeVar("T")

# Texts of a stranger go into our exceptions; a screenful is enough to understand them.
_SHOWN = 300


class Request(Struct, frozen=True, kw_only=True):
    method: str
    url: str
    headers: dict[str, str]
    body: bytes = b""


class Response(Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


Flow: TypeAlias = Generator[Request, Response, T]


def get(url: str) -> Request:
    return Request(method="GET", url=url, headers={"Accept": "application/json"})


def post_form(url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> Request:
    content = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    return Request(
        method="POST", url=url, headers={**content, **headers}, body=urlencode(form).encode()
    )


def post_json(url: str, value: Any) -> Request:
    content = {"Content-Type": "application/json", "Accept": "application/json"}
    return Request(method="POST", url=url, headers=content, body=msgspec.json.encode(value))


def json_object(body: bytes) -> dict[str, Any] | None:
    """The JSON object a body holds, or nothing: a page of HTML is no metadata."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def convert(value: dict[str, Any], type: type[T], what: str) -> T:
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        raise AuthorizationError(f"{what} cannot be used: {error}") from None


def printable(text: object) -> str:
    """A stranger's text on one line, without what could drive a terminal."""
    kept = "".join(c if c.isprintable() else " " for c in str(text))
    return kept if len(kept) <= _SHOWN else kept[:_SHOWN] + "…"


def refusal(what: str, response: Response) -> AuthorizationError:
    """The error of RFC 6749 §5.2 (and RFC 7591 §3.2.2), or what else came instead."""
    said = json_object(response.body) or {}
    code, text = said.get("error"), said.get("error_description")
    if not isinstance(code, str):
        return AuthorizationError(f"{what} answered with HTTP {response.status}")
    explained = f": {printable(text)}" if isinstance(text, str) and text else ""
    return AuthorizationError(f"{what} refused, {printable(code)}{explained}", code)
