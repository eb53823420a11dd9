"""Cancellation and timeouts: what stops, when, and that nobody is answered who does not wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from msgspec import Struct

from dovetail import Context, Elicit, Limits, Server
from dovetail.testing import TestClient, connect
from support import request, run, until

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
both_eras = pytest.mark.parametrize("revision", [D, E])
CANCELLED = "notifications/cancelled"


class Name(Struct):
    name: str


def said(client: TestClient) -> list[Any]:
    return [message for sender, message in client.recorder.messages if sender == "server"]


def answers(client: TestClient) -> list[Any]:
    """The ids of all that was answered after the handshake."""
    found = [m["id"] for m in said(client) if "method" not in m]
    return found if client.revision == E else found[1:]


def begin(client: TestClient, name: str, **arguments: Any) -> int:
    """Start a call whose answer nobody waits for; if it comes, it is in the inbox."""
    id, future = client.start("tools/call", {"name": name, "arguments": arguments})
    future.cancel()
    return id


def cancel(client: TestClient, id: Any, reason: str = "enough") -> None:
    client.notify(CANCELLED, {"requestId": id, "reason": reason})


def text(result: Any) -> str:
    return str(result["content"][0]["text"])


class Probe:
    """A server, and what its tools went through."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("s", version="1", **options)
        self.log: list[str] = []
        self.go = threading.Event()
        self.server.tool(self.wait)
        self.server.tool(self.block)
        self.server.tool(self.swallow)
        self.server.tool(self.echo)
        self.server.tool(self.ask)

    async def wait(self, ctx: Context) -> None:
        self.log.append("wait: start")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.log.append(f"wait: stopped, cancelled={ctx.cancelled}")
            raise

    def block(self, ctx: Context) -> None:
        self.log.append("block: start")
        self.go.wait(10)
        assert ctx.cancelled
        try:
            ctx.log("error", "a word")
        except BaseException as error:
            self.log.append(f"block: {type(error).__name__}")
            raise
        self.log.append("block: went on")

    async def swallow(self) -> str:
        self.log.append("swallow: start")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.log.append("swallow: swallowed")
        await asyncio.sleep(0)
        return "still here"

    async def echo(self, text: str = "") -> str:
        return text

    async def ask(self, ctx: Context) -> str:
        try:
            answer = await ctx.ask("name", Elicit("Who?", Name))
        except BaseException as error:
            self.log.append(f"ask: {type(error).__name__}")
            raise
        return answer.value.name

    @asynccontextmanager
    async def client(self, revision: str, **options: Any) -> AsyncIterator[TestClient]:
        """At the end nothing is left of any request."""
        async with connect(self.server, revision, **options) as client:
            yield client
            await until(lambda: not client.connection.busy)
            assert not client.connection.peer.in_flight
            assert not client.connection.peer.pending
            assert not client.connection._asking._waiters
            assert not client.connection._home.background
            assert text(await client.call("echo", {"text": "next"})) == "next"


# --- stopping -------------------------------------------------------------------------------------


@every_revision
@pytest.mark.verifies("F-cancel", "SH-stop-work", "S29", "X19")
def test_an_async_tool_stops_at_once(revision: str) -> None:
    async def main() -> None:
        probe = Probe()
        async with probe.client(revision) as client:
            id = begin(client, "wait")
            await until(lambda: probe.log)
            cancel(client, id)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert probe.log == ["wait: start", "wait: stopped, cancelled=True"]
            assert await client.settle() == []
            assert answers(client) == []

    run(main())


@every_revision
@pytest.mark.verifies("F-cancel", "SH-stop-work", "S29")
def test_a_sync_tool_stops_at_its_next_word(revision: str) -> None:
    async def main() -> None:
        probe = Probe()
        async with probe.client(revision) as client:
            id = begin(client, "block")
            await until(lambda: probe.log)
            cancel(client, id)
            assert await client.settle() == [], "the client need not wait for the thread"
            probe.go.set()
            await until(lambda: len(probe.log) == 2)
            assert probe.log == ["block: start", "block: CancelledError"]
            assert await client.settle() == []
            assert answers(client) == []

    run(main())


@both_eras
@pytest.mark.parametrize("word", ["progress", "log", "ask", "sample", "roots"])
def test_every_word_to_the_context_stops_a_cancelled_request(revision: str, word: str) -> None:
    """Also that of a tool which would not hear the first time."""
    server = Server("s")
    heard: list[str] = []
    words: dict[str, Callable[[Context], Any]] = {
        "progress": lambda ctx: ctx.progress(1),
        "log": lambda ctx: ctx.log("error", "x"),
        "ask": lambda ctx: ctx.ask("k", Elicit("Who?", Name)),
        "sample": lambda ctx: ctx.sample("x", max_tokens=1),
        "roots": lambda ctx: ctx.roots(),
    }

    @server.tool
    async def deaf(ctx: Context) -> None:
        heard.append("start")
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        try:
            outcome = words[word](ctx)
            if outcome is not None:
                await outcome
        except asyncio.CancelledError:
            heard.append("stopped")
            raise

    async def main() -> None:
        capabilities: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
        async with connect(server, revision, capabilities=capabilities) as client:
            id = begin(client, "deaf")
            await until(lambda: heard)
            cancel(client, id)
            await until(lambda: not client.connection.busy)
            assert heard == ["start", "stopped"]
            assert await client.settle() == []

    run(main())


@every_revision
@pytest.mark.verifies("F-cancel", "S29")
def test_a_tool_that_swallows_it_is_not_answered_either(revision: str) -> None:
    async def main() -> None:
        probe = Probe()
        async with probe.client(revision) as client:
            id = begin(client, "swallow")
            await until(lambda: probe.log)
            cancel(client, id)
            await until(lambda: not client.connection.busy)
            assert probe.log == ["swallow: start", "swallow: swallowed"]
            assert await client.settle() == []
            assert answers(client) == []

    run(main())


@both_eras
@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
@pytest.mark.verifies("F-cancel", "SH-stop-work")
def test_prompts_and_resources_stop_too(revision: str, method: str) -> None:
    server = Server("s")
    log: list[str] = []

    async def forever() -> str:
        log.append("start")
        try:
            await asyncio.Event().wait()
        finally:
            log.append("stopped")
        return ""

    server.prompt(name="p")(forever)
    server.resource("x://y")(forever)
    params = {"name": "p"} if method == "prompts/get" else {"uri": "x://y"}

    async def main() -> None:
        async with connect(server, revision) as client:
            id, future = client.start(method, params)
            future.cancel()
            await until(lambda: log)
            cancel(client, id)
            await until(lambda: not client.connection.busy)
            assert log == ["start", "stopped"]
            assert await client.settle() == []

    run(main())


@both_eras
def test_only_the_one_that_is_named_stops(revision: str) -> None:
    async def main() -> None:
        probe = Probe()
        async with probe.client(revision) as client:
            first, second = begin(client, "wait"), begin(client, "wait")
            await until(lambda: len(probe.log) == 2)
            cancel(client, first)
            await until(lambda: len(probe.log) == 3)
            assert list(client.connection.peer.in_flight) == [second]
            cancel(client, second)
            await until(lambda: len(probe.log) == 4)

    run(main())


# --- races ----------------------------------------------------------------------------------------


@every_revision
@pytest.mark.verifies("X19", "F-cancel")
def test_cancelling_what_is_answered_or_was_never_there_is_silent(revision: str) -> None:
    async def main() -> None:
        probe = Probe()
        async with probe.client(revision) as client:
            id, future = client.start("tools/call", {"name": "echo"})
            await future
            cancel(client, id)
            cancel(client, id)
            for wrong in (id + 100, str(id), "", -1):
                cancel(client, wrong)
            client.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}')
            client.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}')
            client.send(
                b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}'
            )
            assert await client.settle() == []
            assert answers(client) == [id]

    run(main())


@every_revision
@pytest.mark.verifies("X19", "F-cancel", "S29")
def test_a_request_and_its_cancellation_in_one_breath(revision: str) -> None:
    async def main() -> None:
        probe = Probe()
        async with probe.client(revision) as client:
            for tool in ("wait", "ask", "block", "swallow"):
                id = begin(client, tool)
                cancel(client, id)
                probe.go.set()
                await until(lambda: not client.connection.busy)
            assert await client.settle() == []
            assert answers(client) == []

    run(main())


@both_eras
@pytest.mark.verifies("X19")
def test_cancelling_twice(revision: str) -> None:
    async def main() -> None:
        probe = Probe()
        async with probe.client(revision) as client:
            id = begin(client, "wait")
            await until(lambda: probe.log)
            cancel(client, id)
            cancel(client, id)
            await until(lambda: not client.connection.busy)
            assert probe.log[1:] == ["wait: stopped, cancelled=True"]

    run(main())


@both_eras
@pytest.mark.verifies("X19", "X4")
def test_the_id_is_free_again(revision: str) -> None:
    """Even while the handler of the first has not ended: its answer is not the second's."""

    async def main() -> None:
        probe = Probe()
        async with probe.client(revision) as client:
            id = begin(client, "swallow")
            await until(lambda: probe.log)
            cancel(client, id)
            client._last_id = id - 1
            again, future = client.start("tools/call", {"name": "echo", "arguments": {"text": "2"}})
            assert again == id
            assert text((await future)["result"]) == "2"
            await until(lambda: not client.connection.busy)
            assert answers(client) == [id]

    run(main())


@both_eras
@pytest.mark.verifies("X19", "F-limit-in-flight")
def test_a_request_that_still_waits_for_its_turn(revision: str) -> None:
    async def main() -> None:
        probe = Probe(limits=Limits(max_in_flight=1))
        async with probe.client(revision) as client:
            first = begin(client, "wait")
            await until(lambda: probe.log)
            second, third = begin(client, "wait"), begin(client, "echo", text="3")
            cancel(client, second)
            await client.connection._loop.run_in_executor(None, lambda: None)
            assert probe.log == ["wait: start"]
            cancel(client, first)
            await until(lambda: answers(client) == [third])
            assert probe.log == ["wait: start", "wait: stopped, cancelled=True"]

    run(main())


@pytest.mark.verifies("F-cancel", "X11")
def test_inside_a_batch() -> None:
    """The others are answered, in one array that lacks the cancelled one."""

    async def main() -> None:
        probe = Probe()
        async with probe.client(B) as client:
            wait = request(501, "tools/call", {"name": "wait"})
            echo = request(502, "tools/call", {"name": "echo", "arguments": {"text": "b"}})
            client.send(b"[" + wait + b"," + echo + b"]")
            await until(lambda: probe.log)
            await asyncio.sleep(0)
            assert answers(client) == []
            cancel(client, 501)
            await until(lambda: answers(client) == [502])

    run(main())


@pytest.mark.verifies("F-cancel", "X11")
def test_a_batch_of_which_nothing_is_left() -> None:
    async def main() -> None:
        probe = Probe()
        async with probe.client(B) as client:
            one = request(501, "tools/call", {"name": "wait"})
            two = request(502, "tools/call", {"name": "wait"})
            client.send(b"[" + one + b"," + two + b"]")
            await until(lambda: len(probe.log) == 2)
            cancel(client, 502)
            cancel(client, 501)
            await until(lambda: not client.connection.busy)
            assert answers(client) == []

    run(main())


# --- in the middle of a question ------------------------------------------------------------------


@pytest.mark.parametrize("revision", [C, D])
@pytest.mark.verifies("X18", "F-cancel", "S85")
def test_our_question_is_taken_back(revision: str) -> None:
    async def main() -> None:
        probe = Probe()
        async with probe.client(revision, capabilities={"elicitation": {}}) as client:
            id = begin(client, "ask")
            question = await client.receive()
            assert question["method"] == "elicitation/create"
            cancel(client, id)
            taken_back = await client.receive()
            assert taken_back["method"] == CANCELLED
            assert taken_back["params"]["requestId"] == question["id"]
            await until(lambda: not client.connection.busy)
            assert probe.log == ["ask: CancelledError"]
            # The client's answer may have been on its way already.
            client._send({"id": question["id"], "result": {"action": "cancel"}})
            assert await client.settle() == []
            assert answers(client) == []

    run(main())


@pytest.mark.parametrize("revision", [C, D])
@pytest.mark.verifies("X18", "X19")
def test_no_cancellation_for_a_question_that_was_answered(revision: str) -> None:
    """Both in one breath: the answer came first, so there is nothing left to cancel."""

    async def main() -> None:
        probe = Probe()
        async with probe.client(revision, capabilities={"elicitation": {}}) as client:
            id = begin(client, "ask")
            question = await client.receive()
            client._send({"id": question["id"], "result": {"action": "decline"}})
            cancel(client, id)
            await until(lambda: not client.connection.busy)
            assert [m for m in await client.settle() if "id" in m] == []
            assert answers(client) == []

    run(main())


@pytest.mark.verifies("S9", "S21", "S29")
def test_in_2026_a_question_holds_nothing_that_could_be_cancelled() -> None:
    async def main() -> None:
        probe = Probe()
        async with probe.client(E, capabilities={"elicitation": {}}) as client:
            id, future = client.start("tools/call", {"name": "ask"})
            answer = await future
            assert answer["result"]["resultType"] == "input_required"
            cancel(client, id)
            assert await client.settle() == []
            assert answers(client) == [id]

    run(main())


# --- timeouts -------------------------------------------------------------------------------------


@every_revision
@pytest.mark.parametrize("seconds", [0.01, 0.25])
def test_a_tool_that_takes_too_long(revision: str, seconds: float) -> None:
    server = Server("s")
    log: list[str] = []

    @server.tool(timeout=seconds)
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            log.append("stopped")
            raise

    async def main() -> None:
        async with connect(server, revision) as client:
            result = await client.call("slow")
            assert result["isError"] is True
            assert text(result) == f"Tool 'slow' timed out after {seconds:g} seconds"
            assert log == ["stopped"]
            assert not client.connection.busy

    run(main())


@every_revision
def test_a_sync_tool_that_takes_too_long(revision: str) -> None:
    """The client gets its answer; the thread ends at its next word."""
    server = Server("s")
    go = threading.Event()
    log: list[str] = []

    @server.tool(timeout=0.5)
    def slow(ctx: Context) -> str:
        ctx.progress(1)
        go.wait(10)
        try:
            ctx.progress(2)
        except BaseException as error:
            log.append(type(error).__name__)
            raise
        return "too late"

    async def main() -> None:
        async with connect(server, revision) as client:
            params = {"name": "slow", "_meta": {"progressToken": 1}}
            answer = await client.answer("tools/call", params)
            assert text(answer["result"]) == "Tool 'slow' timed out after 0.5 seconds"
            go.set()
            await until(lambda: log)
            assert log == ["CancelledError"]
            left = await client.settle()
            assert [m["params"]["progress"] for m in left] == [1]
            assert len(answers(client)) == 1

    run(main())


@pytest.mark.parametrize("revision", [C, D])
@pytest.mark.verifies("X18", "S85")
def test_a_question_that_takes_too_long(revision: str) -> None:
    server = Server("s")

    @server.tool(timeout=0.05)
    async def ask(ctx: Context) -> str:
        return (await ctx.ask("name", Elicit("Who?", Name))).value.name

    async def main() -> None:
        async with connect(server, revision, capabilities={"elicitation": {}}) as client:
            result = await client.call("ask")
            assert text(result) == "Tool 'ask' timed out after 0.05 seconds"
            question, taken_back = await client.settle()
            assert question["method"] == "elicitation/create"
            assert taken_back["method"] == CANCELLED
            assert taken_back["params"] == {"requestId": question["id"]}
            assert not client.connection.peer.pending

    run(main())


def test_a_question_of_2026_is_no_timeout() -> None:
    server = Server("s")

    @server.tool(timeout=5)
    async def ask(ctx: Context) -> str:
        return (await ctx.ask("name", Elicit("Who?", Name))).value.name

    async def main() -> None:
        async with connect(server, E, capabilities={"elicitation": {}}) as client:
            first = await client.call("ask")
            assert first["resultType"] == "input_required"
            reply = {"name": {"action": "accept", "content": {"name": "Ada"}}}
            params = {"name": "ask", "inputResponses": reply, "requestState": first["requestState"]}
            assert text(await client.request("tools/call", params)) == "Ada"

    run(main())


@both_eras
def test_a_timeout_of_the_tools_own_is_not_ours(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")

    @server.tool(timeout=30)
    async def slow() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    async def main() -> None:
        async with connect(server, revision) as client:
            result = await client.call("slow")
            assert result["isError"]
            assert text(result) == "Internal error in tool 'slow'"

    run(main())
    assert [r.exc_info[0] for r in caplog.records if r.exc_info] == [TimeoutError]


@both_eras
@pytest.mark.verifies("F-cancel", "S29")
def test_cancelling_a_tool_with_a_timeout(revision: str) -> None:
    server = Server("s")
    log: list[str] = []

    @server.tool(timeout=30)
    async def slow() -> None:
        log.append("start")
        try:
            await asyncio.sleep(60)
        finally:
            log.append("stopped")

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        async with connect(server, revision) as client:
            before = len([h for h in loop._scheduled if not h.cancelled()])
            id = begin(client, "slow")
            await until(lambda: log)
            cancel(client, id)
            await until(lambda: not client.connection.busy)
            assert log == ["start", "stopped"]
            assert answers(client) == []
            assert len([h for h in loop._scheduled if not h.cancelled()]) == before

    run(main())


@both_eras
def test_a_tool_that_swallows_its_timeout_answers_late(revision: str) -> None:
    """It cannot be killed; what it returns in the end is its answer, once."""
    server = Server("s")

    @server.tool(timeout=0.01)
    async def stubborn() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "in the end"

    async def main() -> None:
        async with connect(server, revision) as client:
            assert text(await client.call("stubborn")) == "in the end"
            assert len(answers(client)) == 1

    run(main())


@pytest.mark.verifies("SH-cancel-reason")
def test_the_reason_reaches_who_looks_for_it() -> None:
    server = Server("s")
    reasons: list[Any] = []

    @server.tool
    async def work() -> None:
        reasons.append("start")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            reasons.extend(error.args)
            raise

    async def main() -> None:
        async with connect(server, D) as client:
            id = begin(client, "work")
            await until(lambda: reasons)
            cancel(client, id, "the user went home")
            await until(lambda: not client.connection.busy)
            assert reasons == ["start", "the user went home"]

    run(main())
