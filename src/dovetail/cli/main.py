"""The ``dovetail`` command: a table of commands, each a module loaded when it is used."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import dovetail
from dovetail.cli.target import TargetError

__all__ = ["main"]

# A command's module has `add_arguments(parser, arguments)` and `run(options) -> exit code`.
_COMMANDS = {
    "serve": ("dovetail.cli.serve", "serve an MCP server"),
    "check": ("dovetail.cli.check", "hold an MCP server to the protocol"),
    "sources": ("dovetail.cli.sources", "check, sign and compare registries of sources"),
    "list": ("dovetail.cli.list", "list what a server offers"),
    "call": ("dovetail.cli.call", "call a tool"),
    "read": ("dovetail.cli.read", "read a resource"),
    "prompt": ("dovetail.cli.prompt", "get a prompt"),
    "complete": ("dovetail.cli.complete", "complete an argument of a prompt or a template"),
    "listen": ("dovetail.cli.listen", "print what changes at a server"),
    "proxy": ("dovetail.cli.proxy", "offer another server over stdio, in every revision"),
    "completion": ("dovetail.cli.completion", "print the completion script of a shell"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # What follows `--` is the command of a server, and none of our business.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    arguments, command = arguments[:end], arguments[end + 1 :]
    try:
        options = _parser(arguments).parse_args(arguments)
        options.command = command
        return int(options.run(options))
    except TargetError as error:
        print(f"dovetail: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Only the command that was given is loaded; of the others the name and one line."""
    parser = argparse.ArgumentParser(prog="dovetail", description=dovetail.__doc__)
    parser.add_argument("--version", action="version", version=f"dovetail {dovetail.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (place, summary) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if arguments and arguments[0] == name:
            module = _loaded(name, place)
            command.description = module.__doc__
            module.add_arguments(command, arguments[1:])
            command.set_defaults(run=module.run)
    return parser


def _loaded(name: str, place: str) -> Any:
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("dovetail"):
            raise
        raise TargetError(f"{name} needs {error.name}: install the extra '{name}'") from None


if __name__ == "__main__":
    sys.exit(main())
