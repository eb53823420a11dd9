"""Real processes, a real engine, and a client that may speak to any of them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, PROTOCOL_VERSION_KEY
from dovetail.wire.sse import Event, Parser

KEYS = "6b" * 32
SCRIPT = Path(__file__).parent / "node_server.py"
CLIENT = {"name": "nodes-lab", "version": "1"}
TASKS = "io.modelcontextprotocol/tasks"
BOTH = "application/json, text/event-stream"


class Node:
    """One process that serves."""

    def __init__(self, redis: str, **options: Any) -> None:
        given = {"redis": redis, "lease": 60.0, **options}
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), json.dumps(given)],
            stdout=subprocess.PIPE,
            env={**os.environ, "DOVETAIL_KEYS": KEYS},
        )
        self.url = ""

    def ready(self) -> Node:
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{said['port']}"
        # The socket listens already: this is answered as soon as the node serves.
        assert httpx.get(f"{self.url}/ready", timeout=20).status_code == 200
        return self

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.end()

    def end(self) -> None:
        self.process.wait(20)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Stream:
    """An event stream that is being read."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._parser = Parser()
        self._chunks = response.aiter_raw()
        self._events: list[Event] = []

    @property
    def last_id(self) -> str:
        assert self._parser.last_id is not None
        return self._parser.last_id

    async def event(self) -> Event | None:
        """The next one; None at the end of the stream."""
        while not self._events:
            try:
                self._events += self._parser.feed(await anext(self._chunks))
            except (StopAsyncIteration, httpx.TransportError):
                return None
        return self._events.pop(0)

    async def message(self) -> Any:
        event = await self.event()
        return None if event is None else json.loads(event.data)

    async def until(self, wanted: Callable[[Any], bool]) -> Any:
        while (message := await self.message()) is not None:
            if wanted(message):
                return message
        raise AssertionError("the stream has ended")

    async def notified(self, method: str) -> Any:
        return await self.until(lambda message: message.get("method") == method)

    async def rest(self) -> list[Any]:
        found = []
        while (message := await self.message()) is not None:
            found.append(message)
        return found


class Client:
    """A client of 2025-11-25 with one session, which it uses on any node."""

    def __init__(self, http: httpx.AsyncClient, token: str | None = None) -> None:
        self.http = http
        self.session = ""
        self.ids = itertools.count(1)
        self.headers = {"accept": BOTH, "mcp-protocol-version": "2025-11-25"}
        if token is not None:
            self.headers["authorization"] = f"Bearer {token}"

    async def open(self, node: Node) -> Client:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}, "roots": {}},
            "clientInfo": CLIENT,
        }
        response = await self.post(node, "initialize", params)
        assert response.status_code == 200, response.text
        self.session = response.headers["mcp-session-id"]
        self.headers["mcp-session-id"] = self.session
        response = await self.notify(node, "notifications/initialized")
        assert response.status_code == 202
        return self

    def body(self, method: str, params: Any, id: int | None = None) -> dict[str, Any]:
        id = next(self.ids) if id is None else id
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    async def send(self, node: Node, message: Any) -> httpx.Response:
        return await self.http.post(f"{node.url}/mcp", json=message, headers=self.headers)

    async def post(self, node: Node, method: str, params: Any) -> httpx.Response:
        return await self.send(node, self.body(method, params))

    async def notify(self, node: Node, method: str, params: Any = None) -> httpx.Response:
        message = {"jsonrpc": "2.0", "method": method}
        return await self.send(node, message | ({"params": params} if params else {}))

    async def request(self, node: Node, method: str, params: Any) -> Any:
        """The result, however it is answered."""
        response = await self.post(node, method, params)
        assert response.status_code == 200, (response.status_code, response.text)
        answer = response.json()
        assert "result" in answer, answer
        return answer["result"]

    async def call(self, node: Node, name: str, **arguments: Any) -> Any:
        result = await self.request(node, "tools/call", {"name": name, "arguments": arguments})
        return result["structuredContent"]["result"]

    @asynccontextmanager
    async def calling(
        self, node: Node, name: str, id: int | None = None, **arguments: Any
    ) -> AsyncIterator[Stream]:
        """A call that is answered by a stream."""
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "t"}}
        message = self.body("tools/call", params, id)
        url = f"{node.url}/mcp"
        async with self.http.stream("POST", url, json=message, headers=self.headers) as response:
            assert response.status_code == 200
            yield Stream(response)

    @asynccontextmanager
    async def listening(self, node: Node, after: str | None = None) -> AsyncIterator[Stream]:
        headers = self.headers | ({} if after is None else {"last-event-id": after})
        async with self.http.stream("GET", f"{node.url}/mcp", headers=headers) as response:
            if response.status_code != 200:
                await response.aread()
            yield Stream(response)

    async def resumed(self, node: Node, after: str) -> Any:
        """What a stream still has, asked again and again as a client does after a crash."""
        while True:
            async with self.listening(node, after) as stream:
                if stream.response.status_code == 200:
                    return await stream.rest()
                assert stream.response.status_code == 503, stream.response.text
                assert int(stream.response.headers["retry-after"]) >= 1
            await asyncio.sleep(0.05)


def envelope(extensions: dict[str, Any] | None = None) -> dict[str, Any]:
    capabilities: dict[str, Any] = {"elicitation": {}}
    if extensions:
        capabilities["extensions"] = extensions
    return {
        PROTOCOL_VERSION_KEY: "2026-07-28",
        CLIENT_CAPABILITIES_KEY: capabilities,
        CLIENT_INFO_KEY: CLIENT,
    }


class Modern:
    """A client of 2026-07-28."""

    def __init__(self, http: httpx.AsyncClient, token: str | None = None, tasks: bool = False):
        self.http = http
        self.ids = itertools.count(1)
        self.meta = envelope({TASKS: {}} if tasks else None)
        self.auth = {} if token is None else {"authorization": f"Bearer {token}"}

    def parts(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        headers = {"accept": BOTH, "mcp-protocol-version": "2026-07-28", "mcp-method": method}
        for key in ("name", "uri", "taskId"):
            if key in params:
                headers["mcp-name"] = params[key]
        body = {
            "jsonrpc": "2.0",
            "id": next(self.ids),
            "method": method,
            "params": {**params, "_meta": self.meta},
        }
        return body, headers | self.auth

    async def post(self, node: Node, method: str, params: dict[str, Any]) -> httpx.Response:
        body, headers = self.parts(method, params)
        return await self.http.post(f"{node.url}/mcp", json=body, headers=headers)

    async def request(self, node: Node, method: str, params: dict[str, Any]) -> Any:
        response = await self.post(node, method, params)
        assert response.status_code == 200, (response.status_code, response.text)
        return response.json()["result"]

    async def call(self, node: Node, name: str, **arguments: Any) -> Any:
        params = {"name": name, "arguments": arguments}
        return (await self.request(node, "tools/call", params))["structuredContent"]

    @asynccontextmanager
    async def listening(self, node: Node, **wanted: Any) -> AsyncIterator[Stream]:
        body, headers = self.parts("subscriptions/listen", {"notifications": wanted})
        url = f"{node.url}/mcp"
        async with self.http.stream("POST", url, json=body, headers=headers) as response:
            assert response.status_code == 200
            stream = Stream(response)
            await stream.notified("notifications/subscriptions/acknowledged")
            yield stream


class Cable:
    """The way of one node to the engine, which can be cut: bytes stay away, nothing is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Cable:
        self._server = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._port)
        for source, sink in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._whole.wait()
                sink.write(data)
        except ConnectionError:
            pass
        finally:
            sink.close()


async def eventually(condition: Callable[[], Any]) -> None:
    """Wait for what another process does."""
    async with asyncio.timeout(20):
        while True:
            outcome = condition()
            if asyncio.iscoroutine(outcome):
                outcome = await outcome
            if outcome:
                return
            await asyncio.sleep(0.01)
