"""An HTTP server that does exactly what a test says, byte by byte if need be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from clientkit import MODERN, shake

REASONS = {200: "OK", 202: "Accepted"}


@dataclass
class Asked:
    """One request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    at: float
    message: Any = None


@dataclass
class Reply:
    """One response. ``parts`` go out one by one; ``cut`` closes the connection in the middle."""

    status: int = 200
    body: bytes = b""
    kind: str | None = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] | None = None
    hold: asyncio.Event | None = None
    cut: bool = False


Answer = Callable[[Asked], Reply]


def answer(asked: Asked, result: Any, **reply: Any) -> Reply:
    message = {"jsonrpc": "2.0", "id": asked.message["id"], "result": result}
    return Reply(body=msgspec.json.encode(message), **reply)


def refusal(asked: Asked, status: int, code: int, data: Any = None) -> Reply:
    error = {"code": code, "message": "no", **({} if data is None else {"data": data})}
    message = {"jsonrpc": "2.0", "id": asked.message["id"], "error": error}
    return Reply(status, msgspec.json.encode(message))


def event(message: Any, id: str | None = None, retry: int | None = None) -> bytes:
    head = b"" if id is None else f"id: {id}\n".encode()
    head += b"" if retry is None else f"retry: {retry}\n".encode()
    data = b"" if message is None else msgspec.json.encode(message)
    return head + b"data: " + data + b"\n\n"


def stream(*parts: bytes, **reply: Any) -> Reply:
    return Reply(kind="text/event-stream", parts=list(parts), **reply)


class _Catch:
    """Takes what ``shake`` would have put on a line."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def result(self, request: Any, result: Any) -> None:
        self.said.append({"jsonrpc": "2.0", "id": request["id"], "result": result})

    def error(self, request: Any, code: int, text: str, data: Any = None) -> None:
        error = {"code": code, "message": text}
        self.said.append({"jsonrpc": "2.0", "id": request["id"], "error": error})


def opening(asked: Asked, revision: str = MODERN, **options: Any) -> Reply | None:
    """The replies that open a connection of this revision; None for anything else."""
    if asked.method == "GET":
        return Reply(405, kind=None)
    if asked.method == "DELETE":
        return Reply(200, kind=None)
    catch = _Catch()
    if not shake(asked.message, catch, revision=revision, **options):  # type: ignore[arg-type]
        return None
    if not catch.said:
        return Reply(202, kind=None)
    missing = "error" in catch.said[0]
    return Reply(404 if missing else 200, msgspec.json.encode(catch.said[0]))


def modern(rest: Answer, **options: Any) -> Answer:
    return lambda asked: opening(asked, **options) or rest(asked)


def legacy(rest: Answer, revision: str = "2025-11-25", **options: Any) -> Answer:
    return lambda asked: opening(asked, revision, **options) or rest(asked)


class Site:
    """What was asked, and where."""

    def __init__(self, serve: Answer) -> None:
        self._serve = serve
        self.asked: list[Asked] = []
        self.url = ""
        self.connections = 0
        self.gone = asyncio.Event()

    def methods(self) -> list[str]:
        return [a.message.get("method", "answer") if a.message else a.method for a in self.asked]

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (asked := await self._read(reader)) is not None:
                self.asked.append(asked)
                if not await self._write(writer, reader, self._serve(asked)):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.gone.set()
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Asked | None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().rstrip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        message = msgspec.json.decode(body) if body else None
        at = asyncio.get_running_loop().time()
        return Asked(method, target, headers, body, at, message)

    async def _write(
        self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader, reply: Reply
    ) -> bool:
        parts = [reply.body] if reply.parts is None else reply.parts
        lines = [f"HTTP/1.1 {reply.status} {REASONS.get(reply.status, 'Status')}"]
        if reply.kind is not None:
            lines.append(f"content-type: {reply.kind}")
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        lines.append("transfer-encoding: chunked")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        for part in parts:
            if part:
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                await writer.drain()
                await asyncio.sleep(0)
        if reply.hold is not None:
            leaving = asyncio.ensure_future(reader.read(1))
            holding = asyncio.ensure_future(reply.hold.wait())
            await asyncio.wait([leaving, holding], return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                holding.cancel()
                return False
            leaving.cancel()
        if reply.cut:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


@asynccontextmanager
async def site(serve: Answer) -> AsyncIterator[Site]:
    made = Site(serve)
    server = await asyncio.start_server(made.connected, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield made
    finally:
        server.close()
