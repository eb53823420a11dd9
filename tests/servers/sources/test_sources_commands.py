"""The curator's commands, as a user or CI runs them: words, files and exit codes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from sample import Keys, attempt, category, registry, run, write

DOVETAIL = Path(sys.executable).with_name("dovetail")


def sources(*arguments: Any, stdin: str = "") -> tuple[int, str]:
    """The exit code, and all that was said."""
    ran = attempt(DOVETAIL, "sources", *arguments, stdin=stdin)
    assert "Traceback" not in ran.stderr
    return ran.returncode, ran.stdout + ran.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "registry.json")


def test_lint(file: Path) -> None:
    assert sources("lint", file) == (0, f"{file}: 2 categories, serial 7\n")
    code, said = sources("lint")
    assert code == 0
    assert "66 categories, serial 1" in said
    bad = write(file.with_name("bad.json"), registry(serial=0, curator=""))
    code, said = sources("lint", file, bad)
    assert code == 1
    assert f"{bad}:3: serial must be 1 or more" in said
    assert f"{bad}:6: curator: empty" in said
    assert f"{file}: 2 categories" in said
    assert sources("lint", file.with_name("none.json"))[0] == 1
    twin = write(file.with_name("twin.json"))
    code, said = sources("lint", file, twin)
    assert code == 1
    assert "slug 'hedgehogs' is in both registries: rename one" in said


def test_lint_warns_of_what_a_curator_should_look_at(file: Path) -> None:
    odd = [
        category("owls", "Owls", "owl"),
        category("birds", "Birds", "bird", patterns=["owl", "bird care", "birds at home"]),
    ]
    write(file, registry(issued="2020-01-01", expires="2021-01-01", categories=odd))
    code, said = sources("lint", file)
    assert code == 0
    assert f"warning: {file}: expired on 2021-01-01: look it through and issue it anew" in said
    assert "warning: birds: pattern 'owl' finds owls instead" in said
    write(file, registry(issued="2998-01-01"))
    assert "issued on 2998-01-01, which is not yet" in sources("lint", file)[1]


def test_match(file: Path) -> None:
    code, said = sources("match", "feeding a hedgehog", "--registry", file)
    assert code == 0
    assert said.splitlines()[0] == "1.00 match   hedgehogs: feeding, hedgehog"
    code, said = sources("match", "an owl in an aeroplane over paris", "--registry", file)
    assert code == 1
    assert "too low owls: owl" in said
    assert sources("match", "zebra", "--registry", file) == (
        *(1, "no word of the query occurs in the registry\n"),
    )
    assert sources("match")[0] == 2


def test_match_runs_labelled_queries(file: Path) -> None:
    queries = file.with_name("queries.tsv")
    queries.write_text("# ours\nowls\towl care\n-\tfast cars\nowls\thedgehog care\n")
    command = ("match", "--registry", file, "--queries", queries)
    code, said = sources(*command)
    assert code == 1
    assert "'hedgehog care': expected owls, found hedgehogs" in said
    assert "66.7% of 3 queries right" in said
    assert sources(*command, "--at-least", "0.6")[0] == 0
    queries.write_text("owls owl care\n")
    assert sources(*command) == (
        *(2, f"dovetail: {queries}:1: expected a slug or -, a tab, and a query\n"),
    )
    queries.write_text("bats\tbat care\n")
    assert "no category 'bats'" in sources(*command)[1]


def test_sign_and_verify(file: Path, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    code, said = sources("sign", file, "--key", keys.secret)
    assert code == 0
    assert said == (
        f"signed registry.json, serial 7, with key {keys.public}\n"
        f"readers check it with: minisign -Vm registry.json -P {keys.public}\n"
    )
    comment = run("minisign", "-Vm", file, "-P", keys.public)
    assert "Trusted comment: serial:7\tissued:2026-01-01\texpires:2999-12-31\tsha256:" in comment
    code, said = sources("verify", file, "--public-key", keys.public)
    assert code == 0
    assert said == (
        f"{file}: signed by Ada Curator, key {keys.public}, serial 7\ngood until 2999-12-31\n"
    )
    file.write_bytes(file.read_bytes().replace(b"Ada", b"Eve"))
    code, said = sources("verify", file, "--public-key", keys.public_file)
    assert code == 1
    assert "the signature does not fit: the file was changed" in said
    assert sources("verify", file, "--public-key", "nonsense")[0] == 2


def test_verify_an_expired_registry(file: Path, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    write(file, registry(issued="2020-01-01", expires="2021-01-01"))
    sources("sign", file, "--key", keys.secret)
    code, said = sources("verify", file, "--public-key", keys.public)
    assert code == 1
    assert said.endswith("expired 2021-01-01\n")


def test_verify_counts_endorsements(file: Path, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    trust, word = tmp_path / "trust", tmp_path / "word.json"
    trust.write_text(f"{keys.public} Grace\n")
    sources("sign", file, "--key", keys.secret)
    fixed = ("--key", keys.secret, "--output", word, "--expires", "2999-01-01")
    code, said = sources("endorse", file, *fixed, "--statement", "Good.", "--category", "owls")
    assert (code, said) == (0, f"{word}: category owls, signed with key {keys.public}\n")
    options = ("--public-key", keys.public, "--trust", trust, "--endorsements", word)
    code, said = sources("verify", file, *options)
    assert code == 0
    assert "endorsed by Grace (category owls): Good.\n" in said
    trust.write_text("")
    code, said = sources("verify", file, *options)
    assert code == 1
    assert "endorsement not counted: " in said


def test_bad_secret_keys(file: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    assert sources("sign", file, "--key", key)[0] == 2
    key.write_bytes(b"\xff nonsense")
    assert sources("sign", file, "--key", key) == (
        *(2, f"dovetail: {key}: not a minisign secret key file\n"),
    )
    assert not Path(f"{file}.minisig").exists()


def test_what_is_bad_is_not_signed(file: Path, tmp_path: Path) -> None:
    write(file, registry(serial=0))
    code, said = sources("sign", file, "--key", Keys(tmp_path).secret)
    assert code == 2
    assert "serial must be 1 or more" in said
    assert not Path(f"{file}.minisig").exists()


def test_diff(file: Path) -> None:
    new = file.with_name("new.json")
    new.write_bytes(file.read_bytes())
    assert sources("diff", file, new) == (0, "no difference\n")
    changed = registry(serial=8)
    changed["categories"][0] = category("bats", "Bats", "bat")
    changed["categories"][1]["sources"][0]["url"] = "https://example.org/better"
    changed["categories"][1]["sources"][1]["title"] = "Another title"
    changed["categories"][1]["terms"] = ["strigology"]
    changed["categories"][1]["name"] = "Owls"
    write(new, changed)
    code, said = sources("diff", file, new)
    assert code == 0
    assert said.splitlines() == [
        "serial: 7 -> 8",
        "removed hedgehogs",
        "added bats",
        "owls: name: 'Owls of the Night' -> 'Owls'",
        "owls: terms: - owlology",
        "owls: terms: + strigology",
        "owls: source 1: https://example.org/owl/1 -> https://example.org/better",
        "owls: source 2: other words about https://example.org/owl/2",
    ]
    changed["serial"] = 7
    write(new, changed)
    code, said = sources("diff", file, new)
    assert code == 1
    assert said.endswith("serial 7 must be higher than 7\n")


def test_serving_a_bad_registry_ends_with_its_line(file: Path) -> None:
    write(file, registry(serial=0))
    ran = attempt(DOVETAIL, "serve", "sources", "--registry", file)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"dovetail: {file}:3: serial must be 1 or more")
    assert ran.stdout == ""
    assert attempt(DOVETAIL, "serve", "sources", "--threshold", "7").returncode == 2
