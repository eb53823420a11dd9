"""Which method does what: the handlers, and one table of them per revision.

A method that a revision does not have, or whose capability the server does not
declare, is simply not in the table: absence is -32601.
"""

import sys
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from dovetail.core.peer import Request
from dovetail.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    McpError,
    ResourceNotFound,
    ToolError,
)
from dovetail.runtime.link import Handler, Link
from dovetail.server.completion import Completers
from dovetail.server.resources import Resource
from dovetail.server.signature import ArgumentError, BrokenJson
from dovetail.server.subscriptions import subscription_handlers
from dovetail.server.tools import Tool
from dovetail.spec._surface import CLIENT_REQUESTS, TASKS_REQUESTS
from dovetail.spec.project import project
from dovetail.spec.revisions import BY_ID, HANDSHAKE, MODERN, Revision
from dovetail.spec.types import (
    CallToolResult,
    CompleteResult,
    DiscoverResult,
    InitializeResult,
    PromptReference,
    ReadResourceResult,
)

if TYPE_CHECKING:
    from dovetail.server.app import Server
    from dovetail.spec.headers import Mirror

__all__ = ["KNOWN_METHODS", "Dispatch"]

_EMPTY = Raw(b"{}")

# Browsers stop at 64 KiB to 2 MiB; a template takes its time for every character.
MAX_URI = 64 * 1024

# Every method of every revision: an author's own must have another name.
KNOWN_METHODS = frozenset(TASKS_REQUESTS).union(*CLIENT_REQUESTS.values())


class Dispatch:
    """The method tables of one server."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self.tables: dict[Revision, dict[str, Handler]] = {}
        self.opening: dict[str, Handler] = {}
        self.offered: set[str] = set()  # the lists that a client may have seen declared
        # Tools with arguments that travel as headers, too (2026-07-28 over HTTP).
        self.mirrored: dict[str, tuple[Mirror, ...]] = {}

    def rebuild(self) -> None:
        """In place, because open connections hold the tables."""
        lists = ("tools", "resources", "prompts")
        self.offered.update(kind for kind in lists if self._server.offers(kind))
        self.mirrored.clear()
        self.mirrored.update({n: t.mirrors for n, t in self._server.tools.items() if t.mirrors})
        served = self._folded(self._handlers())
        custom = self._folded({n: own.handler() for n, own in self._server.methods.items()})
        self.opening.clear()
        for revision in self._server.revisions:
            table = self.tables.setdefault(revision, {})
            table.clear()
            known = revision.client_requests
            table.update({name: handler for name, handler in served.items() if name in known})
            table.update(custom)
            if self._server.tasks is not None:
                table.update(self._folded(self._task_handlers(revision)))
            if not revision.modern:
                self.opening.update(table)
        if not self.opening:
            # The only words a client of the handshake era will understand (digest 8.6).
            self.opening["initialize"] = Handler(self._refuse_initialize, inline=True)

    def _folded(self, handlers: dict[str, Handler]) -> dict[str, Handler]:
        """With the middleware around them, and spans if the program makes any."""
        traced = _is_traced()
        if not traced and not self._server.chain:
            return handlers
        from dovetail.server.middleware import fold
        from dovetail.server.telemetry import Spans

        return fold(handlers, [*([Spans()] if traced else []), *self._server.chain])

    def _handlers(self) -> dict[str, Handler]:
        server = self._server
        handlers = {
            "initialize": Handler(self._initialize, inline=True),
            "ping": Handler(self._ping, inline=True),
            "server/discover": Handler(self._discover, inline=True),
        }
        if server.offers("tools"):
            handlers["tools/list"] = Handler(self._list_tools, inline=True)
            handlers["tools/call"] = Handler(self._call_tool)
        if server.offers("resources"):
            handlers["resources/list"] = Handler(self._list_resources, inline=True)
            handlers["resources/templates/list"] = Handler(self._list_templates, inline=True)
            handlers["resources/read"] = Handler(self._read_resource)
        if server.offers("prompts"):
            handlers["prompts/list"] = Handler(self._list_prompts, inline=True)
            handlers["prompts/get"] = Handler(self._get_prompt)
        if server.completes:
            handlers["completion/complete"] = Handler(self._complete)
        return {**handlers, **subscription_handlers(server)}

    def _task_handlers(self, revision: Revision) -> dict[str, Handler]:
        service = self._server.tasks
        if service is None:
            return {}
        if revision.modern:
            return service.extension_handlers()
        return service.core_handlers() if revision.tasks else {}

    # -- lifecycle -------------------------------------------------------------------

    def _initialize(self, request: Request, connection: Link) -> Any:
        """Answer what was asked if it is served, else our newest (digest S2)."""
        params = request.params
        revision = BY_ID.get(params.protocol_version)
        if revision not in self._server.revisions or revision not in HANDSHAKE:
            revision = self._newest_handshake()
        result = InitializeResult(
            protocol_version=revision.id,
            capabilities=self._server.capabilities,
            server_info=self._server.info,
            instructions=self._server.instructions,
        )
        connection.peer.agree(revision, params.client_info, params.capabilities)
        connection.session.promise(self._server.capabilities)
        return project(result, revision)

    def _newest_handshake(self) -> Revision:
        return next(
            revision for revision in reversed(self._server.revisions) if revision in HANDSHAKE
        )

    def _refuse_initialize(self, request: Request, connection: Link) -> Any:
        data = {"supported": [MODERN.id], "requested": request.params.protocol_version}
        raise McpError(UNSUPPORTED_VERSION, data=data)

    def _ping(self, request: Request, connection: Link) -> Any:
        return _EMPTY

    def _discover(self, request: Request, connection: Link) -> Any:
        self.rebuild()  # what is declared now is served from now on (digest S13)
        result = DiscoverResult(
            supported_versions=[MODERN.id],
            capabilities=self._server.capabilities,
            instructions=self._server.instructions,
        )
        return {**project(result, MODERN), **self._server.cache_stamps(MODERN)}

    # -- tools -----------------------------------------------------------------------

    def _list_tools(self, request: Request, connection: Link) -> Raw:
        return self._server.tool_list.page(request.revision, request.params.cursor)

    def _call_tool(self, request: Request, connection: Link) -> Any:
        params = request.params
        tool = self._server.tools.get(params.name)
        if tool is None:
            raise self._unknown_tool(params.name, request.revision)
        raw = params.arguments
        try:
            arguments = tool.decode(b"{}" if raw is UNSET else raw)
        except ArgumentError as error:
            return self._bad_arguments(tool, error, request.revision)
        except BrokenJson:
            raise McpError(PARSE_ERROR, data="Invalid JSON") from None
        if params.request_state is not UNSET:
            self._check_state(request, connection)
        if tool.task is not None or params.task is not UNSET:
            service = self._server.tasks
            if service is not None and service.wanted(tool, request):
                return self._asking(service.call(tool, arguments, request, connection), request)
        if tool.function.context is None:
            return tool.start(arguments, request)
        tool.function.add_context(arguments, request, connection)
        return self._asking(tool.start(arguments, request), request)

    def _asking(self, outcome: Any, request: Request) -> Any:
        """A function with a context may stop to ask; only 2026-07-28 answers so."""
        if not request.revision.modern or not isinstance(outcome, CoroutineType):
            return outcome
        from dovetail.server.ask import answered_or_asked

        return answered_or_asked(outcome, request, self._server.stamp)

    def _check_state(self, request: Request, connection: Link) -> None:
        """State that was tampered with is refused even if nobody would look at it (S19)."""
        if request.revision.modern and request.params.request_state is not UNSET:
            from dovetail.server.ask import Answers

            Answers(request, self._server.seal, connection.session.principal)

    def _unknown_tool(self, name: str, revision: Revision) -> McpError:
        code = INVALID_PARAMS if revision.modern else self._server.policy.unknown_tool
        return McpError(code, data=f"Unknown tool: '{name}'")

    def _bad_arguments(
        self, tool: Tool[..., Any], error: ArgumentError, revision: Revision
    ) -> CallToolResult:
        if error.not_object or self._server.policy.bad_arguments == "error":
            raise McpError(INVALID_PARAMS, data=str(error)) from None
        return tool.failed(str(error), revision)

    # -- resources -------------------------------------------------------------------

    def _list_resources(self, request: Request, connection: Link) -> Raw:
        return self._server.resource_list.page(request.revision, request.params.cursor)

    def _list_templates(self, request: Request, connection: Link) -> Raw:
        return self._server.template_list.page(request.revision, request.params.cursor)

    def _read_resource(self, request: Request, connection: Link) -> Any:
        uri = request.params.uri
        resource, variables = self.find_resource(uri)
        arguments = resource.codec.decode(variables)
        self._check_state(request, connection)
        resource.function.add_context(arguments, request, connection)
        return self._asking(self._read(resource, uri, arguments, request.revision), request)

    def find_resource(self, uri: str) -> tuple[Resource[..., Any], dict[str, str]]:
        resource = self._server.resources.get(uri)
        if resource is not None:
            return resource, {}
        if len(uri) > MAX_URI:
            raise McpError(INVALID_PARAMS, data=f"The URI is longer than {MAX_URI} characters")
        for template in self._server.templates.values():
            variables = template.match(uri)
            if variables is not None:
                return template, variables
        raise ResourceNotFound(uri)

    async def _read(
        self, resource: Resource[..., Any], uri: str, arguments: dict[str, Any], revision: Revision
    ) -> Any:
        try:
            result = ReadResourceResult(contents=await resource.read(uri, arguments))
        except ToolError as error:
            raise _refusal(error) from None
        return {**project(result, revision), **self._server.cache_stamps(revision, resource.ttl_ms)}

    # -- prompts ---------------------------------------------------------------------

    def _list_prompts(self, request: Request, connection: Link) -> Raw:
        return self._server.prompt_list.page(request.revision, request.params.cursor)

    def _get_prompt(self, request: Request, connection: Link) -> Any:
        params = request.params
        prompt = self._server.prompts.get(params.name)
        if prompt is None:
            raise McpError(INVALID_PARAMS, data=f"Unknown prompt: '{params.name}'")
        given = {} if params.arguments is UNSET else params.arguments
        arguments = prompt.codec.decode(given)
        self._check_state(request, connection)
        prompt.function.add_context(arguments, request, connection)
        return self._asking(self._finish(prompt.get(arguments), request.revision), request)

    async def _finish(self, making: Any, revision: Revision) -> Any:
        try:
            return {**project(await making, revision), **self._server.stamps(revision)}
        except ToolError as error:
            raise _refusal(error) from None

    # -- completion ------------------------------------------------------------------

    def _complete(self, request: Request, connection: Link) -> Any:
        completers = self._completers(request.params.ref)
        return self._completed(completers, request)

    def _completers(self, ref: Any) -> Completers:
        if isinstance(ref, PromptReference):
            owner: Any = self._server.prompts.get(ref.name)
        else:
            owner = self._server.templates.get(ref.uri) or self._server.resources.get(ref.uri)
        if owner is None:
            raise McpError(INVALID_PARAMS, data=f"Unknown reference: {_shown(ref)}")
        completers: Completers = owner.completers
        return completers

    async def _completed(self, completers: Completers, request: Request) -> Any:
        result = CompleteResult(completion=await completers.run(request.params))
        return {**project(result, request.revision), **self._server.stamps(request.revision)}


def _shown(ref: Any) -> str:
    return msgspec.json.encode(ref).decode()


def _refusal(error: ToolError) -> McpError:
    """The author's text, where there is no model to read it: no crash, but an error."""
    return McpError(INTERNAL_ERROR, data=str(error))


def _is_traced() -> bool:
    """Whether the program has set OpenTelemetry up; its stand-in makes no spans."""
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider
    )
