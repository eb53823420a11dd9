"""Serve an MCP server: over stdin and stdout, or on an address."""

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from dovetail.cli import http
from dovetail.cli.target import TargetError, address, load
from dovetail.cli.wirelog import WireLog
from dovetail.runtime.connection import Tap
from dovetail.server.app import Server
from dovetail.transport import stdio
from dovetail.transport.guard import Guard

__all__ = ["add_arguments", "build", "product", "run"]

_LEVELS = ("debug", "info", "warning", "error", "critical")

# Servers that come with the package. The module of each has `add_arguments(parser)` for its own
# options and `build(options) -> Server`, whose mistakes are a `TargetError`; one that needs stdin
# and stdout for something else has `run(options, tap) -> exit code` too.
PRODUCTS: dict[str, str] = {
    "sources": "dovetail.servers.sources",
    "lisp": "dovetail.servers.lisp.product",
    "neovim": "dovetail.servers.neovim",
}


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    names = ", ".join(PRODUCTS)
    parser.add_argument(
        "target",
        metavar="TARGET",
        help=(f"{names}, " if names else "")
        + "file.py[:name] or module:name; the object is called 'server' unless named",
    )
    parser.add_argument(
        "--log-level", choices=_LEVELS, default="warning", help="what to log on stderr (warning)"
    )
    parser.add_argument(
        "--wire-log", metavar="FILE", help="append every message, both ways, to FILE as JSONL"
    )
    parser.add_argument("--ws", metavar="HOST:PORT", help="serve WebSocket there, at /mcp")
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name clients reach this server by, through a proxy perhaps",
    )
    parser.add_argument(
        "--allow-origin",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="a web origin whose pages may use this server",
    )
    http.add_arguments(parser)
    named = product(next((word for word in arguments if not word.startswith("-")), ""))
    if named is not None:
        named.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    with ExitStack() as stack:
        tap = _tap(options, stack)
        named = product(options.target)
        if options.http is not None:
            return http.run(options, tap)
        if named is not None and hasattr(named, "run"):
            code: int = named.run(options, tap)
            return code
        server = build(options)
        if options.ws is not None:
            _serve_websocket(server, options, tap)
        else:
            server.run(tap=tap)
    return 0


def _serve_websocket(server: Server, options: argparse.Namespace, tap: Tap | None) -> None:
    from dovetail.server.run import run_websocket

    host, port = address(options.ws)
    guard = Guard.of(host, options.allow_host, options.allow_origin)
    try:
        run_websocket(server, host, port, guard, "/mcp", tap)
    except ModuleNotFoundError as error:
        raise TargetError(f"--ws needs {error.name}: pip install 'dovetail[ws]'") from None
    except OSError as error:
        raise TargetError(f"cannot listen on {options.ws}: {error.strerror}") from None


def build(options: argparse.Namespace) -> Server:
    """The server, made while stdin and stdout are out of reach of whatever makes it."""
    stdio.claim()  # before the target is loaded: what it prints must not reach the wire
    stdio.reserve(
        f"{options.target} runs its server while it is loaded: "
        'put server.run() under `if __name__ == "__main__":`'
    )
    named = product(options.target)
    server: Server = load(options.target) if named is None else named.build(options)
    stdio.release()
    return server


def product(target: str) -> Any:
    """The module of a server that comes with the package; None for any other target."""
    return import_module(PRODUCTS[target]) if target in PRODUCTS else None


def _tap(options: argparse.Namespace, stack: ExitStack) -> Tap | None:
    if options.wire_log is None:
        return None
    try:
        return WireLog(stack.enter_context(open(options.wire_log, "ab", buffering=0)))
    except OSError as error:
        raise TargetError(f"cannot write the wire log: {error}") from None
