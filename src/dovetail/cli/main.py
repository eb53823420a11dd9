"""The ``dovetail`` command: a table of commands, each a module loaded when it is used."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

import dovetail
from dovetail.cli.target import TargetError

__all__ = ["main"]

# A command's module has `add_arguments(parser, arguments)` and `run(options) -> exit code`.
_COMMANDS = {
    "serve": ("dovetail.cli.serve", "serve an MCP server"),
    "check": ("dovetail.cli.check", "hold an MCP server to the protocol"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser(arguments).parse_args(arguments)
    try:
        return int(options.run(options))
    except TargetError as error:
        print(f"dovetail: {error}", file=sys.stderr)
        return 2


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Only the command that was given is loaded; of the others the name and one line."""
    parser = argparse.ArgumentParser(prog="dovetail", description=dovetail.__doc__)
    parser.add_argument("--version", action="version", version=f"dovetail {dovetail.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (place, summary) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if arguments and arguments[0] == name:
            module = import_module(place)
            command.description = module.__doc__
            module.add_arguments(command, arguments[1:])
            command.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
