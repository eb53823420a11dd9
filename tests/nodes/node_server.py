"""One node of a service, as a process of its own: python node_server.py OPTIONS-AS-JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from dovetail import Context, Elicit, Server
from dovetail.backplane.keys import KeyRing
from dovetail.backplane.redis import RedisBackplane
from dovetail.transport.http.auth import HttpAnswer, Principal, Rejection
from dovetail.transport.http.limits import HttpLimits
from dovetail.transport.http.run import bind, serve

server = Server("nodes", version="1")


class Name(Struct):
    name: str


def touch(file: str) -> None:
    Path(file).touch()


async def opened(gate: str) -> None:
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - the test opens it from outside
        await asyncio.sleep(0.005)


@server.tool
async def where() -> int:
    """The process that runs this."""
    return os.getpid()


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def steps(gate: str, ctx: Context[Any]) -> int:
    """Say something, wait until a file is there, say something again."""
    ctx.progress(1)
    await opened(gate)
    ctx.progress(2)
    return os.getpid()


@server.tool
async def say(text: str, ctx: Context[Any]) -> str:
    """The same text, after a word about it."""
    ctx.progress(1, message=text)
    await asyncio.sleep(0.02)
    return text


@server.tool
async def wait(started: str, stopped: str) -> str:
    """Run until cancelled, and leave traces of it."""
    touch(started)
    try:
        await asyncio.Event().wait()
    finally:
        touch(stopped)
    return "never"


@server.tool
async def greet(ctx: Context[Any]) -> str:
    answer = await ctx.ask("who", Elicit("Who are you?", Name))
    return f"Hello {answer.value.name}"


@server.tool(task="optional")
async def dig(gate: str) -> str:
    await opened(gate)
    return "found"


@server.tool(task="optional")
async def quiz(ctx: Context[Any]) -> str:
    answer = await ctx.ask("who", Elicit("Who are you?", Name))
    return f"Hello {answer.value.name}"


@server.tool(task="optional")
async def forever(stopped: str) -> str:
    try:
        await asyncio.Event().wait()
    finally:
        touch(stopped)
    return "never"


@server.resource("note://one")
async def note() -> str:
    return "text"


@server.tool
async def edit() -> str:
    server.updated("note://one")
    return "done"


@server.tool
async def rearrange() -> str:
    add.disable()
    add.enable()
    return "done"


class Names:
    """A bearer token is the name of its principal."""

    async def authenticate(self, scope: Mapping[str, Any]) -> Principal | Rejection:
        token = dict(scope["headers"]).get(b"authorization", b"").removeprefix(b"Bearer ")
        return Principal(token.decode()) if token else Rejection(401)

    def metadata(self, scope: Mapping[str, Any]) -> HttpAnswer | None:
        return None

    def allows(self, principal: Principal, method: str, name: str | None) -> Rejection | None:
        return None


def main() -> None:
    options = json.loads(sys.argv[1])
    engine = RedisBackplane(options["redis"], lease_seconds=options["lease"])

    @server.tool
    async def commands() -> int:
        """How many commands this node has sent to the engine."""
        return engine.engine.commands

    listener = bind("127.0.0.1", 0)
    app = server.asgi(
        path="/mcp",
        backplane=engine,
        keys=KeyRing.from_environment(),
        auth=Names() if options.get("auth") else None,
        answers=options.get("answers", "auto"),
        limits=HttpLimits(**options.get("limits", {})),
    )
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    serve(app, listener)


if __name__ == "__main__":
    main()
