"""What language servers know, asked through the editor and put into plain shapes."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from msgspec import Raw, Struct

from dovetail import ToolError
from dovetail.servers.neovim.editor import Editor, EditorError, decode_json
from dovetail.servers.neovim.rpc import text_of, value_of

__all__ = ["Action", "Location", "Lsp", "Symbol", "actions", "hover_text", "locations", "symbols"]

# Indexing a large project takes seconds; a server that takes longer is asked again later.
PATIENCE = 10.0


class Location(Struct):
    path: str
    line: int
    column: int


class Symbol(Struct):
    name: str
    kind: str
    path: str
    line: int
    container: str = ""


class Action(Struct):
    title: str
    kind: str = ""


class Answer(Struct):
    client: int
    result: Any = None
    error: str | None = None


class Lsp:
    """The questions that are under way in one editor."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._waiting: dict[int, asyncio.Future[list[Answer]]] = {}
        self._numbers = itertools.count(1)
        editor.on("lsp", self._answered)

    async def ask(
        self, method: str, place: str | None, where: tuple[int, int] | None, **params: Any
    ) -> list[Answer]:
        """The answers of all servers that have one; ToolError if none has."""
        question: dict[str, Any] = {"method": method, "params": params}
        if place is not None:
            question["place"] = place
        if where is not None:
            question |= {"line": where[0], "column": where[1]}
        return await self._wait(
            lambda channel, id: ("ask", {**question, "channel": channel, "id": id})
        )

    async def resolve(self, client: int, action: dict[str, Any]) -> dict[str, Any]:
        """An action with its edit, which some servers give only when asked once more."""
        answers = await self._wait(lambda channel, id: ("resolve", channel, id, client, action))
        return answers[0].result or action

    async def _wait(self, call: Callable[[int, int], tuple[Any, ...]]) -> list[Answer]:
        number = next(self._numbers)
        answer: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._editor.act("lsp", *call(self._editor.channel, number))
            async with asyncio.timeout(PATIENCE):
                answers = await answer
        except EditorError as error:
            raise ToolError(str(error)) from None
        except TimeoutError:
            raise ToolError(f"The language server took longer than {PATIENCE:g} s") from None
        finally:
            del self._waiting[number]
        good = [each for each in answers if each.error is None]
        if not good:
            raise ToolError(f"The language server failed: {answers[0].error}")
        return good

    def _answered(self, number: Raw, answers: Raw) -> None:
        waiting = self._waiting.get(value_of(number))
        if waiting is not None and not waiting.done():
            waiting.set_result(decode_json(text_of(answers), list[Answer]))


def _as_list(result: Any) -> list[Any]:
    if result is None:
        return []
    return result if isinstance(result, list) else [result]


def _path(uri: str) -> str:
    return unquote(uri.removeprefix("file://"))


def locations(answers: list[Answer]) -> list[Location]:
    """Of Location and LocationLink alike, each place once."""
    found: dict[tuple[str, int, int], Location] = {}
    for answer in answers:
        for item in _as_list(answer.result):
            uri = item.get("uri") or item["targetUri"]
            start = (item.get("range") or item["targetSelectionRange"])["start"]
            where = Location(_path(uri), start["line"] + 1, start["character"] + 1)
            found[(where.path, where.line, where.column)] = where
    return list(found.values())


def hover_text(answers: list[Answer]) -> str:
    parts = [_marked(answer.result["contents"]) for answer in answers if answer.result]
    return "\n\n".join(part for part in parts if part)


def _marked(contents: Any) -> str:
    """MarkupContent, a MarkedString, or a list of these."""
    if isinstance(contents, list):
        return "\n\n".join(filter(None, map(_marked, contents)))
    if isinstance(contents, dict):
        value = str(contents.get("value", ""))
        language = contents.get("language")
        return f"```{language}\n{value}\n```" if language else value
    return str(contents)


# LSP 3.17, SymbolKind.
_KINDS = [
    "file",
    "module",
    "namespace",
    "package",
    "class",
    "method",
    "property",
    "field",
    "constructor",
    "enum",
    "interface",
    "function",
    "variable",
    "constant",
    "string",
    "number",
    "boolean",
    "array",
    "object",
    "key",
    "null",
    "enum-member",
    "struct",
    "event",
    "operator",
    "type-parameter",
]


def symbols(answers: list[Answer], path: str = "") -> list[Symbol]:
    found: list[Symbol] = []
    for answer in answers:
        for item in _as_list(answer.result):
            _add_symbol(item, path, "", found)
    return found


def _add_symbol(item: dict[str, Any], path: str, container: str, found: list[Symbol]) -> None:
    place = item.get("location")
    where = item["selectionRange"] if place is None else place.get("range", {})
    number = item.get("kind", 0)
    found.append(
        Symbol(
            name=item["name"],
            kind=_KINDS[number - 1] if 0 < number <= len(_KINDS) else "",
            path=path if place is None else _path(place["uri"]),
            line=where.get("start", {}).get("line", 0) + 1,
            container=item.get("containerName") or container,
        )
    )
    for child in item.get("children") or []:
        _add_symbol(child, path, item["name"], found)


def actions(answers: list[Answer]) -> list[tuple[int, dict[str, Any]]]:
    """Each action with the server it is from; commands look like actions with a command."""
    found = []
    for answer in answers:
        for item in _as_list(answer.result):
            is_command = isinstance(item.get("command"), str)
            action = {"title": item["title"], "command": item} if is_command else item
            found.append((answer.client, action))
    return found
