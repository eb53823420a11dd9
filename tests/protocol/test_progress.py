"""Progress: `ctx.progress` in every revision, how fast it may go, and where it stops."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from dovetail import Context, Server
from dovetail.errors import LocalProtocolError
from dovetail.runtime.progress import BURST, RATE
from dovetail.testing import TestClient, connect, envelope
from support import request, run, until

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
every_revision = pytest.mark.parametrize("revision", REVISIONS)
both_eras = pytest.mark.parametrize("revision", [D, E])
METHOD = "notifications/progress"


def said(client: TestClient) -> list[Any]:
    """All the server has said so far."""
    return [message for sender, message in client.recorder.messages if sender == "server"]


def reports(client: TestClient) -> list[dict[str, Any]]:
    return [m["params"] for m in said(client) if m.get("method") == METHOD]


def values(client: TestClient) -> list[float]:
    return [params["progress"] for params in reports(client)]


def text(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])


def with_token(name: str, token: Any = "t", **arguments: Any) -> dict[str, Any]:
    meta = {} if token is None else {"progressToken": token}
    return {"name": name, "arguments": arguments, "_meta": meta}


def timers(client: TestClient) -> int:
    """Callbacks that wait in the loop for a later time."""
    loop: Any = asyncio.get_running_loop()
    return sum(not handle.cancelled() for handle in loop._scheduled)


def begin(client: TestClient, name: str, token: Any = "t") -> int:
    """Start a call whose answer nobody waits for; if it comes, it is in the inbox."""
    id, future = client.start("tools/call", with_token(name, token))
    future.cancel()
    return id


async def call(client: TestClient, name: str, token: Any = "t", **arguments: Any) -> Any:
    return await client.answer("tools/call", with_token(name, token, **arguments))


def in_steps(ctx: Context, upto: int = 3) -> str:
    for step in range(1, upto + 1):
        ctx.progress(step, upto, f"step {step}")
    return "done"


def in_series(ctx: Context, of: list[float]) -> str:
    for value in of:
        ctx.progress(value)
    return "done"


async def async_steps(ctx: Context, upto: int = 3) -> str:
    return in_steps(ctx, upto)


async def async_series(ctx: Context, of: list[float]) -> str:
    return in_series(ctx, of)


def make() -> Server:
    server = Server("s", version="1")
    server.tool(name="steps")(async_steps)
    server.tool(name="sync_steps")(in_steps)
    server.tool(name="inline_steps", inline=True)(in_steps)
    server.tool(name="series")(async_series)
    server.tool(name="sync_series")(in_series)
    return server


# --- what is said ---------------------------------------------------------------------------------


@every_revision
@pytest.mark.parametrize("tool", ["steps", "sync_steps", "inline_steps"])
@pytest.mark.verifies("X23", "F-no-leak")
def test_reports_come_in_order_before_the_answer(revision: str, tool: str) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            answer = await call(client, tool)
            assert text(answer) == "done"
            *before, last = said(client)[-4:]
            assert last["id"] == answer["id"]
            message = [{} if revision == A else {"message": f"step {n}"} for n in (1, 2, 3)]
            assert [m["params"] for m in before] == [
                {"progressToken": "t", "progress": n, "total": 3, **message[n - 1]}
                for n in (1, 2, 3)
            ]

    run(main())


@every_revision
@pytest.mark.parametrize("token", ["t", "", "7", 7, 0, -1, 2**53, "é"])
@pytest.mark.verifies("X21")
def test_the_token_comes_back_as_it_was(revision: str, token: Any) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            await call(client, "steps", token)
            tokens = [params["progressToken"] for params in reports(client)]
            assert tokens == [token] * 3
            assert {type(one) for one in tokens} == {type(token)}

    run(main())


@every_revision
@pytest.mark.parametrize("token", [1.5, None, True, [], {}])
@pytest.mark.verifies("X21")
def test_anything_else_is_no_token(revision: str, token: Any) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            base = envelope() if revision == E else {}
            params = {"name": "steps", "_meta": {**base, "progressToken": token}}
            client.send(request(99, "tools/call", params))
            answer = await client.receive()
            assert answer["id"] == 99
            assert answer["error"]["code"] == -32602
            assert not reports(client)
            assert text(await call(client, "steps")) == "done"

    run(main())


@every_revision
@pytest.mark.parametrize("tool", ["steps", "sync_steps", "inline_steps"])
@pytest.mark.verifies("X23")
def test_who_sends_no_token_hears_nothing(revision: str, tool: str) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            assert text(await call(client, tool, None)) == "done"
            assert not reports(client)

    run(main())


@both_eras
@pytest.mark.verifies("X21", "X23")
def test_two_requests_report_under_their_own_tokens(revision: str) -> None:
    server = Server("s")
    go = asyncio.Event()

    @server.tool
    async def work(ctx: Context, plus: int) -> None:
        ctx.progress(plus + 1)
        await go.wait()
        ctx.progress(plus + 2)

    async def main() -> None:
        async with connect(server, revision) as client:
            _, first = client.start("tools/call", with_token("work", 1, plus=0))
            _, second = client.start("tools/call", with_token("work", "1", plus=10))
            await until(lambda: len(reports(client)) == 2)
            go.set()
            await first
            await second
            heard = [(p["progressToken"], p["progress"]) for p in reports(client)]
            assert sorted(heard, key=str) == [("1", 11), ("1", 12), (1, 1), (1, 2)]

    run(main())


@both_eras
def test_prompts_and_resources_report_too(revision: str) -> None:
    server = Server("s")

    @server.prompt
    async def prompt(ctx: Context) -> str:
        ctx.progress(1, 2)
        return "p"

    @server.resource("x://y")
    async def resource(ctx: Context) -> str:
        ctx.progress(2, 2)
        return "r"

    async def main() -> None:
        async with connect(server, revision) as client:
            meta = {"progressToken": 5}
            await client.request("prompts/get", {"name": "prompt", "_meta": meta})
            await client.request("resources/read", {"uri": "x://y", "_meta": meta})
            assert values(client) == [1, 2]

    run(main())


@both_eras
@pytest.mark.parametrize("value", [0, 0.5, -3, 1e-9, 10**15])
def test_any_finite_number_will_do(revision: str, value: float) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            assert text(await call(client, "series", of=[value])) == "done"
            assert values(client) == [value]

    run(main())


@both_eras
@pytest.mark.parametrize("member", ["done", "total"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.verifies("X22")
def test_json_has_no_such_number(
    revision: str, member: str, value: float, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")
    given: dict[str, Any] = {"done": 1, "total": 2, member: value}

    def report(ctx: Context) -> None:
        ctx.progress(**given)

    async def report_async(ctx: Context) -> None:
        ctx.progress(**given)

    server.tool(name="report")(report if kind == "sync" else report_async)

    async def main() -> None:
        async with connect(server, revision) as client:
            answer = await call(client, "report")
            assert answer["result"]["isError"]
            assert not reports(client)

    run(main())
    assert [r.exc_info[0] for r in caplog.records if r.exc_info] == [LocalProtocolError]


# --- it only grows --------------------------------------------------------------------------------


@every_revision
@pytest.mark.parametrize("tool", ["series", "sync_series"])
@pytest.mark.verifies("X22")
def test_the_same_value_again_is_not_sent(revision: str, tool: str) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            answer = await call(client, tool, of=[1, 1, 1, 2, 2, 2.5, 2.5])
            assert text(answer) == "done"
            assert values(client) == [1, 2, 2.5]

    run(main())


@every_revision
@pytest.mark.parametrize("tool", ["series", "sync_series"])
@pytest.mark.verifies("X22")
def test_a_value_that_falls_is_the_tools_mistake(
    revision: str, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            answer = await call(client, tool, of=[1, 3, 2, 4])
            assert answer["result"]["isError"] is True
            assert text(answer) == f"Internal error in tool '{tool}'"
            assert values(client) == [1, 3]
            assert text(await call(client, tool, of=[1, 2])) == "done"

    run(main())
    (record,) = caplog.records
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "progress fell from 3.0 to 2.0"
    assert record.exc_info[0] is LocalProtocolError


@both_eras
@pytest.mark.verifies("X22")
def test_without_a_token_nobody_minds_what_falls(revision: str) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            assert text(await call(client, "series", None, of=[3, 1])) == "done"

    run(main())


@both_eras
def test_the_context_of_a_middleware_shares_the_count(revision: str) -> None:
    server = make()

    @server.middleware
    async def first(call: Any, next: Any) -> Any:
        call.context.progress(0.5)
        return await next(call)

    async def main() -> None:
        async with connect(server, revision) as client:
            await call(client, "series", of=[0.5, 1])
            assert values(client) == [0.5, 1]

    run(main())


# --- not too fast ---------------------------------------------------------------------------------


@both_eras
@pytest.mark.parametrize("tool", ["steps", "sync_steps", "inline_steps"])
@pytest.mark.verifies("SH-rate")
def test_a_burst_goes_out_at_once(revision: str, tool: str) -> None:
    assert BURST >= 10

    async def main() -> None:
        async with connect(make(), revision) as client:
            await call(client, tool, upto=BURST)
            assert values(client) == list(range(1, BURST + 1))

    run(main())


@every_revision
@pytest.mark.parametrize("tool", ["steps", "sync_steps", "inline_steps"])
@pytest.mark.verifies("SH-rate", "X22", "X23")
def test_a_flood_costs_little_and_keeps_its_last(revision: str, tool: str) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            loop = asyncio.get_running_loop()
            before, began = timers(client), loop.time()
            answer = await call(client, tool, upto=10_000)
            took = loop.time() - began
            heard = values(client)
            # What the bucket held, what dripped in meanwhile, and the last.
            assert BURST < len(heard) <= BURST + RATE * took + 2
            assert heard == sorted(set(heard))
            assert heard[-1] == 10_000
            assert said(client)[-2]["params"]["progress"] == 10_000
            assert said(client)[-1]["id"] == answer["id"]
            assert timers(client) == before

    run(main())


@both_eras
@pytest.mark.verifies("SH-rate")
def test_what_was_held_comes_by_itself(revision: str) -> None:
    """The bar moves on while the tool works in silence."""
    server = Server("s")
    done = asyncio.Event()

    @server.tool
    async def work(ctx: Context) -> None:
        for step in range(BURST + 5):
            ctx.progress(step)
        await done.wait()

    async def main() -> None:
        async with connect(server, revision) as client:
            _, future = client.start("tools/call", with_token("work"))
            await until(lambda: values(client)[-1:] == [BURST + 4])
            heard = values(client)
            assert heard[:BURST] == list(range(BURST))
            done.set()
            await future
            assert values(client) == heard, "and not once more"

    run(main())


@both_eras
@pytest.mark.verifies("SH-rate")
def test_the_bucket_fills_again(revision: str) -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> None:
        for step in range(BURST):
            ctx.progress(step)
        await asyncio.sleep(3.5 / RATE)
        for step in range(BURST, BURST + 3):
            ctx.progress(step)

    async def main() -> None:
        async with connect(server, revision) as client:
            await call(client, "work")
            assert values(client) == list(range(BURST + 3))

    run(main())


@both_eras
def test_each_request_has_its_own_bucket(revision: str) -> None:
    async def main() -> None:
        async with connect(make(), revision) as client:
            for token in range(3):
                await call(client, "steps", token, upto=BURST)
            assert len(values(client)) == 3 * BURST

    run(main())


@both_eras
@pytest.mark.verifies("SH-rate")
def test_a_report_never_waits(revision: str) -> None:
    """A plain call: nothing to await, and other tasks do not get a turn in between."""
    server = Server("s")
    turns: list[int] = []
    costs: list[int] = []

    @server.tool
    async def work(ctx: Context) -> str:
        loop = asyncio.get_running_loop()
        loop.call_soon(turns.append, 1)
        for step in range(BURST):
            assert ctx.progress(step) is None
        costs.append(_calls(lambda: [ctx.progress(BURST + n) for n in range(1000)]))
        seen = len(turns)
        await asyncio.sleep(0)
        return f"{seen} {len(turns)}"

    async def main() -> None:
        async with connect(server, revision) as client:
            assert text(await call(client, "work")) == "0 1"
            (cost,) = costs
            assert cost / 1000 <= 15, "Python and C calls per report in a flood"

    run(main())


def _calls(function: Any) -> int:
    count = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


# --- only while the request runs ------------------------------------------------------------------


@both_eras
@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.verifies("X23")
def test_nothing_follows_the_answer(revision: str, in_thread: bool) -> None:
    server = Server("s")
    kept: list[Context] = []

    @server.tool
    async def work(ctx: Context) -> str:
        ctx.progress(1)
        kept.append(ctx)
        return "done"

    async def main() -> None:
        async with connect(server, revision) as client:
            await call(client, "work")
            if in_thread:
                await asyncio.to_thread(kept[0].progress, 2)
            else:
                kept[0].progress(2)
            await client.settle()
            assert values(client) == [1]

    run(main())


@both_eras
@pytest.mark.verifies("X23", "S29")
def test_nothing_follows_a_cancellation(revision: str) -> None:
    """Not even what the bucket still held."""
    server = Server("s")
    ended: list[str] = []

    @server.tool
    async def work(ctx: Context) -> None:
        for step in range(BURST + 5):
            ctx.progress(step)
        try:
            await asyncio.Event().wait()
        finally:
            try:
                ctx.progress(BURST + 6)
            except asyncio.CancelledError:
                ended.append("told to stop")
                raise

    async def main() -> None:
        async with connect(server, revision) as client:
            before = timers(client)
            id = begin(client, "work")
            await until(lambda: len(values(client)) >= BURST)
            client.notify("notifications/cancelled", {"requestId": id})
            heard = values(client)
            assert heard[-1] < BURST + 4
            assert timers(client) == before
            await asyncio.sleep(2 / RATE)
            assert values(client) == heard
            assert ended == ["told to stop"]
            assert not client.connection.busy

    run(main())


@both_eras
@pytest.mark.verifies("X23", "S29")
def test_a_thread_learns_of_the_cancellation(revision: str) -> None:
    server = Server("s")
    started, go, ended = threading.Event(), threading.Event(), threading.Event()

    @server.tool
    def work(ctx: Context) -> None:
        ctx.progress(1)
        started.set()
        go.wait(10)
        try:
            ctx.progress(2)
        except asyncio.CancelledError:
            ended.set()
            raise

    async def main() -> None:
        async with connect(server, revision) as client:
            id = begin(client, "work")
            await until(lambda: started.is_set() and values(client) == [1])
            client.notify("notifications/cancelled", {"requestId": id})
            await client.settle()
            go.set()
            await until(ended.is_set)
            await client.settle()
            assert values(client) == [1]

    run(main())


@both_eras
@pytest.mark.verifies("X23")
def test_the_last_report_comes_before_an_error_too(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> None:
        for step in range(BURST + 5):
            ctx.progress(step)
        raise RuntimeError("after all that")

    @server.prompt
    async def prompt(ctx: Context) -> str:
        for step in range(BURST + 5):
            ctx.progress(step)
        raise RuntimeError("after all that")

    async def main() -> None:
        async with connect(server, revision) as client:
            before = timers(client)
            answer = await call(client, "work")
            assert answer["result"]["isError"]
            assert said(client)[-2]["params"]["progress"] == BURST + 4
            params = {"name": "prompt", "_meta": {"progressToken": 2}}
            answer = await client.answer("prompts/get", params)
            assert answer["error"]["code"] == -32603
            assert said(client)[-2]["params"] == {"progressToken": 2, "progress": BURST + 4}
            assert timers(client) == before

    run(main())


@both_eras
def test_the_timer_goes_with_the_connection(revision: str) -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> None:
        for step in range(BURST + 5):
            ctx.progress(step)
        await asyncio.Event().wait()

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        async with connect(server, revision) as client:
            before = timers(client)
            begin(client, "work")
            await until(lambda: len(values(client)) >= BURST)
            assert timers(client) == before + 1
        assert not [h for h in loop._scheduled if not h.cancelled() and "_due" in repr(h)]

    run(main())


@pytest.mark.verifies("X23")
def test_progress_inside_a_batch() -> None:
    async def main() -> None:
        async with connect(make(), B) as client:
            one = request(1001, "tools/call", with_token("steps", "a"))
            two = request(1002, "tools/call", with_token("sync_steps", "b"))
            client.send(b"[" + one + b"," + two + b"]")
            await until(lambda: len(said(client)) == 9)
            *before, first, second = said(client)[1:]
            assert {m["params"]["progressToken"] for m in before} == {"a", "b"}
            assert len(before) == 6
            assert {first["id"], second["id"]} == {1001, 1002}

    run(main())


@pytest.mark.verifies("X19")
def test_progress_from_a_client_is_ignored() -> None:
    """We ask for none, so every token is unknown."""

    async def main() -> None:
        async with connect(make(), D) as client:
            client.notify(METHOD, {"progressToken": "who?", "progress": 1})
            assert text(await call(client, "steps")) == "done"

    run(main())
