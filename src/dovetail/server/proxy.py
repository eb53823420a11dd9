"""``Server.proxy(client)``: what another server offers, offered on.

The proxy is an ordinary server whose tools, resources and prompts are copies of the
other's, kept up to date, and whose functions call it. So every transport and revision of
ours is a way to it, whatever it speaks itself.

Questions of the other server (to the user, for a model, for roots) go on to the client
whose request led to them. One of 2026-07-28 belongs to its request; one of the handshake
names none, and goes to the newest request whose client can answer it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw

from dovetail.core.peer import Request
from dovetail.errors import (
    INTERNAL_ERROR,
    ClientError,
    DovetailError,
    McpError,
)
from dovetail.runtime.connection import Connection, Handler
from dovetail.server.app import Server
from dovetail.server.ask import InputRequired
from dovetail.server.completion import Completers
from dovetail.server.context import Context
from dovetail.server.dispatch import Dispatch
from dovetail.server.function import Function
from dovetail.server.output import wrap
from dovetail.server.prompts import Prompt
from dovetail.server.proxy_ask import Forwarded, ForwardedQuestion
from dovetail.server.resources import Resource
from dovetail.server.tools import Tool
from dovetail.spec import types
from dovetail.spec.meta import SERVER_INFO_KEY

__all__ = ["ProxyServer"]

log = logging.getLogger("dovetail")

# Requests that wait for a client of 2026-07-28 to come back with an answer, and how many
# seconds they do; the other server holds its own request open as long.
MAX_HELD = 256
HELD_SECONDS = 600.0

_current: ContextVar["Forwarded | None"] = ContextVar("dovetail_proxy_call", default=None)


class ProxyServer(Server):
    """A server whose every answer is another's. ``client`` must not be open yet."""

    def __init__(self, client: Any, **options: Any) -> None:
        options.setdefault("name", "proxy")
        super().__init__(**options)
        self._client = client
        self._named = options["name"] != "proxy"
        self._dispatch = _ProxyDispatch(self)
        self._running: list[Forwarded] = []
        self._held: dict[str, Forwarded] = {}
        self._watching: asyncio.Task[None] | None = None
        self._watched: dict[str, asyncio.Task[None]] = {}
        self.may_log = True
        client.on_elicit(self._elicit)
        client.on_sample(self._sample)
        client.serve_roots(self._roots)
        client.on_log(self._logged)
        self._lifespan.serve(self._open, self._close)

    # -- the other server ----------------------------------------------------------------

    async def _open(self) -> None:
        await self._client.__aenter__()
        upstream = self._client.server
        if upstream is not None and not self._named:
            self.info = upstream
            self.stamp = Raw(msgspec.json.encode({SERVER_INFO_KEY: upstream}))
        self.instructions = self._client.instructions or UNSET
        for kind in ("tools", "resources", "prompts"):
            await self._sync(kind)
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _close(self) -> None:
        watching = [self._watching, *self._watched.values()]
        running = [task for task in watching if task is not None]
        running += [held.task for held in self._held.values()]
        self._held.clear()
        self._watched.clear()
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await self._client.close()

    async def _watch(self) -> None:
        """Follow the lists of the other server, as far as it tells of them."""
        offered = {
            kind: getattr(self._client.capabilities, kind) is not UNSET
            for kind in ("tools", "resources", "prompts")
        }
        try:
            async with self._client.listen(**{k: True for k, v in offered.items() if v}) as events:
                async for event in events:
                    if event.kind == "reconnected":
                        for kind in offered:
                            await self._sync(kind)
                    elif event.kind in offered:
                        await self._sync(event.kind)
                    elif event.kind == "resource":
                        self.updated(event.uri)
        except DovetailError as error:
            log.debug("the proxied server tells of no changes: %s", error)

    async def watch(self, uri: str) -> None:
        """Pass on that a resource has changed; asked for once, however many want to know."""
        if uri in self._watched:
            return
        ready = asyncio.get_running_loop().create_future()
        self._watched[uri] = asyncio.get_running_loop().create_task(self._watch_one(uri, ready))
        await ready

    async def _watch_one(self, uri: str, ready: "asyncio.Future[None]") -> None:
        try:
            async with self._client.listen(resources=[uri]) as events:
                ready.set_result(None)
                async for event in events:
                    self.updated(event.uri or uri)
        except DovetailError as error:
            log.debug("changes of %s are not told: %s", uri, error)
        finally:
            self._watched.pop(uri, None)
            if not ready.done():
                ready.set_result(None)

    # -- copies ----------------------------------------------------------------------------

    async def _sync(self, kind: str) -> None:
        if getattr(self._client.capabilities, kind) is UNSET:
            return
        if kind == "tools":
            wanted: Any = [(tool.name, self._tool(tool)) for tool in await self._client.tools.all()]
            self._replace("tools", wanted)
        elif kind == "prompts":
            prompts = await self._client.prompts.all()
            self._replace("prompts", [(one.name, self._prompt(one)) for one in prompts])
        else:
            resources = await self._client.resources.all()
            self._replace("resources", [(one.uri, self._resource(one)) for one in resources])
            templates = await self._client.templates.all()
            made = [(one.uri_template, self._resource(one)) for one in templates]
            self._replace("templates", made)

    def _replace(self, kind: str, wanted: list[tuple[str, Any]]) -> None:
        """Only what is another one is exchanged, so that nobody is told of nothing."""
        registry = self.registry(kind)
        new = dict(wanted)
        for name, old in list(registry.active.items()):
            if name not in new or new[name].definition != old.definition:
                old.remove()
        for name, item in new.items():
            if name not in registry.active:
                registry.add(name, item)

    def _tool(self, tool: types.Tool) -> Tool[..., Any]:
        async def call(arguments: dict[str, Any], *, ctx: Context[Any]) -> Any:
            def report(progress: Any) -> None:
                ctx.progress(progress.done, progress.total, progress.message)

            calling = self._client.call
            return await self.forward(
                ctx, lambda: _result(calling(tool.name, arguments, on_progress=report))
            )

        schema = tool.output_schema
        definition = msgspec.structs.replace(tool, output_schema=UNSET, execution=UNSET)
        return Tool(
            Function(call, inline=False, owner=self),
            definition,
            _PassedArguments(tool.input_schema),
            None if schema is UNSET else _PassedOutput(schema),
            stamp=self.stamp,
        )

    def _prompt(self, prompt: types.Prompt) -> Prompt[..., Any]:
        async def get(given: dict[str, str], *, ctx: Context[Any]) -> Any:
            return await self.forward(ctx, lambda: self._client.prompt(prompt.name, given or None))

        names = [] if prompt.arguments is UNSET else [one.name for one in prompt.arguments]
        made: Prompt[..., Any] = Prompt(
            Function(get, inline=False, owner=self), prompt, cast(Any, _PassedStrings(names))
        )
        made.completers = _PassedCompleters(self._client, prompt.name, names, self)
        return made

    def _resource(self, resource: types.Resource | types.ResourceTemplate) -> "_PassedResource":
        return _PassedResource(self, resource)

    def anything(self, uri: str) -> "_PassedResource":
        """A resource that is in no list: the other server will know."""
        return _PassedResource(self, types.Resource(uri=uri, name=uri))

    # -- requests and the questions they lead to ---------------------------------------------

    async def forward(self, ctx: Context[Any], make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a request of the other server's, and ask our client what it asks."""
        call = self._resumed(ctx) or self._begun(make)
        call.ctx = ctx
        self._running.append(call)
        held = False
        try:
            while (question := await call.next_question()) is not None:
                try:
                    question.answered(await ctx.ask(question.key, question))
                except (ClientError, McpError) as error:
                    question.refused(str(error))
            return call.task.result()
        except InputRequired:  # our client will come back with the answer
            held = True
            raise
        except DovetailError as error:
            if isinstance(error, McpError):
                raise
            raise McpError(INTERNAL_ERROR, data=str(error)) from error
        except TimeoutError as error:
            raise McpError(INTERNAL_ERROR, data=str(error)) from error
        finally:
            self._running.remove(call)
            if held:
                self._hold(call)
            else:
                call.task.cancel()

    def _begun(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> "Forwarded":
        call = Forwarded()
        token = _current.set(call)
        call.task = asyncio.get_running_loop().create_task(make())
        _current.reset(token)
        return call

    def _hold(self, call: "Forwarded") -> None:
        """Keep a request going while its client (2026-07-28) fetches the answer."""
        if len(self._held) >= MAX_HELD or call.question is None:
            call.task.cancel()
            return
        key = call.question.key
        self._held[key] = call
        call.expiry = asyncio.get_running_loop().call_later(HELD_SECONDS, self._expire, key)

    def _expire(self, key: str) -> None:
        if (call := self._held.pop(key, None)) is not None:
            call.task.cancel()

    def _resumed(self, ctx: Context[Any]) -> "Forwarded | None":
        """The request that waits for the answers in ``ctx``; their key cannot be guessed."""
        for key in ctx.answered:
            call = self._held.get(key)
            if call is not None and call.fits(ctx):
                del self._held[key]
                if call.expiry is not None:
                    call.expiry.cancel()
                return call
        return None

    async def _asked(self, method: str, params: dict[str, Any]) -> Any:
        question = ForwardedQuestion(method, params)
        call = _current.get()
        if call is None:  # of the handshake: it does not say which request it belongs to
            able = [one for one in self._running if one.can_ask(question)]
            call = able[-1] if able else None
        if call is None:
            raise McpError(INTERNAL_ERROR, data="No client is there to be asked")
        return await call.ask(question)

    async def _elicit(self, question: Any) -> Any:
        params: dict[str, Any] = {"message": question.message}
        if question.mode == "url":
            params |= {"mode": "url", "url": question.url}
        else:
            params |= {"mode": "form", "requestedSchema": question.schema}
        answer = await self._asked("elicitation/create", params)
        return msgspec.convert(answer, types.ElicitResult)

    async def _sample(self, params: types.CreateMessageRequestParams) -> Any:
        given = {**msgspec.to_builtins(params)}
        return await self._asked(
            "sampling/createMessage",
            {k: v for k, v in given.items() if k not in ("_meta", "task")},
        )

    async def _roots(self) -> Any:
        answer = await self._asked("roots/list", {})
        return msgspec.convert(answer, types.ListRootsResult).roots

    def _logged(self, entry: types.LoggingMessageNotificationParams) -> None:
        logger = None if entry.logger is UNSET else entry.logger
        modern = [call for call in self._running if call.modern]
        if modern and modern[-1].ctx is not None:
            modern[-1].ctx.log(entry.level, entry.data, logger)
        self.log(entry.level, entry.data, logger)


async def _result(calling: Any) -> types.CallToolResult:
    result = await calling
    content = [_shown(block) for block in result.content]
    structured = result.structured if result.has_structured else UNSET
    meta = {key: value for key, value in result.meta.items() if key != SERVER_INFO_KEY}
    return types.CallToolResult(
        content=content,
        structured_content=structured,
        is_error=result.is_error,
        meta=meta or UNSET,
    )


def _shown(block: Any) -> Any:
    """A block we do not know becomes text: nothing a tool says is lost."""
    if isinstance(block, types.Wire):
        return block
    return types.TextContent(text=msgspec.json.encode(block.raw).decode())


class _PassedArguments:
    """The other server checks its arguments itself."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.header_map = None

    def decode(self, raw: bytes | Raw) -> dict[str, Any]:
        return {"arguments": msgspec.json.decode(raw, type=dict[str, Any])}


class _PassedOutput:
    """An output schema; the results that fit it are made by the other server."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.is_object = schema.get("type") == "object"
        self.wrapped_schema = schema if self.is_object else wrap(schema)

    def encode(self, value: Any) -> bytes:
        return msgspec.json.encode(value)

    def check(self, raw: bytes) -> None: ...


class _PassedStrings:
    """Arguments of a prompt, unread."""

    def __init__(self, names: list[str]) -> None:
        self.properties: dict[str, Any] = {name: {} for name in names}
        self.required: list[str] = []

    def decode(self, values: dict[str, str]) -> dict[str, Any]:
        return {"given": values}


class _PassedCompleters(Completers):
    """The other server completes."""

    def __init__(self, client: Any, ref: str, names: list[str], server: Server) -> None:
        super().__init__(ref, {name: {} for name in names}, server)
        self._client = client
        self._ref = ref

    def __bool__(self) -> bool:
        # 2024-11-05 has completions, but no word to declare them.
        return (
            self._client.capabilities.completions is not UNSET
            or self._client.revision == "2024-11-05"
        )

    async def run(self, params: types.CompleteRequestParams) -> types.Completion:
        given = UNSET if params.context is UNSET else params.context.arguments
        completion: types.Completion = await self._client.complete(
            self._ref,
            params.argument.name,
            params.argument.value,
            given=None if given is UNSET else given,
        )
        return completion


class _PassedResource(Resource[..., Any]):
    """A resource or template of the other server."""

    def __init__(
        self, server: ProxyServer, definition: types.Resource | types.ResourceTemplate
    ) -> None:
        async def unused(*, ctx: Context[Any]) -> None: ...

        self._server = server
        self.function = Function(unused, inline=False, owner=server)
        self.definition = definition
        self.ttl_ms = None
        self.template = None
        names: list[str] = []
        if isinstance(definition, types.ResourceTemplate):
            from dovetail.spec.uritemplate import UriTemplate

            self.template = UriTemplate(definition.uri_template)
            names = list(self.template.names)
        self.codec = _PassedStrings(names)  # type: ignore[assignment]
        self.completers = _PassedCompleters(server._client, self.uri, names, server)

    async def read(self, uri: str, arguments: dict[str, Any]) -> list[types.ResourceContents]:
        contents: list[types.ResourceContents] = await self._server.forward(
            arguments["ctx"], lambda: self._server._client.read(uri)
        )
        return contents


class _ProxyDispatch(Dispatch):
    """As any server's, but every URI may exist, and a subscription is one at both ends."""

    _server: ProxyServer

    def find_resource(self, uri: str) -> tuple[Resource[..., Any], dict[str, str]]:
        resource = self._server.resources.get(uri)
        return resource or self._server.anything(uri), {}

    def _handlers(self) -> dict[str, Handler]:
        handlers = super()._handlers()
        for method in ("resources/subscribe", "subscriptions/listen"):
            if method in handlers:
                handlers[method] = Handler(self._watching(handlers[method]))
        return handlers

    def _watching(self, handler: Handler) -> Callable[[Request, Connection], Any]:
        async def serve(request: Request, connection: Connection) -> Any:
            if request.method == "resources/subscribe":
                uris = [request.params.uri]
            else:
                uris = request.params.notifications.resource_subscriptions or []
            for uri in uris:
                await self._server.watch(uri)
            outcome = handler.call(request, connection)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

        return serve
