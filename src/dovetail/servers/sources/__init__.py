"""``dovetail serve sources``: three good sources for a subject, and who vouches for them."""

import argparse
import logging
from pathlib import Path

from dovetail import Server
from dovetail.errors import TargetError

__all__ = ["add_arguments", "build"]

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("sources").add_argument
    add(
        "--registry",
        type=Path,
        action="append",
        metavar="FILE",
        help="a registry to serve instead of the one that comes with Dovetail; may be repeated",
    )
    add("--with-embedded", action="store_true", help="serve the one that comes with it as well")
    add(
        "--public-key",
        action="append",
        default=[],
        metavar="KEY",
        help="a minisign public key or its file: each FILE must be signed by such a key",
    )
    add("--trust", type=Path, metavar="FILE", help="keys and names of those whose word counts")
    add(
        "--endorsements",
        type=Path,
        action="append",
        default=[],
        metavar="PLACE",
        help="a signed statement, or a directory of them",
    )
    add("--threshold", type=_threshold, metavar="0..1", help="lowest score that is a match (0.35)")
    add("--state", type=Path, metavar="FILE", help="where the highest serials seen are kept")


def build(options: argparse.Namespace) -> Server:
    """The server; TargetError names the file and the line that cannot be served."""
    from dovetail.servers.sources.catalog import CatalogError

    try:
        return _build(options)
    except CatalogError as error:
        raise TargetError(str(error)) from None
    except ImportError as error:
        raise TargetError(f"{error}: signatures need pip install 'dovetail[sources]'") from None


def _build(options: argparse.Namespace) -> Server:
    from dovetail.servers.sources.catalog import EMBEDDED, CatalogError, read_key
    from dovetail.servers.sources.endorsements import read_trust
    from dovetail.servers.sources.matching import DEFAULT_THRESHOLD
    from dovetail.servers.sources.serials import default_place
    from dovetail.servers.sources.server import SourcesServer
    from dovetail.servers.sources.service import Options, Service

    own: list[Path] = options.registry or []
    if options.endorsements and not options.trust:
        raise CatalogError("--endorsements needs --trust FILE: whose keys count?")
    service = Service(
        Options(
            files=[*own, *([EMBEDDED] if options.with_embedded or not own else [])],
            keys=[read_key(key) for key in options.public_key],
            statements=options.endorsements,
            trusted=read_trust(options.trust) if options.trust else (),
            state=(options.state or default_place()) if own else None,
        )
    )
    if service.remember_problem:
        log.warning("%s", service.remember_problem)
    for reason in service.endorsed()[1]:
        log.warning("endorsement not shown: %s", reason)
    threshold = DEFAULT_THRESHOLD if options.threshold is None else options.threshold
    sources = SourcesServer(service, threshold)
    if own:  # what comes with the package changes only with the package
        from dovetail.servers.sources.watch import Watcher

        sources.server.lifespan(Watcher(sources).lifespan)
    return sources.server


def _threshold(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value
