"""Read a resource: dovetail read notes://today -- python server.py"""

import argparse
from collections.abc import Sequence

from dovetail.cli import connect
from dovetail.cli.show import print_contents, print_json
from dovetail.client.client import Client

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    parser.add_argument("uri", metavar="URI")
    parser.add_argument("--json", action="store_true", help="the contents, for scripts")
    connect.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return connect.run(options, lambda client: _read(client, options))


async def _read(client: Client, options: argparse.Namespace) -> int:
    contents = await client.read(options.uri)
    print_json({"contents": contents}) if options.json else print_contents(contents)
    return 0
