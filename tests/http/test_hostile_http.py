"""Clients that mean no good, and networks that do no better."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from http_lab import BOTH, CLIENT, A, B, C, D, E, Lab, lab
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sessions import make
from uvicorn_lab import Served, served

from dovetail import Context, Limits, Server
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from dovetail.transport.http.limits import HttpLimits
from support import no_crash, run, until

# Nothing else may ever come back (401 is the authenticator's).
STATUSES = frozenset({200, 202, 204, 400, 403, 404, 405, 406, 408, 413, 415, 431, 503})

HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n"
    b"Content-Type: application/json\r\n"
)
PARAMS = {"protocolVersion": D, "capabilities": {}, "clientInfo": CLIENT}
INITIALIZE = msgspec.json.encode(
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS}
)
META = {PROTOCOL_VERSION_KEY: E, CLIENT_CAPABILITIES_KEY: {}}


def whole(body: bytes, extra: bytes = b"") -> bytes:
    return HEAD + extra + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def call(name: str, **arguments: Any) -> bytes:
    params = {"name": name, "arguments": arguments, "_meta": {**META, "progressToken": 1}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    extra = f"MCP-Protocol-Version: {E}\r\nMcp-Method: tools/call\r\nMcp-Name: {name}\r\n"
    return whole(msgspec.json.encode(body), extra.encode())


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    return int(answer[9:12])


async def still_serves(http: Served) -> None:
    answer = await http.raw(
        call("add", a=1, b=2) + b"GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        close=False,
    )
    assert status(answer) == 200, answer
    assert b'"text":"3"' in answer


def test_a_head_that_never_ends() -> None:
    async def main() -> None:
        limits = HttpLimits(head_seconds=0.2, max_head=2000)
        async with served(make(), limits=limits) as http:
            silent = asyncio.create_task(http.raw(b"", close=False))
            dripping = asyncio.create_task(http.raw(HEAD + b"X-Slow", close=False))
            second = asyncio.create_task(
                http.raw(whole(INITIALIZE) + b"POST /mcp HTT", close=False)
            )
            await still_serves(http)
            assert status(await silent) == 408
            assert status(await dripping) == 408
            answers = await second  # the first of its requests was served
            assert status(answers) == 200
            assert b"HTTP/1.1 408" in answers
            long = await http.raw(HEAD + b"X-Long: " + b"x" * 4000, close=False)
            assert status(long) == 431
            await still_serves(http)
            assert not http.runner.server_state.connections

    run(main())


def test_a_body_that_never_ends() -> None:
    async def main() -> None:
        async with served(make(), limits=HttpLimits(body_seconds=0.1)) as http:
            slow = await http.raw(HEAD + b"Content-Length: 100\r\n\r\n{", close=False)
            assert status(slow) == 408
            none = await http.raw(HEAD + b"Content-Length: 100\r\n\r\n", close=False)
            assert status(none) == 408
            await still_serves(http)

    run(main())


async def flood(writer: asyncio.StreamWriter, size: int) -> int:
    """Send chunks until it is enough for one of both sides; the bytes that were sent."""
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    sent = 0
    with suppress(OSError):
        while sent < size:
            writer.write(chunk)
            sent += len(chunk)
            await writer.drain()
    return sent


def test_a_hundred_megabytes() -> None:
    """Refused before they are sent; in chunks as soon as it is too much."""
    size = 100 * 1024 * 1024

    async def main() -> None:
        async with served(make()) as http:
            declared = await http.raw(HEAD + b"Content-Length: %d\r\n\r\n" % size, close=False)
            assert status(declared) == 413
            reader, writer = await http.connect()
            writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            sent = await flood(writer, size)  # it hangs up on us long before the end
            assert sent < 40 * 1024 * 1024
            writer.close()
            del reader
            await still_serves(http)

    run(main())


@pytest.mark.parametrize("length", [b"-1", b"x", b"1" * 30, b"+5", b"5, 5"])
def test_lengths_that_are_none(length: bytes) -> None:
    async def main() -> None:
        async with served(make()) as http:
            answer = await http.raw(HEAD + b"Content-Length: %b\r\n\r\n{}" % length, close=False)
            assert status(answer) in (400, 413)
            await still_serves(http)

    run(main())


def reset(writer: asyncio.StreamWriter) -> None:
    """Hang up without a goodbye."""
    raw: Any = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


STAGES = {
    "nothing": b"",
    "in the head": HEAD,
    "after the head": HEAD + b"Content-Length: 10\r\n\r\n",
    "in the body": HEAD + b"Content-Length: 10\r\n\r\n{",
    "after the request": call("hang"),
    "after two": call("add", a=1, b=1) + call("hang"),
    "in a stream": call("steps_then_hang"),
}


@pytest.mark.parametrize("how", ["close", "half", "reset"])
@pytest.mark.parametrize("stage", STAGES)
def test_hanging_up(stage: str, how: str) -> None:
    server = make()
    ended: list[str] = []

    @server.tool
    async def hang() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("hang")
        return ""

    @server.tool
    async def steps_then_hang(ctx: Context) -> str:
        ctx.progress(1)
        return await hang()

    async def main() -> None:
        async with served(server) as http:
            reader, writer = await http.connect()
            writer.write(STAGES[stage])
            await writer.drain()
            if stage.startswith("after"):
                await until(lambda: http.app.active == 1 or not stage.endswith(("request", "two")))
            if stage == "in a stream":
                assert await reader.readuntil(b"notifications/progress")
            if how == "close":
                writer.close()
            elif how == "half":
                writer.write_eof()
            else:
                reset(writer)
            await still_serves(http)
            await until(lambda: not http.app.active)
            assert not http.app.streams
            expected = ["hang"] if "hang" in str(STAGES[stage]) else []
            assert ended == expected
            if how == "half":
                assert (await reader.read()) is not None
                writer.close()

    with no_crash():
        run(main())


def test_many_connections() -> None:
    """Past the limit they are turned away with 503, and those who are in go on."""

    async def main() -> None:
        async with served(make(), limits=HttpLimits(max_connections=8)) as http:
            held = [await http.connect() for _ in range(8)]
            for _, writer in held:
                writer.write(HEAD)
            await asyncio.sleep(0.05)
            assert status(await http.raw(whole(INITIALIZE), close=False)) == 503
            for _, writer in held:
                reset(writer)
            await until(lambda: not http.runner.server_state.connections)
            await still_serves(http)

    run(main())


def test_pipelined_requests_are_answered_in_order() -> None:
    async def main() -> None:
        async with served(make()) as http:
            requests = [call("add", a=i, b=0) for i in range(20)]
            closing = requests.pop().replace(b"Host:", b"Connection: close\r\nHost:")
            answer = await http.raw(b"".join(requests) + closing, close=False)
            found = [int(part.split(b'"')[0]) for part in answer.split(b'"text":"')[1:]]
            assert found == list(range(20))

    run(main())


def test_noise_on_the_wire() -> None:
    """Bytes that are no HTTP, before, in and after a head."""
    noise = random.Random(7)

    async def main() -> None:
        async with served(make(), limits=HttpLimits(head_seconds=0.2, body_seconds=0.2)) as http:
            for number in range(60):
                junk = noise.randbytes(noise.randrange(1, 300))
                data = (junk, HEAD + junk, HEAD + b"\r\n" + junk, whole(INITIALIZE) + junk)[
                    number % 4
                ]
                answer = await http.raw(data)
                assert not answer or status(answer) in STATUSES, (data, answer)
            await still_serves(http)
            assert not http.app.active

    run(main())


# -- the exchange, fuzzed ----------------------------------------------------------------------

METHODS = st.sampled_from(["POST", "POST", "POST", "GET", "DELETE", "PUT", "OPTIONS", "HEAD", "X"])
VALUES = st.one_of(
    st.sampled_from(
        [
            b"application/json",
            b"text/event-stream",
            BOTH.encode(),
            b"*/*",
            *(r.encode() for r in (A, B, C, D, E)),
            b"tools/call",
            b"add",
            b"=?base64?YWRk?=",
            b"=?base64?!?=",
            b"http://localhost",
            b"null",
            b"p1-1",
            b"SESSION",
            b"0",
            b"99999999999",
        ]
    ),
    st.binary(max_size=30),
)
NAMES = st.sampled_from(
    [
        b"accept",
        b"content-type",
        b"content-length",
        b"mcp-protocol-version",
        b"mcp-method",
        b"mcp-name",
        b"mcp-session-id",
        b"mcp-param-x",
        b"last-event-id",
        b"origin",
        b"host",
        b"authorization",
        b"transfer-encoding",
        b"expect",
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=10),
)
JSON = st.recursive(
    SCALARS,
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3),
    max_leaves=8,
)
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "1.0"])},
    optional={
        "id": st.one_of(
            st.integers(),
            st.text(max_size=5),
            st.none(),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        "method": st.sampled_from(
            [
                "initialize",
                "tools/call",
                "tools/list",
                "ping",
                "server/discover",
                "x",
                "notifications/initialized",
                "notifications/cancelled",
            ]
        )
        | st.text(max_size=5),
        "params": st.one_of(
            JSON,
            st.just({"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}),
            st.just({"name": "add", "arguments": {"a": 1, "b": 2}}),
            st.just(PARAMS),
            st.fixed_dictionaries({"_meta": st.one_of(JSON, st.just(META))}),
        ),
        "result": JSON,
        "error": JSON,
    },
)
BODIES = st.one_of(
    MESSAGES.map(msgspec.json.encode),
    st.lists(MESSAGES, max_size=3).map(msgspec.json.encode),
    st.binary(max_size=200),
    JSON.map(msgspec.json.encode),
)


@settings(max_examples=400)
@given(
    method=METHODS,
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=8),
    body=BODIES,
    cuts=st.lists(st.integers(0, 200), max_size=3),
    proper=st.booleans(),
)
def test_any_exchange_ends_with_a_status_of_the_list(
    method: str, headers: list[tuple[bytes, bytes]], body: bytes, cuts: list[int], proper: bool
) -> None:
    async def main() -> None:
        async with lab(make(), limits=HttpLimits(body_seconds=5)) as http:
            client = await http.session()
            pairs = [(n, (client.id or "").encode() if v == b"SESSION" else v) for n, v in headers]
            if proper:  # so that it gets past the doors
                given = {n for n, _ in pairs}
                usual = {
                    b"host": b"localhost",
                    b"accept": BOTH.encode(),
                    b"content-type": b"application/json",
                    b"mcp-session-id": (client.id or "").encode(),
                }
                pairs += [(n, v) for n, v in usual.items() if n not in given]
            parts, start = [], 0
            for cut in sorted(cuts):
                parts.append(body[start:cut])
                start = max(start, cut)
            parts.append(body[start:])
            answer = http.send(method, body=parts, raw_headers=pairs)
            await answer.until(lambda: answer.status)
            assert answer.status in STATUSES
            if answer.is_stream:
                answer.disconnect()
            await answer.task
            if answer.headers.get("content-type") == "application/json":
                for message in answer.json if isinstance(answer.json, list) else [answer.json]:
                    assert message["jsonrpc"] == "2.0"
                    assert ("result" in message) != ("error" in message)
            ok = await Lab(http.app).modern("tools/list").whole()
            assert ok.status == 200
            assert http.app.active == 0

    with no_crash():
        run(main(), collect=False)


def test_a_small_server_refuses_what_is_long() -> None:
    async def main() -> None:
        server = Server("small", limits=Limits(max_frame=100))
        async with lab(server) as http:
            long = b'{"jsonrpc":"2.0","id":1,"method":"%b"}' % (b"x" * 100)
            assert (await http.post(long).whole()).status == 413
            assert (
                await http.send(
                    "POST",
                    {"accept": BOTH, "content-type": "application/json"},
                    [long[:60], long[60:]],
                ).whole()
            ).status == 413

    run(main())


@pytest.mark.verifies("S48", "SH-local-bind")
@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("127.0.0.1:8000", None, 200),
        ("localhost", "http://localhost:5173", 200),
        ("[::1]:80", "http://[::1]", 200),
        ("evil.example.com", None, 403),
        ("evil.example.com", "http://evil.example.com", 403),
        ("127.0.0.1", "http://evil.example.com", 403),
        ("127.0.0.1", "null", 403),
        ("127.0.0.1", "", 403),
        ("127.0.0.1.evil.example.com", None, 403),
        ("", None, 403),
        ("mcp.example.com", "https://mcp.example.com", 200),
        ("mcp.example.com", "https://app.example.com", 200),
        ("mcp.example.com", "https://other.example.com", 403),
    ],
)
def test_hosts_and_origins(host: str, origin: str | None, expected: int) -> None:
    async def main() -> None:
        options: Any = {"hosts": ["mcp.example.com"], "origins": ["https://app.example.com"]}
        async with lab(make(), **options) as http:
            headers: Any = {"host": host} | ({} if origin is None else {"origin": origin})
            answer = await http.modern("tools/list", headers=headers).whole()
            assert answer.status == expected
            if expected == 403:
                assert b"--allow-" in answer.body
            again = await http.modern("tools/list", headers=headers).whole()
            assert again.status == expected

    run(main())


def test_a_proxys_name_is_explained() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            headers: Any = {"host": "public.example.com", "x-forwarded-for": "10.0.0.1"}
            answer = await http.modern("tools/list", headers=headers).whole()
            assert answer.status == 403
            assert b"--allow-host public.example.com" in answer.body
            assert b"proxy" in answer.body

    run(main())


def test_two_headers_where_one_is_meant() -> None:
    async def main() -> None:
        async with lab(make()) as http:
            pairs = [(b"host", b"localhost"), (b"host", b"evil.example.com")]
            assert (await http.send("POST", raw_headers=pairs).whole()).status == 400
            twice = [
                (b"host", b"localhost"),
                (b"accept", b"application/json"),
                (b"accept", b"text/event-stream"),
                (b"content-type", b"application/json"),
            ]
            answer = await http.send("POST", body=INITIALIZE, raw_headers=twice).whole()
            assert answer.status == 200

    run(main())


def test_pages_of_an_allowed_origin() -> None:
    """Their browser asks first, without a token, and then reads the answer."""
    page = "https://app.example.com"

    async def main() -> None:
        async with lab(make(), origins=[page]) as http:
            asks = {
                "origin": page,
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization, mcp-session-id",
            }
            first = await http.send("OPTIONS", asks).whole()
            assert first.status == 204
            assert first.headers["access-control-allow-origin"] == page
            assert first.headers["access-control-allow-headers"] == "authorization, mcp-session-id"
            client = await http.session(origin=page)
            headers = client.initialized.headers
            assert headers["access-control-allow-origin"] == page
            assert "mcp-session-id" in headers["access-control-expose-headers"]
            assert headers["vary"] == "origin"
            refused = await http.send("POST", {"origin": page}, b"{}").whole()
            assert refused.status == 415
            assert refused.headers["access-control-allow-origin"] == page
            evil = await http.send(
                "OPTIONS", {**asks, "origin": "https://evil.example.com"}
            ).whole()
            assert evil.status == 403
            assert "access-control-allow-origin" not in evil.headers
            plain = await http.modern("tools/list").whole()
            assert "access-control-allow-origin" not in plain.headers

    run(main())
