"""Endorsements: signed statements of others about a registry or one of its categories.

A statement is a small JSON file with a minisign signature beside it. It is shown only if one of
the keys in the operator's trust file signed it and it is about exactly what is served now. There
is no trust at second hand: who is endorsed does not endorse.
"""

import hashlib
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from dovetail.servers.sources.catalog import Catalog, CatalogError
from dovetail.servers.sources.minisign import (
    KeyProblem,
    PublicKey,
    Signature,
    SignatureProblem,
    verify,
)
from dovetail.servers.sources.model import MAX_NAME, MAX_TEXT, Category

__all__ = ["Endorsement", "Shown", "Statement", "Trusted", "collect", "digest", "read_trust"]

MAX_STATEMENT = 64 * 1024  # a statement is a few lines
MAX_STATEMENTS = 1000  # files looked at; more than a registry has readers who sign


class Statement(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What somebody signs. A higher serial of the same key about the same thing replaces it."""

    schema: Literal[1]
    scope: Literal["registry", "category"]
    subject: str  # the registry's file name, or the slug
    sha256: str  # of the registry's bytes, or of the category as ``digest`` writes it
    statement: str
    issued: date
    expires: date
    serial: int
    revoked: bool = False


class Trusted(NamedTuple):
    name: str
    key: PublicKey


class Endorsement(NamedTuple):
    endorser: Trusted
    statement: Statement


class Shown(Struct, frozen=True, kw_only=True):
    """An endorsement as clients see it."""

    endorser: str
    public_key: str
    scope: Literal["registry", "category"]
    subject: str
    statement: str
    issued: date
    expires: date

    @classmethod
    def of(cls, endorsement: Endorsement) -> "Shown":
        (name, key), statement = endorsement
        return cls(
            endorser=name,
            public_key=str(key),
            scope=statement.scope,
            subject=statement.subject,
            statement=statement.statement,
            issued=statement.issued,
            expires=statement.expires,
        )


def read_trust(path: Path) -> list[Trusted]:
    """A line for each endorser: the public key, a space, the name; ``#`` begins a remark."""
    from dovetail.servers.sources.registry import text_problem

    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path}: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        key, _, name = line.partition(" ")
        if not line.strip() or line.startswith("#"):
            continue
        try:
            found.append(Trusted(name.strip(), PublicKey.parse(key)))
        except KeyProblem as problem:
            raise CatalogError(f"{path}:{number}: {problem}") from None
        if problem_with := text_problem(name.strip(), MAX_NAME):
            raise CatalogError(f"{path}:{number}: the name of the key: {problem_with}")
    return found


def collect(
    files: Sequence[Path], trusted: Sequence[Trusted], catalog: Catalog, today: date
) -> tuple[list[Shown], list[str]]:
    """What may be shown, and of every other file why not."""
    good: dict[tuple[bytes, str, str], Endorsement] = {}
    refused: list[str] = []
    for path in statement_files(files):
        try:
            found = _read(path, trusted)
        except (CatalogError, SignatureProblem) as problem:
            refused.append(f"{path}: {problem}")
            continue
        said = found.statement
        about = found.endorser.key.raw, said.scope, said.subject
        if about not in good or good[about].statement.serial < said.serial:
            good[about] = found
    shown = []
    for found in good.values():
        if reason := _out_of_date(found.statement, catalog, today):
            refused.append(f"{found.statement.subject} by {found.endorser.name}: {reason}")
        else:
            shown.append(Shown.of(found))
    return shown, refused


def statement_files(places: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        found += sorted(place.glob("*.json")) if place.is_dir() else [place]
    return found[:MAX_STATEMENTS]


def _read(path: Path, trusted: Sequence[Trusted]) -> Endorsement:
    from dovetail.servers.sources.registry import text_problem

    try:
        data = path.read_bytes()[: MAX_STATEMENT + 1]
        minisig = path.with_name(path.name + ".minisig").read_bytes()[:MAX_STATEMENT]
    except OSError as error:
        raise CatalogError(str(error.strerror or error)) from None
    signature = Signature.parse(minisig)
    endorser = next((one for one in trusted if one.key.key_id == signature.key_id), None)
    if endorser is None:
        raise CatalogError("signed with a key that is not in the trust file")
    verify(data, signature, endorser.key)
    try:
        statement = msgspec.json.decode(data, type=Statement)
    except msgspec.DecodeError as error:
        raise CatalogError(f"not an endorsement: {error}") from None
    if problem := text_problem(statement.statement, MAX_TEXT):
        raise CatalogError(f"statement: {problem}")
    return Endorsement(endorser, statement)


def _out_of_date(statement: Statement, catalog: Catalog, today: date) -> str | None:
    if statement.revoked:
        return "revoked"
    if statement.expires < today:
        return f"expired on {statement.expires}"
    if statement.sha256 != digest(catalog, statement.scope, statement.subject):
        return "about other contents than are served now"
    return None


def digest(catalog: Catalog, scope: str, subject: str) -> str | None:
    """The hash that an endorsement of this names; None if it is not served."""
    if scope == "registry":
        return next((one.sha256 for one in catalog.registries if one.name == subject), None)
    category = catalog.categories.get(subject)
    return None if category is None else category_digest(category)


def category_digest(category: Category) -> str:
    return hashlib.sha256(msgspec.json.encode(category, order="sorted")).hexdigest()
