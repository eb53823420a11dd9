"""The projection of a value to one revision, held against the official schemas."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from dovetail.spec.project import downgrade, project
from dovetail.spec.revisions import ALL, A, B, C, D, E, Revision
from dovetail.spec.types import (
    Annotations,
    AudioContent,
    Completion,
    EmbeddedResource,
    GetPromptResult,
    Icon,
    ImageContent,
    Implementation,
    InitializeResult,
    ListChangedCapability,
    Prompt,
    PromptArgument,
    PromptMessage,
    Resource,
    ResourceContents,
    ResourceLink,
    ResourcesCapability,
    ResourceTemplate,
    ServerCapabilities,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolExecution,
)
from dovetail.testing.schema import check_definition

every_revision = pytest.mark.parametrize("revision", ALL, ids=lambda revision: revision.id)

META = {"example.org/k": {"anything": [None]}}
ICONS = [Icon(src="https://e.org/i.png", mime_type="image/png", sizes=["any"], theme="light")]
NOTES = Annotations(audience=["user"], priority=0, last_modified="2026-01-01T00:00:00Z")
SHARED: dict[str, Any] = {"name": "n", "title": "t", "description": "d", "icons": ICONS}
RESOURCE: dict[str, Any] = {**SHARED, "mime_type": "a/b", "annotations": NOTES, "meta": META}

# One of each, with every member set.
FULL: dict[str, Any] = {
    "Tool": Tool(
        **SHARED,
        input_schema={"type": "object"},
        output_schema={"type": "object"},
        annotations=ToolAnnotations(title="t", read_only_hint=True, open_world_hint=False),
        execution=ToolExecution(task_support="optional"),
        meta=META,
    ),
    "Resource": Resource(uri="x://y", size=1, **RESOURCE),
    "ResourceTemplate": ResourceTemplate(uri_template="x://{y}", **RESOURCE),
    "Prompt": Prompt(
        **SHARED,
        arguments=[PromptArgument(name="a", title="t", description="d", required=True)],
        meta=META,
    ),
    "TextContent": TextContent(text="a", annotations=NOTES, meta=META),
    "ImageContent": ImageContent(data="YQ==", mime_type="a/b", annotations=NOTES, meta=META),
    "EmbeddedResource": EmbeddedResource(
        resource=ResourceContents.of("x://y", b"a", "a/b", meta=META), annotations=NOTES, meta=META
    ),
    "PromptMessage": PromptMessage(role="user", content=ResourceLink(uri="x://y", name="y")),
    "GetPromptResult": GetPromptResult(
        description="d",
        messages=[
            PromptMessage(role="assistant", content=AudioContent(data="YQ==", mime_type="a/b"))
        ],
        meta=META,
    ),
    "Implementation": Implementation(**SHARED, version="1", website_url="https://e.org"),
    "ServerCapabilities": ServerCapabilities(
        experimental={"x": {}},
        logging={},
        completions={},
        prompts=ListChangedCapability(list_changed=True),
        resources=ResourcesCapability(subscribe=True, list_changed=False),
        tools=ListChangedCapability(),
        tasks={"list": {}},
        extensions={"example.org/e": {}},
    ),
}


@every_revision
@pytest.mark.parametrize("name", FULL)
@pytest.mark.verifies("F-no-leak", "INV-005")
def test_every_projection_fits_the_closed_schema(name: str, revision: Revision) -> None:
    value = project(FULL[name], revision)
    if revision is E and name == "GetPromptResult":
        value["resultType"] = "complete"
    check_definition(value, revision.id, name)


def known(name: str) -> dict[str, set[str]]:
    """The members of one full value, by revision."""
    return {revision.letter: project(FULL[name], revision).keys() for revision in ALL}


def test_what_each_revision_added_and_removed() -> None:
    tool = known("Tool")
    assert tool["A"] == {"name", "description", "inputSchema"}
    assert tool["B"] - tool["A"] == {"annotations"}
    assert tool["C"] - tool["B"] == {"title", "outputSchema", "_meta"}
    assert tool["D"] - tool["C"] == {"icons", "execution"}
    assert tool["D"] - tool["E"] == {"execution"}
    assert not tool["E"] - tool["D"]
    capabilities = known("ServerCapabilities")
    assert capabilities["B"] - capabilities["A"] == {"completions"}
    assert capabilities["D"] - capabilities["C"] == {"tasks"}
    assert capabilities["D"] ^ capabilities["E"] == {"tasks", "extensions"}
    info = known("Implementation")
    assert info["A"] == info["B"] == {"name", "version"}
    assert info["C"] - info["B"] == {"title"}
    assert info["D"] - info["C"] == {"description", "websiteUrl", "icons"}
    assert info["D"] == info["E"]


def test_nothing_but_members_is_touched() -> None:
    schema = {"type": "object", "properties": {"title": {}, "icons": {}, "_meta": {}}}
    tool = Tool(name="n", input_schema=schema, meta={"icons": 1})
    assert project(tool, A) == {"name": "n", "inputSchema": schema}
    assert project(tool, E) == {"name": "n", "inputSchema": schema, "_meta": {"icons": 1}}
    for plain in (1, "a", None, {"title": 1}, UNSET):
        assert project(plain, A) is plain
    assert project([Icon(src="s"), 1], D) == [{"src": "s"}, 1]
    assert project([], A) == []


def test_members_that_are_not_set_are_not_sent() -> None:
    for revision in ALL:
        assert project(Completion(values=[]), revision) == {"values": []}
        assert project(TextContent(text=""), revision) == {"type": "text", "text": ""}


def test_a_result_inside_a_result() -> None:
    result = InitializeResult(
        protocol_version="2024-11-05",
        capabilities=FULL["ServerCapabilities"],
        server_info=FULL["Implementation"],
    )
    assert project(result, A) == {
        "protocolVersion": "2024-11-05",
        "capabilities": {
            "experimental": {"x": {}},
            "logging": {},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": False},
            "tools": {},
        },
        "serverInfo": {"name": "n", "version": "1"},
    }


# --- content a revision lacks ---------------------------------------------------------------------

LINK = ResourceLink(uri="x://y", name="n", annotations=NOTES, meta=META)
TITLED = ResourceLink(uri="x://y", name="n", title="Title")
AUDIO = AudioContent(data="YQ==", mime_type="audio/wav", meta=META)


@pytest.mark.verifies("F-downgrade")
def test_a_link_becomes_its_name_and_uri() -> None:
    for revision in (A, B):
        assert project(LINK, revision) == {"type": "text", "text": "n: x://y"}
        assert project(TITLED, revision) == {"type": "text", "text": "Title: x://y"}
    for revision in (C, D, E):
        assert downgrade(LINK, revision) is LINK


@pytest.mark.verifies("F-downgrade")
def test_audio_becomes_a_note() -> None:
    text = "[audio, audio/wav: not supported in 2024-11-05]"
    assert project(AUDIO, A) == {"type": "text", "text": text}
    for revision in (B, C, D, E):
        assert downgrade(AUDIO, revision) is AUDIO


@every_revision
@pytest.mark.parametrize("name", ["TextContent", "ImageContent", "EmbeddedResource", "Tool"])
def test_what_every_revision_has_stays(name: str, revision: Revision) -> None:
    assert downgrade(FULL[name], revision) is FULL[name]
