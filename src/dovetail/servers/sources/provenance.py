"""Who vouches for what is served, in words that can be followed one by one."""

from datetime import date

from msgspec import Struct

from dovetail.servers.sources.catalog import Loaded

__all__ = ["Provenance", "RegistryProvenance", "file_uri", "provenance"]


class RegistryProvenance(Struct, frozen=True, kw_only=True):
    name: str
    curator: str
    public_key: str | None
    signed: bool
    serial: int
    issued: date
    expires: date
    verification: str


class Provenance(Struct, frozen=True, kw_only=True):
    curator: str
    public_key: str | None
    signed: bool
    serial: int
    issued: date
    expires: date
    verification: str
    registries: list[RegistryProvenance]


def file_uri(name: str) -> str:
    return f"sources://registry/{name}"


def provenance(
    registries: list[Loaded], today: date, refused: dict[str, str] | None = None
) -> Provenance:
    """``refused`` has, by file name, why a newer file on disk is not served."""
    each = [_of(loaded, today, (refused or {}).get(loaded.name)) for loaded in registries]
    first = each[0]
    return Provenance(
        curator=first.curator,
        public_key=first.public_key,
        signed=first.signed,
        serial=first.serial,
        issued=first.issued,
        expires=first.expires,
        verification=first.verification,
        registries=each,
    )


def _of(loaded: Loaded, today: date, refused: str | None) -> RegistryProvenance:
    registry = loaded.registry
    parts = [_signed(loaded) if loaded.key else _unsigned(loaded)]
    if registry.expires < today:
        parts.append(f"Expired on {registry.expires}: ask the curator for a newer issue.")
    if refused:
        parts.append(f"The file has changed since, but the new one was refused: {refused}")
    if registry.note:
        parts.append(f"The curator notes: {registry.note}")
    return RegistryProvenance(
        name=loaded.name,
        curator=registry.curator,
        public_key=str(loaded.key) if loaded.key else None,
        signed=loaded.key is not None,
        serial=registry.serial,
        issued=registry.issued,
        expires=registry.expires,
        verification=" ".join(parts),
    )


def _signed(loaded: Loaded) -> str:
    name, key = loaded.name, loaded.key
    text = (
        f"Signed: this server checked the minisign signature of {name} with the public key above, "
        "which its operator configured. To check it yourself, save the text of the resource "
        f"{file_uri(name)} as {name} and that of {file_uri(name + '.minisig')} as {name}.minisig, "
        f"byte for byte, then run: minisign -Vm {name} -P {key} ."
    )
    if loaded.signify:
        text += (
            f" With signify, also save {file_uri(name + '.sig')} as {name}.sig and "
            f"{file_uri(name + '.pub')} as {name}.pub, then run: "
            f"signify-openbsd -V -p {name}.pub -x {name}.sig -m {name} ."
        )
    return (
        f"{text} Get the public key from the curator by another way too and compare: a server that "
        "lies about its sources could show you a key of its own."
    )


def _unsigned(loaded: Loaded) -> str:
    name = loaded.name
    if loaded.minisig:
        why = (
            "Not verified: a signature lies beside the file, but the operator has not configured a "
            "public key (--public-key) to check it with."
        )
    elif loaded.embedded:
        why = (
            "Not signed: nobody holds a key for this registry yet. It came with the Dovetail "
            "package and is as trustworthy as the place you installed that from."
        )
    else:
        why = "Not signed: nothing proves who wrote this file or that it is unchanged."
    return (
        f"{why} The resource {file_uri(name)} has its exact bytes; their SHA-256 is "
        f"{loaded.sha256}."
    )
