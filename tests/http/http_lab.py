"""The ASGI application without a network: a client that sees, and can spoil, every step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dovetail import Server
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, PROTOCOL_VERSION_KEY
from dovetail.testing import Recorder
from dovetail.transport.http.app import HttpApp
from dovetail.wire.sse import Event, Parser

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
BOTH = "application/json, text/event-stream"
CLIENT = {"name": "http-lab", "version": "1"}


class Answer:
    """One HTTP exchange, from our request to the last byte of the response."""

    def __init__(self, app: HttpApp, scope: dict[str, Any], body: list[bytes]) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = False  # the response has been sent to its end
        self.unread = 0  # a client that does not read: every send waits
        self._parts = body
        self._gone = asyncio.Event()
        self._grown = asyncio.Condition()
        self._reading = asyncio.Event()
        self._reading.set()
        self.events: list[Event] = []
        self.parser = Parser()
        self.task = asyncio.create_task(app(scope, self._receive, self._send))  # type: ignore[arg-type]
        self.task.add_done_callback(lambda _: asyncio.ensure_future(self._wake()))

    # -- the server's side ---------------------------------------------------------------

    async def _receive(self) -> dict[str, Any]:
        if self._parts:
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self._reading.wait()
        if self._gone.is_set():
            return
        assert not self.ended, f"after the end: {message}"
        if message["type"] == "http.response.start":
            assert not self.status, "two heads"
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            assert len(self.headers) == len(message["headers"])
        else:
            assert self.status, "a body without a head"
            self.body += message.get("body", b"")
            if self.is_stream:
                self.events += self.parser.feed(message.get("body", b""))
            self.ended = not message.get("more_body", False)
        await self._wake()

    async def _wake(self) -> None:
        async with self._grown:
            self._grown.notify_all()

    # -- the client's --------------------------------------------------------------------

    def disconnect(self) -> None:
        self._gone.set()

    def stop_reading(self) -> None:
        self._reading.clear()

    def read_again(self) -> None:
        self._reading.set()

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    async def until(self, done: Any) -> None:
        async with self._grown:
            await self._grown.wait_for(lambda: done() or self.task.done())
        if self.task.done():
            self.task.result()
        assert done(), (self.status, self.body)

    async def whole(self) -> Answer:
        """To the last byte."""
        await self.task
        assert self.ended or self._gone.is_set()
        return self

    async def event(self, count: int) -> Any:
        """The message of the n-th event, counted from 1."""
        await self.until(lambda: len(self.events) >= count)
        return msgspec.json.decode(self.events[count - 1].data)

    @property
    def messages(self) -> list[Any]:
        if self.is_stream:
            return [msgspec.json.decode(event.data) for event in self.events]
        return [msgspec.json.decode(self.body)] if self.body else []

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> int:
        code: int = self.messages[-1]["error"]["code"]
        return code


class Lab:
    """One application, and requests to it."""

    def __init__(self, app: HttpApp) -> None:
        self.app = app
        self.recorder = Recorder()
        self._last_id = 0

    def send(
        self,
        method: str,
        headers: dict[str, str] | None = None,
        body: bytes | list[bytes] = b"",
        path: str = "/mcp",
        raw_headers: list[tuple[bytes, bytes]] | None = None,
        **scope: Any,
    ) -> Answer:
        pairs = [(b"host", b"127.0.0.1:8000")] if "host" not in (headers or {}) else []
        pairs += [(k.lower().encode(), v.encode("latin-1")) for k, v in (headers or {}).items()]
        if raw_headers is not None:
            pairs = raw_headers
        full = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": "",
            "query_string": b"",
            "headers": pairs,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
            **scope,
        }
        return Answer(self.app, full, list(body) if isinstance(body, list) else [body])

    def post(self, message: Any, headers: dict[str, str] | None = None, **options: Any) -> Answer:
        body = message if isinstance(message, bytes | list) else msgspec.json.encode(message)
        if isinstance(message, list):
            body = msgspec.json.encode(message)
        given = {"accept": BOTH, "content-type": "application/json", **(headers or {})}
        return self.send("POST", given, body, **options)

    # -- 2026-07-28 ------------------------------------------------------------------------

    def modern(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        headers: dict[str, str | None] | None = None,
        capabilities: dict[str, Any] | None = None,
        meta: dict[str, Any] | None = None,
        id: Any = None,
    ) -> Answer:
        """A request as it should be; a header given as None is left out."""
        self._last_id += 1
        params = params or {}
        envelope = {
            PROTOCOL_VERSION_KEY: E,
            CLIENT_CAPABILITIES_KEY: capabilities or {},
            CLIENT_INFO_KEY: CLIENT,
            **(meta or {}),
        }
        name = params.get("name", params.get("uri", params.get("taskId")))
        given: dict[str, Any] = {"mcp-protocol-version": E, "mcp-method": method}
        if name is not None:
            given["mcp-name"] = name
        given |= headers or {}
        message = {
            "jsonrpc": "2.0",
            "id": self._last_id if id is None else id,
            "method": method,
            "params": {**params, "_meta": envelope},
        }
        return self.post(message, {k: v for k, v in given.items() if v is not None})

    # -- sessions --------------------------------------------------------------------------

    async def session(
        self, revision: str = D, capabilities: dict[str, Any] | None = None, **headers: str
    ) -> Client:
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities or {},
            "clientInfo": CLIENT,
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer = await self.post(message, headers).whole()
        assert answer.status == 200, answer.body
        agreed = answer.json["result"]["protocolVersion"]
        client = Client(self, agreed, answer.headers.get("mcp-session-id"), headers)
        client.initialized = answer
        done = await client.post({"method": "notifications/initialized"}).whole()
        assert done.status == 202, done.body
        assert not done.body
        return client


class Client:
    """A session of an older revision."""

    initialized: Answer

    def __init__(self, lab: Lab, revision: str, id: str | None, headers: dict[str, str]) -> None:
        self.lab = lab
        self.id = id
        self.headers = dict(headers)
        if id is not None:
            self.headers["mcp-session-id"] = id
        if revision >= C:
            self.headers["mcp-protocol-version"] = revision
        self._last_id = 0

    def post(self, message: Any, **headers: str) -> Answer:
        if isinstance(message, dict):
            message = {"jsonrpc": "2.0", **message}
        return self.lab.post(message, {**self.headers, **headers})

    def request(self, method: str, params: dict[str, Any] | None = None, id: Any = None) -> Answer:
        self._last_id += 1
        given = {} if params is None else {"params": params}
        return self.post({"id": self._last_id if id is None else id, "method": method, **given})

    def call(self, name: str, arguments: dict[str, Any] | None = None, **meta: Any) -> Answer:
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
        return self.request("tools/call", params | ({"_meta": meta} if meta else {}))

    def get(self, last_event_id: str | None = None, **headers: str) -> Answer:
        given = {"accept": "text/event-stream", **self.headers, **headers}
        if last_event_id is not None:
            given["last-event-id"] = last_event_id
        return self.lab.send("GET", given)

    def delete(self) -> Answer:
        return self.lab.send("DELETE", self.headers)


@asynccontextmanager
async def lab(server: Server, **options: Any) -> AsyncIterator[Lab]:
    """An application at /mcp; at the end it must leave nothing running."""
    options.setdefault("path", "/mcp")
    app = server.asgi(**options)
    before = asyncio.all_tasks()
    made = Lab(app)
    try:
        yield made
    finally:
        await app.close()
        for _ in range(5):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - before - {asyncio.current_task()}
        assert not left, left


def result(answer: Answer) -> Any:
    return answer.messages[-1]["result"]


def text(answer: Answer) -> str:
    return str(result(answer)["content"][0]["text"])
