"""What a handler can know about the request it serves, and do while it runs."""

import asyncio
from collections.abc import Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw

from dovetail.core.peer import Request
from dovetail.errors import (
    MISSING_CLIENT_CAPABILITY,
    URL_ELICITATION_REQUIRED,
    ClientError,
    McpError,
)
from dovetail.runtime.link import Link
from dovetail.runtime.progress import Progress, checked
from dovetail.server.session import LEVELS, Session, capability_names
from dovetail.spec.types import ClientCapabilities, Implementation
from dovetail.wire.jsonrpc import Id

if TYPE_CHECKING:  # loaded by the first question: most servers ask none
    from dovetail.server.ask import Answers
    from dovetail.server.questions import Answer, ElicitUrl, Question
    from dovetail.server.sampling import Sampled
    from dovetail.spec.types import Root

__all__ = ["Context"]

T = TypeVar("T")
if TYPE_CHECKING:  # a plain `Context` is a `Context[Any]`; type checkers bring the module
    from typing_extensions import TypeVar as TypeVarWithDefault

    S = TypeVarWithDefault("S", default=Any)
else:
    S = TypeVar("S")


class Context(Generic[S]):
    """Given to a function that has a parameter annotated ``Context``.

    Its methods may be called from the event loop and from the thread of a sync
    function alike, except those that are async.
    """

    def __init__(self, request: Request, connection: Link, owner: Any) -> None:
        self._request = request
        self._connection = connection
        self._owner = owner
        self._session: Session = connection.session
        self._samples = 0
        self._reported: float | None = None

    @property
    def request_id(self) -> Id:
        return self._request.id

    @property
    def method(self) -> str:
        return self._request.method

    @property
    def revision(self) -> str:
        """The revision this request is served by, such as ``2025-11-25``."""
        return self._request.revision.id

    @property
    def client(self) -> Implementation | None:
        """Who asks, if it said so. For display and logs only (digest 13.5)."""
        if not self._request.revision.modern:
            return self._connection.peer.client_info
        info = self._request.params.meta.client_info
        return None if info is UNSET else info

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the client can do, for this request."""
        if not self._request.revision.modern:
            return self._connection.peer.client_capabilities or ClientCapabilities()
        capabilities: ClientCapabilities = self._request.params.meta.client_capabilities
        return capabilities

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The ``_meta`` of the request, all keys."""
        raw = self._request.raw
        params = {} if raw is UNSET else msgspec.json.decode(raw)
        meta: dict[str, Any] = params.get("_meta", {})
        return meta

    @property
    def state(self) -> S:
        """What the server's lifespan yielded."""
        state: S = self._owner.state
        return state

    @property
    def session(self) -> Session:
        """The connection the request came on."""
        return self._session

    @property
    def cancelled(self) -> bool:
        """Whether anybody still wants the answer; a long sync function may look here."""
        return self._request.cancelled

    # -- telling the client ------------------------------------------------------------

    @property
    def wants_progress(self) -> bool:
        """Whether the client asked for progress: where it takes work to know how far one is."""
        meta = self._request.params.meta
        return meta is not UNSET and meta.progress_token is not UNSET

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """How far the work is. Costs nothing if the client did not ask, and never waits."""
        self._stop_if_cancelled()
        meta = self._request.params.meta
        if meta is UNSET or meta.progress_token is UNSET:
            return
        # Here, where the mistake is made: what is done on the loop cannot fail in a thread.
        self._reported = checked(done, total, self._reported)
        rest: dict[str, Any] = {"progressToken": meta.progress_token}
        if total is not None:
            rest["total"] = total
        if message is not None and self._request.revision.progress_message:
            # Half a surrogate pair, as in a file name, must not cost the report.
            rest["message"] = str(message).encode(errors="replace").decode()
        self._connection.on_loop(self._report, done, rest)

    def _report(self, done: float, rest: dict[str, Any]) -> None:
        request = self._request
        if not self._connection.serves(request):
            return  # answered or cancelled: nothing may follow (digest X23)
        if request.progress is None:
            request.progress = Progress(self._send_progress)
        request.progress.report(done, rest)

    def _send_progress(self, params: dict[str, Any]) -> None:
        self._connection.notify("notifications/progress", params)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants messages of this level.

        Levels are those of RFC 5424. Never log credentials or personal data.
        """
        self._stop_if_cancelled()
        if level not in LEVELS:
            raise ValueError(f"{level!r} is no log level; there are {', '.join(LEVELS)}")
        if LEVELS.index(level) < LEVELS.index(self._wanted_level()):
            return
        # Encoded here, where the mistake is made, if the data is no JSON.
        params: dict[str, Any] = {"level": level, "data": Raw(msgspec.json.encode(data))}
        if logger is not None:
            params["logger"] = logger
        self._connection.on_loop(self._send_log, params)

    def _wanted_level(self) -> str:
        """2026-07-28 names it in each request; without it there are no messages (S26)."""
        if not self._request.revision.modern:
            return self._session.log_level
        level: Any = self._request.params.meta.log_level
        return "emergency" if level is UNSET else level

    def _send_log(self, params: dict[str, Any]) -> None:
        request = self._request
        if request.revision.modern:
            wanted = request.params.meta.log_level is not UNSET and self._connection.serves(
                self._request
            )
        else:
            wanted = self._session.logs  # declared, or it may not be sent (digest S12)
        if wanted:
            self._connection.notify("notifications/message", params)

    def _stop_if_cancelled(self) -> None:
        """A thread cannot be interrupted, so a sync function ends at its next word to us."""
        if self._request.cancelled:
            raise asyncio.CancelledError

    def updated(self, uri: str) -> None:
        """Tell subscribers that a resource has changed."""
        self._session.server.updated(uri)

    def hang_up(self, retry_ms: int | None = None) -> None:
        """Let the client go and come back for the answer after ``retry_ms`` milliseconds.

        For work that takes minutes: over HTTP in 2025-11-25 it ends the response, not the
        request, and the client reconnects. Elsewhere it does nothing.
        """
        self._connection.on_loop(self._connection.hang_up, retry_ms)

    # -- asking the client -------------------------------------------------------------

    def require(self, capability: str) -> None:
        """Refuse the request unless the client declared ``capability``, such as "sampling".

        2026-07-28 has an error for it (digest S6); before, the model is told.
        """
        if capability not in ClientCapabilities.__struct_fields__:
            raise ValueError(f"{capability!r} is no capability of a client")
        if getattr(self.capabilities, capability) is UNSET:
            raise self._missing({capability: {}})

    def _missing(self, needed: dict[str, Any]) -> Exception:
        if self._request.revision.modern:
            return McpError(MISSING_CLIENT_CAPABILITY, data={"requiredCapabilities": needed})
        return ClientError(f"The client does not support {capability_names(needed)}")

    @property
    def answered(self) -> frozenset[str]:
        """The keys that a client of 2026-07-28 has sent answers to, in this round or before.

        For a function that left something waiting when it asked: it runs again from the top,
        and finds by the key what to go on with.
        """
        if not self._request.revision.modern or not self._answers_given():
            return frozenset()
        return self._answers.keys()

    def _answers_given(self) -> bool:
        params = self._request.params
        return params.request_state is not UNSET or params.input_responses is not UNSET

    async def ask(self, key: str, question: "Question[T]", *, as_task: bool = False) -> T:
        """Ask the client one thing; ``key`` names the question within this request.

        With a client of 2026-07-28 the function runs again from the top once the
        answer is there: do side effects after the last question. ``as_task`` lets
        a client of 2025-11-25 that can do so run the question as a task.
        """
        answer: T = (await self.ask_all({key: question}, as_task=as_task))[key]
        return answer

    async def ask_all(
        self, questions: Mapping[str, "Question[Any]"], *, as_task: bool = False
    ) -> dict[str, Any]:
        """Ask several things at once, by key."""
        self._stop_if_cancelled()
        self._check_askable(questions)
        if self._request.revision.modern:
            return self._answers.take(questions)
        ask = partial(self._session.ask, as_task=as_task, via=self._connection)
        return {key: await ask(question) for key, question in questions.items()}

    def _check_askable(self, questions: Mapping[str, "Question[Any]"]) -> None:
        """Only what the client declared may be asked (digest S18, S76)."""
        revision = self._request.revision
        missing: dict[str, Any] = {}
        for question in questions.values():
            known = question.supported_in(revision)
            if not known or not question.declared_by(self.capabilities, revision):
                for name, settings in question.needs().items():
                    missing[name] = {**missing.get(name, {}), **settings}
        if missing:
            raise self._missing(missing)

    async def sample(self, messages: Any, *, max_tokens: int, **options: Any) -> "Sampled":
        """Let the client's model continue ``messages``; the options are those of ``Sample``."""
        from dovetail.server.questions import Sample

        self._samples += 1
        question = Sample(messages, max_tokens=max_tokens, **options)
        return await self.ask(f"sample-{self._samples}", question)

    async def roots(self) -> "list[Root]":
        """The directories the client works in."""
        from dovetail.server.questions import Roots

        return await self.ask("roots", Roots())

    async def require_url(self, key: str, question: "ElicitUrl") -> "Answer[None]":
        """The user must visit a URL before this request can be served.

        2025-11-25 has an error for it, after which the client calls again: look
        whether the visit has happened before you ask. 2026-07-28 asks.
        """
        revision = self._request.revision
        if revision.tasks and question.declared_by(self.capabilities, revision):
            data = {"elicitations": [question.params(revision)]}
            raise McpError(URL_ELICITATION_REQUIRED, question.message, data)
        return await self.ask(key, question)

    def elicitation_complete(self, question: "ElicitUrl") -> None:
        """Tell the client that the visit it was asked for has happened (2025-11-25 only)."""
        if self._request.revision.tasks:
            params = {"elicitationId": question.elicitation_id}
            method = "notifications/elicitation/complete"
            self._connection.on_loop(self._connection.notify, method, params)

    @property
    def _answers(self) -> "Answers":
        """Of the request: a middleware and the tool inside it share one state."""
        from dovetail.server.ask import Answers

        if self._request.answers is None:
            session = self._session
            self._request.answers = Answers(self._request, session.server.seal, session.principal)
        answers: Answers = self._request.answers
        return answers
