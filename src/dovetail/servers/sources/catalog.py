"""What a server serves: registry files with their signatures, read together."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct

from dovetail.servers.sources.matching import Matcher
from dovetail.servers.sources.minisign import (
    KeyProblem,
    PublicKey,
    Signature,
    SignatureProblem,
    verify,
)
from dovetail.servers.sources.model import Category, Registry

__all__ = ["EMBEDDED", "Catalog", "CatalogError", "Loaded", "load", "read_key", "read_registry"]

EMBEDDED = Path(__file__).with_name("embedded.json")
# Ten times what 10,000 categories need; a wrong file is not read into memory whole.
MAX_BYTES = 128 * 1024 * 1024
# A signature file has four short lines; whatever is larger is none.
MAX_SIGNATURE = 64 * 1024


class CatalogError(Exception):
    """What was to be served cannot be; the text says which file, which line, and why."""


class Loaded(Struct, frozen=True, dict=True):
    """A registry file as it was read."""

    name: str
    path: Path
    data: bytes
    registry: Registry
    minisig: str | None  # what lies beside it
    signify: str | None
    key: PublicKey | None  # the operator's key that the signature fits

    @property
    def embedded(self) -> bool:
        return self.path == EMBEDDED

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


class Catalog:
    """Registries whose slugs do not clash, and the index of their categories."""

    def __init__(self, registries: Sequence[Loaded]) -> None:
        self.registries = registries
        self.categories: dict[str, Category] = {}
        owners: dict[str, Loaded] = {}
        for loaded in registries:
            if loaded.name in [other.name for other in registries if other is not loaded]:
                raise CatalogError(f"two registries are named {loaded.name}: rename one of them")
            for category in loaded.registry.categories:
                if category.slug in owners:
                    raise _clash(category.slug, owners[category.slug], loaded)
                owners[category.slug] = loaded
                self.categories[category.slug] = category

    @cached_property
    def matcher(self) -> Matcher:
        return Matcher(list(self.categories.values()))


def load(files: Sequence[Path], keys: Sequence[PublicKey] = ()) -> Catalog:
    """Read registries; with ``keys`` each but the embedded one must be signed by one of them."""
    return Catalog([read_registry(path, keys) for path in files])


def read_registry(path: Path, keys: Sequence[PublicKey] = (), *, checked: bool = False) -> Loaded:
    """One registry. The embedded one is known to be good unless it is to be ``checked``."""
    data = _read(path, MAX_BYTES)
    if path == EMBEDDED and not checked:
        return Loaded(path.name, path, data, msgspec.json.decode(data, type=Registry), *[None] * 3)
    # Not needed, and not loaded, for the embedded one.
    from dovetail.servers.sources.registry import FILE_NAME, RegistryError, parse

    if not FILE_NAME.fullmatch(path.name):
        raise CatalogError(f"{path}: rename it: letters, digits, dots, hyphens and underscores")
    try:
        registry = parse(data, str(path))
    except RegistryError as error:
        raise CatalogError(str(error)) from None
    minisig, signify = _beside(path, ".minisig"), _beside(path, ".sig")
    key = _checked(path, data, registry, minisig, keys) if keys else None
    return Loaded(path.name, path, data, registry, minisig, signify, key)


def _checked(
    path: Path, data: bytes, registry: Registry, minisig: str | None, keys: Sequence[PublicKey]
) -> PublicKey:
    """The key that signed the file."""
    if minisig is None:
        raise CatalogError(f"{path}: not signed: there is no {path.name}.minisig beside it")
    try:
        signature = Signature.parse(minisig.encode())
        key = next((key for key in keys if key.key_id == signature.key_id), keys[0])
        verify(data, signature, key)
        _agree(signature.claims, registry)
    except SignatureProblem as problem:
        raise CatalogError(f"{path}.minisig: {problem}") from None
    return key


def _agree(claims: Mapping[str, str], registry: Registry) -> None:
    """What the trusted comment repeats must be what the file says."""
    for name in ("serial", "issued", "expires"):
        there = str(getattr(registry, name))
        if claims.get(name, there) != there:
            said = claims[name]
            raise SignatureProblem(f"the trusted comment says {name} {said}, the file {there}")


def read_key(given: str) -> PublicKey:
    """A public key, as its one line or as the name of a file that holds it."""
    try:
        is_file = Path(given).is_file()
        return PublicKey.parse(Path(given).read_text("utf-8") if is_file else given)
    except (OSError, UnicodeDecodeError, KeyProblem) as error:
        raise CatalogError(f"public key {given[:80]!r}: {error}") from None


def _read(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror or error}") from None
    if len(data) > limit:
        raise CatalogError(f"{path}: larger than {limit} bytes")
    return data


def _beside(path: Path, suffix: str) -> str | None:
    """A signature file, if there is one."""
    other = path.with_name(path.name + suffix)
    if not other.exists():
        return None
    try:
        return _read(other, MAX_SIGNATURE).decode("ascii")
    except UnicodeDecodeError:
        raise CatalogError(f"{other}: not a signature file") from None


def _clash(slug: str, one: Loaded, other: Loaded) -> CatalogError:
    places = " and ".join(f"{file.path}:{_line(file, slug)}" for file in (one, other))
    return CatalogError(f"{places}: slug {slug!r} is in both registries: rename one")


def _line(file: Loaded, slug: str) -> int:
    from dovetail.servers.sources.lines import line_of

    slugs = [category.slug for category in file.registry.categories]
    return line_of(file.data.decode(), ("categories", slugs.index(slug), "slug"))
