"""Answers to what a server asks: forms and pages for the user, a model, the roots.

Up to 2025-11-25 the server sends requests; from 2026-07-28 on its questions come inside
an ``input_required`` result. Both end in ``Answerer.answer``.
"""

import inspect
import logging
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from dovetail.client.options import Options
from dovetail.client.schema import check_of
from dovetail.core.peer import Request
from dovetail.errors import INVALID_PARAMS, INVALID_REQUEST, McpError, RemoteProtocolError
from dovetail.runtime.connection import Connection, Handler
from dovetail.spec.project import project
from dovetail.spec.revisions import HANDSHAKE, MODERN, Revision
from dovetail.spec.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    Root,
    TextContent,
    Wire,
)
from dovetail.wire.jsonrpc import BROKEN_JSON

__all__ = ["Answerer", "Question"]

log = logging.getLogger("dovetail")

_EMPTY = Raw(b"{}")

# What a user may put into a form (digest 6): anything else is a fault of the handler.
_Form = dict[str, str | int | float | bool | list[str]]


class Question:
    """A question to the user. Return from the handler: a dict to accept with these answers,
    True to accept (with the defaults, or to open the page), False to decline, None to cancel;
    or an ``ElicitResult``, which is sent as it is.
    """

    def __init__(self, params: ElicitRequestParams) -> None:
        self.message = params.message
        self.mode = "url" if params.mode == "url" else "form"  # digest C35: absent is a form
        self.url = None if params.url is UNSET else params.url
        self.schema = {} if params.requested_schema is UNSET else params.requested_schema
        self.id = None if params.elicitation_id is UNSET else params.elicitation_id

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the form, each with its schema."""
        properties = self.schema.get("properties")
        return properties if isinstance(properties, dict) else {}

    @property
    def required(self) -> list[str]:
        return list(self.schema.get("required", ()))

    @property
    def defaults(self) -> dict[str, Any]:
        """The answers the form begins with."""
        return {
            name: field["default"]
            for name, field in self.fields.items()
            if isinstance(field, dict) and "default" in field
        }

    def choices(self, name: str) -> dict[str, str]:
        """The values a field allows, each with the title to show; empty if any will do."""
        field = self.fields[name]
        inner = field.get("items") if field.get("type") == "array" else field
        many: dict[str, Any] = inner if isinstance(inner, dict) else {}
        titled = many.get("oneOf") or many.get("anyOf")
        if isinstance(titled, list):
            return {one["const"]: one.get("title", one["const"]) for one in titled}
        values: list[str] = many.get("enum", [])
        names: list[str] = many.get("enumNames", values)
        return dict(zip(values, names, strict=False))

    def result(self, outcome: Any) -> dict[str, Any]:
        """What the handler returned, as it is sent."""
        if isinstance(outcome, ElicitResult):
            return msgspec.to_builtins(outcome)  # type: ignore[no-any-return]
        if outcome is None or outcome is False:
            return {"action": "cancel" if outcome is None else "decline"}
        if self.mode == "url":
            return {"action": "accept"}
        given = {} if outcome is True else dict(outcome)
        content = {**self.defaults, **given}
        content = {name: value for name, value in content.items() if value is not None}
        msgspec.convert(content, _Form)
        check_of("the form", self.schema)(Raw(msgspec.json.encode(content)))
        return {"action": "accept", "content": content}


class Answerer:
    """Calls the handlers of the client's user."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._methods = {
            "elicitation/create": self._elicit,
            "sampling/createMessage": self._sample,
            "roots/list": self._roots,
        }

    async def answer(self, method: str, raw: Any, revision: Revision) -> dict[str, Any]:
        """The result to send; McpError if the question cannot be answered."""
        handler = self._methods.get(method)
        if handler is None:
            raise RemoteProtocolError.text(f"The server asks for {method!r}, which nobody knows")
        return await handler(b"{}" if raw is UNSET else raw, revision)

    async def _elicit(self, raw: Any, revision: Revision) -> dict[str, Any]:
        params = _params(raw, ElicitRequestParams)
        question = Question(params)
        if self._options.on_elicit is None or question.mode not in self._options.elicit_modes:
            raise McpError(INVALID_PARAMS, data=f"Elicitation by {question.mode} is not supported")
        if question.mode == "url" and revision.letter == "C":
            raise McpError(INVALID_PARAMS, data="2025-06-18 has forms only")
        return question.result(await _called(self._options.on_elicit, question))

    async def _sample(self, raw: Any, revision: Revision) -> dict[str, Any]:
        params = _params(raw, CreateMessageRequestParams)
        if self._options.on_sample is None:
            raise McpError(INVALID_REQUEST, data="Sampling was not declared")
        uses_tools = params.tools is not UNSET or params.tool_choice is not UNSET
        if uses_tools and not self._options.sample_tools:  # digest C34
            raise McpError(INVALID_PARAMS, data="Sampling with tools was not declared")
        outcome = await _called(self._options.on_sample, params)
        if isinstance(outcome, str):
            outcome = CreateMessageResult(
                role="assistant", content=TextContent(text=outcome), model="unknown"
            )
        result: dict[str, Any] = (
            project(outcome, revision) if isinstance(outcome, Wire) else dict(outcome)
        )
        return result

    async def _roots(self, raw: Any, revision: Revision) -> dict[str, Any]:
        roots = self._options.roots
        if roots is None:
            raise McpError(INVALID_REQUEST, data="Roots were not declared")
        if callable(roots):
            roots = await _called(roots)
        return {"roots": [project(checked_root(root), revision) for root in roots]}

    # -- as methods of a handshake ---------------------------------------------------------

    def tables(self) -> dict[Revision, dict[str, Handler]]:
        """What is served per revision. 2026-07-28 serves nothing (digest C9)."""
        tables: dict[Revision, dict[str, Handler]] = {MODERN: {}}
        for revision in HANDSHAKE:
            tables[revision] = table = dict(PING)
            if self._options.roots is not None:
                table["roots/list"] = Handler(self._serve)
            if self._options.on_sample is not None:
                table["sampling/createMessage"] = Handler(self._serve)
            if self._options.on_elicit is not None and revision.letter in "CD":
                table["elicitation/create"] = Handler(self._serve)
            if revision.tasks:
                self._add_tasks(table)
        return tables

    def _add_tasks(self, table: dict[str, Handler]) -> None:
        questions = [name for name in table if name.startswith(("sampling", "elicitation"))]
        if questions:
            from dovetail.client.asked_tasks import AskedTasks

            tasks = AskedTasks(self)
            table.update({name: Handler(tasks.serve) for name in questions})
            table.update(tasks.handlers())

    def _serve(self, request: Request, connection: Connection) -> Any:
        return self.answer(request.method, request.raw, request.revision)


PING = {"ping": Handler(lambda request, connection: _EMPTY, inline=True)}


def checked_root(root: Any) -> Root:
    """Roots are ``file://`` URIs (digest C32); a path is turned into one."""
    from pathlib import Path

    if isinstance(root, str | Path):
        text = str(root)
        uri = text if text.startswith("file:") else Path(text).absolute().as_uri()
        root = Root(uri=uri)
    if not isinstance(root, Root) or not root.uri.startswith("file://"):
        raise ValueError(f"a root is a directory or a file:// URI, not {root!r}")
    return root


async def _called(function: Any, *arguments: Any) -> Any:
    outcome = function(*arguments)
    return await outcome if inspect.isawaitable(outcome) else outcome


def _params(raw: Any, kind: Any) -> Any:
    if isinstance(raw, UnsetType):
        raw = b"{}"
    try:
        return msgspec.json.decode(raw, type=kind)
    except BROKEN_JSON as error:
        raise McpError(INVALID_PARAMS, data=str(error)) from None
