"""How the params of each method are read: one prepared decoder per method.

A decoder takes the raw params and gives a Struct whose ``meta`` holds the
envelope, so both come out of one pass. A method that is not in the table, a
custom one, is read for its ``_meta`` only.
"""

from typing import Any

import msgspec
from msgspec import Raw

from dovetail.spec import types

__all__ = ["decode_cancelled", "decode_meta", "decode_params"]

_ONLY_META = ""  # no method has this name

_PARAMS: dict[str, type[types.Wire]] = {
    _ONLY_META: types.EmptyRequestParams,
    "notifications/cancelled": types.CancelledNotificationParams,
    "initialize": types.InitializeRequestParams,
    "tools/list": types.ListRequestParams,
    "tools/call": types.CallToolRequestParams,
    "resources/list": types.ListRequestParams,
    "resources/templates/list": types.ListRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "resources/subscribe": types.ResourceRequestParams,
    "resources/unsubscribe": types.ResourceRequestParams,
    "prompts/list": types.ListRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "completion/complete": types.CompleteRequestParams,
    "logging/setLevel": types.SetLevelRequestParams,
    "subscriptions/listen": types.SubscriptionsListenRequestParams,
    "tasks/get": types.TaskRequestParams,
    "tasks/result": types.TaskRequestParams,
    "tasks/cancel": types.TaskRequestParams,
    "tasks/list": types.ListRequestParams,
    "tasks/update": types.UpdateTaskRequestParams,
}


class _Decoders(dict[str, Any]):
    """Made when first needed: most servers see five methods in their life."""

    def __missing__(self, method: str) -> Any:
        if method not in _PARAMS:
            return decode_meta  # not kept: names of unknown methods are the peer's to choose
        decode = self[method] = msgspec.json.Decoder(_PARAMS[method]).decode
        return decode


# The function that reads the params of a method.
decode_params = _Decoders()


def decode_meta(raw: bytes | Raw) -> Any:
    """The ``_meta`` of a request, whatever else its params hold."""
    return decode_params[_ONLY_META](raw)


def decode_cancelled(raw: bytes | Raw) -> Any:
    return decode_params["notifications/cancelled"](raw)
