"""Neovim as an MCP server: for Claude Code as its editor, for every other agent as a tool."""

import argparse
import sys

from dovetail import Server
from dovetail.runtime.connection import Tap

__all__ = ["add_arguments", "build", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--editor-stdio",
        action="store_true",
        help="stdin and stdout are Neovim's RPC channel (the plugin starts it so), not MCP",
    )
    parser.add_argument(
        "--editor",
        metavar="ADDRESS",
        help="the socket of the Neovim to use; else $NVIM, else one that works in this directory",
    )
    parser.add_argument(
        "--write", action="store_true", help="let agents change buffers and save files"
    )
    parser.add_argument("--exec", action="store_true", help="let agents run Ex commands")


def build(options: argparse.Namespace) -> Server:
    """The server for agents other than Claude Code's IDE client."""
    if options.http is not None or options.ws is not None:
        print(
            "dovetail: neovim is not served to everybody who can reach a port; "
            "set http = true in the plugin's setup, which asks for a token",
            file=sys.stderr,
        )
        raise SystemExit(2)
    from dovetail.servers.neovim.agent import agent_server
    from dovetail.servers.neovim.finder import Finder

    return agent_server(Finder(options.editor), write=options.write, execute=options.exec)


def run(options: argparse.Namespace, tap: Tap | None) -> int:
    if options.editor_stdio:
        try:
            from dovetail.servers.neovim import host
        except ModuleNotFoundError as error:
            text = f"dovetail: {error.name} is missing: pip install 'dovetail[neovim]'"
            print(text, file=sys.stderr)
            return 2
        return host.run(tap)
    build(options).run(tap=tap)
    return 0
