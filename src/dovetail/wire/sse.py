"""Server-sent events: one event to bytes, and chunks of bytes to events.

Written to the parsing rules of the HTML standard ("Interpreting an event
stream"): lines end with CRLF, CR or LF; a blank line dispatches; a comment
starts with a colon; an ``id`` with a NUL is ignored; a stream may begin with a
byte order mark. A JSON-RPC message is one event of one ``data`` line.
"""

from collections.abc import Iterator

from msgspec import Struct

__all__ = ["KEEP_ALIVE", "Event", "EventTooLong", "Parser", "encode_event"]

# A comment keeps proxies and clients from taking a quiet stream for a dead one.
KEEP_ALIVE = b":\n\n"

_BOM = b"\xef\xbb\xbf"


class Event(Struct, frozen=True):
    """One dispatched event. ``id`` is the last id seen, by this or an earlier event."""

    data: str
    event: str = "message"
    id: str | None = None


class EventTooLong(ValueError):
    """An event grew past the limit of its parser."""


def encode_event(
    data: bytes, *, id: str | None = None, retry_ms: int | None = None, event: str | None = None
) -> bytes:
    """One event. ``data`` is one line, as a compact JSON message is; empty data primes."""
    head = "" if event is None else f"event: {event}\n"
    if id is not None:
        head += f"id: {id}\n"
    if retry_ms is not None:
        head += f"retry: {retry_ms}\n"
    return b"%bdata: %b\n\n" % (head.encode(), data)


class Parser:
    """Feed chunks, get events. ``last_id`` and ``retry_ms`` are what a reconnection needs.

    An event with an id but empty data is not dispatched, as the standard says, yet
    its id counts: that is how a stream is primed (digest 10.3).
    """

    def __init__(self, max_event: int = 4 * 1024 * 1024) -> None:
        self.last_id: str | None = None
        self.retry_ms: int | None = None
        self._max_event = max_event
        self._rest = b""
        self._skip_lf = False  # the CR of the last chunk may be half of a CRLF
        self._started = False
        self._data: list[bytes] = []
        self._size = 0
        self._event = ""
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[Event]:
        for line in self._lines(chunk):
            if line:
                self._field(line)
            elif (event := self._dispatch()) is not None:
                yield event

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        if self._skip_lf and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_lf = False
        if not self._started:
            head = self._rest + chunk
            if len(head) < len(_BOM) and _BOM.startswith(head):
                self._rest = head  # it may still become a byte order mark
                return
            self._started = True
            self._rest, chunk = b"", head.removeprefix(_BOM)
        self._skip_lf = chunk.endswith(b"\r")
        text = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" in text:
            first, *lines, rest = text.split(b"\n")
            yield self._rest + first
            self._rest = b""
            yield from lines
        else:
            rest = self._rest + text
        if len(rest) + self._size > self._max_event:
            raise EventTooLong(f"an event is longer than {self._max_event} bytes")
        self._rest = rest

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")  # a comment is a field without a name
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value) + 1
            if self._size > self._max_event:
                raise EventTooLong(f"an event is longer than {self._max_event} bytes")
            self._data.append(value)
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode(errors="replace")
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit():
            self.retry_ms = int(value[:15])

    def _dispatch(self) -> Event | None:
        data, self._data, self._size = self._data, [], 0
        name, self._event = self._event or "message", ""
        if self._id is not None:
            self.last_id = self._id
        text = b"\n".join(data)
        if not text:
            return None
        return Event(text.decode(errors="replace"), name, self.last_id)
