"""Fuzz the HTTP exchange: verb, headers and body into the ASGI application.

Allowed to escape: nothing. The status must be one of a closed list, a JSON body must be JSON-RPC,
no traceback may be logged, nothing may stay in flight, and afterwards the application still serves.

The input is a request as a person would write it: verb, headers, a blank line, the body. The value
``SESSION`` stands for the id of a session that is open. Run it through ``fuzz/run.py``.
"""

import asyncio
import logging
import sys
from typing import Any

import atheris

with atheris.instrument_imports(include=["dovetail"]):
    from dovetail import Server
    from dovetail.transport.http.app import HttpApp
    from dovetail.transport.http.limits import HttpLimits

import msgspec
from seeds import conversations, initialize, save

STATUSES = frozenset({200, 202, 204, 400, 403, 404, 405, 406, 413, 415, 503})
USUAL = (
    b"host: localhost\naccept: application/json, text/event-stream\n"
    b"content-type: application/json\n"
)
SEED_HEADERS = [
    USUAL,
    USUAL + b"mcp-session-id: SESSION\nmcp-protocol-version: 2025-11-25\n",
    USUAL + b"mcp-protocol-version: 2026-07-28\nmcp-method: tools/call\nmcp-name: add\n",
    USUAL + b"mcp-session-id: SESSION\nlast-event-id: p1-1\norigin: http://localhost\n",
]

server = Server("fuzz")


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


class Crash(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            raise AssertionError("a traceback was logged") from record.exc_info[1]


logging.getLogger("dovetail").addHandler(Crash())
loop = asyncio.new_event_loop()
app: HttpApp = server.asgi(path="/mcp", limits=HttpLimits(body_seconds=5, max_sessions=50))
state: dict[str, bytes] = {}


async def exchange(
    verb: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> tuple[int, Any, bytes]:
    sent: list[Any] = []
    gone = asyncio.Event()
    parts = [body[: len(body) // 2], body[len(body) // 2 :]]

    async def receive() -> Any:
        if parts:
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if (b"content-type", b"text/event-stream") in message.get("headers", ()):
            gone.set()  # a stream may stay open for ever

    scope = {"type": "http", "method": verb, "path": "/mcp", "root_path": "", "headers": headers}
    await asyncio.wait_for(app(scope, receive, send), 10)
    assert sent, "no answer"
    assert sent[0]["type"] == "http.response.start"
    data = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), data


async def session() -> bytes:
    pairs = [tuple(line.split(b": ", 1)) for line in USUAL.splitlines()]
    status, headers, _ = await exchange("POST", pairs, initialize("2025-11-25"))  # type: ignore[arg-type]
    assert status == 200, status
    id: bytes = headers[b"mcp-session-id"]
    return id


async def check(data: bytes) -> None:
    if state.get("id", b"").decode() not in app.sessions if app._started else True:
        state["id"] = await session()
    head, _, body = data.partition(b"\n\n")
    verb, *lines = head.split(b"\n")
    headers = []
    for line in lines[:20]:
        name, _, value = line.partition(b": ")
        headers.append((name.lower(), state["id"] if value == b"SESSION" else value))
    shown = verb.decode("latin-1").strip() or "POST"
    status, answer, text = await exchange(shown, headers, body)
    assert status in STATUSES, status
    if answer.get(b"content-type") == b"application/json":
        messages = msgspec.json.decode(text)
        for message in messages if isinstance(messages, list) else [messages]:
            assert message["jsonrpc"] == "2.0"
            assert ("result" in message) != ("error" in message)
    assert app.active == 0
    for kept in list(app.sessions)[:-40]:
        app.sessions.drop(kept)


def one(data: bytes) -> None:
    loop.run_until_complete(check(data))


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "--seed":
        for headers in SEED_HEADERS:
            for body in conversations():
                save(sys.argv[2], b"POST\n" + headers + b"\n" + body)
            for verb in (b"GET", b"DELETE", b"OPTIONS"):
                save(sys.argv[2], verb + b"\n" + headers + b"\n")
        return
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
