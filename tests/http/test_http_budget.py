"""What a plain call over HTTP costs: Python calls, counted, not seconds."""

from __future__ import annotations

import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any

import msgspec
import pytest
from http_lab import BOTH, CLIENT, D, E, Lab, lab
from test_sessions import make

from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, PROTOCOL_VERSION_KEY
from support import run

META = {PROTOCOL_VERSION_KEY: E, CLIENT_CAPABILITIES_KEY: {}, CLIENT_INFO_KEY: CLIENT}


async def counted(http: Lab, headers: dict[bytes, bytes], params: Any) -> Counter[CodeType]:
    """The Python functions called for one ``tools/call``, without those of the ASGI server."""
    body = msgspec.json.encode(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    )
    pairs = {b"host": b"localhost", b"accept": BOTH.encode(), b"content-type": b"application/json"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": list({**pairs, **headers}.items()),
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    calls: Counter[CodeType] = Counter()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls[frame.f_code] += 1

    await http.app(dict(scope), receive, send)
    sys.setprofile(look)
    try:
        await http.app(dict(scope), receive, send)
    finally:
        sys.setprofile(None)
    assert b'"text":"3"' in sent[-1]["body"]
    del calls[receive.__code__], calls[send.__code__]
    return calls


@pytest.mark.parametrize(("era", "budget"), [("modern", 28), ("session", 42)])
def test_calls_of_a_plain_call(era: str, budget: int) -> None:
    async def main() -> None:
        async with lab(make()) as http:
            params: dict[str, Any] = {"name": "add", "arguments": {"a": 1, "b": 2}}
            if era == "modern":
                headers = {
                    b"mcp-protocol-version": E.encode(),
                    b"mcp-method": b"tools/call",
                    b"mcp-name": b"add",
                }
                calls = await counted(http, headers, {**params, "_meta": META})
            else:
                client = await http.session()
                headers = {
                    b"mcp-session-id": str(client.id).encode(),
                    b"mcp-protocol-version": D.encode(),
                }
                calls = await counted(http, headers, params)
            assert sum(calls.values()) <= budget, sorted(code.co_qualname for code in calls)

    run(main())
