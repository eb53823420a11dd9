"""Log messages to the client: levels, the two eras, and the standard logging module."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dovetail import ClientLogHandler, Context, Server
from dovetail.testing import TestClient, connect, envelope
from support import request, run, until

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
handshake = pytest.mark.parametrize("revision", [A, B, C, D])
both_eras = pytest.mark.parametrize("revision", [D, E])
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
LEVEL_KEY = "io.modelcontextprotocol/logLevel"
MESSAGE = "notifications/message"


def said(client: TestClient) -> list[Any]:
    return [message for sender, message in client.recorder.messages if sender == "server"]


def logged(client: TestClient) -> list[dict[str, Any]]:
    return [m["params"] for m in said(client) if m.get("method") == MESSAGE]


def levels(client: TestClient) -> list[str]:
    return [params["level"] for params in logged(client)]


def at(level: str | None, name: str, /, **arguments: Any) -> dict[str, Any]:
    """A tool call; ``level`` is what 2026-07-28 says in each request."""
    meta = {} if level is None else {LEVEL_KEY: level}
    return {"name": name, "arguments": arguments, "_meta": meta}


async def call(client: TestClient, name: str, level: str | None = None, **arguments: Any) -> Any:
    """A call of a client that wants ``level``, by the means of its revision."""
    if client.revision != E:
        if level is not None:
            assert await client.request("logging/setLevel", {"level": level}) == {}
        level = None
    return await client.answer("tools/call", at(level, name, **arguments))


def every_level(ctx: Context) -> str:
    for level in LEVELS:
        ctx.log(level, f"a {level}")
    return "done"


async def every_level_async(ctx: Context) -> str:
    return every_level(ctx)


def make() -> Server:
    server = Server("s", version="1")
    server.tool(name="async")(every_level_async)
    server.tool(name="sync")(every_level)
    server.tool(name="inline", inline=True)(every_level)
    return server


# --- levels ---------------------------------------------------------------------------------------


@every_revision
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tool", ["async", "sync", "inline"])
@pytest.mark.verifies("R002-16", "S26")
def test_what_is_at_least_as_grave_is_sent(revision: str, level: str, tool: str) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            answer = await call(client, tool, level)
            wanted = list(LEVELS[LEVELS.index(level) :])
            assert levels(client) == wanted
            assert logged(client) == [{"level": one, "data": f"a {one}"} for one in wanted]
            assert said(client)[-1]["id"] == answer["id"], "the answer is the last word"

    run(main())


@handshake
@pytest.mark.verifies("R002-16")
def test_until_the_client_says_so_it_is_info(revision: str) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            await call(client, "async")
            assert levels(client) == list(LEVELS[1:])

    run(main())


@handshake
@pytest.mark.verifies("R002-16")
def test_the_level_is_that_of_one_client(revision: str) -> None:
    server = make()

    async def main() -> None:
        async with connect(server, revision) as one, connect(server, revision) as two:
            await call(one, "async", "alert")
            await call(two, "async")
            assert levels(one) == ["alert", "emergency"]
            assert levels(two) == list(LEVELS[1:])
            await call(one, "async", "emergency")
            assert levels(one) == ["alert", "emergency", "emergency"]

    run(main())


@handshake
@pytest.mark.parametrize("level", ["loud", "", "INFO", "Warning", None, 3, ["info"], {}])
@pytest.mark.verifies("SH-log-level")
def test_a_level_that_does_not_exist(revision: str, level: Any) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            client.send(request(90, "logging/setLevel", {"level": level}))
            assert (await client.receive())["error"]["code"] == -32602
            client.send(request(91, "logging/setLevel", {}))
            assert (await client.receive())["error"]["code"] == -32602
            await call(client, "async")
            assert levels(client) == list(LEVELS[1:]), "all is as it was"

    run(main())


@pytest.mark.parametrize("level", ["loud", "", "INFO", None, 3, ["info"]])
@pytest.mark.verifies("SH-log-level", "S26")
def test_a_level_in_a_request_that_does_not_exist(level: Any) -> None:
    async def main() -> None:
        async with connect(make(), E) as client:
            params = {"name": "async", "_meta": {**envelope(), LEVEL_KEY: level}}
            client.send(request(90, "tools/call", params))
            assert (await client.receive())["error"]["code"] == -32602
            assert not logged(client)

    run(main())


def test_an_author_who_invents_a_level(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    @server.tool
    async def wrong(ctx: Context) -> None:
        ctx.log("loud", "x")

    async def main() -> None:
        async with connect(server, D) as client:
            assert (await call(client, "wrong"))["result"]["isError"]
            assert not logged(client)

    run(main())
    assert caplog.records


# --- 2026-07-28: request by request ---------------------------------------------------------------


@pytest.mark.parametrize("tool", ["async", "sync", "inline"])
@pytest.mark.verifies("S26")
def test_without_a_level_there_are_no_messages(tool: str) -> None:
    async def main() -> None:
        async with connect(make(), E) as client:
            await call(client, tool)
            assert not logged(client)
            await call(client, tool, "debug")
            assert levels(client) == list(LEVELS)
            await call(client, tool)
            assert levels(client) == list(LEVELS), "it was for that request only"

    run(main())


@pytest.mark.verifies("S26", "S7")
def test_two_requests_at_once_have_their_own_levels() -> None:
    server = Server("s")
    go = asyncio.Event()

    @server.tool
    async def work(ctx: Context, name: str) -> None:
        await go.wait()
        ctx.log("warning", name)

    async def main() -> None:
        async with connect(server, E) as client:
            params = [at("debug", "work", name="a"), at(None, "work", name="b")]
            params.append(at("error", "work", name="c"))
            futures = [client.start("tools/call", one)[1] for one in params]
            go.set()
            for future in futures:
                await future
            assert [one["data"] for one in logged(client)] == ["a"]

    run(main())


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.verifies("S26", "S29")
def test_after_the_answer_there_are_no_messages(in_thread: bool) -> None:
    server = Server("s")
    kept: list[Context] = []

    @server.tool
    async def work(ctx: Context) -> None:
        kept.append(ctx)

    async def main() -> None:
        async with connect(server, E) as client:
            await call(client, "work", "debug")
            if in_thread:
                await asyncio.to_thread(kept[0].log, "emergency", "too late")
            else:
                kept[0].log("emergency", "too late")
            assert await client.settle() == []

    run(main())


@pytest.mark.verifies("S26", "S29")
def test_after_a_cancellation_there_are_no_messages() -> None:
    server = Server("s")
    log: list[str] = []

    @server.tool
    async def work(ctx: Context) -> None:
        log.append("start")
        try:
            await asyncio.Event().wait()
        finally:
            try:
                ctx.log("emergency", "too late")
            except asyncio.CancelledError:
                log.append("stopped")
                raise

    async def main() -> None:
        async with connect(server, E) as client:
            id, future = client.start("tools/call", at("debug", "work"))
            future.cancel()
            await until(lambda: log)
            client.notify("notifications/cancelled", {"requestId": id})
            assert await client.settle() == []
            assert log == ["start", "stopped"]

    run(main())


@pytest.mark.verifies("S26", "S23")
def test_no_messages_on_a_listen_stream() -> None:
    server = make()

    async def main() -> None:
        async with connect(server, E) as client:
            params = {"notifications": {"toolsListChanged": True}, "_meta": {LEVEL_KEY: "debug"}}
            _, end = client.start("subscriptions/listen", params)
            end.add_done_callback(lambda done: done.cancelled() or done.exception())
            await client.receive()
            server.log("emergency", "to nobody")
            await call(client, "async")
            assert not logged(client)

    run(main())


@pytest.mark.verifies("E-removed-method")
def test_2026_has_no_set_level() -> None:
    async def main() -> None:
        async with connect(make(), E) as client:
            params = {"level": "info", "_meta": envelope()}
            client.send(request(90, "logging/setLevel", params))
            assert (await client.receive())["error"]["code"] == -32601

    run(main())


# --- what is sent ---------------------------------------------------------------------------------


@both_eras
@pytest.mark.parametrize("data", ["text", 7, 1.5, True, None, [1, "a"], {"a": {"b": []}}])
def test_any_data_and_a_name(revision: str, data: Any) -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> None:
        ctx.log("error", data, logger="my.app")
        ctx.log("error", data)

    async def main() -> None:
        async with connect(server, revision) as client:
            await call(client, "work", "debug")
            assert logged(client) == [
                {"level": "error", "data": data, "logger": "my.app"},
                {"level": "error", "data": data},
            ]

    run(main())


@every_revision
@pytest.mark.verifies("S27")
def test_a_crash_tells_the_client_nothing(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    """What we write ourselves stays in the log of the server, whatever level was asked for."""
    server = make()

    @server.tool
    async def crash(ctx: Context) -> None:
        raise RuntimeError("the password is swordfish")

    async def main() -> None:
        async with connect(server, revision) as client:
            await call(client, "crash", "debug")
            assert not logged(client)
            assert "swordfish" not in repr(said(client))

    run(main())
    assert "swordfish" in caplog.text


# --- what is declared -----------------------------------------------------------------------------


async def declared(client: TestClient) -> Any:
    if client.revision == E:
        return (await client.request("server/discover"))["capabilities"]
    return said(client)[0]["result"]["capabilities"]


def silent() -> Server:
    server = Server("s")
    server.tool(name="plain")(lambda: None)
    return server


def with_handler() -> Server:
    server = silent()
    ClientLogHandler(server)
    return server


@every_revision
@pytest.mark.verifies("R002-16", "S12", "X14")
def test_logging_is_declared_where_something_can_log(revision: str) -> None:
    async def main() -> None:
        for server, can in ((make(), True), (with_handler(), True), (silent(), False)):
            async with connect(server, revision) as client:
                capabilities = await declared(client)
                assert capabilities.get("logging") == ({} if can else None)
                if revision == E:
                    continue
                answer = await client.answer("logging/setLevel", {"level": "info"})
                if can:
                    assert answer["result"] == {}
                else:
                    assert answer["error"]["code"] == -32601

    run(main())


@handshake
@pytest.mark.verifies("S12", "X14", "R002-14")
def test_who_was_promised_no_messages_gets_none(revision: str) -> None:
    """A function that can log came after the handshake, or somebody logs past all functions."""
    server = silent()

    async def main() -> None:
        async with connect(server, revision) as client:
            server.log("emergency", "undeclared")
            server.tool(name="late")(every_level_async)
            await call(client, "late")
            await client.settle()
            assert not logged(client)
        async with connect(server, revision) as client:
            await call(client, "late")
            assert levels(client) == list(LEVELS[1:])

    run(main())


# --- messages that belong to no request -----------------------------------------------------------


@handshake
@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.verifies("R002-16")
def test_the_server_itself_may_log(revision: str, in_thread: bool) -> None:
    server = make()

    async def say(level: str, text: str, logger: str | None = None) -> None:
        if in_thread:
            await asyncio.to_thread(server.log, level, text, logger)
        else:
            server.log(level, text, logger)

    async def main() -> None:
        async with connect(server, revision) as one, connect(server, revision) as two:
            await two.request("logging/setLevel", {"level": "error"})
            await say("debug", "nobody")
            await say("info", "one")
            await say("error", "both", "app")
            for client in (one, two):
                await client.settle()
            both = {"level": "error", "data": "both", "logger": "app"}
            assert logged(one) == [{"level": "info", "data": "one"}, both]
            assert logged(two) == [both]

    run(main())


@pytest.mark.verifies("S26")
def test_in_2026_there_is_nobody_to_tell() -> None:
    server = make()

    async def main() -> None:
        async with connect(server, E) as client:
            await client.request("tools/list", {"_meta": {LEVEL_KEY: "debug"}})
            server.log("emergency", "x")
            assert await client.settle() == []

    run(main())


@handshake
@pytest.mark.verifies("D-quiet-start")
def test_before_the_handshake_is_agreed_nothing_is_sent(revision: str) -> None:
    """Between its answer and `initialized` logs are allowed (digest 3)."""
    server = make()

    async def main() -> None:
        async with connect(server, revision, handshake=False) as client:
            server.log("emergency", "too early")
            params = {
                "protocolVersion": revision,
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            }
            await client.request("initialize", params)
            server.log("emergency", "legal")
            await client.settle()
            assert [one["data"] for one in logged(client)] == ["legal"]

    run(main())


# --- the standard logging module ------------------------------------------------------------------


@contextmanager
def app_logger(server: Server, level: int = logging.NOTSET) -> Iterator[logging.Logger]:
    logger = logging.getLogger("test.app")
    handler = ClientLogHandler(server, level)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)


def logs_by(logger: logging.Logger) -> Server:
    """The tools of a program that knows nothing of contexts."""
    server = Server("s")

    def work() -> str:
        logger.debug("a %s", "debug")
        logger.info("an %s", "info")
        logger.warning("a warning")
        logger.error("an error")
        logger.critical("critical")
        logger.log(25, "between")
        logger.log(5, "below")
        return "done"

    async def work_async() -> str:
        return work()

    server.tool(name="sync")(work)
    server.tool(name="inline", inline=True)(work)
    server.tool(name="async")(work_async)
    return server


ALL = [
    ("debug", "a debug"),
    ("info", "an info"),
    ("warning", "a warning"),
    ("error", "an error"),
    ("critical", "critical"),
    ("info", "between"),
    ("debug", "below"),
]


@every_revision
@pytest.mark.parametrize("tool", ["async", "sync", "inline"])
@pytest.mark.verifies("R002-16", "S26")
def test_records_go_to_the_client_of_the_request(revision: str, tool: str) -> None:
    """And to no other, from a thread as well."""
    logger = logging.getLogger("test.app")
    server = logs_by(logger)

    async def main() -> None:
        async with connect(server, revision) as client, connect(server, revision) as other:
            if revision != E:
                await other.request("logging/setLevel", {"level": "debug"})
            logger.setLevel(1)
            await call(client, tool, "debug")
            assert [(one["level"], one["data"]) for one in logged(client)] == ALL
            assert {one["logger"] for one in logged(client)} == {"test.app"}
            assert said(client)[-1].keys() >= {"id", "result"}
            await other.settle()
            assert not logged(other)

    with app_logger(server):
        run(main())


@pytest.mark.parametrize("tool", ["async", "sync", "inline"])
@pytest.mark.verifies("S26")
def test_records_of_a_request_without_a_level_go_nowhere(tool: str) -> None:
    logger = logging.getLogger("test.app")
    server = logs_by(logger)

    async def main() -> None:
        async with connect(server, E) as client, connect(server, D) as other:
            await call(client, tool)
            await client.settle()
            await other.settle()
            assert not logged(client)
            assert not logged(other)

    with app_logger(server):
        run(main())


@both_eras
def test_the_levels_of_handler_and_client_both_count(revision: str) -> None:
    logger = logging.getLogger("test.app")
    server = logs_by(logger)

    async def main() -> None:
        async with connect(server, revision) as client:
            await call(client, "async", "warning")
            assert levels(client) == ["error", "critical"]

    with app_logger(server, logging.ERROR):
        run(main())


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.verifies("S26")
def test_records_of_no_request_go_to_all_of_the_handshake(in_thread: bool) -> None:
    server = silent()

    async def main(logger: logging.Logger) -> None:
        async with (
            connect(server, D) as one,
            connect(server, A) as two,
            connect(server, E) as modern,
        ):
            await modern.request("tools/list", {"_meta": {LEVEL_KEY: "debug"}})
            if in_thread:
                thread = threading.Thread(target=logger.warning, args=("from outside",))
                thread.start()
                await asyncio.to_thread(thread.join)
            else:
                logger.warning("from outside")
            for client in (one, two, modern):
                await client.settle()
            message = {"level": "warning", "data": "from outside", "logger": "test.app"}
            assert logged(one) == logged(two) == [message]
            assert not logged(modern)

    with app_logger(server) as logger:
        run(main(logger))


@both_eras
def test_records_of_prompts_and_resources(revision: str) -> None:
    logger = logging.getLogger("test.app")
    server = Server("s")

    @server.prompt
    async def prompt() -> str:
        logger.warning("prompt")
        return ""

    @server.resource("x://y")
    def resource() -> str:
        logger.warning("resource")
        return ""

    async def main() -> None:
        async with connect(server, revision) as client:
            meta = {"_meta": {LEVEL_KEY: "debug"}} if revision == E else {}
            await client.request("prompts/get", {"name": "prompt", **meta})
            await client.request("resources/read", {"uri": "x://y", **meta})
            assert [one["data"] for one in logged(client)] == ["prompt", "resource"]

    with app_logger(server):
        run(main())


@both_eras
def test_records_of_a_cancelled_request_are_dropped(revision: str) -> None:
    """A log never breaks what it logs: the tool is stopped once, not again by its own log."""
    logger = logging.getLogger("test.app")
    server = Server("s")
    log: list[str] = []

    @server.tool
    async def work() -> None:
        log.append("start")
        try:
            await asyncio.Event().wait()
        finally:
            logger.warning("cleaning up")
            log.append("cleaned up")

    async def main() -> None:
        async with connect(server, revision) as client:
            id, future = client.start("tools/call", at("debug" if revision == E else None, "work"))
            future.cancel()
            await until(lambda: log)
            client.notify("notifications/cancelled", {"requestId": id})
            assert await client.settle() == []
            assert log == ["start", "cleaned up"]

    with app_logger(server):
        run(main())


def test_a_record_that_cannot_be_formatted_breaks_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = Server("s")
    logger = logging.getLogger("test.app")

    @server.tool
    async def work() -> str:
        logger.warning("%d", "no number")
        return "done"

    async def main() -> None:
        async with connect(server, D) as client:
            answer = await call(client, "work")
            assert answer["result"]["content"][0]["text"] == "done"
            assert not logged(client)

    with app_logger(server):
        run(main())
    assert "no number" in capsys.readouterr().err


def test_nobody_connected_is_no_fault() -> None:
    server = silent()
    with app_logger(server) as logger:
        logger.warning("to nobody")
