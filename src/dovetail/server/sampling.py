"""``Sample``: a message by the client's model. Import it from ``dovetail.server.questions``."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from dovetail.errors import LocalProtocolError
from dovetail.server.forms import BadAnswer
from dovetail.spec._surface import FIELDS
from dovetail.spec.project import project
from dovetail.spec.revisions import MODERN, Revision
from dovetail.spec.types import (
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    ModelPreferences,
    SamplingContent,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)

__all__ = ["Sample", "Sampled"]

Context = Literal["none", "thisServer", "allServers"]
Mode = Literal["auto", "none", "required"]

_TOOL_BLOCKS: Final = (ToolUseContent, ToolResultContent)


class Sampled(CreateMessageResult, kw_only=True):
    """What the model wrote."""

    @property
    def blocks(self) -> list[SamplingContent]:
        """The content as a list; before 2025-11-25 it is always one block."""
        return self.content if isinstance(self.content, list) else [self.content]

    @property
    def text(self) -> str:
        """All the text, without the other blocks."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextContent))

    @property
    def tool_uses(self) -> list[ToolUseContent]:
        """The tool calls to answer, if ``stop_reason`` is "toolUse" (digest S87)."""
        return [block for block in self.blocks if isinstance(block, ToolUseContent)]


_decode = msgspec.json.Decoder(Sampled).decode


class Sample:
    """Ask the client's model to continue ``messages``; a str is one message of the user."""

    method = "sampling/createMessage"

    def __init__(
        self,
        messages: str | SamplingMessage | Sequence[str | SamplingMessage],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: ModelPreferences | None = None,
        include_context: Context | None = None,
        metadata: dict[str, Any] | None = None,
        tools: Sequence[Tool] | None = None,
        tool_choice: ToolChoice | Mode | None = None,
    ) -> None:
        if max_tokens < 1:
            raise ValueError("max_tokens must be at least 1")
        optional = {
            "system_prompt": system_prompt,
            "temperature": temperature,
            "stop_sequences": None if stop_sequences is None else list(stop_sequences),
            "model_preferences": model_preferences,
            "include_context": include_context,
            "metadata": metadata,
            "tools": None if tools is None else list(tools),
            "tool_choice": ToolChoice(mode=tool_choice)
            if isinstance(tool_choice, str)
            else tool_choice,
        }
        given: dict[str, Any] = {k: v for k, v in optional.items() if v is not None}
        self._params = CreateMessageRequestParams(
            messages=_messages(messages), max_tokens=max_tokens, **given
        )
        _check_order(self._params.messages)
        self._tools = tools is not None or tool_choice is not None or self._uses_tools()
        self._context = include_context not in (None, "none")

    def _uses_tools(self) -> bool:
        return any(_of(message, _TOOL_BLOCKS) for message in self._params.messages)

    def needs(self) -> dict[str, Any]:
        """The client capabilities this question needs, as they are written in JSON."""
        settings: dict[str, Any] = {}
        if self._tools:
            settings["tools"] = {}
        if self._context:
            settings["context"] = {}
        return {"sampling": settings}

    def declared_by(self, capabilities: ClientCapabilities, revision: Revision = MODERN) -> bool:
        """True if a client with these capabilities must answer."""
        sampling = capabilities.sampling
        if sampling is UNSET:
            return False
        if self._tools and sampling.tools is UNSET:  # digest S86
            return False
        # Before 2025-11-25 the context needed no capability of its own.
        return not self._context or sampling.context is not UNSET or not _has_tools(revision)

    def supported_in(self, revision: Revision) -> bool:
        return not self._tools or _has_tools(revision)

    def params(self, revision: Revision) -> dict[str, Any]:
        """The params for one revision; what it cannot say in a message becomes text."""
        if not self.supported_in(revision):
            raise LocalProtocolError(f"{revision.id} has no sampling with tools")
        params = self._params
        if not _has_tools(revision):
            params = replace(params, messages=list(_single(params.messages)))
        elif not revision.any_output:
            params = _with_objects(params)
        made: dict[str, Any] = project(params, revision)
        return made

    def parse(self, raw: bytes | msgspec.Raw) -> Sampled:
        """The answer; BadAnswer if it is none."""
        try:
            sampled = _decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadAnswer(str(error)) from None
        if sampled.tool_uses and not self._tools:
            raise BadAnswer("the model uses a tool, but none was offered")
        return sampled


def _has_tools(revision: Revision) -> bool:
    """2025-11-25 brought tools, lists of blocks and the two settings of the capability."""
    return revision.letter in FIELDS["CreateMessageRequestParams"]["tools"]


# --- messages -----------------------------------------------------------------------------------


def _messages(
    messages: str | SamplingMessage | Sequence[str | SamplingMessage],
) -> list[SamplingMessage]:
    if isinstance(messages, str | SamplingMessage):
        messages = [messages]
    made = [_message(message) for message in messages]
    if not made or not all(map(_blocks, made)):
        raise ValueError("sampling needs at least one message, and each message a block")
    return made


def _message(message: str | SamplingMessage) -> SamplingMessage:
    if isinstance(message, str):
        return SamplingMessage(role="user", content=TextContent(text=message))
    return message


def _blocks(message: SamplingMessage) -> list[SamplingContent]:
    return message.content if isinstance(message.content, list) else [message.content]


def _of(message: SamplingMessage, kinds: Any) -> list[Any]:
    return [block for block in _blocks(message) if isinstance(block, kinds)]


def _single(messages: list[SamplingMessage]) -> Iterable[SamplingMessage]:
    """One message per block: a message of many blocks is several of the same role."""
    for message in messages:
        for block in _blocks(message):
            yield replace(message, content=block)


def _check_order(messages: list[SamplingMessage]) -> None:
    """Every tool use is answered, all at once, by the next message (digest X39, X40)."""
    open_ids: list[str] = []
    for message in messages:
        results = _results(message)
        if sorted(results) != sorted(open_ids):
            raise ValueError(
                f"tool results {sorted(results)} must answer the tool uses {sorted(open_ids)} "
                "of the message before them, each one once"
            )
        open_ids = _uses(message)
    if open_ids:
        raise ValueError(f"the tool uses {sorted(open_ids)} have no tool results")


def _results(message: SamplingMessage) -> list[str]:
    results = _of(message, ToolResultContent)
    if results and message.role != "user":
        raise ValueError("tool results belong in a message of the user")
    if results and len(results) != len(_blocks(message)):
        raise ValueError("a message with tool results has no other blocks")
    return [result.tool_use_id for result in results]


def _uses(message: SamplingMessage) -> list[str]:
    ids = [use.id for use in _of(message, ToolUseContent)]
    if ids and message.role != "assistant":
        raise ValueError("tool uses belong in a message of the assistant")
    if len(set(ids)) != len(ids):
        raise ValueError("two tool uses have the same id")
    return ids


# --- 2025-11-25: structured content is an object, and so is what an output schema describes ------


def _with_objects(params: CreateMessageRequestParams) -> CreateMessageRequestParams:
    messages = [_message_with_objects(message) for message in params.messages]
    if params.tools is UNSET:
        return replace(params, messages=messages)
    return replace(params, messages=messages, tools=[_tool_with_object(t) for t in params.tools])


def _message_with_objects(message: SamplingMessage) -> SamplingMessage:
    if not _of(message, ToolResultContent):
        return message
    return replace(message, content=[_result_with_object(block) for block in _blocks(message)])


def _result_with_object(block: Any) -> Any:
    # Only a copy of what `content` says, so it can be left out.
    if isinstance(block.structured_content, dict):
        return block
    return replace(block, structured_content=UNSET)


def _tool_with_object(tool: Tool) -> Tool:
    schema = tool.output_schema
    if schema is UNSET or schema.get("type") == "object":
        return tool
    return replace(tool, output_schema=UNSET)
