"""How the client commands reach their server: a command, a URL, or a line of a file.

dovetail list -- python server.py
dovetail list --url https://example.com/mcp
dovetail list --config servers.json --server files
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

from dovetail.cli.target import TargetError
from dovetail.cli.terminal import ask, progress_bar
from dovetail.cli.wirelog import WireLog
from dovetail.client.client import Client
from dovetail.client.config import ConfigError, client_of, load
from dovetail.errors import (
    ConnectionClosed,
    DovetailError,
    HttpError,
    LocalProtocolError,
    McpError,
)
from dovetail.spec.revisions import BY_ID

__all__ = ["add_arguments", "client", "run"]

# What a script can tell apart: the server said no; we were asked the wrong way (2, as
# everywhere); the server could not be reached.
REFUSED, UNREACHABLE = 1, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place = parser.add_argument_group("the server", "a command after --, or one of these")
    place.add_argument("--url", help="a Streamable HTTP (http, https) or WebSocket (ws, wss) URL")
    place.add_argument("--config", metavar="FILE", help="a file with 'mcpServers'")
    place.add_argument("--server", metavar="NAME", help="the entry of that file")
    place.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a header of every request to --url",
    )
    place.add_argument("--token", help="a bearer token for --url (or the variable MCP_TOKEN)")
    place.add_argument(
        "--sign-in",
        action="store_true",
        help="if --url wants it, sign in with the browser; ~/.config/dovetail keeps the token",
    )
    place.add_argument("--revision", choices=list(BY_ID), help="ask for this revision only")
    place.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    place.add_argument(
        "--wire-log", metavar="FILE", help="append every message, both ways, to FILE as JSONL"
    )
    place.add_argument("--quiet", action="store_true", help="do not show the server's stderr")


def client(options: argparse.Namespace, stack: ExitStack, **more: Any) -> Client:
    """The client that the options describe, not yet open."""
    settings = {"revision": options.revision, "timeout": options.timeout, **more}
    if options.wire_log is not None:
        settings["tap"] = _wire_log(options.wire_log, stack)
    given = [bool(options.command), options.url is not None, options.config is not None]
    if sum(given) != 1:
        raise TargetError("name one server: -- COMMAND, --url URL, or --config FILE --server NAME")
    try:
        if options.config is not None:
            entry = _entry(options)
            if entry.command:
                settings["stderr"] = not options.quiet
            return client_of(entry, **settings)
        if options.url is not None:
            return _by_url(options, settings)
    except (ConfigError, ValueError) as error:
        raise TargetError(str(error)) from None
    return Client.stdio(*options.command, stderr=not options.quiet, **settings)


def _by_url(options: argparse.Namespace, settings: dict[str, Any]) -> Client:
    headers = dict(_header(text) for text in options.header)
    token = options.token or os.environ.get("MCP_TOKEN")
    if options.url.startswith(("ws://", "wss://")):
        if token:
            headers["authorization"] = f"Bearer {token}"
        return Client.ws(options.url, headers=headers, **settings)
    if not options.url.startswith(("http://", "https://")):
        raise TargetError(f"{options.url!r} is no http, https, ws or wss URL")
    auth = _sign_in() if options.sign_in and not token else token or None
    return Client.http(options.url, headers=headers, auth=auth, **settings)


def _sign_in() -> Any:
    from dovetail.client.oauth import FileStore, LoopbackBrowser, OAuth
    from dovetail.client.oauth.browser import open_browser

    def show(url: str) -> bool:
        """A machine without a browser may have a user who has one."""
        print(f"dovetail: sign in at {url}", file=sys.stderr)
        open_browser(url)
        return True

    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    store = FileStore(f"{folder}/dovetail/tokens")
    return OAuth("Dovetail", browser=LoopbackBrowser(opener=show), store=store)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise TargetError(f"a header is written NAME:VALUE, not {text!r}")
    return name.strip(), value.strip()


def _entry(options: argparse.Namespace) -> Any:
    entries = load(options.config)
    names = ", ".join(entries) or "none"
    if options.server is None:
        if len(entries) == 1:
            return next(iter(entries.values()))
        raise TargetError(f"--server names one of: {names}")
    if options.server not in entries:
        raise TargetError(f"{options.config} has no server {options.server!r}; it has {names}")
    return entries[options.server]


def _wire_log(path: str, stack: ExitStack) -> WireLog:
    try:
        return WireLog(stack.enter_context(open(path, "ab", buffering=0)))
    except OSError as error:
        raise TargetError(f"cannot write the wire log: {error}") from None


def run(options: argparse.Namespace, work: Callable[[Client], Coroutine[Any, Any, int]]) -> int:
    """Connect, work, and turn what goes wrong into one line and an exit code."""
    with ExitStack() as stack:
        made = client(options, stack)
        if sys.stdin.isatty() and sys.stderr.isatty():
            made.on_elicit(ask)
        try:
            return asyncio.run(_work(made, work))
        except KeyboardInterrupt:
            return 130
        except (ConnectionClosed, HttpError) as error:
            return _said(error, UNREACHABLE)
        except (McpError, LocalProtocolError) as error:
            return _said(error, REFUSED)
        except TargetError:
            raise  # the user's own mistake
        except (DovetailError, TimeoutError) as error:
            return _said(error, UNREACHABLE)


async def _work(made: Client, work: Callable[[Client], Coroutine[Any, Any, int]]) -> int:
    async with made as opened:
        return await work(opened)


def _said(error: BaseException, code: int) -> int:
    progress_bar.clear()
    print(f"dovetail: {error}", file=sys.stderr)
    return code
