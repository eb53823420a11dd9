"""Offer another server, whatever it speaks, over stdin and stdout in every revision."""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack

from dovetail.cli import connect
from dovetail.server.app import Server
from dovetail.transport import stdio

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    connect.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        client = connect.client(options, stack, reconnect=True)
        stdio.claim()
        Server.proxy(client).run()
    return 0
