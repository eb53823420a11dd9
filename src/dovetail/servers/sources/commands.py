"""``dovetail sources …``: what a curator does with a registry, by hand or in CI.

Every command ends with 0 if all is well, 1 if it found something, 2 if it could not do its work.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import date
from getpass import getpass
from pathlib import Path
from typing import TypeVar

import msgspec

from dovetail.errors import TargetError
from dovetail.servers.sources import compare, labelled
from dovetail.servers.sources.catalog import (
    EMBEDDED,
    Catalog,
    CatalogError,
    Loaded,
    load,
    read_key,
    read_registry,
)
from dovetail.servers.sources.endorsements import Statement, collect, digest, read_trust
from dovetail.servers.sources.matching import DEFAULT_THRESHOLD
from dovetail.servers.sources.minisign import KeyProblem, SecretKey
from dovetail.servers.sources.model import MAX_TEXT
from dovetail.servers.sources.registry import text_problem

__all__ = ["add_arguments", "run"]

PASSWORD = "Password of the secret key: "


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(run.__name__.strip("_"), help=text, description=text)
        made.set_defaults(action=run)
        return made

    one = command(_lint, "say what is wrong with registry files, by line")
    one.add_argument("files", nargs="*", type=Path, metavar="FILE", help="none: the embedded one")

    one = command(_match, "show what a query finds and why, or run labelled queries")
    one.add_argument("query", nargs="?")
    one.add_argument("--registry", type=Path, action="append", metavar="FILE")
    one.add_argument("--threshold", type=float, default=DEFAULT_THRESHOLD)
    one.add_argument("--queries", type=Path, metavar="FILE", help="lines of: slug or -, tab, query")
    one.add_argument("--at-least", type=float, default=0.9, help="share that must be right (0.9)")

    one = command(_sign, "write FILE.minisig and FILE.sig beside a registry")
    one.add_argument("file", type=Path, metavar="FILE")
    one.add_argument("--key", type=Path, required=True, help="secret key that minisign -G made")

    one = command(_verify, "check the signature of a registry, its expiry and its endorsements")
    one.add_argument("file", type=Path, metavar="FILE")
    one.add_argument("--public-key", required=True, metavar="KEY")
    one.add_argument("--trust", type=Path)
    one.add_argument("--endorsements", type=Path, action="append", default=[], metavar="PLACE")

    one = command(_diff, "say what changed between two issues, and whether the serial rose")
    one.add_argument("old", type=Path)
    one.add_argument("new", type=Path)

    one = command(_endorse, "sign a statement about a registry or one of its categories")
    one.add_argument("file", type=Path, metavar="FILE")
    one.add_argument("--category", metavar="SLUG")
    one.add_argument("--statement", required=True, metavar="TEXT")
    one.add_argument("--expires", required=True, type=date.fromisoformat, metavar="YYYY-MM-DD")
    one.add_argument(
        "--serial", type=int, default=1, help="higher than that of the one it replaces"
    )
    one.add_argument("--revoke", action="store_true", help="take an earlier statement back")
    one.add_argument("--key", type=Path, required=True)
    one.add_argument("--output", type=Path, required=True, metavar="FILE.json")


def run(options: argparse.Namespace) -> int:
    try:
        return int(options.action(options))
    except ImportError as error:
        raise TargetError(f"{error}: pip install 'dovetail[sources]'") from None
    except OSError as error:
        raise TargetError(f"{error.filename}: {error.strerror}") from None
    except KeyProblem as error:
        raise TargetError(f"{options.key}: {error}") from None


def _lint(options: argparse.Namespace) -> int:
    found = 0
    loaded = []
    for path in options.files or [EMBEDDED]:
        try:
            loaded.append(read_registry(path, checked=True))
        except CatalogError as error:
            print(error)
            found = 1
    try:
        catalog = Catalog(loaded)
    except CatalogError as error:
        print(error)
        return 1
    for warning in compare.warnings(catalog, date.today()):
        print(f"warning: {warning}")
    for one in loaded:
        print(
            f"{one.path}: {len(one.registry.categories)} categories, serial {one.registry.serial}"
        )
    return found


def _match(options: argparse.Namespace) -> int:
    catalog = _given(lambda: load(options.registry or [EMBEDDED]))
    if options.queries:
        report = _given(lambda: labelled.run(options.queries, catalog, options.threshold))
        print(report.text)
        return 0 if report.right >= options.at_least else 1
    if not options.query:
        raise TargetError("give a query, or --queries FILE")
    ranked = catalog.matcher.rank(options.query)
    for match in ranked:
        mark = "match  " if match.score >= options.threshold else "too low"
        print(f"{match.score:.2f} {mark} {match.category.slug}: {', '.join(match.matched)}")
    if not ranked:
        print("no word of the query occurs in the registry")
    return 0 if ranked and ranked[0].score >= options.threshold else 1


def _sign(options: argparse.Namespace) -> int:
    loaded = _found(options.file)
    key = _secret(options.key)
    registry = loaded.registry
    comment = (
        f"serial:{registry.serial}\tissued:{registry.issued}\texpires:{registry.expires}"
        f"\tsha256:{loaded.sha256}"
    )
    name = loaded.path.name
    _write(loaded.path, ".minisig", key.sign(loaded.data, comment))
    _write(loaded.path, ".sig", key.sign_for_signify(loaded.data, f"{name}.pub"))
    print(f"signed {name}, serial {registry.serial}, with key {key.public}")
    print(f"readers check it with: minisign -Vm {name} -P {key.public}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    key = _given(lambda: read_key(options.public_key))
    try:
        loaded = read_registry(options.file, [key])
    except CatalogError as error:
        print(error)
        return 1
    registry = loaded.registry
    print(f"{loaded.path}: signed by {registry.curator}, key {key}, serial {registry.serial}")
    expired = registry.expires < date.today()
    print(f"{'expired' if expired else 'good until'} {registry.expires}")
    trusted = _given(lambda: read_trust(options.trust)) if options.trust else []
    shown, refused = collect(options.endorsements, trusted, Catalog([loaded]), date.today())
    for one in shown:
        print(f"endorsed by {one.endorser} ({one.scope} {one.subject}): {one.statement}")
    for reason in refused:
        print(f"endorsement not counted: {reason}")
    return 1 if expired or refused else 0


def _diff(options: argparse.Namespace) -> int:
    old, new = _found(options.old), _found(options.new)
    changes = compare.changes(old.registry, new.registry)
    for change in changes:
        print(change)
    if old.data == new.data:
        print("no difference")
    elif new.registry.serial <= old.registry.serial:
        print(f"serial {new.registry.serial} must be higher than {old.registry.serial}")
        return 1
    return 0


def _endorse(options: argparse.Namespace) -> int:
    if problem := text_problem(options.statement, MAX_TEXT):
        raise TargetError(f"--statement: {problem}")
    catalog = Catalog([_found(options.file)])
    scope, subject = ("category", options.category) if options.category else ("registry", "")
    subject = subject or options.file.name
    sha256 = digest(catalog, scope, subject)
    if sha256 is None:
        raise TargetError(f"{options.file} has no category {subject!r}")
    key = _secret(options.key)
    statement = Statement(
        schema=1,
        scope="category" if options.category else "registry",
        subject=subject,
        sha256=sha256,
        statement=options.statement,
        issued=date.today(),
        expires=options.expires,
        serial=options.serial,
        revoked=options.revoke,
    )
    data = msgspec.json.format(msgspec.json.encode(statement), indent=1) + b"\n"
    options.output.write_bytes(data)
    comment = f"endorsement:{scope}\tsubject:{subject}\tserial:{options.serial}"
    _write(options.output, ".minisig", key.sign(data, comment))
    print(f"{options.output}: {scope} {subject}, signed with key {key.public}")
    return 0


# -- reading and writing ---------------------------------------------------------------------------


T = TypeVar("T")


def _given(read: Callable[[], T]) -> T:
    """What the user named, or the reason as the command's last word."""
    try:
        return read()
    except CatalogError as error:
        raise TargetError(str(error)) from None


def _found(path: Path) -> Loaded:
    return _given(lambda: read_registry(path))


def _secret(path: Path) -> SecretKey:
    return SecretKey.parse(path.read_text("utf-8", "replace"), _password)


def _password() -> str:
    if sys.stdin.isatty():
        return getpass(PASSWORD)
    return sys.stdin.readline().rstrip("\n")


def _write(path: Path, suffix: str, text: str) -> None:
    path.with_name(path.name + suffix).write_text(text, "utf-8", newline="\n")
