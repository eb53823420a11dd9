"""INV-001, INV-002 and INV-005 as properties: random conversations, bytes and mutations."""

from __future__ import annotations

import asyncio
import os
import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec import UNSET, Raw

from dovetail import Context, Limits, McpError, Server, ToolError
from dovetail.core.peer import Peer, Request
from dovetail.errors import RemoteProtocolError
from dovetail.runtime.connection import Connection, Handler
from dovetail.spec.revisions import ALL as REVISIONS
from dovetail.spec.revisions import BY_ID
from dovetail.spec.types import ClientCapabilities, Implementation
from dovetail.testing import Recorder
from dovetail.transport.memory import join
from dovetail.wire.jsonrpc import decode
from support import (
    ALL,
    HANDSHAKE,
    INITIALIZED,
    MODERN,
    PATIENCE,
    PING,
    PONG,
    Line,
    asked,
    cancel,
    line,
    meta,
    modern,
    no_crash,
    notification,
    request,
    run,
    until,
)
from support import initialize as initialize_frame

# In CI always the same examples: a red run can be repeated, and a green one means the same.
COMMON: dict[str, Any] = {
    "deadline": None,
    "derandomize": bool(os.environ.get("CI")),
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}

# -- (a) two sides and a random byte splitter ----------------------------------------

# What no client of this line should send, and a server must survive. No id of a request.
GARBAGE = [
    b"nonsense",
    b"\xff\xfe",
    b"{",
    b"[]",
    b"[1]",
    b"null",
    b'{"jsonrpc":"1.0","id":"bad","method":"ping"}',
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":"bad"}',
    b'{"jsonrpc":"2.0","id":"bad","method":"ping","params":[]}',
    b'{"jsonrpc":"2.0","id":"bad","method":"initialize"}',
    b'{"jsonrpc":"2.0","id":"bad","result":{},"error":{"code":1,"message":""}}',
    b'{"jsonrpc":"2.0","id":"stray","result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":true}}',
    b'{"jsonrpc":"2.0","id":"bad","method":"work","params":{"x":"' + b"y" * 600 + b'"}}',
    b'{"jsonrpc":"2.0","id":"bad","method":"work","params":' + b'{"a":' * 20 + b"1" + b"}" * 21,
    b"",
    b" \r",
]


class Model:
    """What a server has to do about requests, kept beside a real one.

    Fed with the frames the server sees and the requests it settles, in the order it does so.
    """

    def __init__(self, server: Connection) -> None:
        self.open: set[Any] = set()
        self.cancelled: set[Any] = set()
        self.answers: list[Any] = []  # ids in the order they were settled
        self.refused: list[Any] = []  # ids that were in use, or of unknown methods
        receive, settle = server.receive, server.peer.settle

        def watched_receive(frame: Any) -> None:
            if isinstance(frame, bytes):
                self.frame(frame)
            receive(frame)

        def watched_settle(request: Request) -> bool:
            settled = settle(request)
            if settled:
                assert request.id in self.open, "an answer to nothing, or after a cancel"
                self.open.remove(request.id)
                self.answers.append(request.id)
            return settled

        server.receive = watched_receive  # type: ignore[method-assign]
        server.peer.settle = watched_settle  # type: ignore[method-assign]

    def frame(self, frame: bytes) -> None:
        try:
            message = decode(frame, 16)
        except RemoteProtocolError:
            return
        if message.method == "notifications/cancelled" and message.id is UNSET:
            id = msgspec.json.decode(message.params)["requestId"]  # type: ignore[arg-type]
            if type(id) is int and id in self.open:
                self.open.remove(id)
                self.cancelled.add(id)
        elif message.method is not UNSET and type(message.id) is int:
            if message.id in self.open or message.method == "no/such":
                self.refused.append(message.id)
            else:
                self.open.add(message.id)
                self.cancelled.discard(message.id)


class Peers(RuleBasedStateMachine):
    """A client and a server, each with requests of its own, and a line that cuts as it likes."""

    @initialize(
        seed=st.integers(0, 2**32), revision=st.sampled_from(HANDSHAKE), limit=st.integers(1, 4)
    )
    def connect(self, seed: int, revision: str, limit: int) -> None:
        self.random = random.Random(seed)
        self.revision = revision
        self.loop = asyncio.new_event_loop()
        self.lost: list[Any] = []
        self.loop.set_exception_handler(lambda _, context: self.lost.append(context))
        self.gates: dict[Any, asyncio.Future[Any]] = {}
        self.asked: dict[int, asyncio.Task[Any]] = {}
        self.given_up: set[int] = set()
        self.recorder = Recorder()
        self.recorder.agreed = revision
        self.written: list[Any] = []
        self.do(self.open(limit))

    def do(self, main: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(main, PATIENCE))

    async def open(self, limit: int) -> None:
        limits = Limits(max_in_flight=limit, max_queued=6, max_frame=500, max_depth=16)
        self.server = self.side(limits, answers_malformed=True)
        self.client = self.side(Limits(), answers_malformed=False)
        self.model = Model(self.server)
        join(self.client, self.server, self.split)
        self.watch(self.server, "server")
        self.watch(self.client, "client")

    def side(self, limits: Limits, *, answers_malformed: bool) -> Connection:
        table = {
            "ping": Handler(lambda request, connection: Raw(b"{}"), inline=True),
            "now": Handler(lambda request, connection: {"id": request.id}, inline=True),
            "work": Handler(lambda request, connection: self.work(request.id)),
            "fail": Handler(lambda request, connection: self.fail()),
        }
        tables = {revision: table for revision in REVISIONS}
        peer = Peer(tables, table, max_depth=limits.max_depth, answers_malformed=answers_malformed)
        info = Implementation(name="c", version="1")
        peer.agree(BY_ID[self.revision], info, ClientCapabilities())
        peer.receive(INITIALIZED)
        return Connection(peer, limits)

    async def work(self, id: Any) -> Any:
        gate = self.gates[id] = self.loop.create_future()
        return {"id": await gate}

    async def fail(self) -> Any:
        await asyncio.sleep(0)
        raise McpError(-7, "as it should")

    def split(self, data: bytes) -> list[bytes]:
        cuts = sorted(self.random.randrange(len(data) + 1) for _ in range(self.random.randrange(5)))
        edges = [0, *cuts, len(data)]
        return [data[a:b] for a, b in pairwise(edges)]

    def watch(self, connection: Connection, sender: Any) -> None:
        """Every frame that one side writes goes past the recorder."""
        pipe: Any = connection._writer
        write = pipe.write

        def watched(data: bytes | bytearray) -> None:
            for frame in bytes(data).split(b"\n")[:-1]:
                # What the client writes by hand here is not to be judged.
                messages = self.recorder.sent(sender, frame, check=sender == "server")
                if sender == "server":
                    self.written += messages
            write(data)

        pipe.write = watched

    @rule(method=st.sampled_from(["work", "work", "now", "fail", "ping", "no/such"]))
    def client_asks(self, method: str) -> None:
        async def ask() -> None:
            task = self.loop.create_task(self.client.request(method))
            await asyncio.sleep(0)
            self.asked[self.client.peer._last_id] = task

        before = set(self.client.peer.pending)
        self.do(ask())
        assert self.client.peer._last_id not in before  # no id is used twice

    @rule()
    def server_asks(self) -> None:
        self.do(self.server.request("ping"))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def client_cancels(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.asked)))

        async def give_up() -> None:
            if not self.asked[id].done():
                self.given_up.add(id)
                self.asked[id].cancel()
            else:
                self.client.send(cancel(id))  # too late, which does no harm
            await asyncio.sleep(0)

        self.do(give_up())

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def client_uses_an_id_again(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.asked)))
        if not self.asked[id].done() and id in self.model.open:
            self.client.send(request(id, "now"))
            self.do(self.turns(3))

    @rule(garbage=st.sampled_from(GARBAGE))
    def client_sends_garbage(self, garbage: bytes) -> None:
        self.client.send(garbage)

    @rule(method=st.sampled_from(["notifications/initialized", "notifications/x", "work"]))
    def client_notifies(self, method: str) -> None:
        self.client.notify(method)

    @rule(data=st.data())
    def work_ends(self, data: st.DataObject) -> None:
        waiting = sorted(id for id, gate in self.gates.items() if not gate.done())
        if waiting:
            id = data.draw(st.sampled_from(waiting))
            self.gates[id].set_result(id)

    @rule(paused=st.booleans())
    def server_writes_or_not(self, paused: bool) -> None:
        async def switch() -> None:
            (self.server.pause_writing if paused else self.server.resume_writing)()

        self.do(switch())

    @rule(count=st.integers(1, 6))
    def time_passes(self, count: int) -> None:
        self.do(self.turns(count))

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    def teardown(self) -> None:
        if not hasattr(self, "client"):
            return
        try:
            self.do(self.settle())
            self.check()
        finally:
            self.do(self.client.close())
            self.do(self.server.close())
            self.loop.close()

    async def settle(self) -> None:
        self.server.resume_writing()
        answers = set(self.asked.values())
        while not all(task.done() for task in answers) or self.server.busy or self.model.open:
            for id, gate in self.gates.items():
                if not gate.done():
                    gate.set_result(id)
            await asyncio.sleep(0)
        await self.turns(5)

    def check(self) -> None:
        assert not self.lost, self.lost
        self.recorder.check()
        for id, task in self.asked.items():
            if task.cancelled():
                assert id in self.given_up
            elif task.exception() is not None:
                assert isinstance(task.exception(), McpError)
        # Exactly one answer on the wire for each the model wants, and none besides.
        answered = [
            message["id"]
            for message in self.written
            if "method" not in message and type(message.get("id")) is int
        ]
        wanted = self.model.answers + self.model.refused
        assert sorted(answered) == sorted(wanted)
        assert not self.model.open
        assert not self.server.peer.in_flight
        assert not self.server.peer.pending


@pytest.mark.verifies("INV-001", "INV-002", "F-split-input", "F-memory-pair", "F-cancel", "X3")
@pytest.mark.verifies("X4", "X16", "X19", "E-duplicate-id", "F-limit-in-flight", "S29")
class TestPeers(Peers.TestCase):
    settings = settings(max_examples=100, stateful_step_count=40, **COMMON)


# -- a server with one of everything -------------------------------------------------


def everything(**policy: Any) -> Server:
    limits = Limits(max_frame=8192, max_depth=32, max_in_flight=4, max_queued=16)
    server = Server("everything", version="1", limits=limits, page_size=2, **policy)

    @server.tool
    async def add(a: int, b: int = 2) -> int:
        return a + b

    @server.tool
    async def later(texts: list[str], ctx: Context) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"texts": texts, "id": ctx.request_id, "meta": ctx.meta}

    @server.tool
    async def fail(text: str) -> None:
        raise ToolError(text)

    @server.tool(inline=True)
    def half(x: float) -> float:
        return x / 2

    @server.resource("mem://one")
    async def one() -> str:
        return "1"

    @server.resource("mem://item/{name}")
    async def item(name: str) -> bytes:
        return name.encode()

    @server.prompt
    async def review(code: str, style: str = "strict") -> str:
        return f"{style}: {code}"

    return server


SERVER = everything()

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    ("tools/list", {"cursor": "bGF0ZXI="}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2.0}}),
    ("tools/call", {"name": "later", "arguments": {"texts": ["\u00e9", "\U0001f600", "\n"]}}),
    ("tools/call", {"name": "fail", "arguments": {"text": "sorry"}}),
    ("tools/call", {"name": "half", "arguments": {"x": 1e-3}, "_meta": {"progressToken": 5}}),
    ("tools/call", {"name": "nobody"}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "mem://one"}),
    ("resources/read", {"uri": "mem://item/x%20y"}),
    ("resources/read", {"uri": "mem://two"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "review", "arguments": {"code": "x"}}),
    ("no/such", {"a": [1, {"b": None}]}),
]


def transcript(revision: str) -> list[bytes]:
    """The client's side of a real conversation."""
    frames = [INITIALIZED] if revision == MODERN else [initialize_frame(revision), INITIALIZED]
    for id, (method, params) in enumerate(CALLS):
        given = {**params, "_meta": {**meta(), **params.get("_meta", {})}}
        modern_call = request(id, method, given)
        frames.append(modern_call if revision == MODERN else request(id, method, params or None))
    frames += [cancel(3), cancel("x"), notification("notifications/roots/list_changed")]
    if revision == "2025-03-26":
        frames.append(b"[" + b",".join(request(f"b{id}", *CALLS[id]) for id in (0, 2, 3)) + b"]")
    return frames


class Talk(Line):
    """A line that takes bytes as they come, and still shows the recorder what was said."""

    def __init__(self, revision: str | None) -> None:
        super().__init__(SERVER.connection())
        self.revision = revision

    def stream(self, chunks: list[bytes]) -> None:
        for frame in b"".join(chunks).split(b"\n"):
            try:
                self.recorder.sent("client", frame, check=False)
            except (RecursionError, TypeError):
                continue  # too deep, or an id that is an object: nothing it could follow
        for chunk in chunks:
            self.connection.feed(chunk)

    async def check(self) -> list[Any]:
        """All that came out is legal, and the connection still answers."""
        out = await self.settle()
        assert not self.connection.peer.in_flight
        if self.revision == MODERN:
            (answer,) = await self.say(modern("alive", "server/discover"))
            assert (answer["id"], answer["result"]["supportedVersions"]) == ("alive", [MODERN])
        else:
            assert await self.say(PING) == [PONG]
        await self.connection.close()
        self.recorder.check()
        return out


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


places = st.lists(st.integers(0, 2**16), max_size=8)


# -- (b) random bytes ----------------------------------------------------------------

# Bytes that look like something more often than bytes do.
pieces = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [b"\n", b"\r\n", b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\xff", b"0"]
    ),
    st.sampled_from(
        [b'{"jsonrpc":"2.0",', b'"id":1,', b'"method":"tools/list"', b'"params":{', b"}}"]
    ),
    st.sampled_from(
        [b'"result":', b'"error":', b"null", b"NaN", b"-1e999", b'"\\ud800"', b"[" * 40]
    ),
)


@pytest.mark.verifies("INV-002", "INV-005", "F-split-input")
@settings(max_examples=300, **COMMON)
@given(
    parts=st.lists(pieces, max_size=30),
    places=places,
    revision=st.sampled_from([None, *HANDSHAKE]),
)
def test_random_bytes(parts: list[bytes], places: list[int], revision: str | None) -> None:
    async def main() -> None:
        talk = Talk(revision)
        if revision is not None:
            await talk.open(revision)
        talk.stream(cut(b"".join(parts) + b"\n", places))
        for message in await talk.check():
            assert "error" in message or "result" in message or isinstance(message, list)

    with no_crash():
        run(main(), collect=False)


# -- (c) mutations of real conversations ---------------------------------------------

mutations = st.lists(
    st.tuples(
        st.sampled_from(["flip", "delete", "duplicate", "splice", "truncate", "swap", "insert"]),
        st.integers(0, 2**16),
        st.integers(0, 2**16),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=6,
)


def mutate(data: bytes, kind: str, a: int, b: int, byte: int) -> bytes:
    a, b = sorted((a % (len(data) + 1), b % (len(data) + 1)))
    b = min(b, a + 1 + byte)
    part = data[a:b]
    if kind == "flip":
        return data[:a] + bytes([byte]) + data[a + 1 :]
    if kind == "delete":
        return data[:a] + data[b:]
    if kind == "duplicate":
        return data[:b] + part + data[b:]
    if kind == "splice":
        place = (a * 7 + byte) % (len(data) + 1)
        return data[:place] + part + data[place:]
    if kind == "truncate":
        return data[: len(data) - byte]
    if kind == "swap":
        lines = data.split(b"\n")
        i, j = a % len(lines), b % len(lines)
        lines[i], lines[j] = lines[j], lines[i]
        return b"\n".join(lines)
    return data[:a] + b'{}[],:"\\0'[byte % 9 :][:1] + data[a:]


@pytest.mark.verifies("INV-001", "INV-002", "INV-005", "X1", "F-split-input", "R000-13")
@pytest.mark.parametrize("revision", ALL)
@settings(max_examples=100, **COMMON)
@given(changes=mutations, places=places, paused=st.booleans())
def test_mutated_conversations(
    revision: str, changes: list[Any], places: list[int], paused: bool
) -> None:
    data = b"\n".join(transcript(revision)) + b"\n"
    for change in changes:
        data = mutate(data, *change)

    async def main() -> None:
        talk = Talk(revision)
        if revision == MODERN:  # so that both sides know the revision, whatever happens to it
            await talk.say(modern("first", "server/discover"))
        if paused:
            talk.connection.pause_writing()
        talk.stream([*cut(data, places), b"\n"])
        await talk.turns(2)
        talk.connection.resume_writing()
        await talk.check()

    with no_crash():
        run(main(), collect=False)


@pytest.mark.verifies("INV-001", "INV-005", "F-split-input", "R000-4")
@pytest.mark.parametrize("revision", ALL)
@settings(max_examples=20, **COMMON)
@given(places=places)
def test_how_a_conversation_is_cut_makes_no_difference(revision: str, places: list[int]) -> None:
    frames = [frame for frame in transcript(revision) if b"cancelled" not in frame]
    data = b"\n".join(frames) + b"\n"

    async def said(chunks: list[bytes]) -> list[Any]:
        talk = Talk(revision)
        talk.stream(chunks)
        return sorted(map(str, await talk.check()))

    async def main() -> None:
        whole = await said([data])
        assert len(whole) == len([frame for frame in frames if b'"id"' in frame])
        assert await said(cut(data, places)) == whole

    with no_crash():
        run(main(), collect=False)


@pytest.mark.verifies("INV-001", "X5")
@settings(max_examples=40, **COMMON)
@given(
    ids=st.lists(
        st.one_of(st.integers(), st.text(max_size=20)),
        unique_by=lambda id: (type(id), id),
        max_size=20,
    ),
    revision=st.sampled_from(ALL),
)
def test_every_id_comes_back_as_it_was(ids: list[Any], revision: str) -> None:
    async def main() -> None:
        talk = line(SERVER)
        await talk.open(revision)
        arguments = {"name": "later", "arguments": {"texts": []}}
        talk.feed(*[asked(revision, id, "tools/call", arguments) for id in ids])
        await until(lambda: not talk.connection.busy)
        answers = [answer["id"] for answer in talk.take()]
        assert sorted(map(repr, answers)) == sorted(map(repr, ids))
        await talk.connection.close()

    with no_crash():
        run(main(), collect=False)
