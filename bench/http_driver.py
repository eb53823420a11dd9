"""Drives one HTTP server with raw bytes over some connections, and measures it.

As for the pipes: requests are prepared before the clock starts, answers are only told apart
while it runs, and the last one of each connection is checked after it stopped.
"""

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PATIENCE = 20.0
HEAD = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
COMMON = "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
MODERN = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: add\r\n"
_META = (
    '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    '"io.modelcontextprotocol/clientCapabilities":{},'
    '"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}'
)
_CALL = '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"add","arguments":%s%s}}'
_INITIALIZE = (
    '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    '"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}'
)
_INITIALIZED = '{"jsonrpc":"2.0","method":"notifications/initialized"}'


class HttpFailed(Exception):
    """A server did not start, or answered something else."""


@dataclass
class Load:
    """What one visit measured."""

    rate: float  # answers per second
    cpu: float  # seconds of the server's processor per answer
    p50: float


@contextlib.contextmanager
def running(command: Sequence[str], cores: set[int] | None) -> Iterator[tuple[int, int]]:
    """A server on a free port, up to its first answer: (port, pid)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - it ends with the process
    process = subprocess.Popen(
        [*command[:2], str(port), *command[2:]], stdout=errors, stderr=errors
    )
    if cores:
        os.sched_setaffinity(process.pid, cores)
    try:
        _wait_for(port, process, errors)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], errors) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                errors.seek(0)
                raise HttpFailed(errors.read().decode(errors="replace")[-500:]) from None
            time.sleep(0.02)


def post(port: int, body: str, extra: str = "", path: str = "/mcp") -> bytes:
    head = HEAD.format(path=path, port=port) + COMMON + extra
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def call(id: int, modern: bool) -> str:
    return _CALL % (id, '{"a":2,"b":3}', f",{_META}" if modern else "")


_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def is_whole(data: bytes) -> bool:
    """Whether a response has come to its end."""
    head, blank, body = data.partition(b"\r\n\r\n")
    if not blank:
        return False
    found = _LENGTH.search(head)
    if found:
        return len(body) >= int(found[1])
    if b"chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    return head.startswith((b"HTTP/1.1 202", b"HTTP/1.1 204"))


def exchange(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    data = b""
    while not is_whole(data):
        chunk = connection.recv(65536)
        if not chunk:
            raise HttpFailed(f"hung up after {data!r}")
        data += chunk
    return data


def open_session(port: int, connection: socket.socket | None = None) -> str:
    """A session of 2025-11-25; the headers that belong to it."""
    own = connection or socket.create_connection(("127.0.0.1", port), PATIENCE)
    try:
        answer = exchange(own, post(port, _INITIALIZE))
        found = re.search(rb"(?i)mcp-session-id: *(\S+)", answer)
        session = f"Mcp-Session-Id: {found[1].decode()}\r\n" if found else ""
        headers = f"{session}MCP-Protocol-Version: 2025-11-25\r\n"
        exchange(own, post(port, _INITIALIZED, headers))
        return headers
    finally:
        if connection is None:
            own.close()


def open_stream(port: int, headers: str) -> socket.socket:
    """An event stream that was accepted; the connection that holds it."""
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    head = f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n"
    connection.sendall(f"{head}{headers}\r\n".encode())
    answer = connection.recv(4096)
    if not answer.startswith(b"HTTP/1.1 200"):
        raise HttpFailed(answer.decode(errors="replace"))
    return connection


def load(port: int, pid: int, requests: list[bytes], seconds: float) -> Load:
    """Keep one request in flight on each connection; the first half second does not count."""
    connections = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in requests]
    for connection, request in zip(connections, requests, strict=True):
        answer = exchange(connection, request)
        if b'"text":"5"' not in answer:
            raise HttpFailed(answer.decode(errors="replace")[:500])
    poll = select.epoll()
    by_fd = {}
    for connection, request in zip(connections, requests, strict=True):
        connection.setblocking(False)
        by_fd[connection.fileno()] = [connection, request, b"", 0.0]
        poll.register(connection.fileno(), select.EPOLLIN)
    try:
        _turn(poll, by_fd, 0.5, [])
        before, spans = _cpu(pid), []
        began = time.perf_counter()
        count = _turn(poll, by_fd, seconds, spans)
        took = time.perf_counter() - began
        cpu = _cpu(pid) - before
        spans.sort()
        return Load(count / took, cpu / count, spans[len(spans) // 2])
    finally:
        poll.close()
        for connection in connections:
            connection.close()


def _turn(poll, by_fd, seconds: float, spans: list[float]) -> int:
    clock = time.perf_counter
    for entry in by_fd.values():
        entry[3] = clock()
        entry[0].send(entry[1])
    count, end, waiting = 0, clock() + seconds, len(by_fd)
    while waiting:
        events = poll.poll(PATIENCE)
        if not events:
            raise HttpFailed("no answer")
        for fd, _ in events:
            entry = by_fd[fd]
            entry[2] += entry[0].recv(65536)
            if not is_whole(entry[2]):
                continue
            now = clock()
            if b'"text":"5"' not in entry[2]:
                raise HttpFailed(entry[2].decode(errors="replace")[:500])
            spans.append(now - entry[3])
            entry[2] = b""
            count += 1
            if now < end:
                entry[3] = now
                entry[0].send(entry[1])
            else:
                waiting -= 1
    return count


def blocks(port: int) -> int:
    """Blocks of memory that a server of ours uses."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        answer = exchange(connection, b"GET /blocks HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        return int(answer.rpartition(b"\r\n\r\n")[2])


_TICKS = os.sysconf("SC_CLK_TCK")


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss(pid: int) -> int:
    """Resident bytes of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
