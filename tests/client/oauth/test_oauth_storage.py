"""Stores: what they keep, for whom, and who else can read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dovetail.client.oauth import FileStore, MemoryStore, Store
from dovetail.client.oauth.clients import Registration
from dovetail.client.oauth.discovery import AuthorizationServer, Place
from dovetail.client.oauth.storage import Kept, Records
from dovetail.client.oauth.tokens import Token
from dovetail.errors import AuthorizationError
from support import run

AS, OTHER = "https://as.example", "https://other.example"
SERVER = "https://mcp.example/mcp"


def kept(issuer: str = AS, at: str = AS) -> Kept:
    server = AuthorizationServer(issuer=at, token_endpoint=at + "/token")
    token = Token(issuer=issuer, access_token="a", client_id="me", scopes=("x",), expires_at=5)
    return Kept(token=token, place=Place(server=server, resource=SERVER))


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path / "tokens")


@pytest.mark.verifies("C56")
def test_what_was_kept_is_found_again_for_its_issuer_only(store: Store) -> None:
    async def main() -> None:
        records = Records(store)
        client = Registration(issuer=AS, client_id="me", client_secret="s", dynamic=True)
        assert await records.registration(AS) is None
        await records.keep_registration(client)
        await records.keep_token(SERVER, kept())
        again = Records(store)
        assert await again.registration(AS) == client
        assert await again.token(SERVER) == kept()
        assert await again.registration(OTHER) is None
        assert await again.token(SERVER + "/") is None
        await again.forget_registration(AS)
        await again.forget_registration(AS)
        assert await records.registration(AS) is None

    run(main())


@pytest.mark.verifies("C56")
def test_a_record_under_the_name_of_another_issuer_is_none(store: Store) -> None:
    async def main() -> None:
        records = Records(store)
        await records.keep_registration(Registration(issuer=AS, client_id="me"))
        stolen = await store.load(f"client {AS}")
        assert stolen is not None
        await store.save(f"client {OTHER}", stolen)
        assert await records.registration(OTHER) is None
        await records.keep_token(SERVER, kept(AS, OTHER))
        assert await records.token(SERVER) is None

    run(main())


@pytest.mark.verifies("C56")
def test_a_client_id_is_bound_to_the_first_issuer(store: Store) -> None:
    async def main() -> None:
        assert await Records(store).bound_issuer("me", AS) == AS
        assert await Records(store).bound_issuer("me", OTHER) == AS
        assert await Records(store).bound_issuer("you", OTHER) == OTHER

    run(main())


def test_a_broken_record_is_none(store: Store) -> None:
    async def main() -> None:
        for broken in (b"", b"{", b"[]", b'{"token": 1}', b"\xff"):
            await store.save(f"token {SERVER}", broken)
            assert await Records(store).token(SERVER) is None

    run(main())


@pytest.mark.verifies("X42", "C58")
def test_files_are_for_their_owner(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "deep" / "tokens"
        await Records(FileStore(folder)).keep_token(SERVER, kept())
        (file,) = folder.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "example" not in file.name

    mask = os.umask(0)
    try:
        run(main())
    finally:
        os.umask(mask)


@pytest.mark.verifies("X42")
def test_what_others_could_have_touched_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        store = FileStore(tmp_path / "tokens")
        await store.save("a", b"1")
        (file,) = store.folder.iterdir()
        file.chmod(0o640)
        with pytest.raises(AuthorizationError, match="open to other users"):
            await store.load("a")
        await store.delete("a")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_bytes(b"2")
        elsewhere.chmod(0o600)
        file.symlink_to(elsewhere)
        with pytest.raises(AuthorizationError, match="cannot read"):
            await store.load("a")
        store.folder.chmod(0o777)
        with pytest.raises(AuthorizationError, match="open to other users"):
            await store.save("b", b"1")

    run(main())


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(AuthorizationError, match="cannot write"):
        run(FileStore(tmp_path / "file" / "tokens").save("a", b"1"))


def test_a_save_leaves_nothing_beside_it(tmp_path: Path) -> None:
    async def main() -> None:
        store = FileStore(tmp_path / "tokens")
        for value in (b"1", b"22", b"333"):
            await store.save("a", value)
        assert await store.load("a") == b"333"
        assert len(list(store.folder.iterdir())) == 1

    run(main())


def test_a_save_that_fails_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def main() -> None:
        store = FileStore(tmp_path / "tokens")
        await store.save("a", b"1")
        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(AuthorizationError, match="No space left"):
            await store.save("a", b"2")
        assert await store.load("a") == b"1"
        assert len(list(store.folder.iterdir())) == 1

    run(main())
