"""What calls return: content, structured content, and the value in it."""

from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from dovetail.errors import RemoteProtocolError, ToolFailed
from dovetail.spec.types import Content, TextContent
from dovetail.wire.jsonrpc import BROKEN_JSON

__all__ = ["CallResult", "RawCall", "UnknownContent", "decode_call", "decoded"]

T = TypeVar("T")


class UnknownContent(Struct, frozen=True):
    """A block of a kind this library does not know, as it came."""

    type: str
    raw: dict[str, Any]


class RawCall(Struct, rename="camel", gc=False):
    """A result of ``tools/call`` as it is read first: the structured part stays bytes."""

    content: list[Content] | UnsetType = UNSET
    structured_content: Raw | UnsetType = UNSET
    is_error: bool = False
    result_type: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class _LooseCall(RawCall, rename="camel"):
    content: list[dict[str, Any]] | UnsetType = UNSET  # type: ignore[assignment]


_decode = msgspec.json.Decoder(RawCall).decode
_decode_loosely = msgspec.json.Decoder(_LooseCall).decode


def decode_call(raw: Raw) -> RawCall:
    """RemoteProtocolError if that is no result of a tool. Unknown content is kept."""
    try:
        return _decode(raw)
    except BROKEN_JSON as error:
        try:
            loose = _decode_loosely(raw)
        except BROKEN_JSON:
            text = f"The result of the tool makes no sense: {error}"
            raise RemoteProtocolError.text(text) from None
    if loose.content is not UNSET:
        loose.content = [known(block) for block in loose.content]
    return loose


def known(block: Any) -> Any:
    """One content block, or what stands for it."""
    try:
        return msgspec.convert(block, Content)
    except msgspec.ValidationError:
        return UnknownContent(str(block.get("type", "")), block)


def decoded(raw: Raw, kind: type[T], method: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except BROKEN_JSON as error:
        raise RemoteProtocolError.text(
            f"The answer to {method!r} makes no sense: {error}"
        ) from None


class CallResult(Generic[T]):
    """The result of a tool.

    ``content`` is for models and people; ``structured`` is the structured content as it came,
    None if there is none; ``value`` is what the function behind the tool returned, in the type
    that was asked for by ``returns=``. The value of a tool that failed raises ``ToolFailed``.
    """

    __slots__ = ("_meta", "_raw", "_returns", "_value", "_wrapped", "content", "is_error")

    def __init__(self, call: RawCall, returns: Any, wrapped: bool) -> None:
        self.content: list[Any] = [] if call.content is UNSET else call.content
        self.is_error = call.is_error
        self._raw = call.structured_content
        self._meta = call.meta
        self._returns = returns
        self._wrapped = wrapped
        self._value: Any = UNSET
        if returns is not UNSET and not call.is_error:
            self._value = self._typed(returns)

    @property
    def structured(self) -> Any:
        return None if self._raw is UNSET else msgspec.json.decode(self._raw)

    @property
    def has_structured(self) -> bool:
        """``structured`` may be None because the value is null (2026-07-28)."""
        return self._raw is not UNSET

    @property
    def meta(self) -> dict[str, Any]:
        return {} if self._meta is UNSET else msgspec.json.decode(self._meta)

    @property
    def text(self) -> str:
        """The text blocks, one after the other."""
        return "\n".join(b.text for b in self.content if isinstance(b, TextContent))

    @property
    def value(self) -> T:
        if self.is_error:
            raise ToolFailed(self.text or "the tool failed without a word", self)
        if self._value is UNSET:
            self._value = self._plain()
        return cast(T, self._value)

    def _plain(self) -> Any:
        """The structured content without the wrapping of older revisions, else the text."""
        if self._raw is UNSET:
            return self.text
        value = msgspec.json.decode(self._raw)
        return value["result"] if self._wrapped and isinstance(value, dict) else value

    def _typed(self, returns: Any) -> Any:
        if self._raw is UNSET:
            return self.text if returns is str else _read(self.text.encode(), returns)
        try:
            return msgspec.json.decode(self._raw, type=returns)
        except msgspec.ValidationError as error:
            value = msgspec.json.decode(self._raw)
            if not (isinstance(value, dict) and set(value) == {"result"}):
                raise _misfit(error) from None
        try:
            return msgspec.convert(value["result"], returns)
        except msgspec.ValidationError as error:
            raise _misfit(error) from None

    def __repr__(self) -> str:
        state = "failed" if self.is_error else "ok"
        return f"<CallResult {state}, {len(self.content)} blocks: {self.text[:60]!r}>"


def _read(text: bytes, returns: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=returns)
    except BROKEN_JSON as error:
        raise _misfit(error) from None


def _misfit(error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError.text(f"The result is not of the type that was asked for: {error}")
