"""``Server``: the registries, the decorators, and the ways to run it."""

import gc
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType

from dovetail.core.peer import Peer
from dovetail.errors import INVALID_PARAMS
from dovetail.runtime.connection import Connection, Tap
from dovetail.runtime.limits import Limits
from dovetail.runtime.threads import Threads
from dovetail.server.dispatch import Dispatch
from dovetail.server.function import Function
from dovetail.server.handwritten import HandWrittenArguments, HandWrittenOutput
from dovetail.server.listing import Listing
from dovetail.server.output import output_codec
from dovetail.server.policy import Policy, chosen_revisions
from dovetail.server.prompts import Prompt, prompt_arguments
from dovetail.server.resources import Resource
from dovetail.server.signature import ArgCodec, args_codec, describe
from dovetail.server.strings import StringCodec
from dovetail.server.tools import Tool
from dovetail.spec import types
from dovetail.spec.meta import SERVER_INFO_KEY
from dovetail.spec.revisions import Revision

__all__ = ["Server"]

P = ParamSpec("P")
R = TypeVar("R")
_Decorator = Callable[[Callable[P, R]], Any]


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
        limits: Limits | None = None,
    ) -> None:
        self.info = types.Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=icons,
        )
        self.instructions = instructions
        self.policy = Policy(
            errors=errors,
            unknown_tool=unknown_tool,
            bad_arguments=bad_arguments,
            handshake=handshake,
            batches=batches,
            page_size=page_size,
            ttl_ms=ttl_ms,
            cache_scope=cache_scope,
        )
        self.limits = limits or Limits()
        self.revisions = chosen_revisions(tuple(revisions) if revisions else None, batches)
        self.tools: dict[str, Tool[..., Any]] = {}
        self.resources: dict[str, Resource[..., Any]] = {}
        self.templates: dict[str, Resource[..., Any]] = {}
        self.prompts: dict[str, Prompt[..., Any]] = {}
        self._stamp = Raw(msgspec.json.encode({SERVER_INFO_KEY: self.info}))
        self._threads = Threads(self.limits.max_threads)
        self._dispatch = Dispatch(self)
        self.tool_list = self._listing("tools", self.tools, Tool.described)
        self.resource_list = self._listing("resources", self.resources, _definition)
        self.template_list = self._listing("resourceTemplates", self.templates, _definition)
        self.prompt_list = self._listing("prompts", self.prompts, _definition)

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
        inline: bool = False,
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
        ``inline=True`` runs a short sync function on the event loop.
        """
        if fn is None:
            return lambda fn: self._add_tool(fn, **options)
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
        inline: bool = False,
        icons: list[types.Icon] | UnsetType = UNSET,
        meta: dict[str, Any] | UnsetType = UNSET,
        **hints: bool | UnsetType,
    ) -> Tool[..., Any]:
        function = Function(fn, inline=inline, threads=self._threads)
        arguments: ArgCodec
        if input_schema is None:
            arguments = args_codec(fn, skip=function.skipped)
        else:
            arguments = HandWrittenArguments(input_schema, function)
        output = output_codec(fn) if output_schema is None else HandWrittenOutput(output_schema)
        definition = types.Tool(
            name=checked_name("tool", name or fn.__name__, self.tools),
            title=title,
            description=description or describe(fn)[0] or UNSET,
            input_schema=arguments.schema,
            annotations=_tool_annotations(hints),
            icons=icons,
            meta=meta,
        )
        tool = Tool[..., Any](
            function,
            definition,
            arguments,
            output,
            text_only=False,
            stamp=self._stamp,
        )
        self.tools[tool.name] = tool
        self._changed()
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
            function = Function(fn, inline=inline, threads=self._threads)
            definition = _resource_definition(checked_uri(uri), size, shared)
            is_template = isinstance(definition, types.ResourceTemplate)
            registry = self.templates if is_template else self.resources
            if uri in registry:
                raise ValueError(f"resource {uri!r} is already registered")
            made = Resource[P, R](function, definition, ttl_ms=ttl_ms)
            registry[uri] = made
            self._changed()
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
        function = Function(fn, inline=inline, threads=self._threads)
        codec = StringCodec(fn, function.skipped)
        definition = types.Prompt(
            name=checked_name("prompt", name or fn.__name__, self.prompts),
            title=title,
            description=description or describe(fn)[0] or UNSET,
            arguments=prompt_arguments(codec) or UNSET,
            icons=icons,
            meta=meta,
        )
        prompt = Prompt[..., Any](function, definition, codec)
        self.prompts[prompt.name] = prompt
        self._changed()
        return prompt

    def _changed(self) -> None:
        for listing in (self.tool_list, self.resource_list, self.template_list, self.prompt_list):
            listing.clear()

    # -- what clients are told ---------------------------------------------------------

    @property
    def completes(self) -> bool:
        owners: list[Any] = [*self.prompts.values(), *self.templates.values()]
        return any(owner.completers for owner in owners)

    @property
    def capabilities(self) -> types.ServerCapabilities:
        has_resources = self.resources or self.templates
        return types.ServerCapabilities(
            tools=types.ListChangedCapability() if self.tools else UNSET,
            resources=types.ResourcesCapability() if has_resources else UNSET,
            prompts=types.ListChangedCapability() if self.prompts else UNSET,
            completions={} if self.completes else UNSET,
        )

    def stamps(self, revision: Revision) -> dict[str, Any]:
        """What 2026-07-28 wants on every result (digest S10, 8.2)."""
        if not revision.modern:
            return {}
        return {"resultType": "complete", "_meta": self._stamp}

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
        )
        return Connection(peer, self.limits, tap=tap)

    def run(self, *, tap: Tap | None = None) -> None:
        """Serve stdin and stdout until the client is gone."""
        import asyncio

        from dovetail.transport import stdio

        if sys.stdin is not None and sys.stdin.isatty():
            print(
                f"{self.name} speaks MCP on stdin and stdout: add this command to an MCP client, "
                "or paste a JSON-RPC message here. Ctrl-D ends it.",
                file=sys.stderr,
            )
        own_in, own_out = stdio.claim()
        # What was made so far stays for good: collecting it again and again is in
        # vain. A call leaves no cycles, so young objects need few collections too.
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        asyncio.run(stdio.serve(lambda: self.connection(tap=tap), own_in, own_out))


def _definition(registered: Any, revision: Revision) -> Any:
    return registered.definition


# 1 to 128 of these since 2025-11-25 (digest 6); clients put names into APIs that insist.
_TOOL_NAME = r"[A-Za-z0-9_.-]{1,128}"
# RFC 3986 (digest S39): a scheme, then nothing but what a URI may hold.
_URI = r"[A-Za-z][A-Za-z0-9+.-]*:(?:[!#$&-;=?-Z_a-z~\[\]@]|%[0-9A-Fa-f]{2})*"


def checked_uri(uri: str) -> str:
    if not re.fullmatch(_URI, re.sub(r"\{[^}]*\}", "", uri)):
        raise ValueError(f"{uri!r} is not a URI: it needs a scheme, and escapes for odd characters")
    return uri


def checked_name(kind: str, name: str, registry: dict[str, Any]) -> str:
    if kind == "tool" and not re.fullmatch(_TOOL_NAME, name):
        raise ValueError(f"tool name {name!r} must be 1 to 128 of A-Z a-z 0-9 _ . -")
    if name in registry:
        raise ValueError(f"{kind} {name!r} is already registered")
    return name


def _tool_annotations(hints: dict[str, bool | UnsetType]) -> types.ToolAnnotations | UnsetType:
    given: dict[str, Any] = {
        f"{key}_hint": value for key, value in hints.items() if value is not UNSET
    }
    return types.ToolAnnotations(**given) if given else UNSET


def _resource_definition(
    uri: str, size: int | UnsetType, shared: dict[str, Any]
) -> types.Resource | types.ResourceTemplate:
    if "{" in uri:
        return types.ResourceTemplate(uri_template=uri, **shared)
    return types.Resource(uri=uri, size=size, **shared)
