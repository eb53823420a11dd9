"""Which revision: found out, fallen back to, asked for, pinned, remembered, refused."""

from __future__ import annotations

from typing import Any

import pytest
from clientkit import ALL, HANDSHAKE, MODERN, Line, demo, over, script, shake, stamped

from dovetail import Client, McpError
from dovetail.client.negotiate import NoCommonRevision, Verdicts
from dovetail.errors import ConnectionClosed, RemoteProtocolError
from support import run


def methods(line: Line) -> list[str]:
    return [m.get("method", "answer") for m in line.received]


async def opened(line: Line, **options: Any) -> str:
    async with over(line, **options) as client:
        return client.revision


@pytest.mark.verifies("SH-probe")
def test_a_server_of_2026_is_asked_once() -> None:
    async def main() -> None:
        line = script(lambda m, at: None, revision=MODERN)
        assert await opened(line) == MODERN
        assert methods(line) == ["server/discover"]

    run(main())


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32000, -32603, 0, -32001])
@pytest.mark.parametrize("revision", HANDSHAKE)
@pytest.mark.verifies("C8")
def test_whatever_error_the_probe_gets_the_handshake_follows(code: int, revision: str) -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        if message.get("method") == "server/discover":
            line.error(message, code, "what?")
        else:
            shake(message, line, revision=revision)

    async def main() -> None:
        line = Line(serve)
        assert await opened(line) == revision
        assert methods(line) == ["server/discover", "initialize", "notifications/initialized"]

    run(main())


@pytest.mark.parametrize("answer", [{}, {"supportedVersions": 5}, [], "hello", None])
def test_nonsense_for_an_answer_means_the_handshake_too(answer: Any) -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        if message.get("method") == "server/discover":
            line.result(message, answer)
        else:
            shake(message, line)

    run(opened(Line(serve)))


@pytest.mark.verifies("C8", "SH-probe")
def test_silence_means_the_handshake_after_a_while() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        if message.get("method") != "server/discover":
            shake(message, line)

    async def main() -> None:
        assert await opened(Line(serve), probe_seconds=0.01) == "2025-11-25"

    run(main())


def test_a_slow_server_of_2026_is_recognised_although_the_handshake_was_tried() -> None:
    held: list[dict[str, Any]] = []

    def serve(message: dict[str, Any], line: Line) -> None:
        if message.get("method") == "server/discover":
            held.append(message)
        elif message.get("method") == "initialize":
            shake(held[0], line, revision=MODERN)

    async def main() -> None:
        assert await opened(Line(serve), probe_seconds=0.01) == MODERN

    run(main())


@pytest.mark.parametrize("order", ["probe first", "handshake first"])
def test_a_slow_server_that_refuses_the_handshake_is_of_2026(order: str) -> None:
    held: list[dict[str, Any]] = []

    def serve(message: dict[str, Any], line: Line) -> None:
        held.append(message)
        if len(held) < 2:
            return
        if order == "probe first":
            shake(held[0], line, revision=MODERN)
        data = {"supported": [MODERN], "requested": "2025-11-25"}
        line.error(held[1], -32022, "Unsupported protocol version", data)
        if order == "handshake first":
            shake(held[0], line, revision=MODERN)

    async def main() -> None:
        assert await opened(Line(serve), probe_seconds=0.05) == MODERN

    run(main())


@pytest.mark.verifies("SH-retry-version")
def test_refused_for_its_revision_the_client_tries_what_is_supported() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        if len(line.received) == 1:
            data = {"supported": [MODERN], "requested": MODERN}
            line.error(message, -32022, "Unsupported protocol version", data)
        else:
            shake(message, line, revision=MODERN)

    async def main() -> None:
        line = Line(serve)
        assert await opened(line) == MODERN
        assert methods(line) == ["server/discover", "server/discover"]

    run(main())


@pytest.mark.verifies("SH-retry-version")
def test_a_server_that_lists_older_revisions_gets_the_handshake() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        if message.get("method") == "server/discover":
            data = {"supported": ["2025-06-18"], "requested": MODERN}
            line.error(message, -32022, "Unsupported protocol version", data)
        else:
            shake(message, line, revision="2025-06-18")

    async def main() -> None:
        assert await opened(Line(serve)) == "2025-06-18"

    run(main())


def test_an_answer_that_lists_older_revisions_only_means_the_handshake() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        if message.get("method") == "server/discover":
            listed = {"supportedVersions": ["2025-11-25"], "capabilities": {}}
            line.result(message, {**stamped(), **listed})
        else:
            shake(message, line)

    async def main() -> None:
        assert await opened(Line(serve)) == "2025-11-25"

    run(main())


@pytest.mark.parametrize("answered", ["1999-01-01", "2027-01-01", "", MODERN])
@pytest.mark.verifies("C4", "R002-12")
def test_a_revision_we_cannot_speak_ends_the_connection(answered: str) -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        shake(message, line, revision=answered if message["method"] == "initialize" else "")

    async def main() -> None:
        line = Line(serve)
        with pytest.raises(NoCommonRevision, match="this client does not"):
            await opened(line)
        assert methods(line) == ["server/discover", "initialize"]
        assert line.connection.ended.done()

    run(main())


def test_a_server_of_a_later_revision_only_is_refused_with_its_list() -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        data = {"supported": ["2031-01-01"], "requested": MODERN}
        line.error(message, -32022, "Unsupported protocol version", data)

    async def main() -> None:
        with pytest.raises(NoCommonRevision, match="2031-01-01"):
            await opened(Line(serve))

    run(main())


@pytest.mark.parametrize("revision", ALL)
def test_a_revision_can_be_asked_for(revision: str) -> None:
    async def main() -> None:
        async with Client.memory(demo(), revision=revision, known=Verdicts()) as client:
            assert client.revision == revision

    run(main())


def test_the_server_may_answer_another_unless_it_is_pinned() -> None:
    async def main() -> None:
        line = script(lambda m, at: None, revision="2025-03-26")
        assert await opened(line, revision="2025-11-25") == "2025-03-26"
        with pytest.raises(NoCommonRevision, match="instead of 2025-11-25"):
            await opened(line, revision="2025-11-25", pin=True)
        with pytest.raises(NoCommonRevision, match="does not speak 2026-07-28"):
            await opened(line, revision=MODERN)

    run(main())


def test_a_client_can_be_held_to_one_era() -> None:
    async def main() -> None:
        line = script(lambda m, at: None, revision="2025-06-18")
        assert await opened(line, revisions=["2025-06-18", "2025-11-25"]) == "2025-06-18"
        assert methods(line) == ["initialize", "notifications/initialized"]

    run(main())


@pytest.mark.verifies("SH-probe")
def test_the_verdict_is_remembered_and_forgotten_when_it_is_wrong() -> None:
    async def main() -> None:
        known = Verdicts()
        line = script(lambda m, at: None, revision="2025-11-25")
        await opened(line, known=known)
        await opened(line, known=known)
        assert methods(line).count("server/discover") == 1
        # The same place is served by something newer now.
        new = script(lambda m, at: None, revision=MODERN)
        new.key = line.key
        modern_only = new._serve

        def serve(message: dict[str, Any], at: Line) -> None:
            if message["method"] == "initialize":
                at.error(message, -32601, "Method not found")
            else:
                modern_only(message, at)

        new._serve = serve
        assert await opened(new, known=known) == MODERN
        assert methods(new) == ["initialize", "server/discover"]

    run(main())


def test_a_server_that_dies_while_we_negotiate_is_no_server_of_the_handshake() -> None:
    async def main() -> None:
        line = Line(lambda m, at: at.hang_up())
        with pytest.raises(ConnectionClosed):
            await opened(line)
        assert methods(line) == ["server/discover"]

    run(main())


@pytest.mark.parametrize("result", [{}, {"protocolVersion": 5}, [], None])
def test_a_handshake_that_makes_no_sense(result: Any) -> None:
    def serve(message: dict[str, Any], line: Line) -> None:
        if message["method"] == "initialize":
            line.result(message, result)
        else:
            line.error(message, -32601, "no")

    async def main() -> None:
        with pytest.raises(RemoteProtocolError, match="makes no sense"):
            await opened(Line(serve))

    run(main())


def test_the_servers_refusal_is_the_callers_exception() -> None:
    async def main() -> None:
        line = Line(lambda m, at: at.error(m, -32603, "out of order"))
        with pytest.raises(McpError, match="out of order"):
            await opened(line)

    run(main())


def test_unknown_revisions_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="no such revision"):
        Client.memory(demo(), revision="2020-01-01")
