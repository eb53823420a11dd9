"""Endorsements: shown if a trusted key signed them and they are about what is served."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sample import Keys, attempt, category, registry, run, write

from dovetail.servers.sources.catalog import CatalogError
from dovetail.servers.sources.endorsements import read_trust
from dovetail.servers.sources.server import SourcesServer
from dovetail.servers.sources.service import Options, Service
from dovetail.testing import connect
from support import run as on_loop

DOVETAIL = Path(sys.executable).with_name("dovetail")


class Scene:
    """A registry, an endorser with a key, and the operator who trusts it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = write(folder / "registry.json")
        self.keys = Keys(folder, "grace")
        self.trust = folder / "trust.txt"
        self.trust.write_text(f"# whom we know\n\n{self.keys.public} Grace of the Library\n")
        self.place = folder / "endorsements"
        self.place.mkdir()

    def endorse(self, name: str = "one", *options: str, keys: Keys | None = None) -> Path:
        output = self.place / f"{name}.json"
        key = (keys or self.keys).secret
        fixed = ("--key", key, "--output", output, "--expires", "2999-01-01")
        said = ("--statement", "We use it in our school.")
        run(DOVETAIL, "sources", "endorse", self.file, *fixed, *said, *options)
        return output

    def service(self, today: str = "2026-11-15") -> Service:
        return Service(
            Options(
                files=[self.file],
                statements=[self.place],
                trusted=read_trust(self.trust),
                today=lambda: date.fromisoformat(today),
            )
        )

    def outcome(self, today: str = "2026-11-15") -> tuple[list[Any], list[str]]:
        return self.service(today).endorsed()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_trusted_word_is_shown(scene: Scene) -> None:
    scene.endorse()
    scene.endorse("two", "--category", "owls")

    async def main() -> Any:
        async with connect(SourcesServer(scene.service()).server) as client:
            return (await client.call("get_endorsements"))["structuredContent"]

    found = on_loop(main())["endorsements"]
    assert [(one["scope"], one["subject"]) for one in found] == [
        *(("registry", "registry.json"), ("category", "owls"))
    ]
    assert found[0] == {
        "endorser": "Grace of the Library",
        "public_key": scene.keys.public,
        "scope": "registry",
        "subject": "registry.json",
        "statement": "We use it in our school.",
        "issued": date.today().isoformat(),
        "expires": "2999-01-01",
    }


def test_a_statement_is_an_ordinary_minisign_file(scene: Scene) -> None:
    path = scene.endorse()
    assert "endorsement:registry" in run("minisign", "-Vm", path, "-P", scene.keys.public)


def refused(scene: Scene, **given: str) -> str:
    shown, (reason,) = scene.outcome(**given)
    assert shown == []
    return reason


def test_what_is_not_shown(scene: Scene, tmp_path: Path) -> None:
    path = scene.endorse()
    good, signature = path.read_bytes(), Path(f"{path}.minisig").read_bytes()
    assert len(scene.outcome()[0]) == 1
    assert refused(scene, today="3000-01-01").endswith(
        "Grace of the Library: expired on 2999-01-01"
    )
    path.write_bytes(good.replace(b"school", b"scheme"))
    assert refused(scene) == f"{path}: the signature does not fit: the file was changed"
    path.write_bytes(good)
    Path(f"{path}.minisig").write_text("nonsense")
    assert refused(scene) == f"{path}: not a minisign signature file"
    Path(f"{path}.minisig").unlink()
    assert refused(scene) == f"{path}: No such file or directory"
    Path(f"{path}.minisig").write_bytes(signature)
    write(scene.file, registry(serial=8))
    assert refused(scene).endswith("about other contents than are served now")
    scene.endorse(keys=Keys(tmp_path, "stranger"))
    assert refused(scene) == f"{path}: signed with a key that is not in the trust file"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "not an endorsement: Object missing required field `schema`"),
        ('{"schema": 1, "extra": 2}', "not an endorsement: Object contains unknown field `extra`"),
        ("[", "not an endorsement: "),
    ],
)
def test_a_signed_file_that_is_no_statement(scene: Scene, content: str, said: str) -> None:
    path = scene.place / "odd.json"
    path.write_text(content)
    run("minisign", "-S", "-s", scene.keys.secret, "-m", path)
    assert said in refused(scene)


def test_markup_in_a_statement_is_not_shown(scene: Scene) -> None:
    path = scene.endorse()
    path.write_bytes(path.read_bytes().replace(b"We use it", b"<b>We use it"))
    run("minisign", "-S", "-s", scene.keys.secret, "-m", path)
    assert "statement: markup or link '<b'" in refused(scene)


def test_a_higher_serial_takes_the_word_back(scene: Scene) -> None:
    scene.endorse("one")
    scene.endorse("two", "--serial", "2", "--revoke")
    assert refused(scene) == "registry.json by Grace of the Library: revoked"
    scene.endorse("three", "--serial", "3")
    assert len(scene.outcome()[0]) == 1


def test_another_category_changes_nothing(scene: Scene) -> None:
    scene.endorse("owls", "--category", "owls")
    changed = registry()
    changed["categories"][0] = category("bats", "Bats", "bat")
    write(scene.file, changed)
    assert len(scene.outcome()[0]) == 1
    changed["categories"][1]["sources"][0]["url"] = "https://example.org/other"
    write(scene.file, changed)
    assert refused(scene).endswith("about other contents than are served now")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense Grace", "trust.txt:1: not a minisign public key"),
        ("{key}", "trust.txt:1: the name of the key: empty"),
        ("{key} <b>Grace", "trust.txt:1: the name of the key: markup"),
    ],
)
def test_a_bad_trust_file(scene: Scene, line: str, said: str) -> None:
    scene.trust.write_text(line.replace("{key}", scene.keys.public))
    with pytest.raises(CatalogError) as caught:
        read_trust(scene.trust)
    assert said in str(caught.value)


def test_endorsing_what_is_not_there(scene: Scene) -> None:
    fixed = (
        "--key",
        scene.keys.secret,
        "--output",
        scene.folder / "x.json",
        "--expires",
        "2999-01-01",
    )
    command = (DOVETAIL, "sources", "endorse", scene.file, *fixed, "--statement")
    ran = attempt(*command, "Good", "--category", "bats")
    assert ran.returncode == 2
    assert "has no category 'bats'" in ran.stderr
    ran = attempt(*command, "<b>Good")
    assert ran.returncode == 2
    assert "--statement: markup" in ran.stderr
