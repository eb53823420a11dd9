"""What the bridge says: the frames of its channel, decoded."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

__all__ = [
    "Channel",
    "Definition",
    "Failure",
    "Frame",
    "Output",
    "Restart",
    "Warned",
    "decode",
    "framed",
]

_EMPTY = Raw(b"null")


class Output(Struct, rename="camel", frozen=True):
    """Printed text: what was kept, how long it was, and where the rest is."""

    text: str = ""
    total: int = 0
    spooled: int = 0
    spool: str | None = None


class Warned(Struct):
    type: str
    severity: str
    message: str


class Definition(Struct):
    """A top-level definition that was evaluated, and where in the code it stood."""

    operator: str
    name: str
    package: str
    start: int
    end: int


class Restart(Struct):
    number: int
    name: str
    text: str
    interactive: bool


class Failure(Struct):
    """An error, or where an interrupt struck (then only the frames are there)."""

    type: str = ""
    message: str = ""
    frames: list[str] = []
    restarts: list[Restart] = []


class Frame(Struct, rename="camel"):
    """``done`` answers a request; ``suspended`` and ``progress`` belong to one that goes on;
    ``hello`` and ``exiting`` to none."""

    event: str
    id: int = 0
    status: str = ""
    data: Raw = _EMPTY
    stdout: Output = Output()
    stderr: Output = Output()
    warnings: list[Warned] = []
    warning_count: int = 0
    failure: Failure | None = None
    definitions: list[Definition] = []
    wanted_input: bool = False
    package: str = ""
    # suspended
    reason: str = ""
    prompt: str = ""
    # exiting
    begun: list[int] = []
    # progress
    done: float = 0
    total: float | None = None
    message: str | None = None
    # hello
    version: str = ""
    pid: int = 0
    heap: int = 0

    def read(self, kind: Any = Any) -> Any:
        """The data of an answer."""
        return msgspec.json.decode(self.data, type=kind)


decode: Callable[[bytes], Frame] = msgspec.json.Decoder(Frame).decode


def framed(text: str) -> bytes:
    """Half a surrogate pair, which JSON can carry and UTF-8 cannot, becomes a question mark."""
    data = text.encode(errors="replace")
    return len(data).to_bytes(4, "big") + data


class Channel(asyncio.Protocol):
    """Cuts the bytes of a bridge into frames."""

    def __init__(self, on_frame: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_end = on_end
        self._buffer = bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            end = 4 + int.from_bytes(buffer[:4], "big")
            if len(buffer) < end:
                return
            frame = bytes(buffer[4:end])
            del buffer[:end]
            self._on_frame(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()

    def send(self, text: str) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(framed(text))

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()
