"""What a handler can ask of the client: ``Elicit``, ``ElicitUrl``, ``Sample``, ``Roots``.

A question says what it needs, how it is written in each revision, and how its answer is read.
It sends nothing: up to 2025-11-25 it becomes a request of the server, in 2026-07-28 a part of an
``input_required`` result, and the handler does not see the difference.
"""

import ipaddress
import secrets
from collections.abc import Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar, overload
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dovetail.errors import LocalProtocolError, ToolError
from dovetail.server.forms import BadAnswer, Choices, Form, form_of
from dovetail.server.sampling import Sample, Sampled
from dovetail.spec._surface import FIELDS
from dovetail.spec.revisions import MODERN, Revision
from dovetail.spec.types import ClientCapabilities, ListRootsResult, Root

__all__ = [
    "Answer",
    "BadAnswer",
    "Choices",
    "Elicit",
    "ElicitUrl",
    "NotAccepted",
    "Question",
    "Roots",
    "Sample",
    "Sampled",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Action = Literal["accept", "decline", "cancel"]


class Question(Protocol[T_co]):
    """Anything that can be asked; ``T_co`` is the answer."""

    @property
    def method(self) -> str: ...

    def needs(self) -> dict[str, Any]:
        """The client capabilities it needs, as they are written in JSON (error -32021)."""

    def declared_by(self, capabilities: ClientCapabilities, revision: Revision = MODERN) -> bool:
        """True if a client of this revision with these capabilities can be asked."""

    def supported_in(self, revision: Revision) -> bool:
        """True if the revision has this question at all."""

    def params(self, revision: Revision) -> dict[str, Any]:
        """The exact params for one revision; LocalProtocolError if it has no such question."""

    def parse(self, raw: bytes | Raw) -> T_co:
        """The client's result as a value; BadAnswer if it does not fit."""


class NotAccepted(ToolError):
    """The value of an answer was used, but the user declined or cancelled."""


class Answer(Struct, Generic[T], frozen=True):
    """What the user did with an elicitation."""

    action: Action
    _value: T | None = None

    @property
    def accepted(self) -> bool:
        return self.action == "accept"

    @property
    def value(self) -> T:
        """The filled-in form; NotAccepted unless the user accepted."""
        if not self.accepted:
            verb = "declined" if self.action == "decline" else "cancelled"
            raise NotAccepted(f"The user {verb} the request for input")
        # An accepted answer always has the value of its type, which may be None itself.
        return self._value  # type: ignore[return-value]


class _ElicitResult(Struct):
    action: Action
    content: Raw | UnsetType = UNSET


_elicited = msgspec.json.Decoder(_ElicitResult).decode
_roots = msgspec.json.Decoder(ListRootsResult).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _result(raw: bytes | Raw) -> _ElicitResult:
    try:
        return _elicited(raw)
    except _UNREADABLE as error:
        raise BadAnswer(str(error)) from None


def _content(result: _ElicitResult) -> bytes | Raw:
    """A form of optional fields may come back without content."""
    if result.content is UNSET or bytes(result.content) == b"null":
        return b"{}"
    return result.content


class _Elicitation:
    """What forms and pages have in common."""

    method = "elicitation/create"

    def supported_in(self, revision: Revision) -> bool:
        raise NotImplementedError

    def _check(self, revision: Revision) -> None:
        if not self.supported_in(revision):
            raise LocalProtocolError(f"{revision.id} has no such elicitation")


def _has(member: str, revision: Revision) -> bool:
    return revision.letter in FIELDS["ElicitRequestParams"][member]


class Elicit(_Elicitation, Generic[T]):
    """Show the user a form. Not for secrets: those need ``ElicitUrl`` (digest S75).

    ``form`` is a Struct, dataclass or TypedDict of strings, numbers, booleans, dates and
    choices, or a hand-written ``requestedSchema``; TypeError names a field that cannot be shown.
    """

    @overload
    def __init__(self, message: str, form: type[T]) -> None: ...
    @overload
    def __init__(self: "Elicit[dict[str, Any]]", message: str, form: Mapping[str, Any]) -> None: ...

    def __init__(self, message: str, form: Any) -> None:
        self.message = message
        self._form: Form[T] = form_of(form)

    def needs(self) -> dict[str, Any]:
        return {"elicitation": {}}

    def declared_by(self, capabilities: ClientCapabilities, revision: Revision = MODERN) -> bool:
        modes = capabilities.elicitation
        if modes is UNSET:
            return False
        # No mode at all means forms (digest 6), and 2025-06-18 has no other.
        return modes.form is not UNSET or modes.url is UNSET or not _has("mode", revision)

    def supported_in(self, revision: Revision) -> bool:
        # Lists of choices came together with the modes.
        return _has("mode" if self._form.multiple else "message", revision)

    def params(self, revision: Revision) -> dict[str, Any]:
        self._check(revision)
        params = {"message": self.message, "requestedSchema": self._form.shown(revision)}
        return {"mode": "form", **params} if _has("mode", revision) else params

    def parse(self, raw: bytes | Raw) -> Answer[T]:
        result = _result(raw)
        if result.action != "accept":
            return Answer(result.action)
        return Answer("accept", self._form.read(_content(result)))


class ElicitUrl(_Elicitation):
    """Ask the user to open a page. ``accept`` means that they want to, not that they are done.

    The server behind the page must make sure that whoever opens it is the user who was asked
    (digest S84), and the URL must not sign anybody in (digest S82).
    """

    def __init__(self, message: str, url: str) -> None:
        _check_url(url)
        self.message = message
        self.url = url
        # Nobody may guess it: it names the question in notifications/elicitation/complete.
        self.elicitation_id = secrets.token_urlsafe(24)

    def needs(self) -> dict[str, Any]:
        return {"elicitation": {"url": {}}}

    def declared_by(self, capabilities: ClientCapabilities, revision: Revision = MODERN) -> bool:
        modes = capabilities.elicitation
        return modes is not UNSET and modes.url is not UNSET

    def supported_in(self, revision: Revision) -> bool:
        return _has("url", revision)

    def params(self, revision: Revision) -> dict[str, Any]:
        self._check(revision)
        params = {"mode": "url", "message": self.message, "url": self.url}
        if _has("elicitationId", revision):
            params["elicitationId"] = self.elicitation_id
        return params

    def parse(self, raw: bytes | Raw) -> Answer[None]:
        return Answer(_result(raw).action)


def _check_url(url: str) -> None:
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("the URL has characters that a URL must escape")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL must start with https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL must not contain credentials")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ValueError("the URL must be https, except on this machine")
    _ = parts.port  # ValueError if it is no number


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class Roots:
    """Ask for the directories and files the server may work on."""

    method = "roots/list"

    def needs(self) -> dict[str, Any]:
        return {"roots": {}}

    def declared_by(self, capabilities: ClientCapabilities, revision: Revision = MODERN) -> bool:
        return capabilities.roots is not UNSET

    def supported_in(self, revision: Revision) -> bool:
        return True

    def params(self, revision: Revision) -> dict[str, Any]:
        return {}

    def parse(self, raw: bytes | Raw) -> list[Root]:
        try:
            roots = _roots(raw).roots
        except _UNREADABLE as error:
            raise BadAnswer(str(error)) from None
        for root in roots:
            if not root.uri.startswith("file://"):  # digest C32
                raise BadAnswer(f"a root must be a file:// URI, not {root.uri[:80]!r}")
        return roots
