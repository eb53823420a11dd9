"""The link to Redis or Valkey: two connections, one batch at a time, and its recovery.

redis-py gives the connections (addresses, TLS, authentication, hiredis); its pipeline and its
pub/sub classes are left out, because their bookkeeping costs more than the round trip.

Commands of one turn of the event loop leave as one write, and those that come while it is
answered make the next: under load the cost of a command falls to a fifth.

A link lives as long as both of its connections. Whatever fails in it (a reset, an answer that
does not come, a heartbeat that does not arrive on the other connection) ends the link as a
whole: everything that waits is `BackplaneAway` at once, and a new link is tried until there is
one. Then it is brought up to date (``resync``) before anybody may use it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import redis.exceptions
from redis.asyncio.connection import AbstractConnection, ConnectionPool

from dovetail.backplane.base import BackplaneAway, Receiver

__all__ = ["Command", "Engine"]

log = logging.getLogger("dovetail")

Command = tuple[Any, ...]

# Seconds for an answer of the engine. It takes a fraction of a millisecond; whoever needs
# longer than this is stopped, swapping or cut off.
ANSWER_SECONDS = 2.0
# Seconds between two tries for a new link: at first, and at most.
RETRY_SECONDS = 0.05, 1.0
# Commands waiting at once. They leave within a round trip, so this many wait only if the
# engine is slower than its users: then the rest is refused instead of piling up.
MAX_WAITING = 10_000

_FAILURES = (redis.exceptions.RedisError, OSError, TimeoutError, EOFError)


class _Job:
    """One command and what to do with its answer."""

    __slots__ = ("command", "done")

    def __init__(self, command: Command, done: Callable[[Any], None]) -> None:
        self.command = command
        self.done = done


class Engine:
    """One node's link, kept up from `open` to `close`."""

    def __init__(self, url: str, *, beat_seconds: float) -> None:
        # Our own timeout covers a whole batch; a read that is cut off by redis-py's would
        # leave the answers of the others unread.
        options: dict[str, Any] = {"socket_timeout": None, "protocol": 2, "driver_info": None}
        self._pool = ConnectionPool.from_url(url, socket_connect_timeout=ANSWER_SECONDS, **options)
        self._beat_seconds = beat_seconds
        self._waiting: list[_Job] = []
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._channels: dict[bytes, Receiver] = {}
        self._echo = asyncio.Event()
        self._echo_channel = b""
        self._links = 0
        self.up = False
        self.up_since = 0.0
        self.commands = 0  # sent so far
        self.resync: Callable[[], Awaitable[None]] = _nothing
        self.beat: Callable[[], Awaitable[None]] = _nothing
        self.losses: list[Callable[[], None]] = []  # called when a link ends
        self.gaps: list[Callable[[], None]] = []  # called when the next one is up

    # -- using it ----------------------------------------------------------------------

    async def call(self, *command: Any) -> Any:
        """The answer to one command."""
        (answer,) = await self.calls([command])
        return answer

    async def calls(self, commands: list[Command]) -> list[Any]:
        """The answers to several, sent together."""
        if not commands:
            return []
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        answers: list[Any] = []

        def answered(answer: Any) -> None:
            answers.append(answer)
            if len(answers) == len(commands) and not future.done():
                future.set_result(answers)

        for command in commands:
            self.post(command, answered)
        return [_checked(answer) for answer in await future]

    def post(self, command: Command, done: Callable[[Any], None] | None = None) -> None:
        """Send a command; ``done`` gets the answer, or the exception in its place."""
        if not self.up or len(self._waiting) >= MAX_WAITING:
            (done or _ignore)(self._away())
            return
        self._enqueue(command, done or _ignore)

    def _enqueue(self, command: Command, done: Callable[[Any], None]) -> None:
        self._waiting.append(_Job(command, done))
        self._wake.set()

    async def direct(self, commands: list[Command]) -> list[Any]:
        """The same as `calls` for `resync`, before the link is up for others."""
        return [_checked(answer) for answer in await self._batch(commands)] if commands else []

    def subscribe(self, channel: str, receive: Receiver) -> None:
        """Call ``receive`` with what is published there. Before `open` only."""
        self._channels[channel.encode()] = receive

    def _away(self) -> BackplaneAway:
        return BackplaneAway("The backplane cannot be reached")

    # -- its life ----------------------------------------------------------------------

    async def open(self, echo_channel: str) -> None:
        """Try once; what is wrong with our settings raises, an engine that is away does not."""
        self._echo_channel = echo_channel.encode()
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run(first), name="backplane")
        try:
            await first
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None
        self._fail_waiting()

    async def _run(self, first: asyncio.Future[None]) -> None:
        """One link after the other, for ever."""
        pause = RETRY_SECONDS[0]
        while True:
            links = self._links
            failure = await self._until_failure(first)
            if not first.done():
                if isinstance(failure, redis.exceptions.AuthenticationError):
                    first.set_exception(ValueError(f"The backplane refuses us: {failure}"))
                    return
                first.set_result(None)
                log.error("the backplane is away: %r", failure)
            elif self._links > links:  # a link has ended; vain tries are not worth a word
                log.error("the backplane is away: %r", failure)
            pause = RETRY_SECONDS[0] if self._links > links else min(pause * 2, RETRY_SECONDS[1])
            await asyncio.sleep(pause)

    async def _until_failure(self, first: asyncio.Future[None]) -> BaseException:
        failure: BaseException = EOFError()
        try:
            await self._link(first)
        except* _FAILURES as group:
            failure = _leaf(group)
        return failure

    async def _link(self, first: asyncio.Future[None]) -> None:
        """From connecting to the first failure of either connection."""
        self._commander = self._connection()
        listener = self._connection()
        try:
            async with asyncio.timeout(ANSWER_SECONDS * 2):
                await self._commander.connect()  # type: ignore[no-untyped-call]
                await listener.connect()  # type: ignore[no-untyped-call]
                await self._subscribe(listener)
                await self.resync()
            self._is_up()
            if not first.done():
                first.set_result(None)
            await self._live(listener)
        finally:
            await _drop(self._commander)
            await _drop(listener)

    async def _live(self, listener: AbstractConnection) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write())
                group.create_task(self._listen(listener))
                group.create_task(self._beats())
        finally:
            self.up = False
            self._fail_waiting()
            for lost in self.losses:
                lost()

    def _connection(self) -> AbstractConnection:
        made: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        return made

    def _is_up(self) -> None:
        self.up = True
        self.up_since = asyncio.get_running_loop().time()
        self._links += 1
        if self._links > 1:
            log.warning("the backplane is back")
            for gap in self.gaps:
                gap()

    def _fail_waiting(self) -> None:
        jobs, self._waiting = self._waiting, []
        for job in jobs:
            job.done(self._away())

    # -- the connection for commands -----------------------------------------------------

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                jobs, self._waiting = self._waiting, []
                await self._serve(jobs)

    async def _serve(self, jobs: list[_Job]) -> None:
        try:
            answers = await self._batch([job.command for job in jobs])
        except BaseException:
            self.up = False  # before anybody is told, who might try again at once
            for job in jobs:
                job.done(self._away())
            raise
        for job, answer in zip(jobs, answers, strict=True):
            job.done(answer)

    async def _batch(self, commands: list[Command]) -> list[Any]:
        link = self._commander
        self.commands += len(commands)
        async with asyncio.timeout(ANSWER_SECONDS):
            await link.send_packed_command(link.pack_commands(commands), check_health=False)
            return [await _read(link) for _ in commands]

    # -- the connection that listens -----------------------------------------------------

    async def _subscribe(self, listener: AbstractConnection) -> None:
        channels = [*self._channels, self._echo_channel]
        await listener.send_command("SUBSCRIBE", *channels, check_health=False)
        for _ in channels:
            await listener.read_response()

    async def _listen(self, listener: AbstractConnection) -> None:
        while True:
            kind, channel, data = await listener.read_response()
            if kind == b"message":
                self._received(channel, data)

    def _received(self, channel: bytes, data: bytes) -> None:
        if channel == self._echo_channel:
            self._echo.set()
            return
        try:
            self._channels[channel](data)
        except Exception:
            log.exception("a message of the backplane could not be handled")

    async def _beats(self) -> None:
        """See that both connections live, and let the node renew what it holds."""
        while True:
            await asyncio.sleep(self._beat_seconds)
            self._echo.clear()
            self.post(("PUBLISH", self._echo_channel, b""))
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._echo.wait()
            with suppress(BackplaneAway):
                await self.beat()


async def _read(link: AbstractConnection) -> Any:
    """One answer; an error of one command is its answer."""
    try:
        return await link.read_response()
    except redis.exceptions.ConnectionError:  # some of the engine's errors are: loading, no access
        raise
    except redis.exceptions.ResponseError as error:
        return error


async def _drop(link: AbstractConnection) -> None:
    with suppress(*_FAILURES):
        await link.disconnect(nowait=True)


def _checked(answer: Any) -> Any:
    if isinstance(answer, BackplaneAway):
        raise answer
    if isinstance(answer, redis.exceptions.ResponseError):  # full, read-only, a wrong type
        log.error("the backplane refuses a command: %s", answer)
        raise BackplaneAway("The backplane refuses a command") from answer
    return answer


def _ignore(answer: Any) -> None:
    """Nobody wants to know."""


async def _nothing() -> None:
    """Nothing to do."""


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
