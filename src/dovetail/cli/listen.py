"""Print what changes at a server, one line an event, until interrupted."""

import argparse
import sys
from collections.abc import Sequence

import msgspec

from dovetail.cli import connect
from dovetail.client.client import Client
from dovetail.client.listen import ChangeEvent

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    parser.add_argument("uris", nargs="*", metavar="URI", help="resources; without any: the lists")
    parser.add_argument("--count", type=int, metavar="N", help="end after N events")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    connect.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return connect.run(options, lambda client: _listen(client, options))


async def _listen(client: Client, options: argparse.Namespace) -> int:
    lists = not options.uris
    wanted = client.listen(tools=lists, prompts=lists, resources=options.uris or True)
    async with wanted as events:
        if events.missing:
            print(f"not granted: {', '.join(events.missing)}", file=sys.stderr)
        seen = 0
        async for event in events:
            print(_shown(event, options.json), flush=True)
            seen += 1
            if seen == options.count:
                break
    return 0


def _shown(event: ChangeEvent, as_json: bool) -> str:
    if as_json:
        data = {"kind": event.kind, "uri": event.uri, "task": event.task}
        given = {key: value for key, value in data.items() if value is not None}
        return msgspec.json.encode(given).decode()
    return event.kind if event.uri is None else f"{event.kind} {event.uri}"
