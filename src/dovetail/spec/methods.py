"""How the params of each method are read: one prepared decoder per method.

A decoder takes the raw params and gives a Struct whose ``meta`` holds the
envelope, so both come out of one pass. A method that is not in the table, a
custom one, is read for its ``_meta`` only.
"""

from typing import Any

import msgspec

from dovetail.spec import types

__all__ = ["decode_cancelled", "decode_meta", "decode_params"]

_PARAMS: dict[str, type[types.RequestParams]] = {
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

decode_meta = msgspec.json.Decoder(types.EmptyRequestParams).decode
decode_cancelled = msgspec.json.Decoder(types.CancelledNotificationParams).decode


class _Decoders(dict[str, Any]):
    """Made when first needed: most servers see five methods in their life."""

    def __missing__(self, method: str) -> Any:
        params = _PARAMS.get(method)
        if params is None:
            return decode_meta  # not kept: names of unknown methods are the peer's to choose
        decode = self[method] = msgspec.json.Decoder(params).decode
        return decode


# The function that reads the params of a method.
decode_params = _Decoders()
