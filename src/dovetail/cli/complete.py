"""Complete an argument of a prompt or a template: dovetail complete review style s -- ..."""

import argparse
from collections.abc import Sequence

from dovetail.cli import connect
from dovetail.cli.arguments import BadArgument, read_strings
from dovetail.cli.show import print_json
from dovetail.cli.target import TargetError
from dovetail.client.client import Client

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    parser.add_argument("ref", metavar="PROMPT|TEMPLATE", help="a name, or a URI template")
    parser.add_argument("argument", metavar="ARGUMENT")
    parser.add_argument("value", metavar="VALUE", nargs="?", default="", help="typed so far")
    parser.add_argument(
        "--given", action="append", default=[], metavar="NAME=VALUE", help="filled in already"
    )
    parser.add_argument("--json", action="store_true", help="the whole answer, for scripts")
    connect.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    try:
        given = read_strings(options.given)
    except BadArgument as error:
        raise TargetError(str(error)) from None
    return connect.run(options, lambda client: _complete(client, options, given))


async def _complete(client: Client, options: argparse.Namespace, given: dict[str, str]) -> int:
    found = await client.complete(options.ref, options.argument, options.value, given=given or None)
    print_json(found) if options.json else print("\n".join(found.values))
    return 0
