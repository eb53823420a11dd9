"""Get a prompt: dovetail prompt review style=strict -- python server.py"""

import argparse
from collections.abc import Sequence

from dovetail.cli import connect
from dovetail.cli.arguments import BadArgument, read_strings
from dovetail.cli.show import print_json, shown
from dovetail.cli.target import TargetError
from dovetail.cli.terminal import bold
from dovetail.client.client import Client

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    parser.add_argument("prompt", metavar="PROMPT")
    parser.add_argument("arguments", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--json", action="store_true", help="the messages, for scripts")
    connect.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    try:
        arguments = read_strings(options.arguments)
    except BadArgument as error:
        raise TargetError(str(error)) from None
    return connect.run(options, lambda client: _prompt(client, options, arguments))


async def _prompt(client: Client, options: argparse.Namespace, arguments: dict[str, str]) -> int:
    result = await client.prompt(options.prompt, arguments or None)
    if options.json:
        print_json(result)
        return 0
    for message in result.messages:
        print(f"{bold(message.role)}: {shown(message.content)}")
    return 0
