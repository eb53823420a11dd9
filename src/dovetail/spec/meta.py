"""The reserved `_meta` keys, what a request says about its sender, and the bases with a `_meta`.

`RequestMeta` needs the capabilities and the name of the client, so these live here. `types`
re-exports the Structs together with all the others.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType, field

__all__ = [
    "BAGGAGE_KEY",
    "CLIENT_CAPABILITIES_KEY",
    "CLIENT_INFO_KEY",
    "LOG_LEVEL_KEY",
    "MODEL_IMMEDIATE_RESPONSE_KEY",
    "PREFIX",
    "PROGRESS_TOKEN_KEY",
    "PROTOCOL_VERSION_KEY",
    "RELATED_TASK_KEY",
    "SERVER_INFO_KEY",
    "SUBSCRIPTION_ID_KEY",
    "TASKS_EXTENSION",
    "TRACEPARENT_KEY",
    "TRACESTATE_KEY",
    "UI_EXTENSION",
    "ClientCapabilities",
    "ElicitationCapability",
    "Icon",
    "Implementation",
    "ListChangedCapability",
    "LoggingLevel",
    "NotificationParams",
    "RelatedTaskMetadata",
    "RequestMeta",
    "RequestParams",
    "Result",
    "SamplingCapability",
    "Wire",
]

PREFIX: Final = "io.modelcontextprotocol/"

# 2026-07-28: what every request, and (serverInfo) every result says about its sender.
PROTOCOL_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_KEY: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_KEY: Final = "io.modelcontextprotocol/subscriptionId"
# 2025-11-25: the tasks of the core protocol.
RELATED_TASK_KEY: Final = "io.modelcontextprotocol/related-task"
MODEL_IMMEDIATE_RESPONSE_KEY: Final = "io.modelcontextprotocol/model-immediate-response"
# The keys without a prefix: the progress token is older than the prefixes, the others are W3C's.
PROGRESS_TOKEN_KEY: Final = "progressToken"
TRACEPARENT_KEY: Final = "traceparent"
TRACESTATE_KEY: Final = "tracestate"
BAGGAGE_KEY: Final = "baggage"
# Not `_meta` keys but names in `capabilities.extensions`.
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
UI_EXTENSION: Final = "io.modelcontextprotocol/ui"


LoggingLevel = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]


class Wire(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The base of every wire type: camelCase outside, snake_case inside, UNSET is not sent.

    msgspec hands down everything but `kw_only` to subclasses, so each class repeats that.
    """


class Icon(Wire, kw_only=True):
    """A picture for a user interface (since 2025-11-25)."""

    src: str
    mime_type: str | UnsetType = UNSET
    sizes: list[str] | UnsetType = UNSET
    theme: str | UnsetType = UNSET


class Implementation(Wire, kw_only=True):
    """Name and version of a client or a server."""

    name: str
    version: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    website_url: str | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET


class ListChangedCapability(Wire, gc=False, kw_only=True):
    """The settings of `roots`, `tools` and `prompts`."""

    list_changed: bool | UnsetType = UNSET


class SamplingCapability(Wire, kw_only=True):
    """The settings of `sampling`; before 2025-11-25 an object without known members."""

    context: dict[str, Any] | UnsetType = UNSET
    tools: dict[str, Any] | UnsetType = UNSET


class ElicitationCapability(Wire, kw_only=True):
    """The modes of `elicitation`; an empty object means form only (2025-06-18 and later)."""

    form: dict[str, Any] | UnsetType = UNSET
    url: dict[str, Any] | UnsetType = UNSET


class ClientCapabilities(Wire, kw_only=True):
    """What a client offers: in `initialize`, from 2026-07-28 in every request."""

    experimental: dict[str, Any] | UnsetType = UNSET
    roots: ListChangedCapability | UnsetType = UNSET
    sampling: SamplingCapability | UnsetType = UNSET
    elicitation: ElicitationCapability | UnsetType = UNSET
    tasks: dict[str, Any] | UnsetType = UNSET  # 2025-11-25 only
    extensions: dict[str, Any] | UnsetType = UNSET  # since 2026-07-28


class RelatedTaskMetadata(Wire, gc=False, kw_only=True):
    """The task a message belongs to (2025-11-25)."""

    task_id: str


class RequestMeta(Wire, kw_only=True):
    """The `_meta` of a request. Other keys are allowed and not kept."""

    progress_token: int | str | UnsetType = UNSET
    protocol_version: str | UnsetType = field(default=UNSET, name=PROTOCOL_VERSION_KEY)
    client_capabilities: ClientCapabilities | UnsetType = field(
        default=UNSET, name=CLIENT_CAPABILITIES_KEY
    )
    client_info: Implementation | UnsetType = field(default=UNSET, name=CLIENT_INFO_KEY)
    log_level: LoggingLevel | UnsetType = field(default=UNSET, name=LOG_LEVEL_KEY)
    related_task: RelatedTaskMetadata | UnsetType = field(default=UNSET, name=RELATED_TASK_KEY)
    # Reserved only from 2026-07-28 on: an older peer may keep anything under these names.
    traceparent: Any | UnsetType = UNSET
    tracestate: Any | UnsetType = UNSET
    baggage: Any | UnsetType = UNSET


class RequestParams(Wire, kw_only=True):
    """The base of all request params; `_meta` is required from 2026-07-28 on."""

    meta: RequestMeta | UnsetType = field(default=UNSET, name="_meta")


class NotificationParams(Wire, kw_only=True):
    """The params of a notification that says nothing but its name."""

    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class Result(Wire, kw_only=True):
    """The base of all results; `resultType` is required from 2026-07-28 on."""

    result_type: str | UnsetType = UNSET
    # Any: the server puts one prepared value here for all its results.
    meta: Any | UnsetType = field(default=UNSET, name="_meta")
