"""``dovetail serve TARGET --http HOST:PORT``: one process, or several on one socket."""

import argparse
import logging
import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

from dovetail.backplane.base import Backplane
from dovetail.backplane.keys import KEYS_FILE_VARIABLE, KEYS_VARIABLE, KeyRing
from dovetail.cli.target import TargetError, address
from dovetail.runtime.link import Tap
from dovetail.transport.guard import Guard, is_loopback

__all__ = ["add_arguments", "run"]

_PATH = "/mcp"
BACKPLANE_VARIABLE = "DOVETAIL_BACKPLANE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("over HTTP (extra `http`)")
    group.add_argument("--http", metavar="HOST:PORT", help=f"serve at http://HOST:PORT{_PATH}")
    group.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes that share the port (1)"
    )
    group.add_argument(
        "--access-log", action="store_true", help="a line per exchange on stderr (off)"
    )
    group.add_argument(
        "--metrics", action="store_true", help="Prometheus metrics at /metrics (extra `metrics`)"
    )
    group.add_argument(
        "--stateless", action="store_true", help="no sessions for revisions up to 2025-11-25"
    )
    group.add_argument(
        "--backplane",
        metavar="URL",
        default=os.environ.get(BACKPLANE_VARIABLE),
        help=f"redis://... that all nodes share (${BACKPLANE_VARIABLE}; extra `redis`)",
    )


def run(options: argparse.Namespace, tap: Tap | None) -> int:
    try:
        from dovetail.transport.http.run import bind, serve
    except ImportError as error:
        raise TargetError(f"--http needs {error.name}: pip install 'dovetail[http]'") from None
    host, port = address(options.http)
    if options.backplane is not None:
        _check_backplane()
        _backplane(options.backplane, "")  # here a mistake is said once, not by every worker
    elif options.workers > 1:
        _check_workers(options)
    try:
        listener = bind(host, port)
    except OSError as error:
        raise TargetError(f"cannot listen on {options.http}: {error.strerror}") from None
    _announce(listener, options.target)
    if options.workers > 1:
        from dovetail.cli.workers import supervise

        return supervise(options, listener)
    serve(app(options, listener, tap), listener)
    return 0


def app(options: argparse.Namespace, listener: socket.socket, tap: Tap | None = None) -> Any:
    """The application that the options describe."""
    from dovetail.cli.serve import build

    if options.access_log:
        logging.getLogger("dovetail.access").setLevel(logging.INFO)
    guard = Guard.of(listener.getsockname()[0], options.allow_host, options.allow_origin)
    server = build(options)
    backplane = _backplane(options.backplane, server.name)
    try:
        return server.asgi(
            path=_PATH,
            guard=guard,
            stateless=options.stateless,
            backplane=backplane,
            keys=_keys(),
            access_log=options.access_log,
            metrics=options.metrics,
            tap=tap,
        )
    except ModuleNotFoundError as error:
        raise TargetError(
            f"--metrics needs {error.name}: pip install 'dovetail[metrics]'"
        ) from None
    except ValueError as error:  # a tool with scopes: the command line knows no tokens
        raise TargetError(f"{error}, and run it on uvicorn yourself (docs/auth.md)") from None


def _keys() -> KeyRing | None:
    try:
        return KeyRing.from_environment()
    except (OSError, ValueError) as error:
        raise TargetError(f"{KEYS_VARIABLE}: {error}") from None


def _backplane(url: str | None, name: str) -> Backplane | None:
    """Servers of different names can share an engine."""
    if url is None:
        return None
    try:
        from dovetail.backplane.redis import RedisBackplane

        return RedisBackplane(url, namespace=f"dovetail:{name}")
    except ModuleNotFoundError as error:
        raise TargetError(
            f"--backplane needs {error.name}: pip install 'dovetail[redis]'"
        ) from None
    except ValueError as error:
        raise TargetError(f"--backplane {url}: {error}") from None


def _check_backplane() -> None:
    """Nodes that do not share the keys would refuse each other's sessions."""
    if _keys() is None:
        raise TargetError(
            f"--backplane needs the secret that all nodes share, in {KEYS_VARIABLE} or in the file "
            f"that {KEYS_FILE_VARIABLE} names; `openssl rand -hex 32` makes one"
        )


def _check_workers(options: argparse.Namespace) -> None:
    if not options.stateless:
        raise TargetError(
            "several workers cannot find each other's sessions: add --backplane redis://... or "
            "--stateless, or serve with one"
        )
    if _keys() is None:  # what one worker seals another must open
        os.environ[KEYS_VARIABLE] = KeyRing().text()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _announce(listener: socket.socket, target: str) -> None:
    host, port = listener.getsockname()[:2]
    url = f"http://{_shown(host)}:{port}{_PATH}"
    name = Path(target.partition(":")[0]).stem
    say = partial(print, file=sys.stderr, flush=True)
    say(f"dovetail: serving {url}")
    say(f"dovetail: add it to a client: claude mcp add --transport http {name} {url}")
    if not is_loopback(host):
        say("dovetail: everybody who can reach this address can use the server")
