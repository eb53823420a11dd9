"""Results on stdout: as JSON for scripts, as text for people."""

import sys
from base64 import b64decode
from typing import Any

import msgspec

from dovetail.client.results import UnknownContent
from dovetail.spec import types

__all__ = ["print_contents", "print_json", "shown"]


def print_json(value: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def shown(block: Any) -> str:
    """One content block, for a person."""
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ImageContent | types.AudioContent):
        kind = "image" if isinstance(block, types.ImageContent) else "audio"
        return f"[{kind}, {block.mime_type}, {len(block.data) * 3 // 4} bytes: --json shows it]"
    if isinstance(block, types.ResourceLink):
        return f"{block.title or block.name}: {block.uri}"
    if isinstance(block, types.EmbeddedResource):
        return block.resource.text or f"[{block.resource.uri}: --json shows it]"
    if isinstance(block, UnknownContent):
        return f"[{block.type}: --json shows it]"
    return str(block)


def print_contents(contents: list[types.ResourceContents]) -> None:
    """Texts as they are; bytes as bytes, so that they can go into a file."""
    for one in contents:
        if one.text:
            print(one.text, end="" if one.text.endswith("\n") else "\n")
        elif one.blob:
            sys.stdout.flush()
            sys.stdout.buffer.write(b64decode(one.blob))
            sys.stdout.buffer.flush()
