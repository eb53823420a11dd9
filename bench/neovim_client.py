"""A blocking client of the editor's socket, as cheap as can be: half of a call was the client."""

import base64
import itertools
import json
import os
import socket
import struct
import time
from collections import deque
from typing import Any


class Client:
    """Sends text frames with a mask of zeros and reads frames from a buffer of its own."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._ids = itertools.count(1)
        self._later: deque[dict[str, Any]] = deque()
        self._upgrade(port, token)
        info = {"name": "bench", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        self._exchange({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _upgrade(self, port: int, token: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            (
                f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mcp\r\n"
                f"X-Claude-Code-Ide-Authorization: {token}\r\n\r\n"
            ).encode()
        )
        while b"\r\n\r\n" not in self._buffer:
            self._fill()
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        if b" 101 " not in head.splitlines()[0]:
            raise OSError(head.splitlines()[0].decode())
        self._buffer = bytearray(rest)

    # -- frames ------------------------------------------------------------------------------

    def _fill(self) -> None:
        chunk = self._socket.recv(1 << 20)
        if not chunk:
            raise OSError("the server has closed")
        self._buffer += chunk

    @staticmethod
    def frame(text: bytes) -> bytes:
        size = len(text)
        if size < 126:
            head = struct.pack(">BB", 0x81, 0x80 | size)
        elif size < 65536:
            head = struct.pack(">BBH", 0x81, 0xFE, size)
        else:
            head = struct.pack(">BBQ", 0x81, 0xFF, size)
        return head + b"\0\0\0\0" + text

    def send(self, text: bytes) -> None:
        self._socket.sendall(self.frame(text))

    def receive(self) -> bytes:
        """The next text message; a ping is answered on the way."""
        while True:
            while len(self._buffer) < 2:
                self._fill()
            opcode, size, head = self._buffer[0] & 15, self._buffer[1] & 127, 2
            if size > 125:
                head = 4 if size == 126 else 10
                while len(self._buffer) < head:
                    self._fill()
                size = int.from_bytes(self._buffer[2:head], "big")
            while len(self._buffer) < head + size:
                self._fill()
            text = bytes(self._buffer[head : head + size])
            del self._buffer[: head + size]
            if opcode == 1:
                return text
            if opcode == 9:
                self._socket.sendall(b"\x8a\x80\0\0\0\0")

    # -- calls -------------------------------------------------------------------------------

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        self.send(json.dumps(message).encode())
        while True:
            answer = json.loads(self.receive())
            if answer.get("id") == message["id"]:
                return answer
            self._later.append(answer)

    def send_call(self, name: str, arguments: dict[str, Any]) -> None:
        self.send(self._request(name, arguments))

    def _request(self, name: str, arguments: dict[str, Any] | None = None) -> bytes:
        params = {"name": name, "arguments": arguments or {}}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call"}
        return json.dumps({**message, "params": params}).encode()

    def call(self, name: str, **arguments: Any) -> Any:
        return self._exchange(json.loads(self._request(name, arguments)))

    def times(self, name: str, count: int) -> list[float]:
        """Seconds of single calls; notifications between them are skipped."""
        times = []
        for _ in range(count):
            request = self.frame(self._request(name))
            started = time.perf_counter()
            self._socket.sendall(request)
            answer = self.receive()
            while b'"result"' not in answer[:60]:
                answer = self.receive()
            times.append(time.perf_counter() - started)
        return times

    def pipelined(self, name: str, count: int, window: int) -> float:
        """Seconds for so many calls with so many in flight."""
        frames = [self.frame(self._request(name)) for _ in range(count)]
        started = time.perf_counter()
        self._socket.sendall(b"".join(frames[:window]))
        for number in range(count):
            while b'"result"' not in self.receive()[:60]:
                pass
            if number + window < count:
                self._socket.sendall(frames[number + window])
        return time.perf_counter() - started

    def wait_for(self, method: str) -> None:
        wanted = f'"method":"{method}"'.encode()
        while wanted not in self.receive()[:100]:
            pass

    def drain(self) -> None:
        """Wait until everything asked so far is answered."""
        self._exchange({"jsonrpc": "2.0", "id": next(self._ids), "method": "ping"})
