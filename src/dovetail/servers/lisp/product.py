"""``dovetail serve lisp``: the server, and the options of its command line."""

import argparse
from collections.abc import AsyncIterator

import dovetail
from dovetail import Server
from dovetail.servers.lisp.evaluate import add_evaluate
from dovetail.servers.lisp.sessions import Config, Lisp

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
    return server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sbcl", default="sbcl", help="the SBCL to run (sbcl)")


def build(options: argparse.Namespace) -> Server:
    return lisp_server(Config(sbcl=options.sbcl))
