"""Broken servers over HTTP: the good one of the zoo behind a wrapper that breaks one rule.

``python zoo_http.py [RULE]`` serves on a free port of loopback and prints the URL. With
``http-unauthorized`` or ``guarded`` every request needs the token ``owl``.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from zoo import build

from dovetail.transport.http.run import bind

TOKEN = "Bearer owl"


class Exchange:
    """One request and its answer, both in full; an event stream of GET is never held."""

    def __init__(self, scope: dict[str, Any], body: bytes) -> None:
        self.method: str = scope["method"]
        self.headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        self.body = body
        self.status = 0
        self.answer_headers: list[tuple[bytes, bytes]] = []
        self.answer = b""

    @property
    def message(self) -> dict[str, Any]:
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def rpc(self) -> Any:
        return self.message.get("method")

    def header(self, name: str) -> str | None:
        wanted = name.encode()
        return next((value.decode() for key, value in self.headers if key == wanted), None)

    def set_header(self, name: str, value: str | None) -> None:
        key = name.encode()
        self.headers = [pair for pair in self.headers if pair[0] != key]
        if value is not None:
            self.headers.append((key, value.encode()))

    def set_answer_header(self, name: bytes, value: bytes) -> None:
        kept = [pair for pair in self.answer_headers if pair[0] not in (name, b"content-length")]
        self.answer_headers = [*kept, (name, value)]


# Before the good server sees the request; True: it shall not see it at all.
BEFORE: dict[str, Callable[[Exchange], bool | None]] = {}
# After it has answered.
AFTER: dict[str, Callable[[Exchange], None]] = {}


def before(rule: str) -> Callable[[Any], Any]:
    return lambda function: BEFORE.setdefault(rule, function)


def after(rule: str) -> Callable[[Any], Any]:
    return lambda function: AFTER.setdefault(rule, function)


def says(exchange: Exchange, status: int, body: bytes = b"") -> bool:
    exchange.status, exchange.answer = status, body
    exchange.answer_headers = [(b"content-type", b"application/json")]
    return True


@after("http-accepted")
def ok_for_notifications(exchange: Exchange) -> None:
    if exchange.status == 202 and exchange.rpc == "notifications/cancelled":
        exchange.status = 200


@after("http-content-type")
def plain_text(exchange: Exchange) -> None:
    if exchange.rpc in ("ping", "server/discover"):
        exchange.set_answer_header(b"content-type", b"text/plain")


@before("http-get")
def get_is_not_found(exchange: Exchange) -> bool | None:
    modern = exchange.header("mcp-protocol-version") == "2026-07-28"
    plain = exchange.method == "GET" and exchange.header("last-event-id") is None
    return says(exchange, 404) if plain and not modern else None


@before("http-get-modern")
def get_is_nothing(exchange: Exchange) -> bool | None:
    modern = exchange.header("mcp-protocol-version") == "2026-07-28"
    return says(exchange, 404) if exchange.method == "GET" and modern else None


@before("http-origin")
def any_origin(exchange: Exchange) -> None:
    exchange.set_header("origin", None)


@before("http-version-header")
def any_version(exchange: Exchange) -> None:
    if exchange.header("mcp-protocol-version") == "1999-01-01":
        exchange.set_header("mcp-protocol-version", "2025-06-18")


REAL_IDS: dict[str, str] = {}


@before("http-session-id")
def real_id(exchange: Exchange) -> None:
    if (given := exchange.header("mcp-session-id")) in REAL_IDS:
        exchange.set_header("mcp-session-id", REAL_IDS[str(given)])


@after("http-session-id")
def spaced_id(exchange: Exchange) -> None:
    for name, value in exchange.answer_headers:
        if name.lower() == b"mcp-session-id":
            REAL_IDS[f"my {value.decode()}"] = value.decode()
            exchange.set_answer_header(name, b"my " + value)


@after("http-session-needed")
def found_nothing(exchange: Exchange) -> None:
    if exchange.header("mcp-session-id") == "no-such-session":
        exchange.status = 500


@before("http-session-ended")
def ends_nothing(exchange: Exchange) -> bool | None:
    return says(exchange, 200) if exchange.method == "DELETE" else None


@after("http-event-ids")
def same_ids(exchange: Exchange) -> None:
    if len(ids := re.findall(rb"id: (\S+)\n", exchange.answer)) > 1:
        exchange.answer = exchange.answer.replace(ids[-1], ids[0])


UNDER_WAY: Counter[str] = Counter()


@before("http-parallel")
def count(exchange: Exchange) -> None:
    if exchange.rpc == "ping":
        UNDER_WAY[str(exchange.header("mcp-session-id"))] += 1


@after("http-parallel")
def lose_some(exchange: Exchange) -> None:
    session = exchange.header("mcp-session-id")
    if exchange.rpc == "ping" and session is not None:
        if UNDER_WAY[session] > 1:
            exchange.answer = b""
        UNDER_WAY[session] -= 1


@after("http-unknown-method")
def found(exchange: Exchange) -> None:
    if exchange.rpc == "no/such/method" and exchange.status == 404:
        exchange.status = 200


def mend(exchange: Exchange) -> None:
    """Make the headers fit the body."""
    message = exchange.message
    params = message.get("params") or {}
    exchange.set_header("mcp-method", message.get("method"))
    if isinstance(params.get("name"), str):
        exchange.set_header("mcp-name", params["name"])


@before("http-header-mismatch")
def any_method_header(exchange: Exchange) -> None:
    if exchange.rpc == "server/discover":
        mend(exchange)


@before("http-name-header")
def any_name_header(exchange: Exchange) -> None:
    if exchange.rpc == "tools/call":
        mend(exchange)


@after("http-version-status")
def wrong_version_status(exchange: Exchange) -> None:
    if b"-32022" in exchange.answer:
        exchange.status = 200


@after("http-meta-status")
def wrong_meta_status(exchange: Exchange) -> None:
    if b"-32602" in exchange.answer and exchange.rpc == "server/discover":
        exchange.status = 200


@after("http-no-session")
def session_for_all(exchange: Exchange) -> None:
    if exchange.header("mcp-protocol-version") == "2026-07-28":
        exchange.set_answer_header(b"mcp-session-id", b"sticky")


@before("http-no-version")
def version_from_body(exchange: Exchange) -> None:
    if exchange.rpc == "server/discover" and exchange.header("mcp-protocol-version") is None:
        exchange.set_header("mcp-protocol-version", "2026-07-28")


@before("http-param-header")
def param_from_body(exchange: Exchange) -> None:
    params = exchange.message.get("params") or {}
    number = (params.get("arguments") or {}) if isinstance(params, dict) else {}
    if exchange.rpc == "tools/call" and isinstance(number, dict) and "number" in number:
        exchange.set_header("mcp-param-number", str(number["number"]))


@before("http-unauthorized")
def no_challenge(exchange: Exchange) -> bool | None:
    return says(exchange, 401) if exchange.header("authorization") != TOKEN else None


@before("guarded")
def challenge(exchange: Exchange) -> bool | None:
    if exchange.header("authorization") == TOKEN:
        return None
    says(exchange, 401)
    exchange.answer_headers.append((b"www-authenticate", b"Bearer"))
    return True


@before("http-resume")
def nothing_to_resume(exchange: Exchange) -> bool | None:
    return says(exchange, 404) if exchange.header("last-event-id") else None


Send = Callable[[dict[str, Any]], Awaitable[None]]


def broken(app: Any, rule: str) -> Any:
    """The application with one breach; a rule about case needs the scope itself."""

    async def wrapped(scope: dict[str, Any], receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        exchange = Exchange(scope, await whole_body(receive))
        if not (rule in BEFORE and BEFORE[rule](exchange)):
            scope = {**scope, "headers": exchange.headers}
            if exchange.method == "GET":
                await app(scope, receive, send)
                return
            await app(scope, replay(exchange.body, receive), collect(exchange))
            if rule == "http-parallel":
                await asyncio.sleep(0.02)  # so that they are under way at the same time
        if rule in AFTER:
            AFTER[rule](exchange)
        await reply(exchange, send)

    return wrapped


async def whole_body(receive: Any) -> bytes:
    body = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body"):
            return body


def replay(body: bytes, receive: Any) -> Any:
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_event() -> Any:
        return waiting.pop() if waiting else await receive()

    return next_event


def collect(exchange: Exchange) -> Send:
    async def send(event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            exchange.status = event["status"]
            exchange.answer_headers = list(event["headers"])
        else:
            exchange.answer += event.get("body", b"")

    return send


async def reply(exchange: Exchange, send: Send) -> None:
    headers = [pair for pair in exchange.answer_headers if pair[0] != b"content-length"]
    await send({"type": "http.response.start", "status": exchange.status, "headers": headers})
    await send({"type": "http.response.body", "body": exchange.answer})


def main(rule: str | None) -> None:
    app: Any = build().asgi()
    if rule is not None:
        app = broken(app, rule)
    listener = bind("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none")
    asyncio.run(uvicorn.Server(config).serve([listener]))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
