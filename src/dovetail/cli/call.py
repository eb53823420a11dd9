"""Call a tool: dovetail call add a=1 b=2 -- python server.py"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from dovetail.cli import connect
from dovetail.cli.arguments import BadArgument, read_arguments
from dovetail.cli.show import print_json, shown
from dovetail.cli.target import TargetError
from dovetail.cli.terminal import progress_bar, red
from dovetail.client.client import Client
from dovetail.client.results import CallResult, UnknownContent

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    parser.add_argument("tool", metavar="TOOL")
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="NAME=VALUE",
        help="read by the tool's schema; NAME:=JSON, NAME=@FILE",
    )
    parser.add_argument("--args", metavar="JSON", help="all arguments as one JSON object")
    parser.add_argument("--json", action="store_true", help="the whole result, for scripts")
    connect.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return connect.run(options, lambda client: _call(client, options))


async def _call(client: Client, options: argparse.Namespace) -> int:
    arguments = await _arguments(client, options)
    result = await client.call(options.tool, arguments, on_progress=progress_bar)
    progress_bar.clear()
    if options.json:
        print_json(as_data(result))
    else:
        for block in result.content:
            text = shown(block)
            print(red(text) if result.is_error else text, file=_stream(result))
        if not result.content and result.has_structured:
            print_json(result.structured)
    return connect.REFUSED if result.is_error else 0


def _stream(result: CallResult[Any]) -> Any:
    return sys.stderr if result.is_error else sys.stdout


async def _arguments(client: Client, options: argparse.Namespace) -> Any:
    if options.args is not None:
        try:
            return msgspec.json.decode(options.args, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise TargetError(f"--args: {error}") from None
    if client.capabilities.tools is UNSET:
        raise TargetError("the server offers no tools")
    tools = {tool.name: tool for tool in await client.tools.all()}
    if options.tool not in tools:
        raise TargetError(f"there is no tool {options.tool!r}; there are {', '.join(tools)}")
    try:
        return read_arguments(options.arguments, tools[options.tool].input_schema)
    except BadArgument as error:
        raise TargetError(str(error)) from None


def as_data(result: CallResult[Any]) -> dict[str, Any]:
    """The result as it was on the wire."""
    content = [one.raw if isinstance(one, UnknownContent) else one for one in result.content]
    data: dict[str, Any] = {"content": content, "isError": result.is_error}
    if result.has_structured:
        data["structuredContent"] = result.structured
    return {**data, "_meta": result.meta} if result.meta else data
