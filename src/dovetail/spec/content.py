"""Content blocks, and the descriptions of resources and tools that messages carry.

Import these from `dovetail.spec.types`.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import Any, Literal, Self

from msgspec import UNSET, UnsetType, field

from dovetail.spec.meta import Icon, Wire

__all__ = [
    "Annotations",
    "AudioContent",
    "Content",
    "EmbeddedResource",
    "ImageContent",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "Role",
    "SamplingContent",
    "TextContent",
    "Tool",
    "ToolAnnotations",
    "ToolExecution",
    "ToolResultContent",
    "ToolUseContent",
]

Role = Literal["user", "assistant"]


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


class Annotations(Wire, kw_only=True):
    """For whom something is, and how much it matters (0 to 1)."""

    audience: list[Role] | UnsetType = UNSET
    priority: int | float | UnsetType = UNSET
    last_modified: str | UnsetType = UNSET  # since 2025-06-18


class TextContent(Wire, tag_field="type", tag="text", kw_only=True):
    """A text."""

    text: str
    annotations: Annotations | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class _Media(Wire, kw_only=True):
    data: str
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")

    @classmethod
    def of(cls, data: bytes, mime_type: str, **rest: Any) -> Self:
        """Make a block from the bytes themselves."""
        return cls(data=_base64(data), mime_type=mime_type, **rest)


class ImageContent(_Media, tag_field="type", tag="image", kw_only=True):
    """An image; `data` is base64."""


class AudioContent(_Media, tag_field="type", tag="audio", kw_only=True):
    """A sound (since 2025-03-26); `data` is base64."""


class Resource(Wire, kw_only=True):
    """A resource as it appears in a list."""

    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class ResourceLink(Resource, tag_field="type", tag="resource_link", kw_only=True):
    """A resource named in a result (since 2025-06-18)."""


class ResourceContents(Wire, kw_only=True):
    """What a resource contains: a text, or bytes in base64, never both."""

    uri: str
    mime_type: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")

    def __post_init__(self) -> None:
        if (self.text is UNSET) == (self.blob is UNSET):
            raise ValueError("resource contents have either `text` or `blob`")

    @classmethod
    def of(
        cls, uri: str, value: str | bytes, mime_type: str | UnsetType = UNSET, **rest: Any
    ) -> Self:
        """Make text contents from a str, blob contents from bytes."""
        if isinstance(value, str):
            return cls(uri=uri, text=value, mime_type=mime_type, **rest)
        return cls(uri=uri, blob=_base64(value), mime_type=mime_type, **rest)


class EmbeddedResource(Wire, tag_field="type", tag="resource", kw_only=True):
    """The contents of a resource inside a result."""

    resource: ResourceContents
    annotations: Annotations | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


Content = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource


class ToolUseContent(Wire, tag_field="type", tag="tool_use", kw_only=True):
    """A tool call that a model asks for, in sampling (since 2025-11-25)."""

    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class ToolResultContent(Wire, tag_field="type", tag="tool_result", kw_only=True):
    """The answer to a ToolUseContent, in sampling (since 2025-11-25)."""

    tool_use_id: str
    content: list[Content]
    structured_content: Any | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


SamplingContent = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent


class ToolAnnotations(Wire, gc=False, kw_only=True):
    """Hints about what a tool does (since 2025-03-26); nobody has to believe them."""

    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET
    destructive_hint: bool | UnsetType = UNSET
    idempotent_hint: bool | UnsetType = UNSET
    open_world_hint: bool | UnsetType = UNSET


class ToolExecution(Wire, gc=False, kw_only=True):
    """Whether a tool may run as a task (2025-11-25 only)."""

    task_support: Literal["forbidden", "optional", "required"] | UnsetType = UNSET


class Tool(Wire, kw_only=True):
    """A tool as it appears in a list."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | UnsetType = UNSET
    annotations: ToolAnnotations | UnsetType = UNSET
    execution: ToolExecution | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")
