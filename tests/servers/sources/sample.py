"""A small registry that the tests change one thing of, and keys made by the real minisign."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

MINISIGN, SIGNIFY = "minisign", "signify-openbsd"


def source(rank: int, word: str) -> dict[str, Any]:
    return {
        "rank": rank,
        "title": f"{word} book {rank}",
        "url": f"https://example.org/{word.lower()}/{rank}",
        "type": "book",
        "description": f"Number {rank} about {word}.",
    }


def category(slug: str, name: str, word: str, **changes: Any) -> dict[str, Any]:
    made = {
        "slug": slug,
        "name": name,
        "description": f"All about {word}.",
        "tags": ["nature"],
        "patterns": [f"{word} care", f"{word} in the garden", f"feeding a {word}"],
        "terms": [f"{word}ology"],
        "hints": [word],
        "sources": [source(rank, word.title()) for rank in (1, 2, 3)],
    }
    return {**made, **changes}


def registry(**changes: Any) -> dict[str, Any]:
    made = {
        "schema": 1,
        "serial": 7,
        "issued": "2026-01-01",
        "expires": "2999-12-31",
        "curator": "Ada Curator",
        "tags": ["nature"],
        "categories": [
            category("hedgehogs", "Hedgehogs", "hedgehog"),
            category("owls", "Owls of the Night", "owl"),
        ],
    }
    return {**copy.deepcopy(made), **changes}


def write(path: Path, content: dict[str, Any] | None = None) -> Path:
    path.write_text(json.dumps(content or registry(), indent=1) + "\n", "utf-8")
    return path


class Keys:
    """A key pair without a password, from ``minisign -G -W``."""

    def __init__(self, folder: Path, name: str = "curator") -> None:
        self.secret, self.public_file = folder / f"{name}.key", folder / f"{name}.pub"
        run(MINISIGN, "-G", "-W", "-f", "-s", self.secret, "-p", self.public_file)
        self.public = self.public_file.read_text().splitlines()[1]


def run(*command: Any, cwd: Path | None = None, stdin: str = "") -> str:
    """What a program says; a failure is the test's."""
    ran = attempt(*command, cwd=cwd, stdin=stdin)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def attempt(*command: Any, cwd: Path | None = None, stdin: str = "") -> Any:
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )
