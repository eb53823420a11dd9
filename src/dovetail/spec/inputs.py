"""What a server may ask of a client: sampling, elicitation, roots.

Up to 2025-11-25 these are requests of the server, from 2026-07-28 on they are payloads of an
InputRequiredResult. Import these from `dovetail.spec.types`.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType, field

from dovetail.spec.content import Role, SamplingContent, Tool
from dovetail.spec.meta import NotificationParams, RequestParams, Result, Wire

__all__ = [
    "CreateMessageRequest",
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "ElicitRequest",
    "ElicitRequestParams",
    "ElicitResult",
    "ElicitationCompleteNotificationParams",
    "EmptyRequestParams",
    "InputRequest",
    "InputRequiredResult",
    "ListRootsRequest",
    "ListRootsResult",
    "ModelHint",
    "ModelPreferences",
    "Root",
    "SamplingMessage",
    "TaskMetadata",
    "ToolChoice",
    "URLElicitationRequiredData",
]


class EmptyRequestParams(RequestParams, kw_only=True):
    """The params of `ping`, `server/discover`, `roots/list`."""


class TaskMetadata(Wire, gc=False, kw_only=True):
    """The wish to run a request as a task (2025-11-25)."""

    ttl: int | UnsetType = UNSET


class ModelHint(Wire, gc=False, kw_only=True):
    """A part of a model's name."""

    name: str | UnsetType = UNSET


class ModelPreferences(Wire, kw_only=True):
    """What matters when a model is chosen; each priority is 0 to 1."""

    hints: list[ModelHint] | UnsetType = UNSET
    cost_priority: int | float | UnsetType = UNSET
    speed_priority: int | float | UnsetType = UNSET
    intelligence_priority: int | float | UnsetType = UNSET


class ToolChoice(Wire, gc=False, kw_only=True):
    """Whether a sampled model may or must use tools (since 2025-11-25)."""

    mode: Literal["auto", "none", "required"] | UnsetType = UNSET


class SamplingMessage(Wire, kw_only=True):
    """One message of a sampling request; a list of blocks since 2025-11-25."""

    role: Role
    content: SamplingContent | list[SamplingContent]
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class CreateMessageRequestParams(RequestParams, kw_only=True):
    """The wish for a message by the client's model."""

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    include_context: Literal["none", "thisServer", "allServers"] | UnsetType = UNSET
    temperature: int | float | UnsetType = UNSET
    stop_sequences: list[str] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    tools: list[Tool] | UnsetType = UNSET
    tool_choice: ToolChoice | UnsetType = UNSET
    task: TaskMetadata | UnsetType = UNSET


class CreateMessageResult(Result, kw_only=True):
    """The message of the client's model."""

    role: Role
    content: SamplingContent | list[SamplingContent]
    model: str
    stop_reason: str | UnsetType = UNSET


class ElicitRequestParams(RequestParams, kw_only=True):
    """A question to the user: a form, or (since 2025-11-25) a page to open."""

    mode: Literal["form", "url"] | UnsetType = UNSET
    message: str
    requested_schema: dict[str, Any] | UnsetType = UNSET
    url: str | UnsetType = UNSET
    elicitation_id: str | UnsetType = UNSET  # url mode in 2025-11-25 only
    task: TaskMetadata | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.mode == "url":
            if self.url is UNSET or self.requested_schema is not UNSET:
                raise ValueError("mode `url` needs `url` and has no `requestedSchema`")
        elif self.requested_schema is UNSET or self.url is not UNSET:
            raise ValueError("mode `form` needs `requestedSchema` and has no `url`")


class ElicitResult(Result, kw_only=True):
    """What the user did with the question."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, str | int | float | bool | list[str]] | UnsetType = UNSET


class Root(Wire, kw_only=True):
    """A directory or file (`file://`) the server may work on."""

    uri: str
    name: str | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class ListRootsResult(Result, kw_only=True):
    """The answer to `roots/list`."""

    roots: list[Root]


class ElicitRequest(Wire, tag_field="method", tag="elicitation/create", kw_only=True):
    """A question to the user, as an input request of 2026-07-28."""

    params: ElicitRequestParams


class CreateMessageRequest(Wire, tag_field="method", tag="sampling/createMessage", kw_only=True):
    """A wish for a message, as an input request of 2026-07-28."""

    params: CreateMessageRequestParams


class ListRootsRequest(Wire, tag_field="method", tag="roots/list", kw_only=True):
    """A wish for the roots, as an input request of 2026-07-28."""

    params: EmptyRequestParams | UnsetType = UNSET


InputRequest = ElicitRequest | CreateMessageRequest | ListRootsRequest


# omit_defaults=False: the result type is what a client recognises this result by.
class InputRequiredResult(Result, omit_defaults=False, kw_only=True):
    """The server needs answers first; the client repeats its request with them (2026-07-28)."""

    result_type: Literal["input_required"] = "input_required"
    input_requests: dict[str, InputRequest] | UnsetType = UNSET
    request_state: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        # The schema requires neither; the text of the specification asks for one of them.
        if self.input_requests is UNSET and self.request_state is UNSET:
            raise ValueError("an input_required result has `inputRequests` or `requestState`")


class ElicitationCompleteNotificationParams(NotificationParams, kw_only=True):
    """The user is done with the page of an url elicitation (2025-11-25 only)."""

    elicitation_id: str


class URLElicitationRequiredData(Wire, kw_only=True):
    """The data of error -32042 (2025-11-25 only)."""

    elicitations: list[ElicitRequestParams]
