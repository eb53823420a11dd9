"""Keys and signatures in the formats of minisign and signify; Ed25519 from `cryptography`.

A minisign signature covers the BLAKE2b-512 hash of the bytes (algorithm ``ED``; ``Ed``, the older
form, the bytes themselves), and a second one covers the first and the trusted comment. signify
has the same keys and only the older form, without a trusted comment.
"""

import binascii
import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    pass

__all__ = ["KeyProblem", "PublicKey", "SecretKey", "Signature", "SignatureProblem", "verify"]

COMMENT, TRUSTED = "untrusted comment: ", "trusted comment: "
_PLAIN, _HASHED = b"Ed", b"ED"
# Above what minisign itself asks for (1 GiB): a key file must not exhaust the machine.
MAX_KDF_MEMORY = 2 * 1024**3


class KeyProblem(Exception):
    """A key cannot be used; the text says why."""


class SignatureProblem(Exception):
    """A signature does not hold; the text says why."""


class PublicKey(NamedTuple):
    key_id: bytes
    raw: bytes

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """From the one line that minisign prints, or the file it writes."""
        lines = text.strip().splitlines()
        data = _decoded(lines[-1] if lines else "")
        if len(data) != 42 or data[:2] != _PLAIN or len(lines) > 2:
            raise KeyProblem("not a minisign public key (56 characters that begin with RW)")
        return cls(data[2:10], data[10:])

    def __str__(self) -> str:
        return b64encode(_PLAIN + self.key_id + self.raw).decode()

    @property
    def name(self) -> str:
        """The number minisign shows people."""
        return self.key_id[::-1].hex().upper()

    @property
    def file(self) -> str:
        """As a file; signify reads it too."""
        return f"{COMMENT}minisign public key {self.name}\n{self}\n"


class Signature(NamedTuple):
    algorithm: bytes
    key_id: bytes
    raw: bytes
    trusted_comment: str
    global_raw: bytes

    @classmethod
    def parse(cls, data: bytes) -> "Signature":
        try:
            lines = data.decode().splitlines()
        except UnicodeDecodeError:
            lines = []
        if len(lines) < 4 or not lines[0].startswith(COMMENT) or not lines[2].startswith(TRUSTED):
            raise SignatureProblem("not a minisign signature file")
        made, whole = _decoded(lines[1]), _decoded(lines[3])
        if len(made) != 74 or made[:2] not in (_PLAIN, _HASHED) or len(whole) != 64:
            raise SignatureProblem("not a minisign signature file")
        return cls(made[:2], made[2:10], made[10:], lines[2].removeprefix(TRUSTED), whole)

    @property
    def claims(self) -> dict[str, str]:
        """The ``name:value`` pairs of the trusted comment."""
        parts = self.trusted_comment.split()
        return dict(part.split(":", 1) for part in parts if ":" in part)


def verify(data: bytes, signature: Signature, key: PublicKey) -> None:
    """SignatureProblem unless ``key`` signed these bytes and this trusted comment."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if signature.key_id != key.key_id:
        other = PublicKey(signature.key_id, b"").name
        raise SignatureProblem(f"signed with key {other}, not with {key.name}")
    check = Ed25519PublicKey.from_public_bytes(key.raw).verify
    try:
        check(signature.raw, _message(data, signature.algorithm))
    except InvalidSignature:
        raise SignatureProblem("the signature does not fit: the file was changed") from None
    try:
        check(signature.global_raw, signature.raw + signature.trusted_comment.encode())
    except InvalidSignature:
        raise SignatureProblem("the trusted comment was changed") from None


class SecretKey:
    """A secret key as ``minisign -G`` writes it, with or without a password."""

    def __init__(self, key_id: bytes, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key: Ed25519PrivateKey = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = PublicKey(key_id, self._key.public_key().public_bytes_raw())

    @classmethod
    def parse(cls, text: str, password: Callable[[], str]) -> "SecretKey":
        lines = text.strip().splitlines()
        data = _decoded(lines[-1] if lines else "")
        if len(data) != 158 or data[:2] != _PLAIN or data[4:6] != b"B2" or len(lines) > 2:
            raise KeyProblem("not a minisign secret key file")
        locked = data[54:]
        if data[2:4] == b"Sc":
            stream = _scrypt(password(), data[6:38], data[38:46], data[46:54])
            locked = bytes(a ^ b for a, b in zip(locked, stream, strict=True))
        key_id, secret, checksum = locked[:8], locked[8:72], locked[72:]
        wanted = hashlib.blake2b(_PLAIN + key_id + secret, digest_size=32).digest()
        # A key without a password may come without a checksum.
        if checksum != wanted and (data[2:4] == b"Sc" or any(checksum)):
            raise KeyProblem("wrong password, or a damaged secret key file")
        return cls(key_id, secret[:32])

    def sign(self, data: bytes, trusted_comment: str) -> str:
        """A minisign signature file."""
        made = self._key.sign(_message(data, _HASHED))
        whole = self._key.sign(made + trusted_comment.encode())
        head = b64encode(_HASHED + self.public.key_id + made).decode()
        return (
            f"{COMMENT}signature from minisign secret key {self.public.name}\n{head}\n"
            f"{TRUSTED}{trusted_comment}\n{b64encode(whole).decode()}\n"
        )

    def sign_for_signify(self, data: bytes, key_file: str) -> str:
        """A signify signature file; the comment names the key, which ``signify -V`` shows."""
        made = b64encode(_PLAIN + self.public.key_id + self._key.sign(data)).decode()
        return f"{COMMENT}verify with {key_file}\n{made}\n"


def _message(data: bytes, algorithm: bytes) -> bytes:
    return hashlib.blake2b(data).digest() if algorithm == _HASHED else data


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _scrypt(password: str, salt: bytes, opslimit: bytes, memlimit: bytes) -> bytes:
    """The key stream; the cost is chosen from the two limits as libsodium does."""
    operations = max(int.from_bytes(opslimit, "little"), 32768)
    memory = int.from_bytes(memlimit, "little")
    if memory > MAX_KDF_MEMORY or operations > 2**32:
        raise KeyProblem("the secret key asks for more memory or time than any minisign key")
    few = operations < memory // 32
    most = operations // 32 if few else memory // 1024
    cost = 1 << max(most.bit_length() - 1, 1)
    rounds = 1 if few else max(operations // 4 // cost // 8, 1)
    options: dict[str, Any] = {"n": cost, "r": 8, "p": rounds, "maxmem": 2**31 - 1}
    return hashlib.scrypt(password.encode(), salt=salt, dklen=104, **options)
