"""Tools: what ``@server.tool`` makes of a function, and the results of a call."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

import msgspec
from msgspec import UNSET, Raw

from dovetail.core.peer import Request
from dovetail.errors import McpError, ToolError
from dovetail.server.definitions import checked_mirrors
from dovetail.server.function import Function
from dovetail.server.output import OutCodec, encode_json, is_content, is_text_only
from dovetail.server.registry import Handle
from dovetail.server.signature import ArgCodec, hint
from dovetail.spec import types
from dovetail.spec.project import project
from dovetail.spec.revisions import MODERN, Revision
from dovetail.spec.types import CallToolResult, TextContent

if TYPE_CHECKING:
    from dovetail.server.context import Context

    Preparation = Callable[[Context[Any], dict[str, Any]], Awaitable[None]]

__all__ = ["Tool"]

log = logging.getLogger("dovetail")

P = ParamSpec("P")
R = TypeVar("R")

_BLOCKS: tuple[Any, ...] = types.Content.__args__


class Tool(Handle, Generic[P, R]):
    """A registered tool. Calling it calls the function it was made from."""

    def __init__(
        self,
        function: Function,
        definition: types.Tool,
        arguments: ArgCodec,
        output: OutCodec | None,
        *,
        stamp: Raw,
        timeout: float | None = None,
        task: Literal["optional", "required"] | None = None,
        scopes: frozenset[str] = frozenset(),
    ) -> None:
        self.name = definition.name
        self.definition = definition
        self.function = function
        self.output = output
        self.arguments = arguments
        self.mirrors = checked_mirrors(definition)
        self.decode = arguments.decode
        self._call = function.call
        self.timeout = timeout
        self.task = task
        self.listed = True  # False hides it from tools/list; those who know it may call it
        self.scopes = scopes
        self.preparation: Preparation | None = None
        self.start = self._starter()
        self._text_only = is_text_only(function.fn)
        self._returns_content = _returns_content(function.fn)
        self._stamp = stamp

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.function.fn(*args, **kwargs)
        return result

    def copied(self, prefix: str, host: Any) -> "Tool[P, R]":
        """The same tool under another name, for the server it is mounted on."""
        host.supports_tasks(self.task)
        copy = Tool[P, R](
            self.function,
            msgspec.structs.replace(self.definition, name=prefix + self.name),
            self.arguments,
            self.output,
            stamp=host.stamp,
            timeout=self.timeout,
            task=self.task,
            scopes=self.scopes,
        )
        copy.listed = self.listed
        copy.preparation = self.preparation
        return copy

    def before_task(self, fn: "Preparation") -> "Preparation":
        """Register ``async (ctx, arguments)`` to run before a call becomes a task.

        What it asks is asked by the request itself; the tool finds the answers
        under the same keys. What it raises is the answer, and there is no task.
        """
        self.preparation = fn
        return fn

    async def prepare(
        self, ctx: "Context[Any]", arguments: dict[str, Any], revision: Revision
    ) -> CallToolResult | None:
        """A result, if the preparation failed: then no task is made."""
        if self.preparation is None:
            return None
        try:
            await self.preparation(ctx, arguments)
        except (Exception, SystemExit) as error:
            return self._failure(error, revision)
        return None

    def described(self, revision: Revision) -> types.Tool:
        """The definition with the output schema this revision can hold (digest 8.14)."""
        if self.output is None:
            return self.definition
        schema = self.output.schema if revision.any_output else self.output.wrapped_schema
        return msgspec.structs.replace(self.definition, output_schema=schema)

    async def _run(self, arguments: dict[str, Any], request: Request) -> CallToolResult:
        try:
            return self.result(await self._call(**arguments), request.revision)
        except (Exception, SystemExit) as error:
            return self._failure(error, request.revision)

    async def _run_timed(self, arguments: dict[str, Any], request: Request) -> CallToolResult:
        try:
            async with asyncio.timeout(self.timeout) as deadline:
                value = await self._call(**arguments)
            return self.result(value, request.revision)
        except (Exception, SystemExit) as error:
            if not deadline.expired():
                return self._failure(error, request.revision)
            request.cancelled = True  # a thread learns it at its next word to the context
            text = f"Tool '{self.name}' timed out after {self.timeout:g} seconds"
            return self.failed(text, request.revision)

    def _run_inline(self, arguments: dict[str, Any], request: Request) -> CallToolResult:
        try:
            return self.result(self._call(**arguments), request.revision)
        except (Exception, SystemExit) as error:
            return self._failure(error, request.revision)

    def _starter(self) -> Callable[[dict[str, Any], Request], Any]:
        """What gives the result of an inline tool, and a coroutine for any other."""
        if self.function.inline:
            return self._run_inline
        return self._run if self.timeout is None else self._run_timed

    # -- results -------------------------------------------------------------------

    def result(self, value: Any, revision: Revision) -> CallToolResult:
        """The value as content, and as structured content where the revision has it."""
        if self.output is not None and type(value) is not CallToolResult:
            data = self.output.encode(value)
            return self._structured(value, data, self.output.is_object, revision)
        if isinstance(value, CallToolResult):
            return self._finished(value, revision)
        content = _as_content(value)
        if content is None and self._returns_content and value in ([], ()):
            content = []
        if content is not None:
            return self._stamped(project(content, revision), UNSET, revision)
        if type(value) is Raw:
            value = msgspec.json.decode(value)  # it must be JSON, and fit on one line
        data = encode_json(value)
        if self._text_only:
            return self._stamped([_text(value, data)], UNSET, revision)
        return self._structured(value, data, data.startswith(b"{"), revision)

    def _structured(
        self, value: Any, data: bytes, is_object: bool, revision: Revision
    ) -> CallToolResult:
        text = value if type(value) is str else data.decode()
        structured = _structure(data, is_object, revision)
        return self._stamped([TextContent(text=text)], structured, revision)

    def _finished(self, result: CallToolResult, revision: Revision) -> CallToolResult:
        """A result the tool made itself, fitted to the revision."""
        content = list(result.content)
        if not all(isinstance(block, _BLOCKS) for block in content):
            raise TypeError("the content of a result is a list of content blocks")
        structured = result.structured_content
        if structured is not UNSET:
            data = encode_json(structured)
            structured = _structure(data, data.startswith(b"{"), revision)
        made = self._stamped(project(content, revision), structured, revision, result.is_error)
        if result.meta is not UNSET:
            stamp = msgspec.json.decode(self._stamp) if revision.modern else {}
            made.meta = {**stamp, **result.meta}
        return made

    def _stamped(
        self,
        content: list[Any],
        structured: Any,
        revision: Revision,
        is_error: bool = False,
    ) -> CallToolResult:
        if revision is MODERN:
            return CallToolResult(
                content=content,
                structured_content=structured,
                is_error=is_error,
                result_type="complete",
                meta=self._stamp,
            )
        return CallToolResult(content=content, structured_content=structured, is_error=is_error)

    def failed(self, text: str, revision: Revision) -> CallToolResult:
        return self._stamped([TextContent(text=text)], UNSET, revision, is_error=True)

    def _failure(self, error: BaseException, revision: Revision) -> CallToolResult:
        """What the model is told. A crash says nothing: its traceback is in the log."""
        if isinstance(error, McpError):
            raise error
        if isinstance(error, ToolError):
            return self.failed(str(error) or "The tool failed", revision)
        log.error("tool %r failed", self.name, exc_info=error)
        return self.failed(f"Internal error in tool '{self.name}'", revision)


def _returns_content(fn: Callable[..., Any]) -> bool:
    return is_content(hint(fn, "the return value", inspect.signature(fn).return_annotation))


def _text(value: Any, data: bytes) -> TextContent:
    return TextContent(text=value if type(value) is str else data.decode())


def _structure(data: bytes, is_object: bool, revision: Revision) -> Any:
    """Before 2026-07-28 structured content is an object, before 2025-06-18 there is none."""
    if not revision.structured_output:
        return UNSET
    if is_object or revision.any_output:
        return Raw(data)
    return Raw(b'{"result":' + data + b"}")


def _as_content(value: Any) -> list[types.Content] | None:
    """Content blocks, alone or in a list with texts between them; None for other values."""
    if value is None:
        return []
    if isinstance(value, _BLOCKS):
        return [value]
    if isinstance(value, list | tuple) and any(isinstance(item, _BLOCKS) for item in value):
        return [_block(item) for item in value]
    return None


def _block(item: Any) -> types.Content:
    if isinstance(item, _BLOCKS):
        block: types.Content = item
        return block
    return _text(item, encode_json(item))
