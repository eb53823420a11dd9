"""The driver: tasks, order, cancellation, limits, back-pressure, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from dovetail import Limits, McpError
from dovetail.core.peer import Notification, Peer, Request
from dovetail.errors import ConnectionClosed, LocalProtocolError, RemoteProtocolError
from dovetail.runtime.connection import Connection, Handler
from dovetail.runtime.threads import Threads
from dovetail.spec.revisions import ALL as REVISIONS
from dovetail.spec.revisions import BY_ID
from dovetail.spec.types import ClientCapabilities, Implementation
from support import (
    INITIALIZED,
    PING,
    PONG,
    Line,
    by_id,
    cancel,
    error,
    frame,
    modern,
    notification,
    request,
    run,
    until,
)

INTERNAL = (-32603, "Internal error")
INTERRUPTED = "The request was interrupted"
STOPPING = "The server is shutting down"


class Lab:
    """Handlers that do as they are told, and a line to a connection that serves them.

    ``work`` waits at the gate of its id and returns what is put there; ``now`` answers inline.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        revision: str | None = "2025-11-25",
        *,
        on_notification: Callable[[Notification, Connection], None] | None = None,
        tap: Callable[[str, bytes], None] | None = None,
        **handlers: Callable[[Request, Connection], Any],
    ) -> None:
        self.started: list[Any] = []
        self.stopped: list[Any] = []
        self.gates: dict[Any, asyncio.Future[Any]] = {}
        table = {
            "ping": Handler(lambda request, connection: Raw(b"{}"), inline=True),
            "now": Handler(lambda request, connection: {"now": request.id}, inline=True),
            "work": Handler(lambda request, connection: self.work(request.id)),
            **{name: Handler(call) for name, call in handlers.items()},
        }
        limits = limits or Limits()
        tables = {revision: table for revision in REVISIONS}
        peer = Peer(tables, table, max_depth=limits.max_depth)
        self.connection = Connection(peer, limits, on_notification=on_notification, tap=tap)
        self.line = Line(self.connection)
        self.line.recorder.agreed = revision
        if revision is not None:
            info = Implementation(name="c", version="1")
            peer.agree(BY_ID[revision], info, ClientCapabilities())
            peer.receive(INITIALIZED)

    async def work(self, id: Any) -> Any:
        self.started.append(id)
        self.gates[id] = asyncio.get_running_loop().create_future()
        try:
            return await self.gates[id]
        except asyncio.CancelledError as cancelled:
            self.stopped.append((id, *cancelled.args))
            raise

    def open(self, id: Any) -> None:
        self.gates[id].set_result({"done": id})

    async def close(self) -> None:
        await self.connection.close()
        self.line.recorder.check()


def done(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": {"done": id}}


def works(*ids: Any) -> list[bytes]:
    return [request(id, "work") for id in ids]


# -- concurrency and order -----------------------------------------------------------


@pytest.mark.verifies("F-async-loop", "INV-001")
def test_requests_run_beside_each_other_and_are_answered_as_they_end() -> None:
    async def main() -> None:
        lab = Lab()
        lab.line.feed(*works(1, 2, 3))
        assert await lab.line.turns() == []
        assert lab.started == [1, 2, 3]
        lab.open(3)
        assert await lab.line.turns() == [done(3)]
        lab.open(1)
        lab.open(2)
        assert await lab.line.settle() == [done(1), done(2)]
        await lab.close()

    run(main())


@pytest.mark.verifies("X20", "R002-10")
def test_ping_and_inline_requests_pass_what_is_running() -> None:
    async def main() -> None:
        lab = Lab()
        lab.line.feed(*works(1), request(2, "now"), PING)
        lab.line.recorder.check()
        assert lab.line.take() == [{"jsonrpc": "2.0", "id": 2, "result": {"now": 2}}, PONG]
        await lab.line.turns()
        lab.open(1)
        assert await lab.line.settle() == [done(1)]
        await lab.close()

    run(main())


@pytest.mark.verifies("F-coalesced-writes", "R000-7", "X15")
@pytest.mark.parametrize("method", ["now", "work"])
def test_what_is_sent_in_one_turn_is_one_write(method: str) -> None:
    async def main() -> None:
        lab = Lab()
        lab.line.feed(*[request(id, method) for id in range(100)])
        answers = await lab.line.turns()
        for id in lab.started:
            lab.open(id)
        answers += await lab.line.settle()
        assert [answer["id"] for answer in answers] == list(range(100))
        assert len(lab.line.writes) == 1
        assert lab.line.writes[0].count(b"\n") == 100
        await lab.close()

    run(main())


@pytest.mark.verifies("F-coalesced-writes")
def test_notifications_and_answers_of_one_turn_share_a_write() -> None:
    async def main() -> None:
        lab = Lab()
        lab.connection.notify("notifications/a")
        lab.connection.notify("notifications/b", {"x": 1})
        lab.line.feed(PING)
        told = await lab.line.settle()
        assert [message.get("method") for message in told] == [
            "notifications/a",
            "notifications/b",
            None,
        ]
        assert len(lab.line.writes) == 1
        await lab.close()

    run(main())


@pytest.mark.verifies("F-split-input")
@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_bytes_may_come_in_any_pieces(step: int) -> None:
    async def main() -> None:
        lab = Lab()
        data = b"\r\n".join([request(1, "now"), b"", PING, b"nonsense", request(2, "now")]) + b"\n"
        for at in range(0, len(data), step):
            lab.connection.feed(data[at : at + step])
        answers = await lab.line.settle()
        assert [answer.get("id") for answer in answers] == [1, PONG["id"], None, 2]
        await lab.close()

    run(main())


def test_an_answer_leaves_before_the_next_request_starts() -> None:
    """Also when only one may run at a time, and the next one takes long."""

    async def main() -> None:
        lab = Lab(Limits(max_in_flight=1))
        lab.line.feed(*works(1, 2))
        await lab.line.turns()
        lab.open(1)
        assert await lab.line.turns() == [done(1)]
        assert lab.started == [1, 2]
        lab.open(2)
        assert await lab.line.settle() == [done(2)]
        await lab.close()

    run(main())


# -- cancellation --------------------------------------------------------------------


@pytest.mark.verifies("F-cancel", "S29", "X19")
@pytest.mark.parametrize("make", [request, modern])
def test_cancelling_a_running_request(make: Any) -> None:
    async def main() -> None:
        lab = Lab()
        lab.line.feed(make(1, "work"))
        await lab.line.turns()
        lab.line.feed(cancel(1, "too slow"))
        assert await lab.line.settle() == []
        assert lab.stopped == [(1, "too slow")]
        assert await lab.line.say(cancel(1), PING) == [PONG]
        await lab.close()

    run(main())


@pytest.mark.verifies("F-cancel", "S29")
def test_cancelling_in_the_same_breath() -> None:
    """Before its task had a chance to run: no answer, no trace, nothing left behind."""

    async def main() -> None:
        lab = Lab()
        assert await lab.line.say(*works(1), cancel(1)) == []
        assert lab.stopped == [(1, "changed my mind")]
        assert not lab.connection.busy
        assert not lab.connection._tasks
        assert await lab.line.say(PING) == [PONG]
        await lab.close()

    run(main())


@pytest.mark.verifies("F-cancel", "S29", "F-limit-in-flight")
def test_cancelling_a_request_that_waits() -> None:
    async def main() -> None:
        lab = Lab(Limits(max_in_flight=1))
        lab.line.feed(*works(1, 2, 3), cancel(2))
        await lab.line.turns()
        lab.open(1)
        await lab.line.turns()
        assert lab.started == [1, 3]
        lab.open(3)
        answers = await lab.line.settle()
        assert by_id(answers).keys() <= {1, 3}
        assert not lab.stopped
        await lab.close()

    run(main())


@pytest.mark.verifies("X19", "F-cancel")
def test_cancelling_what_has_been_answered() -> None:
    async def main() -> None:
        lab = Lab()
        assert len(await lab.line.say(request(1, "now"), cancel(1))) == 1
        lab.line.feed(*works(2))
        await lab.line.turns()
        lab.open(2)
        lab.line.feed(cancel(2))  # it crosses the answer, which is made but not sent
        assert await lab.line.settle() == []
        await lab.close()

    run(main())


@pytest.mark.verifies("F-cancel", "S29")
def test_a_handler_that_will_not_stop_is_not_answered() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def stubborn() -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await gate.wait()
            return {"too": "late"}

        lab = Lab(stubborn=lambda request, connection: stubborn())
        lab.line.feed(request(1, "stubborn"))
        await lab.line.turns()
        lab.line.feed(cancel(1))
        assert await lab.line.turns() == []
        # The id is free again, and the new request under it has its own answer.
        assert await lab.line.turns() == []
        lab.line.feed(request(1, "now"))
        gate.set()
        assert await lab.line.settle() == [{"jsonrpc": "2.0", "id": 1, "result": {"now": 1}}]
        await lab.close()

    run(main())


@pytest.mark.verifies("F-cancel", "S29")
def test_a_handler_that_fails_while_it_stops_is_not_answered() -> None:
    async def main() -> None:
        async def failing() -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                raise McpError(-1, "while stopping")

        lab = Lab(failing=lambda request, connection: failing())
        lab.line.feed(request(1, "failing"))
        await lab.line.turns()
        assert await lab.line.say(cancel(1)) == []
        await lab.close()

    run(main())


@pytest.mark.verifies("INV-001")
def test_a_handler_that_cancels_itself_is_answered() -> None:
    async def main() -> None:
        async def own() -> Any:
            raise asyncio.CancelledError

        async def later() -> Any:
            await asyncio.sleep(0)
            raise asyncio.CancelledError

        lab = Lab(own=lambda request, connection: own(), later=lambda request, connection: later())
        answers = await lab.line.say(request(1, "own"), request(2, "later"))
        assert by_id(answers) == {id: error(id, *INTERNAL, INTERRUPTED) for id in (1, 2)}
        await lab.close()

    run(main())


# -- failing -------------------------------------------------------------------------


class Odd(BaseException):
    pass


def crash(kind: type[BaseException]) -> dict[str, Callable[[Request, Connection], Any]]:
    """The same crash: before there is a coroutine, at its start, after a wait."""

    def at_once(request: Request, connection: Connection) -> Any:
        raise kind("secret text")

    async def first() -> Any:
        raise kind("secret text")

    async def later() -> Any:
        await asyncio.sleep(0)
        raise kind("secret text")

    return {
        "at_once": at_once,
        "first": lambda request, connection: first(),
        "later": lambda request, connection: later(),
    }


@pytest.mark.verifies("E-handler-crash", "INV-001", "INV-002")
@pytest.mark.parametrize(
    "kind", [ValueError, RuntimeError, SystemExit, RecursionError, ExceptionGroup]
)
@pytest.mark.parametrize("method", ["at_once", "first", "later"])
def test_a_crash_is_logged_once_and_never_told(
    kind: Any, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = (lambda text: ExceptionGroup(text, [OSError()])) if kind is ExceptionGroup else kind

    async def main() -> None:
        lab = Lab(**crash(made))
        answers = await lab.line.say(request(1, method), PING)
        assert by_id(answers) == {1: error(1, *INTERNAL), PONG["id"]: PONG}
        assert b"secret" not in b"".join(lab.line.writes)
        await lab.close()

    run(main())
    (record,) = [record for record in caplog.records if record.name == "dovetail"]
    assert record.levelno == logging.ERROR
    assert record.getMessage() == f"{method} failed"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], kind)
    assert "secret text" in caplog.text


@pytest.mark.verifies("INV-001")
@pytest.mark.parametrize("method", ["at_once", "first", "later"])
def test_a_cancellation_out_of_nowhere_is_answered(method: str) -> None:
    async def main() -> None:
        lab = Lab(**crash(asyncio.CancelledError))
        (answer,) = await lab.line.say(request(1, method))
        assert answer["error"]["code"] == -32603
        await lab.close()

    run(main())


@pytest.mark.verifies("R002-6", "X8")
@pytest.mark.parametrize("data", [None, "text", {"a": [1]}, 0, False])
def test_an_error_of_the_handler_is_its_answer(data: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def fail(request: Request, connection: Connection) -> Any:
            raise McpError(-7, "no", data)

        lab = Lab(fail=fail)
        assert await lab.line.say(request(1, "fail")) == [error(1, -7, "no", data)]
        await lab.close()

    run(main())
    assert not caplog.records


def cycle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


UNENCODABLE = {
    "object": object(),
    "complex": 1j,
    "cycle": cycle(),
    "surrogate": "\udc80",
    "deep inside": {"a": [1, {"b": object()}]},
    "key": {(1, 2): 3},
    "digits": 10**5000,
}


@pytest.mark.verifies("INV-001", "INV-005", "E-handler-crash")
@pytest.mark.parametrize("value", UNENCODABLE.values(), ids=UNENCODABLE.keys())
@pytest.mark.parametrize("tapped", [False, True])
def test_a_result_that_json_cannot_express(
    value: Any, tapped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async def give() -> Any:
            return {"fine": "so far", "value": value}

        lab = Lab(
            tap=(lambda way, data: None) if tapped else None,
            give=lambda request, connection: give(),
            now2=lambda request, connection: {"value": value},
        )
        # Between others, whose answers share the buffer.
        answers = await lab.line.say(
            request(0, "now"), request(1, "give"), request(2, "now2"), request(3, "now")
        )
        found = by_id(answers)
        assert found[1] == error(1, *INTERNAL)
        assert found[2] == error(2, *INTERNAL)
        assert found[0]["result"] == {"now": 0}
        assert found[3]["result"] == {"now": 3}
        await lab.close()

    run(main())
    assert len([record for record in caplog.records if record.exc_info]) == 2


@pytest.mark.verifies("INV-001", "INV-005")
@pytest.mark.parametrize("value", UNENCODABLE.values(), ids=UNENCODABLE.keys())
def test_an_error_that_json_cannot_express(value: Any) -> None:
    async def main() -> None:
        def fail(request: Request, connection: Connection) -> Any:
            raise McpError(-7, "no", value)

        lab = Lab(fail=fail)
        assert await lab.line.say(request(1, "fail")) == [error(1, -7, "no")]
        await lab.close()

    run(main())


@pytest.mark.verifies("INV-001", "INV-005")
@pytest.mark.parametrize(("message", "sent"), [("caf\udce9", "caf?"), (ValueError("why"), "why")])
def test_a_message_that_json_cannot_express(message: Any, sent: str) -> None:
    async def main() -> None:
        async def fail() -> Any:
            raise McpError(-7, message)

        lab = Lab(fail=lambda request, connection: fail())
        assert await lab.line.say(request(1, "fail")) == [error(1, -7, sent)]
        await lab.close()

    run(main())


@pytest.mark.verifies("INV-002", "X10")
@pytest.mark.parametrize("kind", [ValueError, McpError])
def test_a_notification_handler_that_fails(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def fail(notification: Notification, connection: Connection) -> None:
            raise kind(5)

        lab = Lab(on_notification=fail)
        assert await lab.line.say(notification("notifications/x"), PING) == [PONG]
        await lab.close()

    run(main())
    assert [record.getMessage() for record in caplog.records] == ["notifications/x failed"]


def test_notifications_are_handed_over_in_order() -> None:
    async def main() -> None:
        seen: list[Any] = []

        def take(notification: Notification, connection: Connection) -> None:
            params = notification.params
            seen.append((notification.method, b"" if params is UNSET else bytes(params)))  # type: ignore[arg-type]

        lab = Lab(on_notification=take)
        told = [notification("a"), notification("b", [1]), cancel("nobody")]
        assert await lab.line.say(*told) == []
        assert seen == [("a", b""), ("b", b"[1]")]
        quiet = Lab()
        assert await quiet.line.say(*told) == []

    run(main())


# -- limits --------------------------------------------------------------------------


@pytest.mark.verifies("F-limit-in-flight", "X20")
def test_too_many_requests() -> None:
    async def main() -> None:
        lab = Lab(Limits(max_in_flight=2, max_queued=3))
        lab.line.feed(*works(*range(7)), PING, cancel(0))
        answers = await lab.line.turns()
        text = "Too many requests: 2 running, 3 waiting"
        assert answers == [error(5, *INTERNAL, text), error(6, *INTERNAL, text), PONG]
        # The cancelled one made room, and the queue moved up in order.
        assert lab.started == [0, 1, 2]
        for id in (1, 2, 3, 4):
            await until(lambda id=id: id in lab.gates)
            lab.open(id)
        assert await lab.line.settle() == [done(id) for id in (1, 2, 3, 4)]
        await lab.close()

    run(main())


@pytest.mark.verifies("F-limit-in-flight")
def test_too_many_waiting_bytes() -> None:
    async def main() -> None:
        lab = Lab(Limits(max_in_flight=1, max_queued_bytes=200))
        long = {"x": "y" * 60}
        lab.line.feed(*[request(id, "work", long) for id in range(3)], *works(3))
        (refused,) = await lab.line.turns()
        assert refused == error(2, *INTERNAL, "Too many requests: 1 running, 1 waiting")
        for id in (0, 1):
            lab.open(id)
            await lab.line.turns()
        assert lab.started == [0, 1, 3]
        # What has left the queue counts no more.
        lab.line.feed(request(4, "work", long))
        assert await lab.line.turns() == []
        lab.open(3)
        await lab.line.turns()
        lab.open(4)
        await lab.line.settle()
        assert lab.connection._queued_bytes == 0
        await lab.close()

    run(main())


@pytest.mark.verifies("F-limit-in-flight", "F-cancel")
def test_a_cancelled_request_leaves_its_place_in_the_queue() -> None:
    async def main() -> None:
        lab = Lab(Limits(max_in_flight=1, max_queued=2, max_queued_bytes=180))
        lab.line.feed(*works(1), *[request(id, "work", {"x": "y" * 8}) for id in (2, 3)])
        lab.line.feed(cancel(2), cancel(3), *works(4, 5))
        assert await lab.line.turns() == []
        for id in (1, 4, 5):
            lab.open(id)
            assert await lab.line.turns() == [done(id)]
        assert lab.started == [1, 4, 5]
        assert lab.connection._queued_bytes == 0
        await lab.close()

    run(main())


@pytest.mark.verifies("F-limit-in-flight")
@pytest.mark.parametrize("count", [2, 3000])
def test_a_long_queue_is_worked_off(count: int) -> None:
    """Requests that end as soon as they start must not pile up on the stack."""

    async def main() -> None:
        async def quick() -> Any:
            return {}

        lab = Lab(quick=lambda request, connection: quick())
        lab.connection.pause_writing()
        lab.line.feed(*[request(id, "quick") for id in range(count)])
        assert await lab.line.turns() == []
        lab.connection.resume_writing()
        answers = await lab.line.settle()
        assert [answer["id"] for answer in answers] == list(range(count))
        await lab.close()

    run(main())


@pytest.mark.verifies("F-limit-output", "X20")
def test_while_nobody_reads_nothing_new_starts() -> None:
    async def main() -> None:
        lab = Lab()
        lab.line.feed(*works(1, 2))
        await lab.line.turns()
        lab.connection.pause_writing()
        lab.line.feed(*works(3, 4), PING, cancel(1), cancel(4), request(5, "now"))
        answers = await lab.line.turns()
        assert answers == [PONG, {"jsonrpc": "2.0", "id": 5, "result": {"now": 5}}]
        assert lab.started == [1, 2]
        assert lab.stopped == [(1, "changed my mind")]
        lab.open(2)
        assert await lab.line.turns() == [done(2)]
        assert lab.started == [1, 2]
        lab.connection.resume_writing()
        await lab.line.turns()
        assert lab.started == [1, 2, 3]
        lab.open(3)
        assert await lab.line.settle() == [done(3)]
        await lab.close()

    run(main())


@pytest.mark.verifies("F-limit-output")
def test_when_output_piles_up_reading_stops() -> None:
    async def main() -> None:
        lab = Lab(Limits(max_buffered_output=1000))
        lab.line.unsent = 5000
        await lab.line.say(PING)
        assert lab.line.calls == []  # much is under way, but the transport did not complain
        lab.connection.pause_writing()
        lab.line.unsent = 1000
        await lab.line.say(PING)
        assert lab.line.calls == []
        lab.line.unsent = 1001
        await lab.line.say(PING)
        assert lab.line.calls == ["pause"]
        lab.line.unsent = 0
        lab.connection.resume_writing()
        assert lab.line.calls == ["pause", "resume"]
        assert await lab.line.say(PING) == [PONG]
        await lab.close()

    run(main())


@pytest.mark.verifies("E-oversize", "E-overdeep", "INV-002")
def test_limits_of_one_message() -> None:
    async def main() -> None:
        lab = Lab(Limits(max_frame=200, max_depth=5))
        long = request("long", "now", {"x": "y" * 200})
        deep = request("deep", "now", {"a": {"b": {"c": {"d": {}}}}})
        answers = await lab.line.say(long, PING, deep, PING.replace(b"still", b"stay"))
        assert answers[0] == error(
            "long", -32600, "Invalid Request", "Message longer than 200 bytes"
        )
        assert answers[1] == PONG
        text = "Nesting deeper than 5 levels"
        assert answers[2] == error("deep", -32600, "Invalid Request", text)
        assert answers[3]["result"] == {}
        await lab.close()

    run(main())


# -- batches -------------------------------------------------------------------------


def batch(*items: bytes) -> bytes:
    return b"[" + b",".join(items) + b"]"


def batch_lab(limits: Limits | None = None, **handlers: Any) -> Lab:
    return Lab(limits, "2025-03-26", **handlers)


@pytest.mark.verifies("X11", "D-batches", "INV-001")
def test_the_answers_of_a_batch_are_one_array() -> None:
    async def main() -> None:
        lab = batch_lab()
        items = [*works(1), request(2, "now"), INITIALIZED, b"5", request(3, "no/such"), *works(4)]
        lab.line.feed(batch(*items))
        assert await lab.line.turns() == []
        lab.open(4)
        assert await lab.line.turns() == []
        assert await lab.line.turns() == []
        lab.line.feed(PING)  # others do not wait for it
        assert await lab.line.turns() == [PONG]
        lab.open(1)
        (answers,) = await lab.line.settle()
        assert isinstance(answers, list)
        found = by_id(answers)
        assert len(answers) == len(found) == 5
        assert found[1] == done(1)
        assert found[4] == done(4)
        assert found[2]["result"] == {"now": 2}
        assert found[3]["error"]["code"] == -32601
        assert found[None]["error"]["code"] == -32600
        await lab.close()

    run(main())


@pytest.mark.verifies("X10", "X11")
@pytest.mark.parametrize(
    "items", [[INITIALIZED], [INITIALIZED, notification("x"), cancel(5)], [frame(id=9, result={})]]
)
def test_a_batch_that_wants_no_answer_gets_none(items: list[bytes]) -> None:
    async def main() -> None:
        lab = batch_lab()
        assert await lab.line.say(batch(*items), PING) == [PONG]
        await lab.close()

    run(main())


@pytest.mark.verifies("F-cancel", "X11")
@pytest.mark.parametrize("inside", [True, False])
def test_cancelling_in_a_batch(inside: bool) -> None:
    async def main() -> None:
        lab = batch_lab()
        items = [*works(1, 2), request(3, "now")]
        if inside:
            lab.line.feed(batch(*items, cancel(1)))
        else:
            lab.line.feed(batch(*items))
            await lab.line.turns()
            lab.line.feed(cancel(1))
        await lab.line.turns()
        lab.open(2)
        (answers,) = await lab.line.settle()
        assert by_id(answers).keys() == {2, 3}
        await lab.close()

    run(main())


@pytest.mark.verifies("F-cancel", "X11")
def test_a_batch_of_which_all_is_cancelled_has_no_answer() -> None:
    async def main() -> None:
        lab = batch_lab()
        lab.line.feed(batch(*works(1, 2)))
        await lab.line.turns()
        assert await lab.line.say(cancel(1), cancel(2), PING) == [PONG]
        assert await lab.line.say(batch(*works(3), cancel(3)), PING) == [PONG]
        assert lab.started == [1, 2]  # what is cancelled before its turn never runs
        await lab.close()

    run(main())


@pytest.mark.verifies("X11", "F-limit-in-flight")
def test_a_batch_over_the_limits() -> None:
    async def main() -> None:
        lab = batch_lab(Limits(max_in_flight=1, max_queued=1))
        lab.line.feed(batch(*works(1, 2, 3)))
        await lab.line.turns()
        lab.open(1)
        await lab.line.turns()
        lab.open(2)
        (answers,) = await lab.line.settle()
        found = by_id(answers)
        assert (found[1], found[2]) == (done(1), done(2))
        assert found[3]["error"]["code"] == -32603
        await lab.close()

    run(main())


@pytest.mark.verifies("X11", "E-handler-crash")
def test_crashes_in_a_batch() -> None:
    async def main() -> None:
        lab = batch_lab(**crash(ValueError), bad=lambda request, connection: object())
        methods = ["at_once", "first", "later", "bad"]
        (answers,) = await lab.line.say(batch(*[request(name, name) for name in methods]))
        assert by_id(answers) == {name: error(name, *INTERNAL) for name in methods}
        await lab.close()

    run(main())


# -- the end -------------------------------------------------------------------------


@pytest.mark.verifies("F-stdio-eof", "R001-14", "R002-13")
def test_the_end_of_input_waits_for_what_runs() -> None:
    async def main() -> None:
        lab = Lab(Limits(max_in_flight=1))
        lab.line.feed(*works(1, 2))
        await lab.line.turns()
        lab.connection.end_of_input()
        lab.connection.end_of_input()
        await lab.line.turns()
        assert not lab.connection.ended.done()
        lab.open(1)
        assert await lab.line.turns() == [done(1)]
        assert not lab.connection.ended.done()
        lab.open(2)
        await lab.connection.ended
        await lab.close()
        assert lab.line.take() == [done(2)]

    run(main())


@pytest.mark.verifies("F-stdio-eof")
def test_the_wait_at_the_end_of_input_is_bounded() -> None:
    async def main() -> None:
        lab = Lab(Limits(drain_seconds=0.01))
        lab.line.feed(*works(1))
        await lab.line.turns()
        lab.connection.end_of_input()
        await lab.connection.ended
        await lab.close()
        assert lab.stopped == [(1, "shutdown")]
        assert lab.line.take() == [error(1, *INTERNAL, INTERRUPTED)]

    run(main())


@pytest.mark.verifies("E-no-newline", "R001-14")
@pytest.mark.parametrize("last", [PING, PING + b"\r", b"  " + PING])
def test_the_last_frame_needs_no_newline(last: bytes) -> None:
    async def main() -> None:
        lab = Lab()
        lab.connection.feed(last)
        lab.connection.end_of_input()
        assert lab.connection.ended.done()
        await lab.close()
        assert lab.line.take() == [PONG]

    run(main())


@pytest.mark.verifies("F-stdio-eof")
def test_the_end_of_an_idle_connection_comes_at_once() -> None:
    async def main() -> None:
        lab = Lab()
        lab.connection.end_of_input()
        assert lab.connection.ended.done()
        with pytest.raises(ConnectionClosed):
            await lab.connection.request("ping")
        await lab.close()

    run(main())


@pytest.mark.verifies("F-broken-pipe")
def test_a_peer_that_is_lost() -> None:
    async def main() -> None:
        lab = Lab()
        lab.line.feed(*works(1))
        waiting = asyncio.ensure_future(lab.connection.request("roots/list"))
        await lab.line.turns()
        lab.line.take()
        written = len(lab.line.writes)
        lab.connection.lost(BrokenPipeError())
        assert lab.connection.ended.done()
        with pytest.raises(ConnectionClosed):
            await waiting
        lab.open(1)
        lab.line.feed(PING)
        lab.connection.notify("notifications/x")
        await lab.line.turns()
        assert len(lab.line.writes) == written
        await lab.close()
        assert not lab.connection.busy

    run(main())


@pytest.mark.verifies("R002-13", "F-sigterm")
def test_the_order_of_closing() -> None:
    async def main() -> None:
        events: list[str] = []

        async def tidy() -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                events.append("handler")

        lab = Lab(Limits(max_in_flight=1), tidy=lambda request, connection: tidy())
        write = lab.line.write
        lab.line.write = lambda data: (events.append("write"), write(data))[1]  # type: ignore[method-assign]
        lab.line.calls = events
        lab.line.feed(request(1, "tidy"), *works(2))
        asking = asyncio.ensure_future(lab.connection.request("ping"))
        await lab.line.turns()
        events.clear()
        lab.line.take()
        await lab.connection.close()
        # The reader is closed first, the handlers stop, all is written, the writer is closed.
        assert events[0] == "close"
        assert events[-3:] == ["handler", "write", "close"]
        assert events.count("close") == 2
        assert by_id(lab.line.take()) == {
            1: error(1, *INTERNAL, INTERRUPTED),
            2: error(2, *INTERNAL, STOPPING),
        }
        assert lab.connection.ended.done()
        assert not lab.connection.busy
        with pytest.raises(ConnectionClosed):
            await asking
        with pytest.raises(ConnectionClosed):
            await lab.connection.request("ping")

    run(main())


@pytest.mark.verifies("F-sigterm", "INV-001")
def test_closing_does_not_wait_for_ever_for_a_handler() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def stubborn() -> Any:
            while not gate.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await gate.wait()
            return {}

        lab = Lab(Limits(stop_seconds=0.01), stubborn=lambda request, connection: stubborn())
        lab.line.feed(request(1, "stubborn"))
        await lab.line.turns()
        await lab.connection.close()
        assert lab.line.take() == [error(1, *INTERNAL, STOPPING)]
        gate.set()
        await lab.line.settle()
        assert lab.line.take() == []

    run(main())


@pytest.mark.verifies("F-broken-pipe")
def test_closing_does_not_wait_for_ever_for_the_reader() -> None:
    async def main() -> None:
        lab = Lab(Limits(stop_seconds=0.01))
        lab.line.unsent = 10
        lab.line.feed(PING)
        await lab.connection.close()
        assert lab.line.calls == ["close", "close"]
        assert lab.line.take() == [PONG]

    run(main())


def test_closing_waits_until_the_last_bytes_have_left() -> None:
    async def main() -> None:
        lab = Lab()
        lab.line.unsent = 10
        closing = asyncio.ensure_future(lab.connection.close())
        await lab.line.turns()
        assert lab.line.calls == ["close"]
        lab.line.unsent = 0
        await closing
        assert lab.line.calls == ["close", "close"]

    run(main())


@pytest.mark.verifies("R002-13")
def test_closing_twice_and_what_comes_after() -> None:
    async def main() -> None:
        lab = Lab()
        await lab.connection.close()
        await lab.connection.close()
        for late in (PING, modern(1, "work"), request(2, "work"), INITIALIZED, b"x"):
            lab.line.feed(late)
        lab.connection.end_of_input()
        lab.connection.resume_writing()
        await lab.line.turns()
        assert lab.line.writes == []
        assert lab.started == []
        assert not lab.connection.busy

    run(main())


@pytest.mark.verifies("F-cancel")
def test_closing_in_the_same_breath_as_a_request() -> None:
    async def main() -> None:
        lab = Lab()
        lab.line.feed(*works(1))
        await lab.connection.close()
        assert lab.stopped == [(1, "shutdown")]
        assert lab.line.take() == [error(1, *INTERNAL, INTERRUPTED)]
        assert not lab.connection.busy

    run(main())


def test_a_loop_that_is_closed_too_early_is_not_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The handler is thrown away with its loop; that is no crash, and nobody is there to tell."""
    loop = asyncio.new_event_loop()

    async def main() -> Lab:
        lab = Lab()
        lab.line.feed(*works(1))
        await lab.line.turns()
        return lab

    lab = loop.run_until_complete(main())
    loop.set_exception_handler(lambda _, context: None)  # "Task was destroyed", of asyncio
    loop.close()
    task = lab.connection.peer.in_flight[1].task
    task.get_coro().close()
    assert lab.line.writes == []
    assert not caplog.records


def test_stop_ends_a_connection_that_is_busy() -> None:
    async def main() -> None:
        lab = Lab()
        lab.line.feed(*works(1))
        await lab.line.turns()
        lab.connection.stop()
        await lab.connection.ended
        assert lab.connection.busy
        await lab.close()

    run(main())


@pytest.mark.parametrize("end", ["end_of_input", "lost", "close"])
def test_who_wants_to_know_of_the_end_is_told_once(end: str) -> None:
    async def main() -> None:
        lab = Lab()
        told: list[str] = []
        lab.connection.at_end(lambda: told.append("a"))
        lab.connection.at_end(lambda: told.append("b"))
        ending = getattr(lab.connection, end)()
        if ending is not None:
            await ending
        assert told == ["a", "b"]
        await lab.connection.close()
        assert told == ["a", "b"]

    run(main())


# -- asking the other side -----------------------------------------------------------


@pytest.mark.verifies("X3", "X5", "E-stray-response")
def test_requests_of_our_own() -> None:
    async def main() -> None:
        lab = Lab()
        first = asyncio.ensure_future(lab.connection.request("roots/list"))
        second = asyncio.ensure_future(lab.connection.request("a/b", {"a": 1}))
        sent = await lab.line.turns()
        assert [message["method"] for message in sent] == ["roots/list", "a/b"]
        one, two = (message["id"] for message in sent)
        assert one != two
        failure = {"code": -5, "message": "no", "data": [1]}
        lab.connection.feed(frame(id=two, error=failure) + b"\n")
        lab.connection.feed(frame(id="nobody", result={}) + b"\n")
        lab.connection.feed(frame(id=one, result={"roots": []}) + b"\n")
        lab.connection.feed(frame(id=one, result={"roots": [1]}) + b"\n")
        assert msgspec.json.decode(await first) == {"roots": []}
        with pytest.raises(McpError) as caught:
            await second
        assert (caught.value.code, caught.value.message, caught.value.data) == (-5, "no", [1])
        assert not lab.connection._asking._waiters
        assert not lab.connection.peer.pending
        await lab.close()

    run(main())


@pytest.mark.verifies("E-result-and-error")
def test_an_answer_with_both_ends_no_wait_with_a_result() -> None:
    async def main() -> None:
        lab = Lab()
        mine = asyncio.ensure_future(lab.connection.request("a/b"))
        other = asyncio.ensure_future(lab.connection.request("c/d"))
        ids = [message["id"] for message in await lab.line.turns()]
        both = {"result": {}, "error": {"code": 1, "message": "m"}}
        lab.connection.feed(frame(id=ids[0], **both) + b"\n")
        with pytest.raises(RemoteProtocolError):
            await mine
        assert not other.done()
        lab.connection.feed(frame(id=ids[1], result={}) + b"\n")
        assert bytes(await other) == b"{}"
        await lab.close()

    run(main())


@pytest.mark.verifies("X18", "X19")
def test_giving_up_a_request_of_our_own() -> None:
    async def main() -> None:
        lab = Lab()
        asking = asyncio.ensure_future(lab.connection.request("a/b"))
        (sent,) = await lab.line.turns()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        (told,) = await lab.line.turns()
        assert told["method"] == "notifications/cancelled"
        assert told["params"] == {"requestId": sent["id"]}
        assert await lab.line.say(frame(id=sent["id"], result={}), PING) == [PONG]
        assert not lab.connection._asking._waiters
        await lab.close()

    run(main())


@pytest.mark.parametrize("end", ["end_of_input", "lost"])
def test_our_requests_fail_when_the_other_side_is_gone(end: str) -> None:
    async def main() -> None:
        lab = Lab()
        asking = asyncio.ensure_future(lab.connection.request("a/b"))
        await lab.line.turns()
        getattr(lab.connection, end)()
        with pytest.raises(ConnectionClosed):
            await asking
        with pytest.raises((ConnectionClosed, LocalProtocolError)):
            await lab.connection.request("a/b")
        await lab.close()

    run(main())


@pytest.mark.verifies("F-wire-log")
def test_a_tap_sees_both_ways() -> None:
    async def main() -> None:
        seen: list[tuple[str, bytes]] = []
        lab = Lab(Limits(max_frame=100), tap=lambda way, data: seen.append((way, bytes(data))))
        lab.line.feed(PING, b"x" * 200, *works(1))
        await lab.line.turns()
        lab.open(1)
        lab.connection.notify("notifications/x")
        await lab.line.settle()
        assert [way for way, _ in seen] == ["in", "out", "in", "out", "in", "out", "out"]
        assert seen[0] == ("in", PING)
        assert seen[2] == ("in", b"x" * 100)  # what is left of a frame that is too long
        written = b"".join(lab.line.writes)
        assert written == b"".join(data + b"\n" for way, data in seen if way == "out")
        await lab.close()

    run(main())


# -- threads -------------------------------------------------------------------------


def workers(pool: Threads) -> int:
    return pool._count


async def idle(pool: Threads, count: int) -> None:
    await until(lambda: pool._idle == count)


@pytest.mark.verifies("F-sync-thread")
def test_the_pool_grows_with_the_work_up_to_its_limit() -> None:
    async def main() -> None:
        pool = Threads(3)
        gate, running = threading.Event(), threading.Semaphore(0)

        def work(number: int) -> tuple[int, str]:
            running.release()
            gate.wait(10)
            return number, threading.current_thread().name

        futures = [pool.call(work, {"number": number}) for number in range(5)]
        assert workers(pool) == 3
        await until(lambda: running._value == 3)
        gate.set()
        results = [await future for future in futures]
        assert [number for number, _ in results] == [0, 1, 2, 3, 4]
        names = {name for _, name in results}
        assert names <= {f"dovetail-worker-{number}" for number in (1, 2, 3)}
        assert workers(pool) == 3

    run(main())


@pytest.mark.verifies("F-sync-thread")
def test_an_idle_thread_is_used_again() -> None:
    async def main() -> None:
        pool = Threads(8)
        assert workers(pool) == 0
        names = set()
        for _ in range(20):
            names.add(await pool.call(lambda: threading.current_thread().name, {}))
            await idle(pool, 1)
        assert names == {"dovetail-worker-1"}
        assert workers(pool) == 1

    run(main())


def test_the_queue_is_there_before_the_first_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made when first needed, by the caller: a caller and a worker could each make their own."""

    async def main() -> None:
        pool = Threads(1)
        start = threading.Thread.start
        made: list[bool] = []

        def watched(thread: threading.Thread) -> None:
            made.append("_jobs" in vars(pool))
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", watched)
        assert await pool.call(lambda: "done", {}) == "done"
        assert made == [True]

    run(main())


@pytest.mark.verifies("F-sync-thread")
def test_threads_do_not_keep_the_process_alive() -> None:
    async def main() -> None:
        pool = Threads(1)
        thread = await pool.call(threading.current_thread, {})
        assert thread.daemon
        assert thread is not threading.current_thread()

    run(main())


def test_a_job_that_was_cancelled_before_its_turn_is_not_run() -> None:
    async def main() -> None:
        pool = Threads(1)
        gate = threading.Event()
        ran: list[str] = []
        first = pool.call(gate.wait, {"timeout": 10})
        second = pool.call(lambda: ran.append("second"), {})
        third = pool.call(lambda: ran.append("third"), {})
        second.cancel()
        gate.set()
        assert await first
        await third
        assert ran == ["third"]

    run(main())


def test_a_job_that_is_cancelled_while_it_runs_is_let_run() -> None:
    async def main() -> None:
        pool = Threads(1)
        started, gate = threading.Event(), threading.Event()

        def work(fail: bool) -> None:
            started.set()
            gate.wait(10)
            if fail:
                raise ValueError

        for fail in (False, True):
            started.clear()
            gate.clear()
            future = pool.call(work, {"fail": fail})
            await until(started.is_set)
            future.cancel()
            gate.set()
            assert await pool.call(lambda: "next", {}) == "next"
            assert future.cancelled()

    run(main())


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, Odd, GeneratorExit])
def test_what_a_job_raises_comes_out_of_its_future(kind: type[BaseException]) -> None:
    async def main() -> None:
        pool = Threads(1)

        def work() -> None:
            raise kind("why")

        future = pool.call(work, {})
        await until(future.done)
        found = future.exception()
        assert isinstance(found, kind)
        assert found.args == ("why",)
        assert await pool.call(lambda: "alive", {}) == "alive"
        assert workers(pool) == 1

    run(main())


def test_a_stop_iteration_becomes_an_error_that_a_future_can_hold() -> None:
    async def main() -> None:
        pool = Threads(1)
        future = pool.call(lambda: next(iter([])), {})
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await future

    run(main())


def test_a_pool_outlives_a_loop() -> None:
    pool = Threads(1)
    started, gate = threading.Event(), threading.Event()

    async def leave() -> None:
        def work() -> None:
            started.set()
            gate.wait(10)

        pool.call(work, {})
        await until(started.is_set)

    async def again() -> Any:
        gate.set()
        return await pool.call(lambda: "again", {})

    run(leave())
    assert run(again()) == "again"
    assert workers(pool) == 1


@pytest.mark.verifies("F-sync-thread", "F-cancel", "E-handler-crash")
def test_handlers_in_threads() -> None:
    async def main() -> None:
        pool = Threads(2)
        gate = threading.Event()

        async def call(function: Callable[[], Any]) -> Any:
            return {"value": await pool.call(function, {})}

        def leave() -> None:
            raise SystemExit("secret")

        lab = Lab(
            blocks=lambda request, connection: call(lambda: gate.wait(10)),
            leaves=lambda request, connection: call(leave),
        )
        lab.line.feed(request(1, "blocks"), request(2, "blocks"), PING)
        assert (await lab.line.turns())[0] == PONG  # the loop is free
        lab.line.feed(cancel(1))
        gate.set()
        (answer,) = await lab.line.settle()
        assert answer == {"jsonrpc": "2.0", "id": 2, "result": {"value": True}}
        assert await lab.line.say(request(3, "leaves"), PING) == [PONG, error(3, *INTERNAL)]
        await lab.close()

    run(main())
