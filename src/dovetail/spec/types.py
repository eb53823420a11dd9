"""The messages of MCP as msgspec Structs: one per concept, for all five revisions.

Class names are the names of the official schema, attributes are snake_case (`_meta` is `meta`).
A member that is optional, or that some revision does not have, may be UNSET and is then not
sent; what a given revision allows is the business of `_surface` and `project`. Unknown members
are ignored when decoding because the schemas are open.

Two pairs of official types are one Struct here, because msgspec cannot choose between untagged
Structs: text and blob resource contents, form and url elicitation.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Raw, UnsetType, field

from dovetail.spec.content import (
    Annotations,
    AudioContent,
    Content,
    EmbeddedResource,
    ImageContent,
    Resource,
    ResourceContents,
    ResourceLink,
    Role,
    SamplingContent,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolExecution,
    ToolResultContent,
    ToolUseContent,
)
from dovetail.spec.inputs import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitationCompleteNotificationParams,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    EmptyRequestParams,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    ModelHint,
    ModelPreferences,
    Root,
    SamplingMessage,
    TaskMetadata,
    ToolChoice,
    URLElicitationRequiredData,
)
from dovetail.spec.meta import (
    ClientCapabilities,
    ElicitationCapability,
    Icon,
    Implementation,
    ListChangedCapability,
    LoggingLevel,
    NotificationParams,
    RelatedTaskMetadata,
    RequestMeta,
    RequestParams,
    Result,
    SamplingCapability,
    Wire,
)

__all__ = [
    "Annotations",
    "AudioContent",
    "CacheableResult",
    "CallToolRequestParams",
    "CallToolResult",
    "CancelledNotificationParams",
    "ClientCapabilities",
    "CompleteRequestParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "Content",
    "CreateMessageRequest",
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "CreateTaskResult",
    "DiscoverResult",
    "ElicitRequest",
    "ElicitRequestParams",
    "ElicitResult",
    "ElicitationCapability",
    "ElicitationCompleteNotificationParams",
    "EmbeddedResource",
    "EmptyRequestParams",
    "EmptyResult",
    "Error",
    "GetPromptRequestParams",
    "GetPromptResult",
    "GetTaskResult",
    "Icon",
    "ImageContent",
    "Implementation",
    "InitializeRequestParams",
    "InitializeResult",
    "InputRequest",
    "InputRequiredResult",
    "ListChangedCapability",
    "ListPromptsResult",
    "ListRequestParams",
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ListRootsRequest",
    "ListRootsResult",
    "ListTasksResult",
    "ListToolsResult",
    "LoggingLevel",
    "LoggingMessageNotificationParams",
    "MissingRequiredClientCapabilityData",
    "ModelHint",
    "ModelPreferences",
    "NotificationParams",
    "PaginatedResult",
    "ProgressNotificationParams",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptReference",
    "ReadResourceRequestParams",
    "ReadResourceResult",
    "RelatedTaskMetadata",
    "RequestMeta",
    "RequestParams",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceRequestParams",
    "ResourceTemplate",
    "ResourceTemplateReference",
    "ResourceUpdatedNotificationParams",
    "ResourcesCapability",
    "Result",
    "Role",
    "Root",
    "SamplingCapability",
    "SamplingContent",
    "SamplingMessage",
    "ServerCapabilities",
    "SetLevelRequestParams",
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequestParams",
    "SubscriptionsListenResult",
    "Task",
    "TaskMetadata",
    "TaskRequestParams",
    "TaskStatus",
    "TaskStatusNotificationParams",
    "TextContent",
    "Tool",
    "ToolAnnotations",
    "ToolChoice",
    "ToolExecution",
    "ToolResultContent",
    "ToolUseContent",
    "URLElicitationRequiredData",
    "UnsupportedProtocolVersionData",
    "UpdateTaskRequestParams",
    "Wire",
]

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


# --- what all requests, notifications and results have ---------------------------------------


class ListRequestParams(RequestParams, kw_only=True):
    """The params of every paginated list. An empty string is a cursor too."""

    cursor: str | UnsetType = UNSET


class ResourceRequestParams(RequestParams, kw_only=True):
    """The params of `resources/subscribe` and `resources/unsubscribe` (up to 2025-11-25)."""

    uri: str


class EmptyResult(Result, kw_only=True):
    """The answer to a request that only needs an acknowledgement."""


class CacheableResult(Result, kw_only=True):
    """A result with the caching hints of 2026-07-28."""

    ttl_ms: int | UnsetType = UNSET
    cache_scope: Literal["public", "private"] | UnsetType = UNSET


class PaginatedResult(CacheableResult, kw_only=True):
    """One page of a list."""

    next_cursor: str | UnsetType = UNSET


class Error(Wire, kw_only=True):
    """The `error` member of a JSON-RPC answer."""

    code: int
    message: str
    data: Any | UnsetType = UNSET


class UnsupportedProtocolVersionData(Wire, kw_only=True):
    """The data of error -32022 (2026-07-28)."""

    supported: list[str]
    requested: str


class MissingRequiredClientCapabilityData(Wire, kw_only=True):
    """The data of error -32021 (2026-07-28)."""

    required_capabilities: ClientCapabilities


# --- the server and its start -----------------------------------------------------------------


class ResourcesCapability(Wire, gc=False, kw_only=True):
    """The settings of `resources`."""

    subscribe: bool | UnsetType = UNSET
    list_changed: bool | UnsetType = UNSET


class ServerCapabilities(Wire, kw_only=True):
    """What a server offers."""

    experimental: dict[str, Any] | UnsetType = UNSET
    logging: dict[str, Any] | UnsetType = UNSET
    completions: dict[str, Any] | UnsetType = UNSET  # since 2025-03-26
    prompts: ListChangedCapability | UnsetType = UNSET
    resources: ResourcesCapability | UnsetType = UNSET
    tools: ListChangedCapability | UnsetType = UNSET
    tasks: dict[str, Any] | UnsetType = UNSET  # 2025-11-25 only
    extensions: dict[str, Any] | UnsetType = UNSET  # since 2026-07-28


class InitializeRequestParams(RequestParams, kw_only=True):
    """The opening of a session (up to 2025-11-25)."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    """The answer to `initialize`."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | UnsetType = UNSET


class DiscoverResult(CacheableResult, kw_only=True):
    """The answer to `server/discover` (2026-07-28); the server's name is in `_meta`."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | UnsetType = UNSET


# --- tools ------------------------------------------------------------------------------------


class ListToolsResult(PaginatedResult, kw_only=True):
    """One page of `tools/list`."""

    tools: list[Tool]


class CallToolRequestParams(RequestParams, kw_only=True):
    """A tool call. The arguments stay bytes: the tool's own decoder reads them."""

    name: str
    arguments: Raw | UnsetType = UNSET
    task: TaskMetadata | UnsetType = UNSET
    input_responses: Raw | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


# omit_defaults=False: `isError` is optional in every schema, but it is always sent.
class CallToolResult(Result, omit_defaults=False, kw_only=True):
    """What a tool returned. `structuredContent` may be any JSON value, null too (2026-07-28)."""

    content: list[Content]
    is_error: bool = False
    structured_content: Any | UnsetType = UNSET


# --- resources --------------------------------------------------------------------------------


class ResourceTemplate(Wire, kw_only=True):
    """A family of resources, named by a URI template (RFC 6570)."""

    uri_template: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class ListResourcesResult(PaginatedResult, kw_only=True):
    """One page of `resources/list`."""

    resources: list[Resource]


class ListResourceTemplatesResult(PaginatedResult, kw_only=True):
    """One page of `resources/templates/list`."""

    resource_templates: list[ResourceTemplate]


class ReadResourceRequestParams(RequestParams, kw_only=True):
    """The wish to read one resource."""

    uri: str
    input_responses: Raw | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class ReadResourceResult(CacheableResult, kw_only=True):
    """The contents of a resource."""

    contents: list[ResourceContents]


class ResourceUpdatedNotificationParams(NotificationParams, kw_only=True):
    """A subscribed resource, or a part of it, has changed."""

    uri: str


# --- prompts ----------------------------------------------------------------------------------


class PromptArgument(Wire, gc=False, kw_only=True):
    """One argument of a prompt; its value is always a string."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class Prompt(Wire, kw_only=True):
    """A prompt as it appears in a list."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    arguments: list[PromptArgument] | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class PromptMessage(Wire, kw_only=True):
    """One message of a prompt."""

    role: Role
    content: Content


class ListPromptsResult(PaginatedResult, kw_only=True):
    """One page of `prompts/list`."""

    prompts: list[Prompt]


class GetPromptRequestParams(RequestParams, kw_only=True):
    """The wish for one prompt, filled in."""

    name: str
    arguments: dict[str, str] | UnsetType = UNSET
    input_responses: Raw | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class GetPromptResult(Result, kw_only=True):
    """A prompt, filled in."""

    description: str | UnsetType = UNSET
    messages: list[PromptMessage]


# --- completion -------------------------------------------------------------------------------


class PromptReference(Wire, tag_field="type", tag="ref/prompt", gc=False, kw_only=True):
    """A prompt whose argument is being completed."""

    name: str
    title: str | UnsetType = UNSET


class ResourceTemplateReference(Wire, tag_field="type", tag="ref/resource", gc=False, kw_only=True):
    """A resource template whose variable is being completed."""

    uri: str


class CompletionArgument(Wire, gc=False, kw_only=True):
    """The argument, as far as it has been typed."""

    name: str
    value: str


class CompletionContext(Wire, kw_only=True):
    """The arguments already given (since 2025-06-18)."""

    arguments: dict[str, str] | UnsetType = UNSET


class CompleteRequestParams(RequestParams, kw_only=True):
    """The wish for completions of one argument."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | UnsetType = UNSET


class Completion(Wire, kw_only=True):
    """At most 100 values."""

    values: list[str]
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class CompleteResult(Result, kw_only=True):
    """The answer to `completion/complete`."""

    completion: Completion


# --- subscriptions (2026-07-28) ---------------------------------------------------------------


class SubscriptionFilter(Wire, kw_only=True):
    """What a client wants to hear of; `taskIds` belongs to the tasks extension."""

    tools_list_changed: bool | UnsetType = UNSET
    prompts_list_changed: bool | UnsetType = UNSET
    resources_list_changed: bool | UnsetType = UNSET
    resource_subscriptions: list[str] | UnsetType = UNSET
    task_ids: list[str] | UnsetType = UNSET


class SubscriptionsListenRequestParams(RequestParams, kw_only=True):
    """The opening of a subscription."""

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, kw_only=True):
    """The part of a subscription the server accepts; the first message on it."""

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result, kw_only=True):
    """The end of a subscription; `_meta` names it."""


# --- progress, cancellation, logging ----------------------------------------------------------


class CancelledNotificationParams(NotificationParams, kw_only=True):
    """A request is no longer wanted. Only 2025-11-25 allows `requestId` to be absent."""

    request_id: int | str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ProgressNotificationParams(NotificationParams, kw_only=True):
    """How far a request has come; `message` since 2025-03-26."""

    progress_token: int | str
    progress: int | float
    total: int | float | UnsetType = UNSET
    message: str | UnsetType = UNSET


class LoggingMessageNotificationParams(NotificationParams, kw_only=True):
    """One log entry."""

    level: LoggingLevel
    logger: str | UnsetType = UNSET
    data: Any


class SetLevelRequestParams(RequestParams, kw_only=True):
    """The least log level wanted (up to 2025-11-25)."""

    level: LoggingLevel


# --- tasks: the core tasks of 2025-11-25 and the extension of 2026-07-28 -------------------------


class Task(Wire, kw_only=True):
    """A task. 2025-11-25 has `ttl` and `pollInterval`, the extension `ttlMs` and `pollIntervalMs`.

    A ttl is required, and null means that the task is kept without limit.
    """

    task_id: str
    status: TaskStatus
    status_message: str | UnsetType = UNSET
    created_at: str
    last_updated_at: str
    ttl: int | UnsetType | None = UNSET
    poll_interval: int | UnsetType = UNSET
    ttl_ms: int | UnsetType | None = UNSET
    poll_interval_ms: int | UnsetType = UNSET


class CreateTaskResult(Result, kw_only=True):
    """A request became a task (2025-11-25). The extension sends a GetTaskResult instead."""

    task: Task


class GetTaskResult(Task, kw_only=True):
    """A task as a result: of `tasks/get`, of `tasks/cancel` (2025-11-25), and, with the result
    type `task`, of a request that became a task (extension).
    """

    result_type: str | UnsetType = UNSET
    # The outcome, by status, in the extension only.
    input_requests: dict[str, InputRequest] | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Error | UnsetType = UNSET
    meta: Any | UnsetType = field(default=UNSET, name="_meta")


class TaskStatusNotificationParams(GetTaskResult, kw_only=True):
    """The params of `notifications/tasks/status` (2025-11-25) and `notifications/tasks`."""


class ListTasksResult(PaginatedResult, kw_only=True):
    """One page of `tasks/list` (2025-11-25 only)."""

    tasks: list[Task]


class TaskRequestParams(RequestParams, kw_only=True):
    """The params of `tasks/get`, `tasks/result` and `tasks/cancel`."""

    task_id: str


class UpdateTaskRequestParams(RequestParams, kw_only=True):
    """Answers for a task that waits for input (extension)."""

    task_id: str
    input_responses: Raw
