"""The key ring that the nodes of one service share, and the session ids made with it.

Keys come from the environment or from a file, never from the engine: whoever can read the
engine must not be able to make a session id or a ``requestState``.

A session id is ``node tag | random | MAC``. The tag says where the session lives without a
look-up; the MAC refuses an invented id without one.
"""

import hmac
import os
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["KEYS_FILE_VARIABLE", "KEYS_VARIABLE", "KeyRing", "SessionIds", "new_node"]

KEYS_VARIABLE = "DOVETAIL_KEYS"
KEYS_FILE_VARIABLE = "DOVETAIL_KEYS_FILE"

# Bytes of a key; RFC 2104 discourages keys shorter than the hash.
_KEY = 32
# All multiples of three, so that each part is a whole number of base64 characters.
_NODE, _RANDOM, _MAC = 6, 18, 12
_NODE_TEXT = _NODE * 4 // 3
_BODY_TEXT = (_NODE + _RANDOM) * 4 // 3
_ID_TEXT = (_NODE + _RANDOM + _MAC) * 4 // 3


def new_node() -> str:
    """The tag of a node. Make it in the process that serves, not in its parent."""
    return _text(secrets.token_bytes(_NODE))


class KeyRing:
    """Secrets of a service: the first signs, all of them are accepted.

    To rotate, put the new key first everywhere, and drop the old one when nothing that it
    signed is in use any more.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self.keys = tuple(keys) or (secrets.token_bytes(_KEY),)
        if min(map(len, self.keys)) < _KEY:
            raise ValueError(f"a key has at least {_KEY} bytes")
        if len(set(self.keys)) < len(self.keys):
            raise ValueError("the same key is twice in the ring")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "KeyRing | None":
        """The ring of DOVETAIL_KEYS, or of the file that DOVETAIL_KEYS_FILE names."""
        if text := environment.get(KEYS_VARIABLE):
            return cls.parse(text)
        if path := environment.get(KEYS_FILE_VARIABLE):
            return cls.parse(Path(path).read_text())
        return None

    @classmethod
    def parse(cls, text: str) -> "KeyRing":
        """Keys in base64 or hexadecimal, separated by white space or commas."""
        words = text.replace(",", " ").split()
        if not words:
            raise ValueError("there is no key in the ring")
        return cls([_key(word) for word in words])

    def text(self) -> str:
        """What `parse` reads."""
        return ",".join(map(_text, self.keys))

    def macs(self, data: bytes, purpose: bytes) -> list[bytes]:
        """The MAC of ``data`` by each key; the first is the one to write."""
        return [hmac.digest(key, purpose + b"\0" + data, "sha256") for key in self.keys]


class SessionIds:
    """Makes the session ids of one node, and reads those of all."""

    def __init__(self, ring: KeyRing, node: str) -> None:
        self._ring = ring
        self._node = node

    def new(self) -> str:
        body = self._node + _text(secrets.token_bytes(_RANDOM))
        return body + self._macs(body)[0]

    def node(self, id: str) -> str | None:
        """The node that made the session; None if no node did."""
        if len(id) != _ID_TEXT or not id.isascii():
            return None
        body, given = id[:_BODY_TEXT], id[_BODY_TEXT:]
        # As texts: a decoder that skips foreign characters would compare less than all of it.
        genuine = any([hmac.compare_digest(mac, given) for mac in self._macs(body)])
        return id[:_NODE_TEXT] if genuine else None

    def _macs(self, body: str) -> list[str]:
        macs = self._ring.macs(body.encode(), b"dovetail session id")
        return [_text(mac[:_MAC]) for mac in macs]


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _key(word: str) -> bytes:
    try:
        return bytes.fromhex(word)
    except ValueError:
        pass
    try:
        return urlsafe_b64decode(word.replace("+", "-").replace("/", "_") + "=" * (-len(word) % 4))
    except ValueError:
        raise ValueError("a key is written in base64 or hexadecimal") from None
