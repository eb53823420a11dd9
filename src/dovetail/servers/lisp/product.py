"""``dovetail serve lisp``: the server, and the options of its command line."""

import argparse
from collections.abc import AsyncIterator, Callable
from typing import Any

import dovetail
from dovetail import Server
from dovetail.servers.lisp.attach import Target, parse_target
from dovetail.servers.lisp.evaluate import add_evaluate
from dovetail.servers.lisp.limits import LispLimits
from dovetail.servers.lisp.process import Isolation, isolated
from dovetail.servers.lisp.resources import add_resources
from dovetail.servers.lisp.sessions import Config, Lisp
from dovetail.servers.lisp.tools_compile import add_compile_tools
from dovetail.servers.lisp.tools_debug import add_debug_tools
from dovetail.servers.lisp.tools_history import add_history_tools
from dovetail.servers.lisp.tools_limits import add_limits
from dovetail.servers.lisp.tools_measure import add_measure_tools
from dovetail.servers.lisp.tools_sessions import add_session_tools
from dovetail.servers.lisp.tools_symbols import add_symbol_tools
from dovetail.servers.lisp.tools_systems import add_system_tools

__all__ = ["add_arguments", "build", "lisp_server"]

NAME = "cl-mcp-server"  # requirement 001
INSTRUCTIONS = """\
A persistent Common Lisp (SBCL). evaluate-lisp runs code; definitions, the current package and \
`*` stay between calls. Errors come with a backtrace and isError. Sessions are separate processes: \
pass `session` to use another than "default". After [SESSION LOST] use replay-session to evaluate \
the recorded definitions again."""


def lisp_server(config: Config | None = None) -> Server:
    """A server whose Lisp starts with the first evaluation."""
    server = Server(
        NAME,
        version=dovetail.__version__,
        instructions=INSTRUCTIONS,
        handshake="strict",
        list_changed=False,
    )
    lisp = Lisp(config or Config())

    @server.lifespan
    async def sessions(server: Server) -> AsyncIterator[Lisp]:
        await lisp.open()
        try:
            yield lisp
        finally:
            await lisp.close()

    add_evaluate(server, lisp)
    add_session_tools(server, lisp)
    add_debug_tools(server, lisp)
    add_limits(server, lisp)
    add_symbol_tools(server, lisp)
    add_compile_tools(server, lisp)
    add_history_tools(server, lisp)
    add_system_tools(server, lisp)
    add_measure_tools(server, lisp)
    add_resources(server, lisp)
    return server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    limits = LispLimits()
    parser.add_argument("--sbcl", default="sbcl", help="the SBCL to run (sbcl)")
    parser.add_argument("--folder", help="where Lisp processes start (here)")
    for name, unit in _LIMITS.items():
        default = getattr(limits, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=_at_least(0 if name == "timeout" else 1, type(default)),
            default=default,
            metavar=unit,
            help=f"see docs/lisp.md ({default})",
        )
    parser.add_argument(
        "--isolate",
        action="store_true",
        help="no network, no new privileges, and a limit of address space",
    )
    parser.add_argument(
        "--attach",
        action="append",
        default=[],
        type=_target,
        metavar="NAME=KIND:ADDRESS[,rw]",
        help="a session of a running Lisp, read-only unless ,rw",
    )


_LIMITS = {
    "timeout": "SECONDS",
    "max_output": "CHARACTERS",
    "max_value": "CHARACTERS",
    "max_spool": "CHARACTERS",
    "heap_mb": "MB",
    "stack_mb": "MB",
    "max_sessions": "NUMBER",
}


def _at_least(least: int, kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    return read


def _target(text: str) -> Target:
    try:
        return parse_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def build(options: argparse.Namespace) -> Server:
    limits = LispLimits(**{name: getattr(options, name) for name in _LIMITS})
    return lisp_server(
        Config(
            sbcl=options.sbcl,
            folder=options.folder,
            limits=limits,
            isolation=isolated(limits) if options.isolate else Isolation(),
            targets=tuple(options.attach),
        )
    )
