"""One HTTP exchange as a table: headers and a body in, what to do out. No I/O."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.core.exchange import Handshake, Intake, one_of_each, status
from dovetail.core.peer import Notification, Request
from dovetail.errors import RemoteProtocolError
from dovetail.spec.headers import Mirror
from dovetail.spec.meta import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY

E = "2026-07-28"
META = {PROTOCOL_VERSION_KEY: E, CLIENT_CAPABILITIES_KEY: {}}
MIRRORS = {"region": (Mirror("mcp-param-region", ("where",), "string"),)}
HANDLER = object()
intake = Intake({"tools/call": HANDLER, "tools/list": HANDLER}, MIRRORS, 100)
only_handshake = Intake(None, {}, 100)


def body(method: str | None = "tools/list", id: Any = 1, meta: Any = META, **params: Any) -> bytes:
    given = params | ({} if meta is None else {"_meta": meta})
    message = {"jsonrpc": "2.0", "params": given}
    return msgspec.json.encode(
        message
        | ({} if id is None else {"id": id})
        | ({} if method is None else {"method": method})
    )


def headers(**given: str) -> dict[bytes, bytes]:
    usual = {"mcp-protocol-version": E, "mcp-method": "tools/list"}
    named = {name.replace("_", "-"): value for name, value in given.items()}
    return {n.encode(): v.encode() for n, v in (usual | named).items() if v}


def refused(reader: Intake, head: dict[bytes, bytes], data: bytes) -> tuple[int, int, Any]:
    with pytest.raises(RemoteProtocolError) as caught:
        reader.post(head, data)
    code = caught.value.error.code
    return status(code), code, caught.value.id


def test_a_request() -> None:
    found = intake.post(headers(), body())
    assert isinstance(found, Request)
    assert found.handler is HANDLER
    assert found.revision.id == E
    assert found.size == len(body())


# digest 8.6: which error wins when several apply.
V9 = {**META, PROTOCOL_VERSION_KEY: "v9"}
ORDER: dict[str, tuple[dict[str, str], dict[str, Any], int, int]] = {
    "no envelope before all headers": ({"mcp_method": ""}, {"meta": None}, 400, -32602),
    "half an envelope before headers": (
        {"mcp_method": "x"},
        {"meta": {PROTOCOL_VERSION_KEY: E}},
        400,
        -32602,
    ),
    "headers before the version": ({}, {"meta": V9}, 400, -32020),
    "the version before the method": (
        {"mcp_protocol_version": "v9", "mcp_method": "x/y"},
        {"meta": V9, "method": "x/y"},
        400,
        -32022,
    ),
    "the method before its params": (
        {"mcp_method": "x/y"},
        {"method": "x/y", "cursor": 5},
        404,
        -32601,
    ),
    "headers before the params": ({"mcp_method": "other"}, {"cursor": 5}, 400, -32020),
    "the params last": ({}, {"cursor": 5}, 400, -32602),
    "a wrong type in the envelope": (
        {"mcp_method": "x"},
        {"meta": {**META, "progressToken": 1.5}},
        400,
        -32602,
    ),
}


@pytest.mark.parametrize("case", ORDER)
def test_which_error_wins(case: str) -> None:
    head, changes, wanted, code = ORDER[case]
    assert refused(intake, headers(**head), body(**changes)) == (wanted, code, 1)


@pytest.mark.parametrize("version", ["", "2025-11-25", "2025-03-26", "nonsense"])
def test_without_envelope_it_is_for_a_session(version: str) -> None:
    found = intake.post(headers(mcp_protocol_version=version), body(meta=None))
    assert isinstance(found, Handshake)
    assert found.envelope is not None
    assert not found.opens
    opening = intake.post(
        headers(mcp_protocol_version=version),
        body(
            "initialize",
            meta=None,
            protocolVersion="2025-11-25",
            capabilities={},
            clientInfo={"name": "x", "version": "1"},
        ),
    )
    assert isinstance(opening, Handshake)
    assert opening.opens


def test_a_server_of_older_revisions_only() -> None:
    found = only_handshake.post(headers(), body())
    assert isinstance(found, Handshake)


def test_notifications_and_responses() -> None:
    note = intake.post(headers(), body("notifications/x", id=None, meta=None))
    assert isinstance(note, Notification)
    assert intake.post(headers(), body("notifications/cancelled", id=None, meta=None)) is None
    assert isinstance(intake.post({}, body("notifications/x", id=None, meta=None)), Handshake)
    response = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    assert refused(intake, headers(), response) == (400, -32600, None)
    assert isinstance(intake.post({}, response), Handshake)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b"1", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","result":{}}', -32600),
        (b"[" * 200 + b"]" * 200, -32600),
    ],
)
def test_what_is_no_message(data: bytes, code: int) -> None:
    found = refused(intake, headers(), data)
    assert found[:2] == (400, code)


def test_batches() -> None:
    plain = b"[" + body(meta=None) + b"]"
    assert isinstance(intake.post({}, plain), Handshake)
    assert refused(intake, headers(), plain) == (400, -32600, None)
    assert refused(intake, {}, b"[" + body() + b"]") == (400, -32600, None)


def test_mirrored_arguments() -> None:
    def ask(value: Any, header: str) -> Any:
        head = headers(mcp_method="tools/call", mcp_name="region", mcp_param_region=header)
        return head, body("tools/call", name="region", arguments={"where": value})

    assert isinstance(intake.post(*ask("eu", "eu")), Request)
    assert isinstance(intake.post(*ask(None, "")), Request)
    assert refused(intake, *ask("eu", "us")) == (400, -32020, 1)
    assert refused(intake, *ask("eu", "")) == (400, -32020, 1)
    assert refused(intake, *ask(None, "eu")) == (400, -32020, 1)


def test_headers_that_occur_twice() -> None:
    assert one_of_each([(b"a", b"1"), (b"a", b"2")]) == {b"a": b"1, 2"}
    for name in (b"host", b"mcp-method", b"mcp-param-x", b"mcp-session-id"):
        with pytest.raises(RemoteProtocolError):
            one_of_each([(name, b"1"), (name, b"1")])
