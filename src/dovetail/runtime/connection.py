"""The asyncio driver: one connection, its tasks and its unsent bytes.

A connection feeds frames to a ``Peer`` and does what the events say. It owns
every task it starts, and ends in order: stop reading, cancel the handlers,
flush for a bounded time, close.

Answers are appended to one buffer that is written once per turn of the event
loop, so a thousand pipelined calls cost one system call. While the other side
does not read, no new request starts, but pings and cancellations are still
served; only when even those pile up does reading stop.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw

from dovetail.core.peer import Batch, Cancelled, Event, Notification, Peer, Reply, Request, Response
from dovetail.errors import INTERNAL_ERROR, ConnectionClosed, McpError
from dovetail.runtime.limits import Limits
from dovetail.runtime.link import Asking, Handler, Home, Tap, error_answer
from dovetail.wire.framing import Frame, LineFramer
from dovetail.wire.jsonrpc import ResultFrame, encode, encode_into

__all__ = ["Connection", "Handler", "Judge", "Reader", "Tap", "Writer", "compact"]

log = logging.getLogger("dovetail")

# Says why a request may not be made, for links that know who makes it.
Judge = Callable[[Request], McpError | None]


def _start_task(
    coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop
) -> asyncio.Task[None]:
    """From 3.12 on a task runs at once, and one that never waits is done when this returns."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return asyncio.Task(coroutine, loop=loop)


class Writer(Protocol):
    """What a connection needs of its outgoing transport."""

    def write(self, data: bytes | bytearray) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def close(self) -> None: ...


class Reader(Protocol):
    """What a connection needs of its incoming transport."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


class _Answers:
    """The answers of one batch, sent as one array when the last has come."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.open = 1  # one for the loop that starts the requests


class Connection:
    """Serves one peer. ``feed`` takes bytes, ``receive`` takes whole frames."""

    def __init__(
        self,
        peer: Peer,
        limits: Limits,
        *,
        on_notification: Callable[[Notification, "Connection"], None] | None = None,
        tap: Tap | None = None,
        judge: Judge | None = None,
    ) -> None:
        self.peer = peer
        self.limits = limits
        self._home = Home(limits)
        self._loop = self._home.loop
        self._asking = Asking(peer)
        self._framer = LineFramer(limits.max_frame)
        self._on_notification = on_notification
        self._tap = tap
        self._judge = judge
        self._reader: Reader | None = None
        self._writer: Writer | None = None
        self._out = bytearray()
        self._tasks: set[asyncio.Task[None]] = set()
        self._queue: deque[Request] = deque()
        self._queued_bytes = 0
        self._starting = False
        self._feeding = False
        self._paused = False
        self._input_ended = False
        self._draining: asyncio.TimerHandle | None = None
        self._end_callbacks: list[Callable[[], None]] = []
        self.session: Any = None  # what the server keeps about this connection
        # Done when there is nothing left to serve, or nobody to serve it to.
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._others: dict[type, Callable[[Any], None]] = {
            Reply: self._reply,
            Cancelled: self._cancel,
            Notification: self._notification,
            Response: self._asking.answered,
            Batch: self._batch,
        }

    # -- the transport's side ------------------------------------------------------

    def attach(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer

    def feed(self, chunk: bytes) -> None:
        self._feeding = True
        try:
            for frame in self._framer.feed(chunk):
                self.receive(frame)
        finally:
            self._feeding = False
            if self._out:
                self._flush()

    def receive(self, frame: Frame) -> None:
        if self._tap is not None:
            self._tap("in", frame if isinstance(frame, bytes) else frame.prefix)
        event = self.peer.receive(frame)
        if type(event) is Request:
            self._admit(event)
        elif event is not None:
            self._others[type(event)](event)

    def end_of_input(self) -> None:
        """Nothing more will come: answer what is running, then end."""
        if self._input_ended:
            return
        for frame in self._framer.finish():
            self.receive(frame)
        self._input_ended = True
        self._asking.fail()
        self._run_end_callbacks()
        if self._tasks or self._queue:
            self._draining = self._loop.call_later(self.limits.drain_seconds, self._end)
        else:
            self._end()

    def lost(self, error: Exception | None = None) -> None:
        """Nobody reads our answers any more."""
        self._writer = None
        self._out.clear()
        self._asking.fail()
        self._run_end_callbacks()
        self._end()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._reader is not None and not self._input_ended:
            self._reader.resume_reading()
        self._start_waiting()

    @property
    def busy(self) -> bool:
        """Whether requests are running or waiting, or answers are still unsent."""
        return bool(self._tasks or self._queue or self._out)

    # -- serving -------------------------------------------------------------------

    def _admit(self, request: Request) -> None:
        if self._judge is not None and (refusal := self._judge(request)) is not None:
            self._fail(request, refusal)
            return
        full = self._paused or self._queue or len(self._tasks) >= self.limits.max_in_flight
        if full and not request.handler.inline:
            self._wait(request)
        else:
            self._start(request)

    def _start(self, request: Request) -> None:
        try:
            outcome = request.handler.call(request, self)
        except BaseException as error:  # whatever it is: the frames behind it must be served
            self._fail(request, error)
            return
        if type(outcome) is CoroutineType:
            task = _start_task(self._serve(request, outcome), self._loop)
            if not task.done():
                self._tasks.add(task)
                request.task = task
        else:
            self._answer(request, outcome)

    async def _serve(self, request: Request, handling: Coroutine[Any, Any, Any]) -> None:
        try:
            result = await handling
        except asyncio.CancelledError:
            request.cancelled = True
            # Ours, and the peer has forgotten the request; or the handler's own.
            self._fail(request, McpError(INTERNAL_ERROR, data="The request was interrupted"))
            raise
        except BaseException as error:  # a tool that calls exit() ends only itself
            if isinstance(error, GeneratorExit) and self._loop.is_closed():
                raise  # nobody raised it: a closed loop drops what it was running
            self._fail(request, error)
        else:
            self._answer(request, result)
        finally:
            self._tasks.discard(request.task)
            if not self._tasks and self._out and not self._feeding:
                self._flush()  # before others start: they may take long
            if self._queue or self._input_ended:
                self._start_waiting()

    def _wait(self, request: Request) -> None:
        size, limits = request.size, self.limits
        if (
            len(self._queue) >= limits.max_queued
            or self._queued_bytes + size > limits.max_queued_bytes
        ):
            text = f"Too many requests: {len(self._tasks)} running, {len(self._queue)} waiting"
            self._fail(request, McpError(INTERNAL_ERROR, data=text))
            return
        self._queue.append(request)
        self._queued_bytes += size

    def _start_waiting(self) -> None:
        if self._starting:  # from a task that was done as soon as the loop below started it
            return
        self._starting = True
        while self._queue and len(self._tasks) < self.limits.max_in_flight and not self._paused:
            request = self._queue.popleft()
            self._queued_bytes -= request.size
            self._start(request)
        self._starting = False
        if self._input_ended and not self._tasks and not self._queue:
            self._end()

    # -- answering -----------------------------------------------------------------

    def _answer(self, request: Request, result: Any) -> None:
        if not self.peer.settle(request):
            return
        if request.progress is not None:
            request.progress.finish()
        frame = ResultFrame(request.id, result)
        if request.batch is not None or self._tap is not None:
            self._send_apart(request, frame)
            return
        out = self._out
        before = len(out)
        try:
            encode_into(frame, out, before)
            if out.find(b"\n", before) != -1:  # raw JSON of the author's, written for people
                out[before:] = compact(out[before:])
        except Exception as error:
            del out[before:]
            self.send(self._error(request, error))
            return
        out += b"\n"
        # The end of `feed`, or of the only task, will flush; else the next turn does.
        if not before and not self._feeding and (request.task is None or len(self._tasks) > 1):
            self._loop.call_soon(self._flush)

    def _send_apart(self, request: Request, frame: ResultFrame) -> None:
        try:
            data = encode(frame)
            data = compact(data) if b"\n" in data else data
        except Exception as error:
            data = self._error(request, error)
        self._send_answer(request, data)

    def _fail(self, request: Request, error: BaseException) -> None:
        if self.peer.settle(request):
            if request.progress is not None:
                request.progress.finish()
            self._send_answer(request, self._error(request, error))

    def _error(self, request: Request, error: BaseException) -> bytes:
        return error_answer(self.peer, request, error)[0]

    def _send_answer(self, request: Request, frame: bytes) -> None:
        answers = request.batch
        if answers is None:
            self.send(frame)
        else:
            answers.parts.append(frame)
            self._close_answer(answers)

    def _close_answer(self, answers: _Answers) -> None:
        answers.open -= 1
        if answers.open == 0 and answers.parts:
            self.send(b"[" + b",".join(answers.parts) + b"]")

    def send(self, frame: bytes) -> None:
        """Queue one frame; it leaves with the others of this turn of the loop."""
        if self._tap is not None:
            self._tap("out", frame)
        if not self._out and not self._feeding:
            self._loop.call_soon(self._flush)
        self._out += frame
        self._out += b"\n"

    def _flush(self) -> None:
        if self._writer is None or not self._out:
            self._out.clear()
            return
        data, self._out = self._out, bytearray()
        try:
            self._writer.write(data)
        except OSError as error:  # a file that takes no more
            self.lost(error)
            return
        unsent = self._writer.get_write_buffer_size() if self._paused else 0
        if unsent > self.limits.max_buffered_output and self._reader is not None:
            self._reader.pause_reading()

    # -- events other than requests --------------------------------------------------

    def _reply(self, event: Reply) -> None:
        self.send(event.frame)

    def _cancel(self, event: Cancelled) -> None:
        request = event.request
        log.debug("%s %r cancelled: %s", request.method, request.id, event.reason)
        request.cancelled = True
        if request.progress is not None:
            request.progress.drop()
        if request.batch is not None:
            self._close_answer(request.batch)
        if request.task is not None:
            # In the next turn, when it has begun for sure: a task cancelled before its first
            # step never runs, so neither the handler nor our own clean-up would.
            self._loop.call_soon(request.task.cancel, event.reason)
        elif request in self._queue:  # it waits no more, and leaves its place to others
            self._queue.remove(request)
            self._queued_bytes -= request.size

    def _notification(self, event: Notification) -> None:
        if self._on_notification is None:
            return
        try:
            self._on_notification(event, self)
        except Exception:
            log.exception("%s failed", event.method)

    def _batch(self, event: Batch) -> None:
        answers = _Answers()
        for item in event.events:
            if isinstance(item, Request):
                item.batch = answers
                answers.open += 1
        for item in event.events:
            self._batch_item(item, answers)
        self._close_answer(answers)

    def _batch_item(self, item: Event, answers: _Answers) -> None:
        if isinstance(item, Request):
            if self.peer.in_flight.get(item.id) is item:
                self._admit(item)
        elif isinstance(item, Reply):
            answers.parts.append(item.frame)
        else:
            self._others[type(item)](item)

    # -- asking the other side ---------------------------------------------------------

    async def request(self, method: str, params: Any = UNSET) -> Raw:
        """Send a request and wait for its answer. McpError if it is an error."""
        if self.ended.done() or self._input_ended:
            raise ConnectionClosed("the connection has ended")
        return await self._asking.ask(method, params, self._tell)

    def _tell(self, frame: bytes) -> None:
        if self._writer is not None:
            self.send(frame)

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Send a notification, if there is still somebody to read it."""
        if self._writer is None:
            return
        frame = self.peer.notify(method, params)
        if self._paused and self._unsent() > self.limits.max_buffered_output:
            log.debug("%s dropped: the client does not read", method)
            return
        self.send(frame)

    def _unsent(self) -> int:
        buffered = 0 if self._writer is None else self._writer.get_write_buffer_size()
        return buffered + len(self._out)

    def hang_up(self, retry_ms: int | None = None) -> None:
        """There is nothing to come back to but this connection."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        """Run something that answers no request; it ends with the connection."""
        self._home.spawn(coroutine, what)

    @property
    def here(self) -> bool:
        """Whether the caller is on our event loop."""
        return self._home.here

    def on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call ``function`` on the event loop: now, or soon when we are in another thread."""
        self._home.on_loop(function, *arguments)

    def serves(self, request: Request) -> bool:
        """Whether the request still waits for its answer."""
        return self.peer.in_flight.get(request.id) is request

    # -- the end -----------------------------------------------------------------------

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when nothing more will come from the other side."""
        self._end_callbacks.append(callback)

    def _run_end_callbacks(self) -> None:
        callbacks, self._end_callbacks = self._end_callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.exception("a callback at the end of a connection failed")

    def stop(self) -> None:
        """End now, whatever is still running; ``close`` then does it in order."""
        self._end()

    def _end(self) -> None:
        if self._draining is not None:
            self._draining.cancel()  # it would hold on to us until then
        if not self.ended.done():
            self.ended.set_result(None)

    async def close(self) -> None:
        """Stop reading, cancel what runs, send what is written, close. Bounded in time."""
        self._input_ended = True
        if self._reader is not None:
            self._reader.close()
        self._run_end_callbacks()
        self._refuse_queued()
        await self._cancel_running()
        self._asking.fail()
        self.peer.close()
        self._flush()
        await self._drain()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._end()

    def _refuse_queued(self) -> None:
        while self._queue:
            error = McpError(INTERNAL_ERROR, data="The server is shutting down")
            self._fail(self._queue.popleft(), error)

    async def _cancel_running(self) -> None:
        if self._tasks:
            await asyncio.sleep(0)  # all of them have begun, as in `_cancel`
        running = self._tasks | self._home.background
        for task in running:
            task.cancel("shutdown")
        if running:
            await asyncio.wait(running, timeout=self.limits.stop_seconds)
        for request in list(self.peer.in_flight.values()):  # handlers that would not stop
            self._fail(request, McpError(INTERNAL_ERROR, data="The server is shutting down"))

    async def _drain(self) -> None:
        """Wait for the transport to take the last bytes, as long as it takes them."""
        unsent, deadline = -1, 0.0
        while self._writer is not None and (left := self._writer.get_write_buffer_size()):
            now = self._loop.time()
            if left != unsent:
                unsent, deadline = left, now + self.limits.stop_seconds
            elif now > deadline:
                return
            await asyncio.sleep(0.005)


def compact(frame: bytes | bytearray) -> bytes:
    """The same message without white space: a newline would end the frame (digest X15)."""
    return encode(msgspec.json.decode(frame))
