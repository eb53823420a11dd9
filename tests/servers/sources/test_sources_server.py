"""The server as clients see it: resources, prompt, completion, provenance, and its options."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sample import Keys, attempt, category, registry, run, write

from dovetail import McpError, Server
from dovetail.errors import TargetError
from dovetail.servers import sources
from dovetail.servers.sources.catalog import EMBEDDED
from dovetail.servers.sources.server import MAX_LISTED_CATEGORIES, SourcesServer
from dovetail.servers.sources.service import Options, Service
from dovetail.testing import TestClient, connect
from support import run as on_loop

DOVETAIL = Path(sys.executable).with_name("dovetail")
TEMPLATE = {"type": "ref/resource", "uri": "sources://category/{slug}"}


def built(*arguments: Any) -> Server:
    parser = argparse.ArgumentParser()
    sources.add_arguments(parser)
    return sources.build(parser.parse_args([str(one) for one in arguments]))


def signed(folder: Path, content: dict[str, Any] | None = None) -> tuple[Path, Keys]:
    file, keys = write(folder / "registry.json", content), Keys(folder)
    run(DOVETAIL, "sources", "sign", file, "--key", keys.secret)
    return file, keys


async def read(client: TestClient, uri: str) -> str:
    (contents,) = (await client.request("resources/read", {"uri": uri}))["contents"]
    return str(contents["text"])


async def structured(client: TestClient, tool: str, **arguments: Any) -> Any:
    return (await client.call(tool, arguments))["structuredContent"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


# -- who vouches -----------------------------------------------------------------------------------


@pytest.mark.verifies("R004-3")
def test_the_instructions_can_be_followed_word_by_word(tmp_path: Path) -> None:
    """The resources are saved as the text says, and its commands are run as they stand."""
    there = tmp_path / "there"
    there.mkdir()
    file, keys = signed(there)
    here = tmp_path / "here"
    here.mkdir()

    async def main() -> Any:
        async with connect(built("--registry", file, "--public-key", keys.public)) as client:
            told = await structured(client, "get_provenance")
            saved = re.findall(r"(sources://\S+) as (\S+?)[, ]", told["verification"])
            assert [name for _, name in saved] == [
                f"registry.json{suffix}" for suffix in ("", ".minisig", ".sig", ".pub")
            ]
            for uri, name in saved:
                (here / name).write_bytes((await read(client, uri)).encode())
            return told

    told = on_loop(main())
    assert told["signed"] is True
    assert told["public_key"] == keys.public
    assert (here / "registry.json").read_bytes() == file.read_bytes()
    commands = re.findall(r"run: (.+?) \.", told["verification"])
    assert [shlex.split(command)[0] for command in commands] == ["minisign", "signify-openbsd"]
    for command in commands:
        run(*shlex.split(command), cwd=here)
    data = bytearray((here / "registry.json").read_bytes())
    data[len(data) // 2] ^= 1
    (here / "registry.json").write_bytes(data)
    for command in commands:
        assert attempt(*shlex.split(command), cwd=here).returncode == 1


def test_unsigned_is_said_plainly() -> None:
    async def main() -> Any:
        async with connect(built()) as client:
            return await structured(client, "get_provenance")

    told = on_loop(main())
    assert told["curator"] == "Dovetail project"
    assert told["public_key"] is None
    assert told["signed"] is False
    assert told["verification"].startswith("Not signed: nobody holds a key for this registry yet.")
    assert "no link was fetched" in told["verification"]
    assert told["registries"] == [
        {"name": "embedded.json", **{k: v for k, v in told.items() if k != "registries"}}
    ]


def test_a_signature_nobody_checked_is_no_signature(tmp_path: Path) -> None:
    file, _ = signed(tmp_path)

    async def main() -> Any:
        async with connect(built("--registry", file)) as client:
            return await structured(client, "get_provenance")

    told = on_loop(main())
    assert told["signed"] is False
    assert told["public_key"] is None
    assert told["verification"].startswith("Not verified: a signature lies beside the file")


def test_the_first_file_is_at_the_top(tmp_path: Path) -> None:
    one = write(tmp_path / "one.json")
    two = write(
        tmp_path / "two.json",
        registry(curator="Bob", serial=3, categories=[category("bats", "Bats", "bat")]),
    )

    async def main() -> None:
        server = built("--registry", one, "--registry", two, "--with-embedded")
        async with connect(server) as client:
            told = await structured(client, "get_provenance")
            assert told["curator"] == "Ada Curator"
            assert [each["name"] for each in told["registries"]] == [
                *("one.json", "two.json", "embedded.json")
            ]
            assert [each["curator"] for each in told["registries"]][1:] == [
                "Bob",
                "Dovetail project",
            ]
            for query in ("bats", "owls", "rust lifetimes"):
                assert (await structured(client, "get_sources", query=query))["sources"]

    on_loop(main())


def test_an_expired_registry_is_served_and_said_to_be_so(tmp_path: Path) -> None:
    file = write(tmp_path / "old.json")
    service = Service(Options(files=[file], today=lambda: date(3000, 1, 1)))

    async def main() -> None:
        async with connect(SourcesServer(service).server) as client:
            told = await structured(client, "get_provenance")
            assert "Expired on 2999-12-31: ask the curator" in told["verification"]
            found = await structured(client, "get_sources", query="owls")
            assert found["message"].endswith("expired on 2999-12-31.")

    on_loop(main())


# -- what cannot be served -------------------------------------------------------------------------


def refused(*arguments: Any) -> str:
    with pytest.raises(TargetError) as caught:
        built(*arguments)
    return str(caught.value)


def test_what_keeps_the_server_from_starting(tmp_path: Path) -> None:
    file, keys = signed(tmp_path)
    other = Keys(tmp_path, "other")
    minisig = Path(f"{file}.minisig")
    good = minisig.read_text()
    with_key = ("--registry", file, "--public-key", keys.public_file)
    assert isinstance(built(*with_key), Server)
    assert "signed with key" in refused("--registry", file, "--public-key", other.public)
    file.write_bytes(file.read_bytes().replace(b"Ada", b"Eve"))
    assert refused(*with_key) == f"{minisig}: the signature does not fit: the file was changed"
    minisig.write_text("nonsense")
    assert refused(*with_key) == f"{minisig}: not a minisign signature file"
    minisig.write_bytes(b"\xff")
    assert refused(*with_key) == f"{minisig}: not a signature file"
    minisig.unlink()
    assert refused(*with_key) == f"{file}: not signed: there is no registry.json.minisig beside it"
    assert "not a minisign public key" in refused("--registry", file, "--public-key", "RWnonsense")
    assert "--endorsements needs --trust" in refused("--endorsements", tmp_path)
    assert "No such file" in refused("--trust", tmp_path / "none", "--endorsements", tmp_path)
    file.write_text(good)
    assert f"{file}:1: not JSON" in refused("--registry", file)


def test_a_comment_that_contradicts_the_file(tmp_path: Path) -> None:
    file, keys = write(tmp_path / "registry.json"), Keys(tmp_path)
    run("minisign", "-S", "-s", keys.secret, "-m", file, "-t", "serial:9")
    said = refused("--registry", file, "--public-key", keys.public)
    assert said.endswith("the trusted comment says serial 9, the file 7")


def test_an_old_issue_does_not_come_back(tmp_path: Path) -> None:
    file = write(tmp_path / "registry.json")
    built("--registry", file)
    write(file, registry(serial=6))
    said = refused("--registry", file)
    assert f"{file}: serial 6 is lower than 7, which was served before (remembered in" in said
    write(file, registry(serial=8))
    assert isinstance(built("--registry", file), Server)


def test_a_signed_issue_is_remembered_by_its_key(tmp_path: Path) -> None:
    file, keys = signed(tmp_path)
    built("--registry", file, "--public-key", keys.public)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = write(elsewhere / "registry.json", registry(serial=6))
    run(DOVETAIL, "sources", "sign", moved, "--key", keys.secret)
    assert "serial 6 is lower than 7" in refused("--registry", moved, "--public-key", keys.public)


def test_a_damaged_memory_is_told(tmp_path: Path) -> None:
    file, state = write(tmp_path / "registry.json"), tmp_path / "serials"
    state.write_text("[]")
    said = refused("--registry", file, "--state", state)
    assert said.startswith(f"{state}: ")
    assert said.endswith(": remove it to forget the serials seen")


def test_a_memory_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path / "registry.json")
    assert isinstance(built("--registry", file, "--state", file / "x"), Server)
    assert "serials are not remembered" in caplog.text


# -- resources, prompt, completion -----------------------------------------------------------------


def test_categories_are_resources_with_completion() -> None:
    async def main() -> None:
        async with connect(built()) as client:
            listed = (await client.request("resources/list"))["resources"]
            assert listed[0]["uri"] == "sources://registry/embedded.json"
            uris = [one["uri"] for one in listed]
            assert "sources://category/git" in uris
            assert (await read(client, uris[0])).encode() == EMBEDDED.read_bytes()
            found = json.loads(await read(client, "sources://category/git"))
            assert list(found) == ["category", "sources"]
            assert found["sources"][0]["title"] == "Pro Git"
            templates = (await client.request("resources/templates/list"))["resourceTemplates"]
            assert [one["uriTemplate"] for one in templates] == [TEMPLATE["uri"]]
            argument = {"name": "slug", "value": "python"}
            params = {"ref": TEMPLATE, "argument": argument}
            values = (await client.request("completion/complete", params))["completion"]["values"]
            assert values == [
                *("python-learning", "python-packaging", "python-testing", "data-analysis-python")
            ]
            for uri in ("sources://category/none", "sources://registry/secret.key"):
                with pytest.raises(McpError, match="Resource not found"):
                    await client.request("resources/read", {"uri": uri})

    on_loop(main())


def test_a_large_registry_is_not_listed_but_read(tmp_path: Path) -> None:
    count = MAX_LISTED_CATEGORIES + 1
    made = [
        {**category(f"c-{number}", "C", "owl"), "terms": [f"owl {number}"]}
        for number in range(count)
    ]
    file = write(tmp_path / "large.json", registry(categories=made))

    async def main() -> None:
        async with connect(built("--registry", file)) as client:
            assert len((await client.request("resources/list"))["resources"]) == 1
            assert json.loads(await read(client, "sources://category/c-200"))["category"]
            assert len((await structured(client, "list_categories"))["categories"]) == count

    on_loop(main())


def test_the_prompt_brings_the_sources(tmp_path: Path) -> None:
    async def main() -> None:
        async with connect(built()) as client:
            params = {"name": "research", "arguments": {"topic": "undo a git commit"}}
            (message,) = (await client.request("prompts/get", params))["messages"]
            text = message["content"]["text"]
            assert text.startswith("Research this topic: undo a git commit\n")
            assert "1. Pro Git: https://git-scm.com/book/en/v2" in text
            params["arguments"] = {"topic": "medieval tapestry"}
            (message,) = (await client.request("prompts/get", params))["messages"]
            assert "has no category for it" in message["content"]["text"]
            ref = {"type": "ref/prompt", "name": "research"}
            asked = {"ref": ref, "argument": {"name": "topic", "value": "typesetting"}}
            values = (await client.request("completion/complete", asked))["completion"]["values"]
            assert values == ["LaTeX Typesetting"]

    on_loop(main())


def test_the_examples_in_the_descriptions_work() -> None:
    async def main() -> None:
        async with connect(built()) as client:
            tools = (await client.request("tools/list"))["tools"]
            examples = re.findall(r'\{"query": .*?\}', tools[0]["description"])
            assert len(examples) == 4
            for example in examples:
                found = await structured(client, "get_sources", **json.loads(example))
                assert found["category"], example
            listed = (await structured(client, "list_categories"))["categories"]
            shown = re.search(r'\{"slug": .*?\}', tools[1]["description"])
            assert json.loads(shown[0]) in listed  # type: ignore[index]
            properties = tools[0]["inputSchema"]["properties"]
            subject = properties["query"]["description"].rpartition(": ")[2]
            assert (await structured(client, "get_sources", query=subject))["category"]

    on_loop(main())


def test_the_operators_threshold_is_the_default(tmp_path: Path) -> None:
    async def main() -> None:
        async with connect(built("--threshold", "0.9")) as client:
            tool = (await client.request("tools/list"))["tools"][0]
            assert tool["inputSchema"]["properties"]["threshold"]["default"] == 0.9
            found = await structured(client, "get_sources", query="rust on a garden chair")
            assert found["match"]["threshold"] == 0.9

    on_loop(main())


@pytest.mark.verifies("R004-5")
def test_nothing_in_a_result_is_markup() -> None:
    async def main() -> None:
        async with connect(built()) as client:
            for tool in ("list_categories", "get_provenance", "get_endorsements"):
                assert not re.search(r"[*`#<>]|\]\(", json.dumps(await structured(client, tool)))
            found = await structured(client, "get_sources", query="sql joins")
            assert not re.search(r"[*`<>]|\]\(", json.dumps(found))

    on_loop(main())
