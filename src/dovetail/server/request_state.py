"""Sealed ``requestState``: what a server remembers between two tries of one request.

2026-07-28 has no sessions. A request that needs input ends, the client repeats it with the
answers and with an opaque text of ours, which may come back changed, late, from somebody else or
with another request (digest 8.8, S19). The seal makes all of that visible:

    version 1 | key id 4 | expiry 8 | audience 32 | binding 32 | payload | HMAC-SHA256 32

in base64url without padding. The payload is protected from change but not from reading: the
client sees it, so it is no place for secrets. A seal can be opened more than once; a state that
must be used only once needs a record on the server too (digest S20).
"""

import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from struct import Struct
from typing import Any, Final

import msgspec

from dovetail.errors import INVALID_PARAMS, McpError

__all__ = ["MAX_STATE_LENGTH", "MIN_KEY_LENGTH", "Seal", "StateRefused", "binding"]

# Characters of one sealed state. The answers so far travel in it, and what a model wrote may be
# long, but it comes back with every try: a quarter of the longest message we accept.
MAX_STATE_LENGTH: Final = 1024 * 1024
# Bytes of a key. RFC 2104 discourages keys shorter than the hash.
MIN_KEY_LENGTH: Final = 32

_VERSION: Final = 1
_HEAD: Final = Struct(">B4sQ32s32s")
_MAC: Final = 32
# The members that say what a request is about. `_meta` is new in every try, and the answers
# are what a repeated request adds.
_IDENTITY: Final = ("name", "uri", "arguments")

# Fractions as Decimal: two amounts that only a double confuses are not the same request.
_read = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal).decode
_write = msgspec.json.Encoder(order="sorted", decimal_format="number").encode


class StateRefused(McpError):
    """A ``requestState`` that is not ours, not for this request, or too old.

    Whoever sent it always gets the same answer, because a precise one would help to forge the
    next; ``reason`` is for the log.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(INVALID_PARAMS, data="Invalid requestState")
        self.reason = reason


class Seal:
    """Seals and opens states for one audience (the name of the server or service).

    Replicas that answer for each other share ``keys``. The first key seals, all of them open:
    to rotate, put the new key first and drop the old one after ``ttl_seconds``. Without keys
    the states die with the process.
    """

    def __init__(
        self,
        audience: str,
        *,
        keys: Sequence[bytes] = (),
        ttl_seconds: float = 600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        ring = list(keys) or [secrets.token_bytes(MIN_KEY_LENGTH)]
        if min(map(len, ring)) < MIN_KEY_LENGTH:
            raise ValueError(f"a key for requestState has at least {MIN_KEY_LENGTH} bytes")
        if not ttl_seconds > 0:
            raise ValueError("ttl_seconds must be positive")
        self._ring = {_key_id(key): key for key in ring}
        if len(self._ring) < len(ring):
            raise ValueError("the same key is twice in the ring")
        self._first = _key_id(ring[0])
        self._audience = sha256(audience.encode()).digest()
        self._ttl = ttl_seconds
        self._clock = clock

    def seal(self, state: Any, *, binding: bytes) -> str:
        """``state`` (any JSON-like value) as a text that only this request can use."""
        expiry = round((self._clock() + self._ttl) * 1000)
        head = _HEAD.pack(_VERSION, self._first, expiry, self._audience, _digest(binding))
        body = head + _packed(state)
        text = _encode(body + _mac(self._ring[self._first], body))
        if len(text) > MAX_STATE_LENGTH:
            raise ValueError(f"the state is too long to send: {len(text)} characters")
        return text

    def open(self, text: str, *, binding: bytes) -> Any:
        """The state sealed in ``text``; StateRefused if there is any doubt about it."""
        body, key_id, mac = _parse(text)
        key = self._ring.get(key_id)
        if key is None:
            raise StateRefused("unknown key")
        # Before anything else is believed; the checks after this one read what we wrote.
        if not hmac.compare_digest(_mac(key, body), mac):
            raise StateRefused("wrong MAC")
        self._check(body, binding)
        return _unpacked(body[_HEAD.size :])

    def _check(self, body: bytes, binding: bytes) -> None:
        _, _, expiry, audience, bound = _HEAD.unpack_from(body)
        if not hmac.compare_digest(audience, self._audience):
            raise StateRefused("wrong audience")
        if self._clock() * 1000 >= expiry:
            raise StateRefused("expired")
        if not hmac.compare_digest(bound, _digest(binding)):
            raise StateRefused("wrong binding")


def binding(
    method: str, params: Mapping[str, Any] | bytes | msgspec.Raw, principal: str | None
) -> bytes:
    """What a state belongs to: this method, with this name or uri and arguments, for this user.

    The order of members and white space do not matter, the text of numbers does.
    """
    raw = msgspec.json.encode(params) if isinstance(params, Mapping) else bytes(params)
    return _digest(msgspec.msgpack.encode((method, *_canonical(raw), principal)))


def _canonical(raw: bytes) -> tuple[str, bytes]:
    try:
        params = _read(raw)
        return "json", _write({name: params[name] for name in _IDENTITY if name in params})
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError):
        # No canonical form (a number beyond Decimal): then every byte counts.
        return "bytes", raw


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()


def _key_id(key: bytes) -> bytes:
    return _mac(key, b"dovetail requestState key id")[:4]


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _packed(state: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(state)
    except (TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"the state cannot be sealed: {error}") from error


def _unpacked(payload: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Only another program with our key can have written this.
        raise StateRefused("unreadable payload") from None


def _parse(text: str) -> tuple[bytes, bytes, bytes]:
    if len(text) > MAX_STATE_LENGTH:
        raise StateRefused("too long")
    data = _decode(text)
    if data[:1] != bytes([_VERSION]):
        raise StateRefused("unknown version")
    if len(data) < _HEAD.size + _MAC:
        raise StateRefused("too short")
    return data[:-_MAC], data[1:5], data[-_MAC:]


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise StateRefused("not base64") from None
    # The decoder skips foreign characters and ignores spare bits: one state, one spelling.
    if _encode(data) != text:
        raise StateRefused("not base64")
    return data
