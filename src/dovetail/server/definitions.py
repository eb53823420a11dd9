"""What is registered, as clients see it, and the rules for its names."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from dovetail.spec import types
from dovetail.spec.revisions import Revision

if TYPE_CHECKING:
    from dovetail.spec.headers import Mirror

__all__ = [
    "check_unguarded",
    "checked",
    "checked_extensions",
    "checked_mirrors",
    "checked_scopes",
    "checked_timeout",
    "checked_tool_name",
    "checked_uri",
    "definition_of",
    "resource_definition",
    "tool_annotations",
]


_W = TypeVar("_W", bound=types.Wire)


def checked(definition: _W) -> _W:
    """The same definition; ValueError if a member has a type the wire does not know."""
    try:
        msgspec.convert(msgspec.to_builtins(definition), type(definition))
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueError(f"{type(definition).__name__.lower()}: {error}") from None
    return definition


# Digest X26 and X34: dotted labels, a slash, a name.
_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_EXTENSION = rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"


def checked_extensions(extensions: dict[str, Any] | UnsetType) -> dict[str, Any] | UnsetType:
    for identifier in {} if extensions is UNSET else extensions:
        if not re.fullmatch(_EXTENSION, identifier):
            text = f"extension {identifier!r} needs a prefix and a name, such as com.example/name"
            raise ValueError(text)
    return extensions


def definition_of(registered: Any, revision: Revision) -> Any:
    return registered.definition


# 1 to 128 of these since 2025-11-25 (digest 6); clients put names into APIs that insist.
_TOOL_NAME = r"[A-Za-z0-9_.-]{1,128}"
# RFC 3986 (digest S39): a scheme, then nothing but what a URI may hold.
_URI = r"[A-Za-z][A-Za-z0-9+.-]*:(?:[!#$&-;=?-Z_a-z~\[\]@]|%[0-9A-Fa-f]{2})*"


def checked_uri(uri: str) -> str:
    if not re.fullmatch(_URI, re.sub(r"\{[^}]*\}", "", uri)):
        raise ValueError(f"{uri!r} is not a URI: it needs a scheme, and escapes for odd characters")
    return uri


def checked_tool_name(name: str) -> str:
    if not re.fullmatch(_TOOL_NAME, name):
        raise ValueError(f"tool name {name!r} must be 1 to 128 of A-Z a-z 0-9 _ . -")
    return name


def checked_mirrors(tool: types.Tool) -> "tuple[Mirror, ...]":
    """The arguments marked ``x-mcp-header``; a mark that breaks the rules is refused (S35)."""
    if b'"x-mcp-header"' not in msgspec.json.encode(tool.input_schema):
        return ()
    from dovetail.spec.headers import BadHeader, mirrors

    try:
        return mirrors(tool.input_schema)
    except BadHeader as error:
        raise ValueError(f"tool {tool.name!r}: {error}") from None


_SCOPE = r"[!#-\[\]-~]+"  # RFC 6749, 3.3


def checked_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """OAuth scopes; TypeError for a single text, which would be a scope per letter."""
    if isinstance(scopes, str):
        raise TypeError(f"scopes are a list: write [{scopes!r}]")
    checked = frozenset(scopes)
    for scope in checked:
        if not re.fullmatch(_SCOPE, scope):
            raise ValueError(f"{scope!r} is no scope: one word of printable ASCII")
    return checked


def check_unguarded(tools: Iterable[Any]) -> None:
    """ValueError if a tool needs scopes where nobody will look at them."""
    for tool in tools:
        if tool.scopes:
            wanted = ", ".join(sorted(tool.scopes))
            raise ValueError(f"tool {tool.name!r} needs scopes ({wanted}): give asgi() an auth=")


def checked_timeout(timeout: Any) -> float | None:
    if timeout is None or (isinstance(timeout, int | float) and timeout > 0):
        return timeout
    raise ValueError(f"timeout must be a number of seconds above 0, not {timeout!r}")


_HINTS = ("read_only", "destructive", "idempotent", "open_world")


def tool_annotations(hints: dict[str, bool | UnsetType]) -> types.ToolAnnotations | UnsetType:
    if unknown := [name for name in hints if name not in _HINTS]:
        raise TypeError(f"a tool has no option {unknown[0]!r}; hints are {', '.join(_HINTS)}")
    given: dict[str, Any] = {
        f"{key}_hint": value for key, value in hints.items() if value is not UNSET
    }
    return types.ToolAnnotations(**given) if given else UNSET


def resource_definition(
    uri: str, size: int | UnsetType, shared: dict[str, Any]
) -> types.Resource | types.ResourceTemplate:
    if "{" in uri:
        return types.ResourceTemplate(uri_template=uri, **shared)
    return types.Resource(uri=uri, size=size, **shared)
