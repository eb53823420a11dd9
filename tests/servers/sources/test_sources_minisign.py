"""Signatures that the real minisign and signify accept, and theirs that we accept."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from sample import MINISIGN, SIGNIFY, Keys, attempt, run, write

from dovetail.servers.sources.minisign import (
    KeyProblem,
    PublicKey,
    SecretKey,
    Signature,
    SignatureProblem,
    verify,
)

DATA = b'{"what": "we sign"}\n'


def no_password() -> str:
    raise AssertionError("nobody should be asked for a password")


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.fixture
def ours(keys: Keys) -> SecretKey:
    return SecretKey.parse(keys.secret.read_text(), no_password)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.json"
    path.write_bytes(DATA)
    return path


def test_the_key_is_the_one_minisign_made(keys: Keys, ours: SecretKey) -> None:
    assert str(ours.public) == keys.public
    assert PublicKey.parse(keys.public) == ours.public
    assert PublicKey.parse(keys.public_file.read_text()) == ours.public
    assert ours.public.name in keys.public_file.read_text()


def test_minisign_accepts_ours(keys: Keys, ours: SecretKey, file: Path) -> None:
    Path(f"{file}.minisig").write_text(ours.sign(DATA, "serial:1\tissued:2026-01-01"))
    said = run(MINISIGN, "-Vm", file, "-P", keys.public)
    assert "Trusted comment: serial:1\tissued:2026-01-01" in said
    file.write_bytes(DATA.replace(b"sign", b"sigh"))
    assert attempt(MINISIGN, "-Vm", file, "-P", keys.public).returncode == 1


def test_minisign_refuses_another_trusted_comment(keys: Keys, ours: SecretKey, file: Path) -> None:
    text = ours.sign(DATA, "serial:1")
    Path(f"{file}.minisig").write_text(text.replace("serial:1", "serial:2"))
    assert attempt(MINISIGN, "-Vm", file, "-P", keys.public).returncode == 1
    with pytest.raises(SignatureProblem, match="the trusted comment was changed"):
        verify(DATA, Signature.parse(Path(f"{file}.minisig").read_bytes()), ours.public)


def test_signify_accepts_ours(ours: SecretKey, file: Path) -> None:
    public = file.with_name("key.pub")
    public.write_text(ours.public.file)
    Path(f"{file}.sig").write_text(ours.sign_for_signify(DATA, "key.pub"))
    check = (SIGNIFY, "-V", "-p", public, "-x", f"{file}.sig", "-m", file)
    assert "Signature Verified" in run(*check)
    file.write_bytes(DATA + b" ")
    assert attempt(*check).returncode == 1


@pytest.mark.parametrize("options", [[], ["-l"]], ids=["hashed", "legacy"])
def test_we_accept_minisign(keys: Keys, file: Path, options: list[str]) -> None:
    run(MINISIGN, "-S", *options, "-s", keys.secret, "-m", file, "-t", "serial:9 a:b")
    signature = Signature.parse(Path(f"{file}.minisig").read_bytes())
    assert signature.algorithm == (b"Ed" if options else b"ED")
    assert signature.claims == {"serial": "9", "a": "b"}
    verify(DATA, signature, PublicKey.parse(keys.public))
    with pytest.raises(SignatureProblem, match="the signature does not fit: the file was changed"):
        verify(DATA + b" ", signature, PublicKey.parse(keys.public))


def test_another_key_is_named(keys: Keys, ours: SecretKey, tmp_path: Path) -> None:
    other = PublicKey.parse(Keys(tmp_path, "other").public)
    signature = Signature.parse(ours.sign(DATA, "x").encode())
    with pytest.raises(SignatureProblem, match=f"signed with key {ours.public.name}, not with "):
        verify(DATA, signature, other)
    forged = signature._replace(key_id=other.key_id)
    with pytest.raises(SignatureProblem, match="does not fit"):
        verify(DATA, forged, other)


def locked(keys: Keys, password: str) -> str:
    """The same key behind a password, at the lowest cost minisign reads."""
    head, text = keys.secret.read_text().splitlines()
    data = base64.b64decode(text)
    salt, operations, memory = bytes(range(32)), 32768, 1 << 20
    stream = hashlib.scrypt(password.encode(), salt=salt, n=1024, r=8, p=1, dklen=104)
    key_id, secret = data[54:62], data[62:126]
    checksum = hashlib.blake2b(b"Ed" + key_id + secret, digest_size=32).digest()
    hidden = bytes(a ^ b for a, b in zip(key_id + secret + checksum, stream, strict=True))
    limits = operations.to_bytes(8, "little") + memory.to_bytes(8, "little")
    whole = b"EdScB2" + salt + limits + hidden
    return f"{head}\n{base64.b64encode(whole).decode()}\n"


def test_a_key_behind_a_password(keys: Keys, file: Path) -> None:
    keys.secret.write_text(locked(keys, "let me in"))
    run(MINISIGN, "-S", "-s", keys.secret, "-m", file, stdin="let me in\n")  # it reads such a key
    opened = SecretKey.parse(keys.secret.read_text(), lambda: "let me in")
    assert str(opened.public) == keys.public
    with pytest.raises(KeyProblem, match="wrong password, or a damaged secret key file"):
        SecretKey.parse(keys.secret.read_text(), lambda: "let me out")


def test_a_key_that_would_exhaust_the_machine(keys: Keys) -> None:
    data = bytearray(base64.b64decode(locked(keys, "x").splitlines()[1]))
    data[46:54] = (1 << 50).to_bytes(8, "little")
    with pytest.raises(KeyProblem, match="asks for more memory or time"):
        SecretKey.parse(base64.b64encode(data).decode(), lambda: "x")


@pytest.mark.parametrize("text", ["", "RWQ", "x" * 56, "RWT" + "A" * 53 + "\nmore\nlines", "ä"])
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(KeyProblem, match="not a minisign public key"):
        PublicKey.parse(text)
    with pytest.raises(KeyProblem, match="not a minisign secret key file"):
        SecretKey.parse(text, no_password)


@pytest.mark.parametrize("data", [b"", b"\xff", b"a\nb\nc\nd", b"untrusted comment: \nRWQ=\n"])
def test_what_is_no_signature(data: bytes) -> None:
    with pytest.raises(SignatureProblem, match="not a minisign signature file"):
        Signature.parse(data)


def test_the_library_is_loaded_when_a_signature_is_checked_and_not_before() -> None:
    program = (
        "import sys, argparse; from dovetail.servers import sources as s; "
        "p = argparse.ArgumentParser(); s.add_arguments(p); s.build(p.parse_args([])); "
        "print([m for m in sys.modules if m.startswith(('cryptography', 'sqlite3', 'json.'))])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == "[]\n", ran.stderr


def test_without_the_library_the_user_is_told_what_to_install(tmp_path: Path) -> None:
    file, keys = write(tmp_path / "registry.json"), Keys(tmp_path)
    run(MINISIGN, "-S", "-s", keys.secret, "-m", file)
    program = (
        "import sys; sys.modules['cryptography'] = None; from dovetail.cli.main import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    options = ("--registry", file, "--public-key", keys.public)
    ran = attempt(sys.executable, "-c", program, "serve", "sources", *options)
    assert ran.returncode == 2
    assert "signatures need pip install 'dovetail[sources]'" in ran.stderr
    assert "Traceback" not in ran.stderr
