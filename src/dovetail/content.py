"""Content blocks for results and prompts that are made by hand."""

from dovetail.spec.types import (
    Annotations,
    AudioContent,
    CallToolResult,
    Content,
    EmbeddedResource,
    GetPromptResult,
    Icon,
    ImageContent,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    TextContent,
)

__all__ = [
    "Annotations",
    "AudioContent",
    "CallToolResult",
    "Content",
    "EmbeddedResource",
    "GetPromptResult",
    "Icon",
    "ImageContent",
    "PromptMessage",
    "ResourceContents",
    "ResourceLink",
    "TextContent",
]
