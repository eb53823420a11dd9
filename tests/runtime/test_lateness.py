"""What comes too late is dropped, and what was called off leaves a word in the log."""

import asyncio
import json
import logging

import pytest

from dovetail import Server
from dovetail.core.peer import Peer, Response
from dovetail.testing import connect


@pytest.mark.verifies("SH-late-answer")
def test_an_answer_nobody_waits_for_is_dropped() -> None:
    peer = Peer({}, {})
    first, _ = peer.request("ping")
    second, _ = peer.request("ping")
    peer.forget(first)
    answers = [json.dumps({"jsonrpc": "2.0", "id": id, "result": {}}) for id in (first, second)]
    assert peer.receive(answers[0].encode()) is None
    assert isinstance(peer.receive(answers[1].encode()), Response)
    assert peer.receive(answers[1].encode()) is None


@pytest.mark.verifies("SH-cancel-reason")
def test_the_reason_of_a_cancellation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("slow", version="1")
    ended = []

    @server.tool
    async def sleep() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main() -> None:
        async with connect(server) as client:
            id, _ = client.start("tools/call", {"name": "sleep"})
            client.notify("notifications/cancelled", {"requestId": id, "reason": "bored"})
            await client.settle()

    with caplog.at_level(logging.DEBUG, "dovetail"):
        asyncio.run(main())
    assert ended == [True]
    assert [record.getMessage() for record in caplog.records] == ["tools/call 2 cancelled: bored"]
