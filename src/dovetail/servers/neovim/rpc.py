"""MessagePack-RPC with Neovim on an asyncio transport.

A message is ``[0, id, method, params]``, ``[1, id, error, result]`` or
``[2, method, params]``. Nothing says how long one is, and msgspec reads whole
messages only, so ``Framer`` walks over the headers to find their ends. Results
stay undecoded: Neovim sends text as it is, and text in a buffer need not be UTF-8.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from struct import unpack_from
from typing import Any, cast

import msgspec
from msgspec import Raw

__all__ = ["Framer", "Link", "LinkClosed", "NvimError", "text_of", "value_of"]

log = logging.getLogger("dovetail.neovim")

# Longer than any answer of ours: a buffer of 100 MiB with its escapes. What claims to be
# longer is not a message of Neovim's.
MAX_MESSAGE = 512 * 1024 * 1024

_REQUEST, _RESPONSE, _NOTIFICATION = 0, 1, 2

_encode = msgspec.msgpack.Encoder().encode
_split = msgspec.msgpack.Decoder(list[Raw]).decode
_decode_int = msgspec.msgpack.Decoder(int).decode
_decode_str = msgspec.msgpack.Decoder(str).decode


class LinkClosed(Exception):
    """The editor is gone."""


class NvimError(Exception):
    """Neovim refused a call; the text is its own."""


# -- where a message ends ----------------------------------------------------------------

# First byte -> (bytes of the header, struct format of a length in it, bytes that follow,
# items that follow per count). Fixed-size kinds have their counts here, the others in the header.
_Shape = tuple[int, str, int, int]


def _shapes() -> list[_Shape]:
    table: list[_Shape] = [(1, "", 0, 0)] * 256
    for n in range(16):
        table[0x80 + n] = (1, "", 0, 2 * n)
        table[0x90 + n] = (1, "", 0, n)
    for n in range(32):
        table[0xA0 + n] = (1, "", n, 0)
    for first, size in ((0xCA, 4), (0xCB, 8), (0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
        table[first] = (1, "", size, 0)
    for first, size in ((0xD0, 1), (0xD1, 2), (0xD2, 4), (0xD3, 8)):
        table[first] = (1, "", size, 0)
    for n in range(5):  # fixext: a type, then 1 to 16 bytes
        table[0xD4 + n] = (1, "", 1 + (1 << n), 0)
    for bins, strs, exts, size, form in (
        (0xC4, 0xD9, 0xC7, 1, ">B"),
        (0xC5, 0xDA, 0xC8, 2, ">H"),
        (0xC6, 0xDB, 0xC9, 4, ">I"),
    ):
        table[bins] = table[strs] = (1 + size, form, 0, 0)
        table[exts] = (1 + size, form, 1, 0)
    table[0xDC], table[0xDD] = (3, ">H", 0, 1), (5, ">I", 0, 1)
    table[0xDE], table[0xDF] = (3, ">H", 0, 2), (5, ">I", 0, 2)
    return table


_SHAPES = _shapes()


class Framer:
    """Cuts a stream into messages."""

    def __init__(self, max_message: int = MAX_MESSAGE) -> None:
        self._buffer = bytearray()
        self._max = max_message
        # Where the walk over the first message has come, and how many values it still has.
        self._at = 0
        self._open = 1

    def feed(self, chunk: bytes) -> list[bytes]:
        """The messages that are complete now."""
        self._buffer += chunk
        messages, start = [], 0
        while self._walk():
            messages.append(bytes(self._buffer[start : self._at]))
            start, self._open = self._at, 1
        if start:
            del self._buffer[:start]
            self._at -= start
        if len(self._buffer) > self._max:
            raise LinkClosed(f"a message of Neovim exceeds {self._max} bytes")
        return messages

    def _walk(self) -> bool:
        """Go on to the end of the message; False if it has not come yet."""
        buffer, at, left, size = self._buffer, self._at, self._open, len(self._buffer)
        while left and at < size:
            header, form, extra, items = _SHAPES[buffer[at]]
            if at + header > size:
                break
            if form:
                (count,) = unpack_from(form, buffer, at + 1)
                extra, items = (extra, items * count) if items else (extra + count, 0)
            if at + header + extra > size:
                break
            at += header + extra
            left += items - 1
        self._at, self._open = at, left
        return left == 0


# -- values ------------------------------------------------------------------------------


def text_of(raw: Raw) -> bytes:
    """The bytes of a MessagePack string, UTF-8 or not."""
    data = bytes(raw)
    header = _SHAPES[data[0]][0]
    if not (0xA0 <= data[0] < 0xC0 or data[0] in (0xD9, 0xDA, 0xDB, 0xC4, 0xC5, 0xC6)):
        raise NvimError("Neovim answered with something else than text")
    return data[header:]


def value_of(raw: Raw) -> Any:
    """A value whose texts are UTF-8; handles of buffers and windows become None."""
    return msgspec.msgpack.decode(raw, ext_hook=lambda code, data: None)


def _error_text(raw: Raw) -> str:
    try:
        error = value_of(raw)
    except msgspec.DecodeError:
        return "an error that is not UTF-8"
    return str(error[1] if isinstance(error, list) and len(error) == 2 else error)


# -- the connection ----------------------------------------------------------------------


class Link(asyncio.Protocol):
    """One channel to Neovim. Calls may overlap; answers find their caller by number."""

    def __init__(self, on_event: Callable[[str, Raw], None]) -> None:
        self._on_event = on_event
        self._framer = Framer()
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Raw]] = {}
        self._transport: asyncio.WriteTransport | None = None
        self._unsent: list[bytes] = []
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # -- what asyncio calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, chunk: bytes) -> None:
        try:
            for message in self._framer.feed(chunk):
                self._receive(message)
        except (LinkClosed, msgspec.DecodeError) as error:
            log.error("what came is not MessagePack-RPC: %s", error)
            self.close()

    def eof_received(self) -> None:
        self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    def write_to(self, transport: asyncio.WriteTransport) -> None:
        """Where to write, if not to where we read from: a pair of pipes."""
        self._transport = transport

    # -- calling -------------------------------------------------------------------------

    def call(self, method: str, *params: Any) -> asyncio.Future[Raw]:
        """The future of a result; NvimError if it is an error, LinkClosed at the end."""
        future: asyncio.Future[Raw] = self._loop.create_future()
        if self.closed.done():
            future.set_exception(LinkClosed("Neovim is gone"))
            return future
        number = next(self._ids)
        self._waiting[number] = future
        self._send(_encode((_REQUEST, number, method, params)))
        return future

    def notify(self, method: str, *params: Any) -> None:
        if not self.closed.done():
            self._send(_encode((_NOTIFICATION, method, params)))

    @property
    def pending(self) -> int:
        return len(self._waiting)

    def _send(self, message: bytes) -> None:
        """One write per turn of the loop: a burst of calls is one system call."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(message)

    def _flush(self) -> None:
        data, self._unsent = b"".join(self._unsent), []
        if self._transport is not None and not self.closed.done():
            self._transport.write(data)

    # -- receiving -----------------------------------------------------------------------

    def _receive(self, message: bytes) -> None:
        kind, *rest = _split(message)
        number = _decode_int(kind)
        if number == _RESPONSE:
            self._answered(*rest)
        elif number == _NOTIFICATION:
            self._event(*rest)
        elif number == _REQUEST:  # our Lua never asks: whoever does must not wait for ever
            self._send(_encode((_RESPONSE, _decode_int(rest[0]), "dovetail serves no calls", None)))

    def _answered(self, number: Raw, error: Raw, result: Raw) -> None:
        future = self._waiting.pop(_decode_int(number), None)
        if future is None or future.done():
            return
        if bytes(error) != b"\xc0":
            future.set_exception(NvimError(_error_text(error)))
        else:
            future.set_result(result)

    def _event(self, method: Raw, params: Raw) -> None:
        try:
            self._on_event(_decode_str(method), params)
        except Exception:
            log.exception("an event of Neovim failed")

    def close(self) -> None:
        if self.closed.done():
            return
        self.closed.set_result(None)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(LinkClosed("Neovim is gone"))
                future.exception()  # whoever asked may have given up
        if self._transport is not None:
            self._transport.close()
