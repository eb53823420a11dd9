"""``Client``: one server, whatever it speaks and however it is reached."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw

from dovetail.client.answer import checked_root
from dovetail.client.calls import UNKNOWN_TOOL, Asked, CallParams, Calls, KnownTool, known_tool
from dovetail.client.connected import Connected, Transport
from dovetail.client.memory import Endpoint, Memory
from dovetail.client.paging import Lister, cached
from dovetail.client.results import CallResult, decode_call, decoded, known
from dovetail.client.session import OnProgress, Session, waits_of
from dovetail.core.peer import Notification
from dovetail.errors import DovetailError, LocalProtocolError, ToolFailed
from dovetail.spec import types

if TYPE_CHECKING:
    from dovetail.client.listen import Listener
    from dovetail.client.tasks import TaskHandle
    from dovetail.transport.http_client import Auth, HttpClient
    from dovetail.transport.process import Stderr

__all__ = ["Client"]

T = TypeVar("T")


class Client(Connected):
    """Made by ``Client.stdio``, ``.http``, ``.ws`` or ``.memory``; used with ``async with``.

    Any task may close it, in any order with others. What goes wrong is one plain exception:
    ``McpError`` (the server's answer is an error), ``RemoteProtocolError`` (it makes no sense),
    ``ConnectionClosed``, ``HttpError`` or ``TimeoutError``.
    """

    def __init__(self, transport: Transport, **options: Any) -> None:
        super().__init__(transport, **options)
        self._tools: dict[str, KnownTool] = {}
        self._tools_listed = False
        self._subscribed: dict[str, int] = {}
        self._calls = Calls(self._answerer, self._live, self._options)
        self.tools: Lister[types.Tool] = Lister(
            self, "tools/list", "tools", types.ListToolsResult, self._usable
        )
        self.resources: Lister[types.Resource] = Lister(
            self, "resources/list", "resources", types.ListResourcesResult
        )
        self.templates: Lister[types.ResourceTemplate] = Lister(
            self,
            "resources/templates/list",
            "resource_templates",
            types.ListResourceTemplatesResult,
        )
        self.prompts: Lister[types.Prompt] = Lister(
            self, "prompts/list", "prompts", types.ListPromptsResult
        )

    # -- ways to a server --------------------------------------------------------------------

    @classmethod
    def stdio(
        cls,
        command: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = True,
        cwd: str | Path | None = None,
        stderr: "Stderr | bool" = True,
        **options: Any,
    ) -> "Client":
        """A server that we start. ``stderr``: a function, a binary file, True for our own
        stderr, None for nowhere; the end of it is part of the error if the server dies.
        """
        from dovetail.transport.process import Process, own_stderr

        errors: Any = own_stderr if stderr is True else stderr or None
        process = Process(
            command, arguments, env=env, inherit_env=inherit_env, cwd=cwd, stderr=errors
        )
        return cls(process, **options)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        auth: "Auth | str | None" = None,
        http: "HttpClient | None" = None,
        **options: Any,
    ) -> "Client":
        """A server behind Streamable HTTP. ``auth`` is a bearer token or a hook (see
        ``dovetail.client.oauth``)."""
        from dovetail.transport.http_client import Bearer
        from dovetail.transport.streamable import StreamableHttp

        hook = Bearer(auth) if isinstance(auth, str) else auth
        options.setdefault("reconnect", True)
        return cls(StreamableHttp(url, headers=headers, auth=hook, http=http), **options)

    @classmethod
    def ws(cls, url: str, *, headers: dict[str, str] | None = None, **options: Any) -> "Client":
        """A server behind a WebSocket, one message a frame."""
        from dovetail.transport.websocket_client import WebSocket

        return cls(WebSocket(url, headers=headers), **options)

    @classmethod
    def memory(cls, server: Endpoint, **options: Any) -> "Client":
        """A server in this process, through encoded bytes as anywhere else."""
        return cls(Memory(server), **options)

    # -- handlers, before the client is opened -----------------------------------------------

    def on_elicit(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Decorator: who answers the server's questions to the user."""
        self._options.on_elicit = self._not_yet(function)
        return function

    def on_sample(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Decorator: who asks the model for the server."""
        self._options.on_sample = self._not_yet(function)
        return function

    def serve_roots(self, function: Callable[[], Any]) -> None:
        """Roots that are looked up when the server asks for them."""
        self._options.roots = self._not_yet(function)

    def on_log(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Decorator: who hears the server's log messages."""
        self._options.on_log = function
        return function

    def _not_yet(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self._session is not None:
            raise LocalProtocolError("what a client can do is declared when it connects")
        return function

    # -- tools ---------------------------------------------------------------------------------

    @overload
    async def call(
        self,
        name: str,
        arguments: Any = None,
        *,
        returns: type[T],
        timeout: float | None = ...,
        max_total: float | None = ...,
        on_progress: OnProgress | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = False,
    ) -> CallResult[T]: ...
    @overload
    async def call(
        self,
        name: str,
        arguments: Any = None,
        *,
        timeout: float | None = ...,
        max_total: float | None = ...,
        on_progress: OnProgress | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = False,
    ) -> CallResult[Any]: ...

    async def call(
        self,
        name: str,
        arguments: Any = None,
        *,
        returns: Any = UNSET,
        timeout: Any = UNSET,
        max_total: Any = UNSET,
        on_progress: OnProgress | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = False,
    ) -> CallResult[Any]:
        """Call a tool and wait for its result, if need be as a task.

        ``timeout`` ends a wait of so many seconds without answer or progress, ``max_total``
        any wait; the server is told. ``returns`` is the type of ``result.value``.
        """
        tool = self._tools.get(name)
        session = self._session
        first = None
        if (
            tool is not None
            and session is not None
            and session.is_plain
            and not tool.needs_task
            and timeout is max_total is UNSET
            and on_progress is None
            and meta is None
        ):
            # Most calls: no coroutine but this one, and nothing that they do not need.
            id, future = session.begin("tools/call", _params(name, arguments, session.stamp))
            try:
                raw = await future
            except BaseException as error:
                session.give_up(id, error)
                raise
            session.done(id)
            call = decode_call(raw)
            if call.result_type is UNSET or call.result_type == "complete":
                result = self._calls.read(call, tool, session, returns)
                return result if not raise_on_error else _good(name, result)
            first = raw, call
        waits = self._waits
        if timeout is not UNSET or max_total is not UNSET:
            waits = waits_of(self._options, timeout, max_total)
        asked = Asked(waits, on_progress, meta)
        result = await self._call(name, arguments, asked, returns, first)
        return result if not raise_on_error else _good(name, result)

    async def _call(
        self, name: str, arguments: Any, asked: Asked, returns: Any, first: Any
    ) -> CallResult[Any]:
        """A call with progress, deadlines of its own, over HTTP, as a task, or with questions."""
        tool = self._tools.get(name) or await self._find(name)
        if tool.needs_task and self.session.revision.tasks:
            return await (await self._submit(tool, name, arguments, asked, returns, None)).awaited()
        params = _params(name, arguments)
        raw, call = await self._calls.tool(tool, params, asked, self._find_again, first)
        if call.result_type == "task" and self.session.revision.modern:
            return await self._handle(raw, tool, asked, returns).awaited()
        return self._calls.read(call, tool, self.session, returns)

    async def submit(
        self,
        name: str,
        arguments: Any = None,
        *,
        returns: Any = UNSET,
        ttl: int | None = None,
        timeout: Any = UNSET,
        max_total: Any = UNSET,
        on_progress: OnProgress | None = None,
        meta: dict[str, Any] | None = None,
    ) -> "TaskHandle[Any]":
        """Call a tool as a task and return at once with a handle that can be awaited.

        ``ttl`` is the wish how many milliseconds the task shall be kept (2025-11-25).
        """
        tool = self._tools.get(name) or await self._find(name)
        asked = Asked(waits_of(self._options, timeout, max_total), on_progress, meta)
        return await self._submit(tool, name, arguments, asked, returns, ttl)

    async def _submit(
        self,
        tool: KnownTool,
        name: str,
        arguments: Any,
        asked: Asked,
        returns: Any,
        ttl: int | None,
    ) -> "TaskHandle[Any]":
        session = await self._live()
        params = _params(name, arguments)
        if session.revision.tasks:
            if session.capabilities.tasks is UNSET or not tool.takes_task:  # digest C38
                raise LocalProtocolError(f"{name!r} cannot run as a task")
            params.task = {} if ttl is None else {"ttl": ttl}
        elif not session.revision.modern:
            raise LocalProtocolError(f"{session.revision.id} has no tasks")
        raw, call = await self._calls.tool(tool, params, asked, self._find_again)
        if session.revision.modern and call.result_type != "task":
            return self._finished(raw, tool, asked, returns)
        return self._handle(raw, tool, asked, returns)

    def _handle(self, raw: Raw, tool: KnownTool, asked: Asked, returns: Any) -> "TaskHandle[Any]":
        from dovetail.client.tasks import TaskHandle

        if self.session.revision.modern:
            task: types.Task = decoded(raw, types.GetTaskResult, "tools/call")
        else:
            task = decoded(raw, types.CreateTaskResult, "tools/call").task
        return TaskHandle(self, task, self._reader(tool, returns), asked.waits)

    def _finished(self, raw: Raw, tool: KnownTool, asked: Asked, returns: Any) -> "TaskHandle[Any]":
        """The server chose to answer at once: a task that is over."""
        from dovetail.client.tasks import FinishedTask

        return FinishedTask(self, raw, self._reader(tool, returns), asked.waits)

    def _reader(self, tool: KnownTool, returns: Any) -> Callable[[Raw], CallResult[Any]]:
        return lambda raw: self._calls.read(decode_call(raw), tool, self.session, returns)

    def task(self, id: str, *, returns: Any = UNSET) -> "TaskHandle[Any]":
        """A handle for a task whose id is known, such as one of an earlier process."""
        from dovetail.client.tasks import TaskHandle

        task = types.Task(task_id=id, status="working", created_at="", last_updated_at="")
        return TaskHandle(self, task, self._reader(UNKNOWN_TOOL, returns), self._waits)

    async def _find(self, name: str) -> KnownTool:
        """What is known of a tool; the list is read once, and again when it has changed."""
        session = await self._live()
        if not self._tools_listed and self._needs_list(session):
            self._tools_listed = True
            await self.tools.all()
        return self._tools.setdefault(name, UNKNOWN_TOOL)

    def _needs_list(self, session: Session) -> bool:
        """For schemas of results, header marks, and tools that run as tasks only."""
        if session.capabilities.tools is UNSET:
            return False
        checks = self._options.check_output and session.revision.structured_output
        return checks or session.revision.tasks or (session.http and session.revision.modern)

    async def _find_again(self, name: str) -> KnownTool:
        self._forget("tools")
        return await self._find(name)

    def _usable(self, tools: list[types.Tool]) -> list[types.Tool]:
        session = self.session
        usable = []
        for tool in tools:
            found = known_tool(tool, http=session.http and session.revision.modern)
            if found is not None:
                self._tools[tool.name] = found
                usable.append(tool)
        return usable

    # -- resources, prompts, completion ----------------------------------------------------------

    async def read(self, uri: str) -> list[types.ResourceContents]:
        """The contents of a resource. McpError if there is none."""
        raw = await cached(self, "resources/read", {"uri": uri}, uri)
        return decoded(raw, types.ReadResourceResult, "resources/read").contents

    async def prompt(
        self, name: str, arguments: dict[str, str] | None = None
    ) -> types.GetPromptResult:
        """A prompt, filled in."""
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = arguments
        raw, _ = await self._calls.with_input("prompts/get", params, Asked(self._waits, safe=True))
        loose = decoded(raw, _LoosePrompt, "prompts/get")
        messages = [
            types.PromptMessage(role=one.role, content=known(one.content)) for one in loose.messages
        ]
        return types.GetPromptResult(description=loose.description, messages=messages)

    async def complete(
        self,
        ref: types.PromptReference | types.ResourceTemplateReference | str,
        argument: str,
        value: str,
        *,
        given: dict[str, str] | None = None,
    ) -> types.Completion:
        """Completions of an argument; ``ref`` is a URI template, or the name of a prompt."""
        if isinstance(ref, str):
            is_uri = "://" in ref
            ref = (
                types.ResourceTemplateReference(uri=ref)
                if is_uri
                else types.PromptReference(name=ref)
            )
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if given is not None and self.session.revision.letter not in "AB":
            params["context"] = {"arguments": given}
        raw = await self._calls.plain("completion/complete", params, Asked(self._waits, safe=True))
        return decoded(raw, types.CompleteResult, "completion/complete").completion

    async def request(
        self, method: str, params: dict[str, Any] | None = None, *, returns: Any = Any
    ) -> Any:
        """Any request, for methods of the server's own."""
        raw = await self._calls.plain(method, params or {}, Asked(self._waits))
        return decoded(raw, returns, method)

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Any notification."""
        self.session.notify(method, params)

    async def ping(self) -> None:
        """Returns if the server is there. 2026-07-28 has no ping; its word is discover."""
        method = "server/discover" if self.session.revision.modern else "ping"
        await self._calls.plain(method, {}, Asked(self._waits, safe=True))

    # -- roots, logging, changes -------------------------------------------------------------------

    def set_roots(self, roots: list[Any]) -> None:
        """The roots are others now; a server of the handshake is told (digest C31)."""
        if self._options.roots is None:
            raise LocalProtocolError("roots are declared when the client is made: roots=[]")
        self._options.roots = [checked_root(root) for root in roots]
        if self._session is not None and not self._session.revision.modern:
            self.notify("notifications/roots/list_changed")

    async def set_log_level(self, level: types.LoggingLevel) -> None:
        """The least level of the server's log messages that ``on_log`` wants to hear."""
        self._options.log_level = level
        session = await self._live()
        if session.revision.modern:
            session.speak(session.revision, session.declared)
        else:
            await self._calls.plain("logging/setLevel", {"level": level}, Asked(self._waits))

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool | Sequence[str] = False,
        tasks: Sequence[str] = (),
    ) -> "Listener":
        """What changes from now on: lists, resources (by URI, and True for their list), tasks."""
        from dovetail.client.listen import Listener

        uris = [] if isinstance(resources, bool) else list(resources)
        wanted = types.SubscriptionFilter(
            tools_list_changed=tools or UNSET,
            prompts_list_changed=prompts or UNSET,
            resources_list_changed=True if resources is True else UNSET,
            resource_subscriptions=uris or UNSET,
            task_ids=list(tasks) or UNSET,
        )
        return Listener(self, wanted)

    async def _subscribe(self, uri: str) -> None:
        """Once at the server, however many listen here (up to 2025-11-25)."""
        self._subscribed[uri] = self._subscribed.get(uri, 0) + 1
        if self._subscribed[uri] == 1:
            await self._calls.plain("resources/subscribe", {"uri": uri}, Asked(self._waits))

    def _unsubscribe(self, uri: str) -> None:
        left = self._subscribed.get(uri, 0) - 1
        self._subscribed[uri] = left
        if left == 0 and not self.session.dead:
            self.session.connection.spawn(self._end_subscription(uri), "resources/unsubscribe")

    async def _end_subscription(self, uri: str) -> None:
        with suppress(DovetailError, TimeoutError):  # nobody waits for it
            await self._calls.plain("resources/unsubscribe", {"uri": uri}, Asked(self._waits))

    def _renewed(self) -> None:
        self._tools.clear()
        self._tools_listed = False
        self._subscribed.clear()

    def _changed(self, notification: Notification) -> None:
        from dovetail.client.listen import acknowledged, event_of

        if notification.method == "notifications/subscriptions/acknowledged":
            if (accepted := acknowledged(notification)) is not None:
                for listener in self._listeners:
                    if listener.id == accepted[0]:
                        listener.acknowledge(accepted[1])
        elif (heard := event_of(notification)) is not None:
            stream, event = heard
            self._forget(event.kind, event.uri)
            for listener in list(self._listeners):
                listener.deliver(stream, event)
        elif self._options.on_notification is not None:
            params = (
                UNSET if notification.params is UNSET else msgspec.json.decode(notification.params)
            )
            self.session.tell(self._options.on_notification, notification.method, params)

    def _forget(self, kind: str, uri: str | None = None) -> None:
        """What was kept of something that has changed."""
        if kind == "tools":
            self._tools.clear()
            self._tools_listed = False
        methods = _KEPT.get(kind)
        if methods is not None:
            self._cache.forget(self._endpoint, methods, uri)


def _params(name: str, arguments: Any, meta: Any = UNSET) -> CallParams:
    return CallParams(name=name, arguments=UNSET if arguments is None else arguments, meta=meta)


def _good(name: str, result: CallResult[Any]) -> CallResult[Any]:
    if result.is_error:
        raise ToolFailed(result.text or f"{name!r} failed without a word", result)
    return result


_KEPT = {
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
    "resource": ("resources/read",),
}


class _LooseMessage(msgspec.Struct):
    role: types.Role
    content: dict[str, Any]


class _LoosePrompt(msgspec.Struct):
    messages: list[_LooseMessage]
    description: Any = UNSET
