"""Prompts: what ``@server.prompt`` makes of a function, and the messages it gives."""

from typing import Any, Generic, ParamSpec, TypeVar

import msgspec
from msgspec import UNSET

from dovetail.server.completion import Completable, Completers
from dovetail.server.function import Function
from dovetail.server.strings import StringCodec
from dovetail.spec import types
from dovetail.spec.types import GetPromptResult, PromptArgument, PromptMessage, TextContent

__all__ = ["Prompt", "prompt_arguments"]

P = ParamSpec("P")
R = TypeVar("R")


class Prompt(Completable, Generic[P, R]):
    """A registered prompt. Calling it calls the function it was made from."""

    def __init__(self, function: Function, definition: types.Prompt, codec: StringCodec) -> None:
        self.name = definition.name
        self.definition = definition
        self.function = function
        self.codec = codec
        self.completers = Completers(f"Prompt '{self.name}'", codec.properties, function.owner)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.function.fn(*args, **kwargs)
        return result

    def copied(self, prefix: str) -> "Prompt[P, R]":
        """The same prompt under another name, for the server it is mounted on."""
        definition = msgspec.structs.replace(self.definition, name=prefix + self.name)
        copy = Prompt[P, R](self.function, definition, self.codec)
        copy.completers = self.completers
        return copy

    async def get(self, arguments: dict[str, Any]) -> GetPromptResult:
        value = self.function.call(**arguments)
        if not self.function.inline:
            value = await value
        # Structs take anything; what leaves must be messages (digest X38).
        return msgspec.convert(msgspec.to_builtins(self._result(value)), GetPromptResult)

    def _result(self, value: Any) -> GetPromptResult:
        if isinstance(value, GetPromptResult):
            return value
        values = value if isinstance(value, list | tuple) else [value]
        description = self.definition.description
        return GetPromptResult(messages=[_message(one) for one in values], description=description)


def prompt_arguments(codec: StringCodec) -> list[PromptArgument]:
    return [
        PromptArgument(
            name=name,
            description=schema.get("description", UNSET),
            required=name in codec.required,
        )
        for name, schema in codec.properties.items()
    ]


def _message(value: Any) -> PromptMessage:
    """A message, a content block or a text; the latter two are said by the user."""
    if isinstance(value, PromptMessage):
        return value
    if isinstance(value, str):
        return PromptMessage(role="user", content=TextContent(text=value))
    return PromptMessage(role="user", content=value)
