"""One value for one revision: what the revision does not know is left out.

Members come from the generated table; content blocks that a revision lacks
become text, so that nothing a tool says is lost. Only cold results come
through here (listings, prompts, resources, content made by hand); the result
of an ordinary tool call is built right in the first place.
"""

from functools import cache
from typing import Any

from msgspec import UNSET, Struct

from dovetail.spec._surface import CONTENT, FIELDS
from dovetail.spec.revisions import Revision
from dovetail.spec.types import AudioContent, ResourceContents, ResourceLink, TextContent, Wire

__all__ = ["downgrade", "project"]

# Official types that are one Struct here.
_TABLES: dict[type[Struct], dict[str, str]] = {
    ResourceContents: {**FIELDS["TextResourceContents"], **FIELDS["BlobResourceContents"]},
}


def project(value: Any, revision: Revision) -> Any:
    """``value`` as plain JSON data, with only the members this revision has."""
    if isinstance(value, Wire):
        return _members(downgrade(value, revision), revision)
    if isinstance(value, list):
        return [project(item, revision) for item in value]
    return value


def _members(value: Struct, revision: Revision) -> dict[str, Any]:
    config = value.__struct_config__
    known: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field else {}
    for name, written in _names(type(value), revision.letter):
        member = getattr(value, name)
        if member is not UNSET:
            known[written] = project(member, revision)
    return known


@cache
def _names(kind: type[Struct], letter: str) -> tuple[tuple[str, str], ...]:
    """The members that a revision has, as attribute and as written."""
    table = _TABLES.get(kind) or FIELDS.get(kind.__name__)
    # A type without a table (a helper Struct of ours) has nothing to hide.
    pairs = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return tuple(
        (name, written)
        for name, written in pairs
        if table is None or letter in table.get(written, "")
    )


def downgrade(block: Wire, revision: Revision) -> Wire:
    """A content block this revision can show: itself, or a text that stands for it."""
    tag = block.__struct_config__.tag
    if tag is None or tag in CONTENT[revision.id]:
        return block
    if isinstance(block, ResourceLink):
        return TextContent(text=f"{block.title or block.name}: {block.uri}")
    if isinstance(block, AudioContent):
        return TextContent(text=f"[audio, {block.mime_type}: not supported in {revision.id}]")
    return block
