"""docs/client-auth.md does what it says: every program in it is run."""

from __future__ import annotations

import asyncio
import re
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oauth_world import AuthServer, Endpoint, Person, company, key_pair, serving, world

from dovetail.client import oauth
from dovetail.client.oauth import authorizer, browser, fetch, grants, urls
from support import run

PAGE = (Path(__file__).parents[3] / "docs" / "client-auth.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SIGN_IN, DOCUMENT, BROWSER, KEY, COMPANY, STORE = range(6)

Prepare = Callable[[AuthServer, AuthServer], None]


async def running(program: str, names: dict[str, Any], prepare: Prepare) -> Endpoint:
    """Run a program of the page in a thread of its own, in a world with its servers."""
    async with world() as (server, endpoint):
        idp = AuthServer()
        async with serving(idp.handle) as idp.url:
            prepare(server, idp)
            for written, real in (
                ("https://notes.example/mcp", endpoint.url),
                ("https://login.example", server.issuer),
                ("https://sso.example", idp.issuer),
            ):
                program = program.replace(written, real)
            code = compile(program, "docs/client-auth.md", "exec")
            await asyncio.to_thread(exec, code, names)
            return endpoint


def nothing(server: AuthServer, idp: AuthServer) -> None:
    """This program needs no more than a world."""


def drive(number: int, prepare: Prepare = nothing, **names: Any) -> tuple[Endpoint, dict[str, Any]]:
    """The endpoint after the program, and what the program defined."""
    return run(running(PROGRAMS[number], names, prepare)), names


def test_a_user_signs_in_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    person = Person()
    monkeypatch.setattr(webbrowser, "open", person)
    monkeypatch.setenv("HOME", str(tmp_path))
    drive(SIGN_IN)
    assert capsys.readouterr().out == "hello\n"
    assert len(person.visited) == 1
    assert len(list((tmp_path / ".config" / "notes-reader").iterdir())) == 2


def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    drive(DOCUMENT)
    assert '"client_id": "https://app.example/client.json"' in capsys.readouterr().out


def test_a_browser_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    drive(BROWSER, open_somewhere=Person())
    said = capsys.readouterr().out
    assert said.startswith("Please open http://127.0.0.1")
    assert said.endswith("2026-07-28\n")


def test_a_program_with_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    private, public = key_pair()
    (tmp_path / "robot.pem").write_text(private)
    monkeypatch.chdir(tmp_path)
    endpoint, _ = drive(KEY, lambda server, idp: server.keys.update(robot=public))
    assert endpoint.server.grants() == ["client_credentials"]


def test_a_company() -> None:
    def prepare(server: AuthServer, idp: AuthServer) -> None:
        company(server, idp)
        idp.id_tokens["the ID token of the single sign-on"] = "ann"
        idp.clients["notes-reader-at-sso"] = {"client_id": "notes-reader-at-sso"}
        server.clients["notes-reader"] = {"client_id": "notes-reader", "client_secret": "a secret"}

    endpoint, _ = drive(COMPANY, prepare)
    assert endpoint.server.grants()[0].endswith(":jwt-bearer")


def test_a_store_of_ones_own() -> None:
    _, names = drive(STORE)
    assert isinstance(names["auth"], oauth.OAuth)


def test_every_program_is_run() -> None:
    assert len(PROGRAMS) == STORE + 1


@pytest.mark.parametrize(
    ("module", "name", "shown"),
    [
        (fetch, "MAX_BODY", "256 KiB"),
        (fetch, "SECONDS", "30 s"),
        (fetch, "MAX_REDIRECTS", "3"),
        (urls, "MAX_URL", "2048"),
        (browser, "USER_SECONDS", "300 s"),
        (authorizer, "MAX_REFUSALS", "2"),
        (authorizer, "MARGIN", "30 s"),
    ],
)
def test_the_limits_are_those(module: Any, name: str, shown: str) -> None:
    number, _, unit = shown.partition(" ")
    assert getattr(module, name) == int(number) * (1024 if unit == "KiB" else 1)
    assert f"| `{module.__name__.rpartition('.')[2]}.{name}` | {shown} |" in PAGE


def test_the_limit_of_prompts() -> None:
    shown = f"{grants.MAX_PROMPTS} in {grants.PROMPT_WINDOW:g} s"
    assert f"| `grants.MAX_PROMPTS` in `PROMPT_WINDOW` | {shown} |" in PAGE


def test_what_is_public_is_on_the_page() -> None:
    internal = {"Authorizer", "Browser", "Store", "Visit"}  # bases and protocols
    assert [name for name in oauth.__all__ if name not in internal and name not in PAGE] == []
