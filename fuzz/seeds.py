"""What the fuzzers start from: real conversations of every revision, and broken messages."""

import hashlib
import json
from pathlib import Path
from typing import Any

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
PREFIX = "io.modelcontextprotocol/"

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("ping", {}),
    ("tools/list", {}),
    ("tools/list", {"cursor": "aGFsZg=="}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2.0}}),
    ("tools/call", {"name": "later", "arguments": {"texts": ["\u00e9", "\U0001f600"]}}),
    ("tools/call", {"name": "fail", "arguments": {"code": -32602}}),
    ("tools/call", {"name": "fail", "arguments": {"code": 1, "text": "sorry"}}),
    ("tools/call", {"name": "half", "arguments": {"x": 1e-3}}),
    ("tools/call", {"name": "nobody"}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "mem://one"}),
    ("resources/read", {"uri": "mem://item/x%20y"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "review", "arguments": {"code": "x"}}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "review"},
            "argument": {"name": "style", "value": "s"},
        },
    ),
    ("server/discover", {}),
    ("no/such", {"_meta": {"progressToken": "t"}}),
]

BROKEN = rb"""
{"jsonrpc":"2.0","id":1,"method":"ping"
{"jsonrpc":"2.0","id":NaN,"method":"ping"}
{"jsonrpc":"1.0","id":1,"method":"ping"}
{"id":1,"method":"ping"}
{"jsonrpc":"2.0","id":null,"method":"ping"}
{"jsonrpc":"2.0","id":true,"method":"ping"}
{"jsonrpc":"2.0","id":1.5,"method":"ping"}
{"jsonrpc":"2.0","id":1,"method":7}
{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}
{"jsonrpc":"2.0","id":1,"method":"tools/list","params":"x"}
{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}
{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}
{"jsonrpc":"2.0","id":1}
{"jsonrpc":"2.0","id":1,"error":"x"}
{"jsonrpc":"2.0","id":1,"method":"\ud800"}
[]
[[]]
[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},1]
null
"a"
{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"r"}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
""".strip().split(b"\n")


# What a mutation should know of the language, for libFuzzer's -dict.
TOKENS = [
    '{"jsonrpc":"2.0",',
    ',"id":1',
    ',"id":null',
    ',"id":""',
    ',"method":"',
    ',"params":{',
    ',"params":[]',
    ',"result":{}',
    ',"error":{"code":1,"message":""}',
    ',"arguments":{',
    ',"_meta":{',
    '"name":"',
    '"uri":"',
    '"cursor":"',
    '"ref":{"type":"',
    "ref/prompt",
    "ref/resource",
    '"requestId":1',
    "notifications/cancelled",
    "notifications/initialized",
    "initialize",
    "server/discover",
    "tools/call",
    "tools/list",
    "resources/read",
    "prompts/get",
    "completion/complete",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "2026-07-28",
    "2025-03-26",
    "\\ud800",
    "\\ud83d\\ude00",
    "NaN",
    "1e999",
    "99999999999999999999",
    "[[[[[[[[",
    '{"a":{"a":',
    "}}}}",
    "mcp-session-id: SESSION",
    "mcp-protocol-version: ",
    "mcp-method: ",
    "mcp-name: ",
    "last-event-id: p1-1",
    "=?base64?",
]


def encode(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def initialize(revision: str) -> bytes:
    params = {
        "protocolVersion": revision,
        "capabilities": {},
        "clientInfo": {"name": "fuzz", "version": "1"},
    }
    return encode({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})


def call(revision: str, id: int, method: str, params: dict[str, Any]) -> bytes:
    if revision == REVISIONS[-1]:
        meta = {
            PREFIX + "protocolVersion": revision,
            PREFIX + "clientCapabilities": {},
            PREFIX + "clientInfo": {"name": "fuzz", "version": "1"},
        }
        params = {**params, "_meta": {**meta, **params.get("_meta", {})}}
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return encode({**message, "params": params} if params else message)


def conversations() -> list[bytes]:
    """One per revision with every method, each call alone, and each broken message alone."""
    found = [b"\n".join(BROKEN), *BROKEN]
    for revision in REVISIONS:
        calls = [call(revision, id, *asked) for id, asked in enumerate(CALLS, 1)]
        opening = [] if revision == REVISIONS[-1] else [initialize(revision)]
        found.append(b"\r\n".join([*opening, *calls, BROKEN[-2], BROKEN[-1]]) + b"\n")
        found += calls
    found.append(b"[" + b",".join(call("2025-03-26", id, *asked) for id, asked in enumerate(CALLS)))
    found[-1] += b"]"
    return found


def write_dictionary(path: Path) -> None:
    quoted = (token.replace("\\", "\\\\").replace('"', '\\"') for token in TOKENS)
    path.write_text("".join(f'"{token}"\n' for token in quoted))


def write_corpus(folder: str, prefix: bytes) -> None:
    for seed in conversations():
        save(folder, prefix + seed)


def save(folder: str, data: bytes) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / hashlib.sha1(data).hexdigest()).write_bytes(data)
