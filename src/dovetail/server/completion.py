"""Completion of prompt arguments and template variables."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import UNSET

from dovetail.errors import INVALID_PARAMS, McpError
from dovetail.server.function import Function
from dovetail.server.registry import Handle
from dovetail.spec.types import CompleteRequestParams, Completion

__all__ = ["MAX_VALUES", "Completable", "Completers", "complete"]

MAX_VALUES = 100  # digest S44


_C = TypeVar("_C", bound=Callable[..., Any])


class Completable(Handle):
    """A prompt or a resource: its arguments can be completed."""

    completers: "Completers"

    def complete(self, name: str) -> Callable[[_C], _C]:
        """Register a completer for an argument: ``fn(prefix)`` or ``fn(prefix, given)``."""

        def register(fn: _C) -> _C:
            self.completers.add(name, fn)
            return fn

        return register


class Completers:
    """The completers of one prompt or template, by argument."""

    def __init__(self, owner: str, names: Mapping[str, Any], server: Any) -> None:
        self._owner = owner
        self._names = names
        self._server = server
        self._functions: dict[str, tuple[Function, bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._functions)

    def add(self, name: str, fn: Callable[..., Any]) -> None:
        if not isinstance(name, str):
            raise TypeError('name the argument: write @it.complete("argument")')
        if name not in self._names:
            raise ValueError(f"{self._owner} has no argument {name!r}")
        if name in self._functions:
            raise ValueError(f"{self._owner} completes {name!r} already")
        function = Function(fn, inline=False, owner=self._server)
        if function.skipped:  # nobody could be asked or told anything (digest S15)
            raise TypeError(f"a completer gets no {' and no '.join(function.skipped)}")
        wants_given = "given" in inspect.signature(fn).parameters
        self._functions[name] = function, wants_given

    async def run(self, params: CompleteRequestParams) -> Completion:
        name = params.argument.name
        if name not in self._names:
            raise McpError(INVALID_PARAMS, data=f"{self._owner} has no argument {name!r}")
        if name not in self._functions:
            return Completion(values=[])
        function, wants_given = self._functions[name]
        first = next(iter(inspect.signature(function.fn).parameters))
        arguments: dict[str, Any] = {first: params.argument.value}
        if wants_given:
            arguments["given"] = _given(params)
        return complete(await function.call(**arguments))


def _given(params: CompleteRequestParams) -> dict[str, str]:
    """What the user has filled in already (since 2025-06-18)."""
    if params.context is UNSET or params.context.arguments is UNSET:
        return {}
    return params.context.arguments


def complete(found: Any) -> Completion:
    """A completer's list as the answer: the first hundred, and how many there are."""
    if isinstance(found, Completion):
        return Completion(
            values=found.values[:MAX_VALUES],
            total=found.total,
            has_more=len(found.values) > MAX_VALUES or found.has_more,
        )
    if isinstance(found, str):
        raise TypeError("a completer returns a list of texts, not one text")
    values = [str(value) for value in found]
    shown = values[:MAX_VALUES]
    return Completion(values=shown, total=len(values), has_more=len(values) > len(shown))
