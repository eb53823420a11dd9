"""Methods and notifications that MCP does not know: requests of an author's own."""

import logging
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from dovetail.core.peer import Notification, Request
from dovetail.errors import INTERNAL_ERROR, INVALID_PARAMS, McpError, ToolError
from dovetail.runtime.link import Handler, Link
from dovetail.server.function import Function
from dovetail.server.signature import ArgumentError, BrokenJson, args_codec, enc_hook

__all__ = ["CustomMethod", "CustomNotification"]

log = logging.getLogger("dovetail")


class _Custom:
    def __init__(self, function: Function) -> None:
        self._function = function
        self._decode = args_codec(function.fn, skip=function.skipped).decode

    def _arguments(self, raw: Raw | UnsetType) -> dict[str, Any]:
        """The params as keyword arguments; ``_meta`` belongs to the protocol."""
        try:
            params = {} if raw is UNSET else msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BrokenJson(str(error)) from None
        if not isinstance(params, dict):
            raise BrokenJson("The params must be an object")
        params.pop("_meta", None)
        return self._decode(msgspec.json.encode(params))


class CustomMethod(_Custom):
    """A request: the function takes its params by name and returns an object."""

    def handler(self) -> Handler:
        return Handler(self._call)

    def _call(self, request: Request, connection: Link) -> Any:
        try:
            arguments = self._arguments(request.raw)
        except (ArgumentError, BrokenJson) as error:
            raise McpError(INVALID_PARAMS, data=str(error)) from None
        self._function.add_context(arguments, request, connection)
        return self._run(arguments, request, connection)

    async def _run(
        self, arguments: dict[str, Any], request: Request, connection: Link
    ) -> dict[str, Any]:
        value = self._function.call(**arguments)
        if not self._function.inline:
            try:
                value = await value
            except ToolError as error:  # no crash, and no model to read it: an error
                raise McpError(INTERNAL_ERROR, data=str(error)) from None
        result = {} if value is None else msgspec.to_builtins(value, enc_hook=enc_hook)
        if not isinstance(result, dict):
            raise TypeError(f"{request.method} must return an object, not {type(value).__name__}")
        server = connection.session.server
        if request.revision.modern and "_meta" in result:
            return {**result, **server.result_stamps(result["_meta"])}
        return {**result, **server.stamps(request.revision)}


class CustomNotification(_Custom):
    """A notification: nobody hears of its failure but the log."""

    def __init__(self, function: Function) -> None:
        if function.context is not None:
            raise TypeError("a notification has no Context: nobody waits; take a Session instead")
        super().__init__(function)

    def __call__(self, notification: Notification, connection: Link) -> None:
        try:
            arguments = self._arguments(notification.params)
        except (ArgumentError, BrokenJson) as error:
            log.warning("%s ignored: %s", notification.method, error)
            return
        self._function.add_session(arguments, connection)
        connection.spawn(self._run(arguments), notification.method)

    async def _run(self, arguments: dict[str, Any]) -> None:
        value = self._function.call(**arguments)
        if not self._function.inline:
            await value
