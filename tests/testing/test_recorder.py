"""The recorder follows a conversation and finds what a revision does not allow."""

import asyncio
import json
from typing import Any

import pytest

from dovetail import Server
from dovetail.testing import Recorder, SchemaViolation, connect


def frame(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def initialized(revision: str) -> Recorder:
    recorder = Recorder()
    info = {"name": "x", "version": "1"}
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}
    recorder.sent("client", frame(id=1, method="initialize", params=params))
    result = {"protocolVersion": revision, "capabilities": {}, "serverInfo": info}
    recorder.sent("server", frame(id=1, result=result))
    recorder.check()
    return recorder


@pytest.mark.verifies("F-recorder", "F-recorder-closed")
def test_a_result_is_judged_by_the_method_and_revision_of_its_request() -> None:
    for revision, legal in (("2025-03-26", False), ("2025-06-18", True)):
        recorder = initialized(revision)
        recorder.sent("client", frame(id=2, method="tools/list"))
        tool = {"name": "t", "inputSchema": {"type": "object"}, "title": "T"}
        recorder.sent("server", frame(id=2, result={"tools": [tool]}))
        assert (recorder.problems == []) is legal


@pytest.mark.verifies("F-recorder")
def test_what_is_broken_on_purpose_is_followed_but_not_judged() -> None:
    recorder = initialized("2025-11-25")
    recorder.sent("client", b"{broken", check=False)
    recorder.sent("client", b"[" * 100_000, check=False)
    recorder.sent("client", frame(id=7, method="tools/list", params=[]), check=False)
    recorder.check()
    recorder.sent("server", b"{broken")
    with pytest.raises(SchemaViolation, match="no JSON"):
        recorder.check()


@pytest.mark.verifies("F-recorder")
def test_connect_fails_when_a_message_was_illegal() -> None:
    server = Server("bad", version="1")

    @server.tool(meta={"": 1})
    def tool() -> None: ...

    async def main() -> None:
        async with connect(server) as client:
            await client.request("tools/list")
            client.connection.notify("notifications/progress", {"progress": "much"})

    with pytest.raises(SchemaViolation):
        asyncio.run(main())
