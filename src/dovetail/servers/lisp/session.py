"""A named Lisp session: calls in order, one at a time, and a new Lisp when the old one is lost."""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from dovetail import ToolError
from dovetail.servers.lisp.calls import Entry, NeverBegan, Outcome, Running, SessionLost, Suspended
from dovetail.servers.lisp.frames import Failure, Frame, Output
from dovetail.servers.lisp.image import Call, Image, Lost
from dovetail.servers.lisp.journal import Journal
from dovetail.servers.lisp.limits import LispLimits
from dovetail.servers.lisp.process import LispProcess
from dovetail.servers.lisp.sexp import Keyword

__all__ = ["Entry", "Outcome", "Session", "SessionLost", "Suspended"]

Starter = Callable[[], Awaitable[Image]]
_PEEK_SECONDS = 0.3
_WATCH_SECONDS = 0.2


class Session:
    """Everything a tool needs is ``await session.call(operation, arguments)``."""

    def __init__(self, name: str, starter: Starter, limits: LispLimits, spools: Path) -> None:
        self.name = name
        self.limits = limits
        self.read_only = False
        self.kind = "process"
        self.package = "COMMON-LISP-USER"
        self.image: Image | None = None
        self.journal = Journal(limits.max_journal)
        self.history: deque[Entry] = deque(maxlen=limits.max_history)
        self.outputs: dict[int, dict[str, Output]] = {}  # what was truncated, by call
        self.suspended: dict[str, Suspended] = {}
        self.busy = False
        self.closed = False
        self._starter = starter
        self._spools = spools
        self._turn = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._starts = itertools.count(1)  # of what is spooled: a new process counts from 1
        self._spool_prefix = ""
        self.last_number = 0
        self._losses: deque[float] = deque(maxlen=limits.max_losses)
        self._not_before = 0.0
        self._note = ""
        self._background: set[asyncio.Task[None]] = set()
        self._on_change: list[Callable[[Session, Frame], None]] = []

    # -- calling ---------------------------------------------------------------------------

    async def call(
        self,
        operation: str,
        arguments: dict[str, Any],
        *,
        seconds: float | UnsetType = UNSET,
        on_progress: Callable[[Frame], None] | None = None,
        on_output: Callable[[str, int], None] | None = None,
    ) -> Outcome:
        """Run an operation of the bridge when it is its turn.

        The answer may say that the operation failed, was interrupted by its timeout, or is
        suspended. SessionLost if the Lisp died of it; cancelling the call interrupts the Lisp.
        """
        try:
            return await self._call_once(operation, arguments, seconds, on_progress, on_output)
        except NeverBegan as loss:
            # It ended because of something else, before it looked at this call.
            self._note = str(loss)
            return await self._call_once(operation, arguments, seconds, on_progress, on_output)

    async def _call_once(
        self,
        operation: str,
        arguments: dict[str, Any],
        seconds: float | UnsetType,
        on_progress: Callable[[Frame], None] | None,
        on_output: Callable[[str, int], None] | None,
    ) -> Outcome:
        await self._turn.acquire()
        try:
            image = await self._living()
            number = self.last_number = next(self._numbers)
            call = image.start(operation, arguments, on_progress)
        except BaseException:
            self._turn.release()
            raise
        running = Running(number, image, call, arguments)
        if on_output is None:
            return await self._outcome(running, seconds)
        watching = asyncio.create_task(self._watch(running, on_output))
        try:
            return await self._outcome(running, seconds)
        finally:
            watching.cancel()

    async def _watch(self, running: Running, on_output: Callable[[str, int], None]) -> None:
        """Look now and then at what a call has printed."""
        seen = 0
        with suppress(Lost):
            while True:
                await asyncio.sleep(_WATCH_SECONDS)
                request = {"job": running.call.id, "from": seen}
                news = (await running.image.ask("peek", request)).read()
                if news is None:
                    return
                seen += len(news["stdout"])
                on_output(news["stdout"], news["total"])

    def configure(self) -> None:
        """Tell the Lisp the limits of the calls to come."""
        if self.image is not None and self.image.lost is None:
            limits = self.limits
            self._spool_prefix = f"{self.name}-{next(self._starts)}"
            self.image.start(
                "configure",
                {
                    "max_output": limits.max_output,
                    "max_value": limits.max_value,
                    "spool": str(self._spools / self._spool_prefix),
                    "spool_cap": limits.max_spool,
                    "read_only": self.read_only,
                },
            )

    async def _outcome(self, running: Running, seconds: float | UnsetType) -> Outcome:
        """Wait for the next answer, and give the turn to the next call."""
        limit = self.limits.timeout if seconds is UNSET else seconds
        timer = None
        if limit:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(limit, self._expire, running, limit)
        self.busy = True
        try:
            frame = await running.call.future
        except asyncio.CancelledError:
            running.call.again()
            self._spawn(self._give_up(running))
            raise
        except Lost as error:
            await self._recover_and_raise(running, str(error))
        finally:
            if timer is not None:
                timer.cancel()
        self._end_turn()
        return self._finished(running, frame)

    def _end_turn(self) -> None:
        self.busy = False
        self._turn.release()

    def _finished(self, running: Running, frame: Frame) -> Outcome:
        raw = running.image.raw_output()
        if frame.failure is not None and frame.failure.type.endswith("HEAP-EXHAUSTED-ERROR"):
            raw = raw[0], raw[1].partition("\n")[0]  # the rest is a table of pages
        outcome = Outcome(running.number, frame, raw, running.expired)
        outcome.note, self._note = self._note, ""
        if frame.event == "suspended":
            outcome.token = self._suspend(running, frame)
            return outcome
        self.package = frame.package or self.package
        if frame.definitions:
            self.journal.add(running.arguments.get("code", ""), frame.definitions)
        self._tell(frame)
        return outcome

    def _tell(self, frame: Frame) -> None:
        for listener in self._on_change:
            listener(self, frame)

    def remember(
        self, number: int, code: str, text: str, is_error: bool, failure: Failure | None = None
    ) -> None:
        self.history.append(Entry(number, code, text, is_error, failure))

    async def reads_standard(self) -> bool:
        """Whether the session reads text as the standard says; reader macros may change it."""
        if self.image is None or self.image.lost is not None:
            return True
        with suppress(Lost):
            return bool((await self.image.ask("standard-reader", {})).read())
        return True

    def on_answer(self, listener: Callable[["Session", Frame], None]) -> None:
        """Be told of every answer, for instance of the definitions in it, and of a new Lisp."""
        self._on_change.append(listener)

    def keep_output(self, number: int, name: str, output: Output) -> None:
        """Remember where the rest of a truncated text is; the oldest are forgotten."""
        self.outputs.setdefault(number, {})[name] = output
        while len(self.outputs) > self.limits.max_spools:
            _remove(self.outputs.pop(next(iter(self.outputs))))

    def _drop_spools(self, running: Running) -> None:
        """Files of a call that died without a word about them."""
        for path in self._spools.glob(f"{self._spool_prefix}-{running.call.id}-*"):
            path.unlink(missing_ok=True)

    # -- interrupting ------------------------------------------------------------------------

    def _expire(self, running: Running, seconds: float) -> None:
        running.expired = seconds
        self._spawn(self._interrupt(running, f"it did not react when its {seconds:g} s were over"))

    async def _give_up(self, running: Running) -> None:
        """The client has cancelled. The next call waits until the Lisp is free again."""
        try:
            await self._interrupt(running, "it did not react when it was cancelled")
            frame = running.partial
            with suppress(Lost):
                frame = await running.call.future
                self._take_notice(running, frame)
            self._remember_cancelled(running, frame or Frame("done"))
            if running.image.lost is not None:
                await self._recover(running.image.lost)
            else:
                running.image.raw_output()  # of the cancelled one, not of the next
        finally:
            self._end_turn()

    def _take_notice(self, running: Running, frame: Frame) -> None:
        """Of an answer that nobody waits for."""
        if frame.event == "suspended":
            running.call.again()
            self._command(running, [Keyword("abandon")])
        self.package = frame.package or self.package
        if frame.definitions:
            self.journal.add(running.arguments.get("code", ""), frame.definitions)

    def _remember_cancelled(self, running: Running, frame: Frame) -> None:
        """No answer may be sent any more: what there was of it is in the history."""
        parts = ["[CANCELLED] The evaluation was cancelled"]
        parts += [f"[stdout]\n{frame.stdout.text}"] if frame.stdout.text else []
        parts += [f"[stderr]\n{frame.stderr.text}"] if frame.stderr.text else []
        if frame.failure is not None and frame.failure.frames:
            lines = [f"{number}: {text}" for number, text in enumerate(frame.failure.frames)]
            parts.append("\n".join(["[Backtrace]", *lines]))
        for name, output in (("stdout", frame.stdout), ("stderr", frame.stderr)):
            if output.spool:
                self.keep_output(running.number, name, output)
        code = running.arguments.get("code", "")
        self.remember(running.number, code, "\n\n".join(parts), True, frame.failure)

    async def _interrupt(self, running: Running, reason: str) -> None:
        """First kindly, then by ending the thread, then by ending the process."""
        image, call = running.image, running.call
        for force in (False, True):
            if call.future.done() or image.lost is not None:
                break
            image.start("interrupt", {"job": call.id, "force": force})
            await asyncio.wait({call.future}, timeout=self.limits.grace)
        if not call.future.done() and image.lost is None:
            running.partial = await self._peek(image, call)
            if isinstance(image, LispProcess):
                image.kill(reason)
                await image.exited.wait()
                self._drop_spools(running)
            else:
                call.settle(Frame("done", status="stuck"))  # not ours to kill
        if isinstance(image, LispProcess):
            image.end_descendants(running.since)

    async def _peek(self, image: Image, call: Call) -> Frame | None:
        """What the evaluation had printed, before it goes."""
        with suppress(TimeoutError, Lost):
            async with asyncio.timeout(_PEEK_SECONDS):
                seen = (await image.ask("peek", {"job": call.id, "limit": 100_000})).read()
            if seen is not None:
                out = Output(seen["stdout"], seen["total"])
                return Frame("done", stdout=out, stderr=Output(seen["stderr"], len(seen["stderr"])))
        return None

    # -- suspended evaluations -----------------------------------------------------------------

    def _suspend(self, running: Running, frame: Frame) -> str:
        token = f"{self.name}-{running.number}"
        running.rounds += 1
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self.limits.suspended_seconds, self.forget, token)
        self.suspended[token] = Suspended(token, running, frame, timer)
        if len(self.suspended) > self.limits.max_suspended:
            self.forget(next(iter(self.suspended)))
        return token

    def forget(self, token: str) -> None:
        """Its time is over, there are too many, or nobody waits: it fails with its error."""
        waiting = self.suspended.pop(token, None)
        if waiting is not None and waiting.running.image.lost is None:
            waiting.timer.cancel()
            waiting.running.call.again()
            self._command(waiting.running, [Keyword("abandon")])

    def _command(self, running: Running, command: list[Any]) -> None:
        running.image.start("command", {"job": running.call.id, "command": command})

    def find_suspended(self, token: str) -> Suspended:
        found = self.suspended.get(token)
        if found is None:
            there = ", ".join(self.suspended) or "none"
            raise ToolError(f"There is no suspended evaluation {token!r}; there are: {there}.")
        return found

    async def resume(
        self, token: str, command: list[Any], seconds: float | UnsetType = UNSET
    ) -> Outcome:
        """Say what a suspended evaluation waits for, and wait for what comes of it."""
        await self._turn.acquire()
        try:
            waiting = self.find_suspended(token)
            waiting.timer.cancel()
            del self.suspended[token]
            running = waiting.running
            running.call.again()
            running.expired = 0.0
            self._command(running, command)
        except BaseException:
            self._turn.release()
            raise
        return await self._outcome(running, seconds)

    async def in_frame(self, token: str, operation: str, frame: int, code: str = "") -> Outcome:
        """Look at, or evaluate in, a frame of a suspended evaluation."""
        await self._turn.acquire()
        try:
            waiting = self.find_suspended(token).running
            call = waiting.image.expect()
            request = {"request": call.id, "operation": operation, "frame": frame, "code": code}
            words = [Keyword("in-frame")]
            for key, value in request.items():
                words += [Keyword(key), value]  # type: ignore[list-item]
            self._command(waiting, words)
        except BaseException:
            self._turn.release()
            raise
        return await self._outcome(Running(waiting.number, waiting.image, call, {}), UNSET)

    # -- the Lisp itself -------------------------------------------------------------------------

    @property
    def owned(self) -> bool:
        """Whether the Lisp is a process of ours."""
        return self.kind == "process"

    async def ready(self) -> None:
        """Start the Lisp, if there is none."""
        async with self._turn:
            await self._living()

    async def _living(self) -> Image:
        """The Lisp, started if there is none; after repeated losses not at once."""
        if self.closed:
            raise ToolError(f"Session {self.name!r} is closed.")
        if self.image is not None and self.image.lost is None:
            return self.image
        await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
        self.image = await self._starter()
        self.image.on_lost = self._image_lost
        self.package = "COMMON-LISP-USER"
        self.configure()
        self._tell(Frame("hello"))
        return self.image

    def _image_lost(self) -> None:
        for waiting in self.suspended.values():
            waiting.timer.cancel()
        self.suspended.clear()
        if not self.busy and not self.closed and self.image is not None:
            # Nobody waited for it: the next answer tells.
            self._note_loss()
            self._note = self._loss_text(str(self.image.lost), "A fresh one was started.")
            self._spawn(self._discard(self.image))

    async def _discard(self, image: Image) -> None:
        await image.close()

    def _note_loss(self) -> float:
        """Seconds that the next start has to wait."""
        now = time.monotonic()
        self._losses.append(now)
        recent = sum(1 for loss in self._losses if now - loss < self.limits.loss_window)
        delay = self.limits.max_delay if recent >= self.limits.max_losses else 0.0
        self._not_before = now + delay
        return delay

    async def _recover_and_raise(self, running: Running, reason: str) -> None:
        partial = running.partial or running.image.partial
        if partial is None:
            self._drop_spools(running)
        try:
            text = await self._recover(reason)
        finally:
            self._end_turn()
        if running.image.never_began(running.call):
            raise NeverBegan(text)
        raise SessionLost(text, partial, running.expired)

    async def _recover(self, reason: str) -> str:
        """Put a fresh Lisp in the place of a lost one; the text tells what happened."""
        lost, self.image = self.image, None
        words = ""
        if lost is not None:
            lost.on_lost = lambda: None
            words = lost.last_words if isinstance(lost, LispProcess) else ""
            await lost.close()
        for waiting in self.suspended.values():
            waiting.timer.cancel()
        self.suspended.clear()
        delay = self._note_loss()
        if delay:
            limits = self.limits
            then = (
                f"It happened {limits.max_losses} times within {limits.loss_window:g} s: "
                f"the next one starts in {delay:g} s."
            )
        else:
            began = time.monotonic()
            try:
                await self._living()
                how = "A fresh one was started" if self.owned else "It was attached again"
                then = f"{how} in {(time.monotonic() - began) * 1000:.0f} ms."
            except Exception as error:
                then = str(error)
        text = self._loss_text(reason, then)
        return f"{text}\n\n[process stderr]\n{words}" if words else text

    def _loss_text(self, reason: str, then: str) -> str:
        if not self.owned:
            return f'[SESSION LOST] The Lisp of session "{self.name}" is gone ({reason}). {then}'
        return (
            f'[SESSION LOST] The Lisp process of session "{self.name}" ended ({reason}). {then} '
            f"{self.journal.epitaph()}"
        )

    async def restart(self) -> float:
        """A new Lisp, at once, whatever the old one does; the seconds it took to start."""
        self._losses.clear()
        self._not_before = 0.0
        image = self.image
        self._note = ""
        if image is not None:
            image.on_lost = lambda: None
            self._end_suspended()
            await image.close()  # whoever waits for an answer hears that it was closed
        async with self._turn:
            self._note = ""
            self._losses.clear()
            self._not_before = 0.0
            if self.image is image:
                self.image = None
            began = time.monotonic()
            await self._living()
            return time.monotonic() - began

    def _end_suspended(self) -> None:
        for waiting in self.suspended.values():
            waiting.timer.cancel()
        self.suspended.clear()

    async def close(self) -> None:
        self.closed = True
        self._end_suspended()
        if self.image is not None:
            await self.image.close()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for outputs in self.outputs.values():
            _remove(outputs)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _remove(outputs: dict[str, Output]) -> None:
    for output in outputs.values():
        if output.spool:
            Path(output.spool).unlink(missing_ok=True)
