"""``dovetail list --url … --sign-in``."""

from __future__ import annotations

import asyncio
import webbrowser
from pathlib import Path

import pytest
from oauth_world import Person, world

from dovetail.cli.main import main
from support import run


def test_signing_in_once_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    person = Person()
    monkeypatch.setattr(webbrowser, "open", person)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def elsewhere(url: str) -> bool:
        person(url)  # on another machine, by the address that was printed
        return False

    async def drive() -> None:
        async with world() as (server, endpoint):
            command = ["list", "--url", endpoint.url]
            assert await asyncio.to_thread(main, command) == 3
            assert "401" in capsys.readouterr().err
            for _ in range(2):
                assert await asyncio.to_thread(main, [*command, "--sign-in"]) == 0
                assert "hello" in capsys.readouterr().out
            assert len(person.visited) == 1
            endpoint.revoke()
            server.refresh.clear()
            monkeypatch.setattr(webbrowser, "open", elsewhere)
            assert await asyncio.to_thread(main, [*command, "--sign-in"]) == 0
            assert f"sign in at {server.url}/authorize?" in capsys.readouterr().err
            monkeypatch.setattr(webbrowser, "open", person)
            server.denies = True
            endpoint.revoke()
            server.refresh.clear()
            assert await asyncio.to_thread(main, [*command, "--sign-in"]) == 3
            assert "the user said no" in capsys.readouterr().err

    run(drive())
