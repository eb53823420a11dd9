"""A registry that changes while it is served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sample import Keys, category, registry, run, write

from dovetail.servers.sources.catalog import EMBEDDED, read_key
from dovetail.servers.sources.server import SourcesServer
from dovetail.servers.sources.service import Options, Service
from dovetail.servers.sources.watch import Watcher
from dovetail.testing import TestClient, connect
from support import run as on_loop
from support import until

DOVETAIL = Path(sys.executable).with_name("dovetail")
OWLS, FILE = "sources://category/owls", "sources://registry/registry.json"


def changed(serial: int = 8) -> dict[str, Any]:
    """Owls have another first source, hedgehogs are gone, bats are new."""
    made = registry(serial=serial)
    made["categories"][0] = category("bats", "Bats", "bat")
    made["categories"][1]["sources"][0]["url"] = "https://example.org/better"
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "registry.json")


def watched(file: Path, **options: Any) -> tuple[SourcesServer, Watcher]:
    made = SourcesServer(Service(Options(files=[file], **options)))
    return made, Watcher(made)


async def uris(client: TestClient) -> list[str]:
    return [one["uri"] for one in (await client.request("resources/list"))["resources"]]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_clients_are_told_what_changed(file: Path, revision: str) -> None:
    async def main() -> None:
        made, watcher = watched(file)
        async with connect(made.server, revision) as client:
            for uri in (OWLS, FILE):
                await client.request("resources/subscribe", {"uri": uri})
            assert not await watcher.look()
            write(file, changed())
            assert await watcher.look()
            heard = [await client.receive() for _ in range(3)]
            assert sorted((one["method"], str(one.get("params"))) for one in heard) == sorted(
                [
                    ("notifications/resources/updated", str({"uri": FILE})),
                    ("notifications/resources/updated", str({"uri": OWLS})),
                    ("notifications/resources/list_changed", "None"),
                ]
            )
            listed = await uris(client)
            assert "sources://category/bats" in listed
            assert "sources://category/hedgehogs" not in listed
            found = await client.call("get_sources", {"query": "owls"})
            assert "https://example.org/better" in found["content"][0]["text"]
            assert not await watcher.look()

    on_loop(main())


def test_a_listener_of_2026_is_told(file: Path) -> None:
    async def main() -> None:
        made, watcher = watched(file)
        async with connect(made.server, "2026-07-28") as client:
            wanted = {"resourcesListChanged": True, "resourceSubscriptions": [OWLS]}
            _, end = client.start("subscriptions/listen", {"notifications": wanted})
            end.add_done_callback(lambda done: done.cancelled() or done.exception())
            assert (await client.receive())["params"]["notifications"] == wanted
            write(file, changed())
            assert await watcher.look()
            heard = {(await client.receive())["method"] for _ in range(2)}
            assert heard == {
                "notifications/resources/list_changed",
                "notifications/resources/updated",
            }

    on_loop(main())


def test_a_bad_file_leaves_the_old_one(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        made, watcher = watched(file)
        async with connect(made.server) as client:
            write(file, registry(categories=[category("Owls", "Owls", "owl")]))
            assert not await watcher.look()
            assert "bad slug 'Owls'" in caplog.text
            found = await client.call("get_sources", {"query": "owls"})
            assert found["structuredContent"]["category"]["slug"] == "owls"
            told = (await client.call("get_provenance"))["structuredContent"]
            assert told["serial"] == 7
            assert "the new one was refused: " in told["verification"]
            assert "bad slug 'Owls'" in told["verification"]
            run("rm", file)
            assert not await watcher.look()
            write(file, changed())
            assert await watcher.look()
            told = (await client.call("get_provenance"))["structuredContent"]
            assert told["serial"] == 8
            assert "refused" not in told["verification"]

    on_loop(main())


def test_an_old_issue_is_refused_while_serving(file: Path) -> None:
    async def main() -> None:
        made, watcher = watched(file)
        write(file, changed(serial=6))
        assert not await watcher.look()
        told = made.service.get_provenance().verification
        assert "serial 6 is lower than 7, which was served before" in told

    on_loop(main())


def test_a_signed_file_is_replaced_when_its_signature_is_there(file: Path, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    run(DOVETAIL, "sources", "sign", file, "--key", keys.secret)

    async def main() -> None:
        made, watcher = watched(file, keys=[read_key(keys.public)])
        async with connect(made.server) as client:
            before = await uris(client)
            assert FILE + ".pub" in before
            write(file, changed())
            assert not await watcher.look(), "the signature is still that of the old file"
            assert made.service.catalog.registries[0].registry.serial == 7
            run(DOVETAIL, "sources", "sign", file, "--key", keys.secret)
            assert await watcher.look()
            read = await client.request("resources/read", {"uri": FILE + ".minisig"})
            assert read["contents"][0]["text"] == run("cat", f"{file}.minisig")

    on_loop(main())


def test_the_lifespan_watches(file: Path) -> None:
    async def main() -> None:
        made = SourcesServer(Service(Options(files=[file])))
        made.server.lifespan(Watcher(made, interval=0.001).lifespan)
        async with connect(made.server) as client:
            write(file, changed())
            await until(lambda: "bats" in made.service.catalog.categories)
            await client.receive()

    on_loop(main())


def test_a_fault_of_ours_does_not_end_the_watch(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = iter([RuntimeError("once"), RuntimeError("twice")])

    async def main() -> None:
        made = SourcesServer(Service(Options(files=[file])))
        watcher = Watcher(made, interval=0.001)
        look = watcher.look

        async def faulty() -> bool:
            for fault in faults:
                raise fault
            return await look()

        monkeypatch.setattr(watcher, "look", faulty)
        made.server.lifespan(watcher.lifespan)
        async with connect(made.server):
            write(file, changed())
            await until(lambda: "bats" in made.service.catalog.categories)

    on_loop(main())
    assert caplog.text.count("looking at the registries failed") == 2


def test_a_running_server_serves_the_new_file(file: Path, tmp_path: Path) -> None:
    """As a user runs it; the notification is what is waited for."""
    command = [DOVETAIL, "serve", "sources", "--registry", file]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def say(**message: Any) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), file=process.stdin, flush=True)

    try:
        client = {"name": "x", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        say(id=1, method="initialize", params=params)
        process.stdout.readline()
        say(method="notifications/initialized")
        say(id=2, method="ping")
        process.stdout.readline()
        write(file, changed())
        heard = json.loads(process.stdout.readline())
        assert heard["method"] == "notifications/resources/list_changed"
        call = {"name": "get_sources", "arguments": {"query": "bats"}}
        say(id=3, method="tools/call", params=call)
        assert '"slug":"bats"' in process.stdout.readline()
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def test_the_embedded_registry_is_not_watched() -> None:
    made, watcher = watched(EMBEDDED)
    assert on_loop(watcher.look()) is False
    assert made.service.catalog.registries[0].embedded
