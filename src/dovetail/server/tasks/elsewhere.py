"""Tasks that another node runs: their answers go there, and their news come here.

Whatever is kept is in the shared store. What a running task needs beyond it, the answers to its
questions, is brought to the node that runs it; that it was cancelled, that node hears on the bus
and reads in the record.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from dovetail.backplane.base import BackplaneAway
from dovetail.backplane.calls import Conversation
from dovetail.errors import McpError, RemoteProtocolError, Unavailable
from dovetail.runtime.link import Link
from dovetail.server.tasks.job import Job
from dovetail.server.tasks.record import TaskRecord
from dovetail.server.tasks.store import SharedStore
from dovetail.server.tasks.wire import related

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.server.nodes import Nodes

__all__ = ["Elsewhere"]

_KIND = "answers to a task"

# The task, the answers by key, and the keys that the client refused to answer, with its words.
_Answers = tuple[str, dict[str, bytes], dict[str, str]]
# Nothing, or the code and text of what is wrong with the answers.
_Outcome = tuple[int, str] | None
_encode = msgspec.msgpack.Encoder().encode
_decode_answers = msgspec.msgpack.Decoder(_Answers).decode
_decode_outcome = msgspec.msgpack.Decoder(_Outcome).decode


class Elsewhere:
    """The tasks of the other nodes, as one node deals with them."""

    def __init__(
        self, nodes: "Nodes", store: SharedStore, find: Callable[[str], Job | None]
    ) -> None:
        self._nodes = nodes
        self._store = store
        self._find = find
        self._waiting: dict[str, list[asyncio.Event]] = {}
        nodes.calls.serve(_KIND, self._answered)

    def heard(self, task_id: str) -> None:
        """Something has become of a task."""
        for event in self._waiting.get(task_id, ()):
            event.set()

    async def answer(self, task_id: str, answers: Mapping[str, Raw]) -> None:
        """Bring the client's answers to the node that runs the task; McpError if they are bad."""
        await self._bring(task_id, {key: bytes(raw) for key, raw in answers.items()}, {})

    async def _bring(self, task_id: str, given: dict[str, bytes], refused: dict[str, str]) -> None:
        owner = await self._store.owner(task_id)
        if owner is None:
            return  # it has ended, and needs no answers (digest 12.1)
        message = _encode((task_id, given, refused))
        try:
            outcome = _decode_outcome(await self._nodes.calls.ask(owner, _KIND, message))
        except BackplaneAway as error:
            text = "The node that runs the task cannot be reached"
            raise Unavailable(text, error.retry_after) from error
        if outcome is not None:
            raise McpError(outcome[0], data=outcome[1])

    async def _answered(self, conversation: Conversation, data: bytes) -> None:
        """Another node brings answers to a task of ours."""
        task_id, given, refused = _decode_answers(data)
        job = self._find(task_id)
        outcome: _Outcome = None
        if job is not None:
            try:
                await job.answer({key: Raw(raw) for key, raw in given.items()})
            except McpError as error:
                outcome = error.code, str(error.data)
            for key, text in refused.items():
                await job.refuse(key, text)
        await conversation.send(_encode(outcome), last=True)

    async def wait(self, record: TaskRecord, link: Link, asked: set[str], seconds: float) -> None:
        """Until there are news of a task; if it has questions, ask them here (digest 7.3)."""
        with self._waits(record.task_id) as news:
            for key, question in record.input_requests.items():
                if key not in asked:
                    asked.add(key)
                    await self._ask(record.task_id, key, question, link)
            try:
                async with asyncio.timeout(seconds):  # news can be lost
                    await news.wait()
            except TimeoutError:
                pass

    @contextmanager
    def _waits(self, task_id: str) -> "Iterator[asyncio.Event]":
        event = asyncio.Event()
        self._waiting.setdefault(task_id, []).append(event)
        try:
            yield event
        finally:
            self._waiting[task_id].remove(event)
            if not self._waiting[task_id]:
                del self._waiting[task_id]

    async def _ask(self, task_id: str, key: str, question: bytes, link: Link) -> None:
        wire: dict[str, Any] = msgspec.json.decode(question)
        params = {**wire.get("params", {}), "_meta": related(task_id)}
        try:
            raw = await link.request(wire["method"], params)
        except (McpError, RemoteProtocolError) as error:
            await self._bring(task_id, {}, {key: str(error)})
        else:
            try:
                await self._bring(task_id, {key: bytes(raw)}, {})
            except Unavailable:
                raise
            except McpError as error:
                await self._bring(task_id, {}, {key: str(error)})
