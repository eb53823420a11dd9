"""``Server``: the registries, the decorators, and the ways to run it."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType

from dovetail.core.peer import Notification, Peer, Request
from dovetail.errors import INVALID_PARAMS
from dovetail.runtime.connection import Connection, Tap
from dovetail.runtime.limits import Limits
from dovetail.runtime.threads import Threads
from dovetail.server.changes import Changes
from dovetail.server.codecs import codecs
from dovetail.server.definitions import (
    checked,
    checked_extensions,
    checked_timeout,
    checked_tool_name,
    checked_uri,
    definition_of,
    resource_definition,
    tool_annotations,
)
from dovetail.server.dispatch import KNOWN_METHODS, Dispatch
from dovetail.server.function import Function
from dovetail.server.lifespan import Lifespan, LifespanFunction
from dovetail.server.listing import Listing
from dovetail.server.policy import checked_policy, chosen_revisions
from dovetail.server.prompts import Prompt, prompt_arguments
from dovetail.server.registry import Registry
from dovetail.server.resources import Resource
from dovetail.server.session import Session
from dovetail.server.signature import describe
from dovetail.server.strings import StringCodec
from dovetail.server.tools import Tool
from dovetail.spec import types
from dovetail.spec.meta import SERVER_INFO_KEY, TASKS_EXTENSION
from dovetail.spec.revisions import Revision

if TYPE_CHECKING:  # loaded by the first who needs them: a small server starts faster
    from dovetail.server.custom import CustomMethod, CustomNotification
    from dovetail.server.middleware import Middleware
    from dovetail.server.mount import Mount
    from dovetail.server.request_state import Seal
    from dovetail.server.tasks.service import TaskService
    from dovetail.server.tasks.store import TaskStore

__all__ = ["Server"]

P = ParamSpec("P")
R = TypeVar("R")

# What 2025-11-25 is told when a tool can run as a task (digest 7.1).
CORE_TASKS: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


class Server:
    """A set of tools, resources and prompts, served to any client of any revision."""

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | UnsetType = UNSET,
        description: str | UnsetType = UNSET,
        instructions: str | UnsetType = UNSET,
        website_url: str | UnsetType = UNSET,
        icons: list[types.Icon] | UnsetType = UNSET,
        revisions: Sequence[str] | None = None,
        errors: Literal["full", "minimal"] = "full",
        unknown_tool: int = INVALID_PARAMS,
        bad_arguments: Literal["result", "error"] = "result",
        handshake: Literal["lenient", "strict"] = "lenient",
        batches: bool = True,
        page_size: int | None = None,
        ttl_ms: int = 0,
        cache_scope: Literal["public", "private"] = "private",
        list_changed: bool = True,
        extensions: dict[str, Any] | UnsetType = UNSET,
        experimental: dict[str, Any] | UnsetType = UNSET,
        state_keys: Sequence[bytes] = (),
        task_store: "TaskStore | None" = None,
        limits: Limits | None = None,
    ) -> None:
        if not name:
            raise ValueError("a server needs a name")
        self.info = checked(
            types.Implementation(
                name=name,
                version=version,
                title=title,
                description=description,
                website_url=website_url,
                icons=icons,
            )
        )
        self.instructions = instructions
        self.policy = checked_policy(
            errors=errors,
            unknown_tool=unknown_tool,
            bad_arguments=bad_arguments,
            handshake=handshake,
            batches=batches,
            page_size=page_size,
            ttl_ms=ttl_ms,
            cache_scope=cache_scope,
            list_changed=list_changed,
        )
        self.limits = Limits() if limits is None else limits
        if not isinstance(self.limits, Limits):
            raise TypeError(f"limits must be Limits(...), not {limits!r}")
        self._state_keys = state_keys
        self._extensions = checked_extensions(extensions)
        self._experimental = experimental
        self._lifespan = Lifespan(self)
        self._task_store = task_store
        self.tasks: TaskService | None = None  # made by the first tool that can be a task
        self.chain: list[Middleware] = []
        self.may_log = False  # nobody but a function with a context can
        self.methods: dict[str, CustomMethod] = {}
        self._notifications: dict[str, CustomNotification] = {}
        self.revisions = chosen_revisions(revisions, batches)
        self._changes = Changes()
        self.subscribe_listeners: list[Callable[[str], None]] = []
        self._mounts: list[Mount] = []
        self._tools = Registry[Tool[..., Any]]("tool", partial(self._changed, "tools"))
        resources_changed = partial(self._changed, "resources")
        self._resources = Registry[Resource[..., Any]]("resource", resources_changed)
        self._templates = Registry[Resource[..., Any]]("resource", resources_changed)
        self._prompts = Registry[Prompt[..., Any]]("prompt", partial(self._changed, "prompts"))
        # What clients see now.
        self.tools = self._tools.active
        self.resources = self._resources.active
        self.templates = self._templates.active
        self.prompts = self._prompts.active
        self.stamp = Raw(msgspec.json.encode({SERVER_INFO_KEY: self.info}))
        self.threads = Threads(self.limits.max_threads)
        self._dispatch = Dispatch(self)
        self.tool_list = self._listing("tools", self.tools, Tool.described)
        self.resource_list = self._listing("resources", self.resources, definition_of)
        self.template_list = self._listing("resourceTemplates", self.templates, definition_of)
        self.prompt_list = self._listing("prompts", self.prompts, definition_of)
        self._lists = {
            "tools": (self.tool_list,),
            "resources": (self.resource_list, self.template_list),
            "prompts": (self.prompt_list,),
        }

    @property
    def name(self) -> str:
        return self.info.name

    def __repr__(self) -> str:
        return f"<Server {self.info.name!r} {self.info.version}>"

    # -- registering -----------------------------------------------------------------

    @overload
    def tool(self, fn: Callable[P, R], /) -> Tool[P, R]: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        title: str | UnsetType = UNSET,
        description: str | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        names: Literal["kebab", "camel"] | None = None,
        inline: bool = False,
        timeout: float | None = None,
        task: Literal["optional", "required"] | None = None,
        read_only: bool | UnsetType = UNSET,
        destructive: bool | UnsetType = UNSET,
        idempotent: bool | UnsetType = UNSET,
        open_world: bool | UnsetType = UNSET,
        icons: list[types.Icon] | UnsetType = UNSET,
        meta: dict[str, Any] | UnsetType = UNSET,
    ) -> Callable[[Callable[P, R]], Tool[P, R]]: ...

    def tool(self, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Register a function as a tool; its signature and docstring are the schema.

        ``input_schema`` replaces the signature: the function then takes one dict.
        ``names="kebab"`` lets clients write the parameter ``two_words`` as ``two-words``.
        ``inline=True`` runs a short sync function on the event loop; ``timeout`` ends
        a call after so many seconds, with an error the model can read.
        """
        if fn is None:
            return lambda fn: self._add_tool(fn, **options)
        if not callable(fn):
            raise TypeError(f"{fn!r} is no function: write @server.tool(name={fn!r})")
        return self._add_tool(fn, **options)

    def _add_tool(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | UnsetType = UNSET,
        description: str | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        names: Literal["kebab", "camel"] | None = None,
        inline: bool = False,
        timeout: float | None = None,
        task: Literal["optional", "required"] | None = None,
        icons: list[types.Icon] | UnsetType = UNSET,
        meta: dict[str, Any] | UnsetType = UNSET,
        **hints: bool | UnsetType,
    ) -> Tool[..., Any]:
        function = self._function(fn, inline)
        arguments, output = codecs(function, input_schema, output_schema, names)
        definition = types.Tool(
            name=checked_tool_name(name or fn.__name__),
            title=title,
            description=description or describe(fn)[0] or UNSET,
            input_schema=arguments.schema,
            annotations=tool_annotations(hints),
            execution=UNSET if task is None else types.ToolExecution(task_support=task),
            icons=icons,
            meta=meta,
        )
        tool = Tool[..., Any](
            function,
            checked(definition),
            arguments,
            output,
            stamp=self.stamp,
            timeout=checked_timeout(timeout),
            task=task,
        )
        self.supports_tasks(task)
        self._tools.add(tool.name, tool)
        return tool

    def resource(
        self,
        uri: str,
        /,
        *,
        name: str | None = None,
        title: str | UnsetType = UNSET,
        description: str | None = None,
        mime_type: str | UnsetType = UNSET,
        size: int | UnsetType = UNSET,
        ttl_ms: int | None = None,
        inline: bool = False,
        annotations: types.Annotations | UnsetType = UNSET,
        icons: list[types.Icon] | UnsetType = UNSET,
        meta: dict[str, Any] | UnsetType = UNSET,
    ) -> Callable[[Callable[P, R]], Resource[P, R]]:
        """Register a function that reads ``uri``, or every URI of an RFC 6570 template."""
        if not isinstance(uri, str):
            raise TypeError('a resource needs its URI: write @server.resource("scheme://name")')
        shared = {
            "title": title,
            "mime_type": mime_type,
            "annotations": annotations,
            "icons": icons,
            "meta": meta,
        }

        def register(fn: Callable[P, R]) -> Resource[P, R]:
            shared["name"] = name or fn.__name__
            shared["description"] = description or describe(fn)[0] or UNSET
            function = self._function(fn, inline)
            definition = resource_definition(checked_uri(uri), size, shared)
            is_template = isinstance(definition, types.ResourceTemplate)
            made = Resource[P, R](function, checked(definition), ttl_ms=ttl_ms)
            (self._templates if is_template else self._resources).add(uri, made)
            return made

        return register

    @overload
    def prompt(self, fn: Callable[P, R], /) -> Prompt[P, R]: ...
    @overload
    def prompt(
        self,
        /,
        *,
        name: str | None = None,
        title: str | UnsetType = UNSET,
        description: str | None = None,
        inline: bool = False,
        icons: list[types.Icon] | UnsetType = UNSET,
        meta: dict[str, Any] | UnsetType = UNSET,
    ) -> Callable[[Callable[P, R]], Prompt[P, R]]: ...

    def prompt(self, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Register a function as a prompt; it returns a text, messages or content."""
        if fn is None:
            return lambda fn: self._add_prompt(fn, **options)
        if not callable(fn):
            raise TypeError(f"{fn!r} is no function: write @server.prompt(name={fn!r})")
        return self._add_prompt(fn, **options)

    def _add_prompt(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | UnsetType = UNSET,
        description: str | None = None,
        inline: bool = False,
        icons: list[types.Icon] | UnsetType = UNSET,
        meta: dict[str, Any] | UnsetType = UNSET,
    ) -> Prompt[..., Any]:
        function = self._function(fn, inline)
        codec = StringCodec(fn, function.skipped)
        definition = types.Prompt(
            name=name or fn.__name__,
            title=title,
            description=description or describe(fn)[0] or UNSET,
            arguments=prompt_arguments(codec) or UNSET,
            icons=icons,
            meta=meta,
        )
        prompt = Prompt[..., Any](function, checked(definition), codec)
        self._prompts.add(prompt.name, prompt)
        return prompt

    def _function(self, fn: Callable[..., Any], inline: bool = False) -> Function:
        function = Function(fn, inline=inline, owner=self)
        self.may_log = self.may_log or function.context is not None
        return function

    def supports_tasks(self, task: str | None) -> None:
        """The first tool that can run as a task brings the methods of tasks with it."""
        if task is None or self.tasks is not None:
            return
        from dovetail.server.tasks.service import TaskService

        self.tasks = TaskService(self, self._task_store)
        self._lifespan.serve(self.tasks.open, self.tasks.close)

    async def watchable_tasks(self, request: Request, session: Session) -> list[str] | UnsetType:
        """The tasks of a listen request that its client may watch."""
        if self.tasks is None:
            return UNSET
        return await self.tasks.watchable(request, session)

    def _changed(self, kind: str, update: Callable[[], None]) -> None:
        """A list is to be another one. Any thread may say so, but only the loop's may do it:
        a request must not see a list that is half changed."""
        self._changes.on_loop(self._change, kind, update)

    def _change(self, kind: str, update: Callable[[], None]) -> None:
        """Forget the pages of a list, and tell who is connected."""
        update()
        for listing in self._lists[kind]:
            listing.clear()
        for mount in self._mounts:
            mount.sync(kind)
        if self._changes.sessions:
            self._dispatch.rebuild()
            if self.policy.list_changed:
                self._changes.mark(kind)

    def updated(self, uri: str) -> None:
        """Tell the subscribers of a resource that it has changed. Any thread may call it."""
        self._changes.updated(uri)
        for mount in self._mounts:
            mount.host.updated(uri)

    def on_subscribe(self, listener: Callable[[str], None]) -> None:
        """Be told of each URI when a client subscribes to it: then it is still as it was."""
        self.subscribe_listeners.append(listener)

    @property
    def subscribed(self) -> set[str]:
        """The URIs that the clients connected now want to hear about."""
        return {uri for session in self.sessions for uri in session.watched}

    # -- around and beyond the protocol ------------------------------------------------

    def mount(self, guest: "Server", prefix: str = "") -> None:
        """Offer what another server offers, now and later, as if it were ours."""
        from dovetail.server.mount import Mount

        mount = Mount(self, guest, prefix)
        for kind in self._lists:
            mount.sync(kind)
        guest._mounts.append(mount)
        self.may_log = self.may_log or guest.may_log
        self._lifespan.include(guest.running())

    def registry(self, kind: str) -> Registry[Any]:
        registry: Registry[Any] = getattr(self, f"_{kind}")
        return registry

    def extend(self, identifier: str, settings: dict[str, Any] | None = None) -> None:
        """Declare an extension (2026-07-28); its identifier needs a prefix (digest X34)."""
        given = {} if self._extensions is UNSET else self._extensions
        self._extensions = checked_extensions({**given, identifier: settings or {}})

    def lifespan(self, function: LifespanFunction) -> LifespanFunction:
        """Register an async generator: what it yields is ``ctx.state`` while serving."""
        self._lifespan.add(function)
        return function

    @property
    def state(self) -> Any:
        """What the lifespan yielded."""
        return self._lifespan.state

    def middleware(self, function: "Middleware") -> "Middleware":
        """Register ``async (call, next)`` around every request; the first is outermost."""
        self.chain.append(function)
        return function

    def method(self, name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Register a request of your own; the function takes its params by name."""

        def register(fn: Callable[P, R]) -> Callable[P, R]:
            if name in self.methods or name in KNOWN_METHODS:
                raise ValueError(f"method {name!r} is already there")
            from dovetail.server.custom import CustomMethod

            self.methods[name] = CustomMethod(self._function(fn))
            return fn

        return register

    def notification(self, name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Register what to do when a client sends this notification."""

        def register(fn: Callable[P, R]) -> Callable[P, R]:
            if name in self._notifications:
                raise ValueError(f"notification {name!r} is already handled")
            from dovetail.server.custom import CustomNotification

            self._notifications[name] = CustomNotification(self._function(fn))
            return fn

        return register

    def _notified(self, notification: Notification, connection: Connection) -> None:
        handler = self._notifications.get(notification.method)
        if handler is not None:
            handler(notification, connection)

    @property
    def sessions(self) -> list[Session]:
        """The clients that are connected now."""
        return list(self._changes.sessions)

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Send a notification of your own to every client that has finished its handshake."""
        for session in self.sessions:
            if session.ready:
                session.notify(method, params)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message that belongs to no request to every client of the handshake."""
        for session in self.sessions:
            session.log(level, data, logger)

    # -- what clients are told ---------------------------------------------------------

    def offers(self, kind: str) -> bool:
        """Whether a list has something in it, or had while serving: it stays (digest S13)."""
        now: dict[str, Any] = {
            "tools": self.tools,
            "resources": self.resources or self.templates,
            "prompts": self.prompts,
        }
        return bool(now[kind]) or kind in self._dispatch.offered

    @property
    def completes(self) -> bool:
        owners: list[Any] = [*self.prompts.values(), *self.templates.values()]
        return any(owner.completers for owner in owners)

    @property
    def capabilities(self) -> types.ServerCapabilities:
        announced = True if self.policy.list_changed else UNSET
        changing = types.ListChangedCapability(list_changed=announced)
        subscribed = types.ResourcesCapability(subscribe=True, list_changed=announced)
        return types.ServerCapabilities(
            experimental=self._experimental,
            extensions=self._declared_extensions(),
            tasks=UNSET if self.tasks is None else CORE_TASKS,
            logging={} if self.may_log else UNSET,
            tools=changing if self.offers("tools") else UNSET,
            resources=subscribed if self.offers("resources") else UNSET,
            prompts=changing if self.offers("prompts") else UNSET,
            completions={} if self.completes else UNSET,
        )

    def _declared_extensions(self) -> dict[str, Any] | UnsetType:
        if self.tasks is None:
            return self._extensions
        given = {} if self._extensions is UNSET else self._extensions
        return {**given, TASKS_EXTENSION: {}}

    @cached_property
    def seal(self) -> "Seal":
        """What keeps the state of a question honest while the client holds it."""
        from dovetail.server.request_state import Seal

        return Seal(self.info.name, keys=self._state_keys)

    def find_resource(self, uri: str) -> tuple[Resource[..., Any], dict[str, str]]:
        """The resource of a URI and its variables; McpError if there is none."""
        return self._dispatch.find_resource(uri)

    def result_stamps(self, meta: dict[str, Any]) -> dict[str, Any]:
        """An empty result of 2026-07-28 with ``meta`` in its ``_meta``."""
        return {"resultType": "complete", "_meta": {SERVER_INFO_KEY: self.info, **meta}}

    def stamps(self, revision: Revision) -> dict[str, Any]:
        """What 2026-07-28 wants on every result (digest S10, 8.2)."""
        if not revision.modern:
            return {}
        return {"resultType": "complete", "_meta": self.stamp}

    def cache_stamps(self, revision: Revision, ttl_ms: int | None = None) -> dict[str, Any]:
        """The same, with the caching hints of lists and resources (digest S41)."""
        if not revision.modern:
            return {}
        ttl = self.policy.ttl_ms if ttl_ms is None else ttl_ms
        return {**self.stamps(revision), "ttlMs": ttl, "cacheScope": self.policy.cache_scope}

    def _listing(self, member: str, items: Any, describe: Callable[..., Any]) -> Listing:
        return Listing(member, items, describe, self.cache_stamps, self.policy.page_size)

    # -- running -----------------------------------------------------------------------

    def connection(self, *, tap: Tap | None = None) -> Connection:
        """A new connection of this server, for a transport to feed."""
        self._dispatch.rebuild()
        peer = Peer(
            self._dispatch.tables,
            self._dispatch.opening,
            strict_handshake=self.policy.handshake == "strict",
            batches=self.policy.batches,
            error_detail=self.policy.errors == "full",
            max_depth=self.limits.max_depth,
            max_batch=self.limits.max_batch,
        )
        connection = Connection(peer, self.limits, on_notification=self._notified, tap=tap)
        connection.session = Session(self, connection)
        self._changes.open(connection.session)
        return connection

    def run(self, *, tap: Tap | None = None) -> None:
        """Serve stdin and stdout until the client is gone."""
        from dovetail.server.run import run_stdio

        run_stdio(self, tap)

    async def close_stores(self) -> None:
        """The process ends: nobody will serve from them again."""
        if self._task_store is not None:
            await self._task_store.close()

    def running(self) -> "Lifespan":
        """``async with server.running():`` holds the lifespan open; transports do it."""
        return self._lifespan
