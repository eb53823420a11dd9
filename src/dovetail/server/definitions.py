"""What is registered, as clients see it, and the rules for its names."""

import re
from typing import Any

from msgspec import UNSET, UnsetType

from dovetail.spec import types
from dovetail.spec.revisions import Revision

__all__ = [
    "checked_tool_name",
    "checked_uri",
    "definition_of",
    "resource_definition",
    "tool_annotations",
]


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


def tool_annotations(hints: dict[str, bool | UnsetType]) -> types.ToolAnnotations | UnsetType:
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
