"""The ring of keys, and the session ids made with it."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.backplane.keys import KeyRing, SessionIds, new_node

OLD, NEW = b"o" * 32, b"n" * 32


def test_an_id_tells_its_node() -> None:
    ring, node = KeyRing([NEW]), new_node()
    id = SessionIds(ring, node).new()
    assert SessionIds(ring, new_node()).node(id) == node
    assert id.isascii()
    assert all(0x21 <= ord(character) <= 0x7E for character in id)  # digest 10.3


def test_ids_are_new_each_time() -> None:
    ids = SessionIds(KeyRing([NEW]), new_node())
    assert len({ids.new() for _ in range(1000)}) == 1000


def test_every_changed_character_is_refused() -> None:
    ids = SessionIds(KeyRing([NEW]), new_node())
    id = ids.new()
    for place, character in enumerate(id):
        for other in ("A", "!", "=", "é"):
            if other != character:
                assert ids.node(id[:place] + other + id[place + 1 :]) is None


@pytest.mark.parametrize("cut", range(1, 48))
def test_a_shortened_id_is_refused(cut: int) -> None:
    ids = SessionIds(KeyRing([NEW]), new_node())
    assert ids.node(ids.new()[:-cut]) is None
    assert ids.node(ids.new()[:-cut] + "!" * cut) is None


@given(st.text(max_size=60))
def test_an_invented_id_is_refused(text: str) -> None:
    assert SessionIds(KeyRing([NEW]), new_node()).node(text) is None


def test_another_ring_refuses_an_id() -> None:
    id = SessionIds(KeyRing([OLD]), new_node()).new()
    assert SessionIds(KeyRing([NEW]), new_node()).node(id) is None


def test_rotation() -> None:
    before = SessionIds(KeyRing([OLD]), new_node())
    during = SessionIds(KeyRing([NEW, OLD]), new_node())
    after = SessionIds(KeyRing([NEW]), new_node())
    assert during.node(before.new()) is not None
    assert after.node(during.new()) is not None
    assert after.node(before.new()) is None


def test_keys_in_base64_and_hexadecimal() -> None:
    text = f"{base64.b64encode(NEW).decode()},\n {OLD.hex()}"
    assert KeyRing.parse(text).keys == (NEW, OLD)
    assert KeyRing.parse(base64.urlsafe_b64encode(NEW).decode().rstrip("=")).keys == (NEW,)
    ring = KeyRing([secrets.token_bytes(32), secrets.token_bytes(40)])
    assert KeyRing.parse(ring.text()).keys == ring.keys


def test_the_environment_has_the_keys_or_names_their_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(NEW.hex() + "\n")
    assert KeyRing.from_environment({}) is None
    for environment in ({"DOVETAIL_KEYS": NEW.hex()}, {"DOVETAIL_KEYS_FILE": str(file)}):
        ring = KeyRing.from_environment(environment)
        assert ring is not None
        assert ring.keys == (NEW,)


@pytest.mark.parametrize("text", ["", "  ", "abcd", "not base64 at all!", "ab" * 31])
def test_bad_keys_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="key"):
        KeyRing.parse(text)


def test_the_same_key_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        KeyRing([NEW, NEW])


def test_without_keys_a_ring_is_random() -> None:
    assert KeyRing().keys != KeyRing().keys
