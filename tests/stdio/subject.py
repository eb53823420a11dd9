"""The server that the stdio tests run: tools that do what user code should not."""

import asyncio
import ctypes
import logging
import os
import subprocess
import sys
import time
from typing import Annotated

from dovetail import Context, Limits, Server, unstructured

if not os.environ.get("QUIET"):
    print("noise: import")  # before the server runs: as common as it is wrong

server = Server(
    "subject",
    version="1.0.0",
    limits=Limits(
        drain_seconds=float(os.environ.get("DRAIN_SECONDS", "30")),
        stop_seconds=float(os.environ.get("STOP_SECONDS", "1")),
        max_in_flight=int(os.environ.get("MAX_IN_FLIGHT", "1024")),
    ),
)


@server.tool(inline=True)
def echo(text: str) -> str:
    return text


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
def big(size: int) -> Annotated[str, unstructured]:
    return "x" * size


@server.tool
async def big_async(size: int) -> Annotated[str, unstructured]:
    return "x" * size


@server.tool
def noise() -> str:
    print("noise: print")
    sys.stdout.write("noise: sys.stdout\n")
    sys.__stdout__.buffer.write(b"noise: buffer\n")
    sys.__stdout__.buffer.flush()
    os.write(1, b"noise: descriptor\n")
    subprocess.run(["/bin/sh", "-c", "echo noise: child"], check=True)
    libc = ctypes.CDLL(None)
    libc.puts(b"noise: C")
    libc.fflush(None)
    return "quiet"


@server.tool
def read_stdin() -> str:
    child = subprocess.run(["/bin/cat"], capture_output=True, check=True)
    return sys.stdin.read() + os.read(0, 100).decode() + child.stdout.decode()


@server.tool
def sleep_sync(seconds: float) -> str:
    print("sleep_sync: started")
    time.sleep(seconds)
    return "slept"


@server.tool
async def sleep_async(seconds: float) -> str:
    print("sleep_async: started")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        print("sleep_async: cancelled")
        raise
    finally:
        await asyncio.sleep(0)  # cleaning up may take a turn of the loop
        print("sleep_async: finally")
    return "slept"


@server.tool
async def stubborn() -> str:
    """Never lets itself be cancelled."""
    print("stubborn: started")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("stubborn: no")


@server.tool
def leave_child() -> int:
    """A child that outlives the call, with whatever descriptors it inherits."""
    return subprocess.Popen(["/bin/sleep", "3600"], close_fds=False).pid


@server.tool
async def leave_task() -> str:
    """A task that outlives the call, and refuses to end with the server."""
    tasks.append(asyncio.create_task(stubborn()))
    return "left"


tasks: list[asyncio.Task[str]] = []


@server.tool
def exit_now() -> str:
    sys.exit(3)


@server.tool
def logging_state(ctx: Context) -> dict[str, list[str]]:
    """Which loggers have handlers, a level or do not propagate, after a crash was logged."""
    loggers = [logging.getLogger(), *map(logging.getLogger, logging.root.manager.loggerDict)]
    touched = [
        logger.name
        for logger in loggers
        if logger.handlers
        or not logger.propagate
        or logger.level not in (logging.NOTSET, logging.WARNING)
    ]
    return {"touched": touched}


@server.tool
def crash() -> str:
    raise RuntimeError("a secret of the crash")


if __name__ == "__main__":
    server.run()
