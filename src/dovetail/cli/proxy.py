"""Offer another server, whatever it speaks, in every revision: on stdio or on an address."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from dovetail.cli import connect
from dovetail.cli.target import TargetError, address
from dovetail.server.app import Server
from dovetail.transport import stdio
from dovetail.transport.guard import Guard

__all__ = ["add_arguments", "run"]

_PATH = "/mcp"


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    group = parser.add_argument_group("where to offer it (stdin and stdout unless named)")
    group.add_argument("--http", metavar="HOST:PORT", help=f"at http://HOST:PORT{_PATH}")
    group.add_argument("--ws", metavar="HOST:PORT", help=f"at ws://HOST:PORT{_PATH}")
    for name, what in (("host", "a name it is reached by"), ("origin", "a web origin to serve")):
        group.add_argument(f"--allow-{name}", action="append", default=[], help=what)
    connect.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        server = Server.proxy(connect.client(options, stack, reconnect=True))
        try:
            _serve(server, options)
        except ModuleNotFoundError as error:
            raise TargetError(f"{error.name} is missing: pip install 'dovetail[http]'") from None
        except OSError as error:
            raise TargetError(f"cannot listen there: {error.strerror}") from None
    return 0


def _serve(server: Server, options: argparse.Namespace) -> None:
    if options.http is not None:
        from dovetail.transport.http.run import bind, serve

        listener = bind(*address(options.http))
        host, port = listener.getsockname()[:2]
        print(f"serving http://{host}:{port}{_PATH}", file=sys.stderr, flush=True)
        serve(server.asgi(path=_PATH, guard=_guard(host, options)), listener)
    elif options.ws is not None:
        from dovetail.server.run import run_websocket

        host, port = address(options.ws)
        run_websocket(server, host, port, _guard(host, options), _PATH, None)
    else:
        stdio.claim()  # before anything else could print there
        server.run()


def _guard(host: str, options: argparse.Namespace) -> Guard:
    return Guard.of(host, options.allow_host, options.allow_origin)
