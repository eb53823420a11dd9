"""The ``dovetail`` command."""

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack

import dovetail
from dovetail.cli.target import TargetError, load
from dovetail.cli.wirelog import WireLog
from dovetail.transport import stdio

__all__ = ["main"]

_LEVELS = ("debug", "info", "warning", "error", "critical")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except TargetError as error:
        print(f"dovetail: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dovetail", description=dovetail.__doc__)
    parser.add_argument("--version", action="version", version=f"dovetail {dovetail.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    serve = commands.add_parser(
        "serve",
        help="serve an MCP server over stdio",
        description="Serve an MCP server over stdin and stdout.",
    )
    serve.add_argument(
        "target",
        metavar="TARGET",
        help="file.py[:name] or module:name; the object is called 'server' unless named",
    )
    serve.add_argument(
        "--log-level", choices=_LEVELS, default="warning", help="what to log on stderr (warning)"
    )
    serve.add_argument(
        "--wire-log", metavar="FILE", help="append every message, both ways, to FILE as JSONL"
    )
    serve.set_defaults(run=_serve)
    return parser


def _serve(options: argparse.Namespace) -> int:
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    with ExitStack() as stack:
        tap = None
        if options.wire_log is not None:
            try:
                tap = WireLog(stack.enter_context(open(options.wire_log, "ab", buffering=0)))
            except OSError as error:
                raise TargetError(f"cannot write the wire log: {error}") from None
        stdio.claim()  # before the target is loaded: what it prints must not reach the wire
        stdio.reserve(
            f"{options.target} runs its server while it is loaded: "
            'put server.run() under `if __name__ == "__main__":`'
        )
        server = load(options.target)
        stdio.release()
        server.run(tap=tap)
    return 0


if __name__ == "__main__":
    sys.exit(main())
