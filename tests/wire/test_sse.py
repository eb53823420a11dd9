"""Server-sent events: what is encoded is parsed, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.wire.sse import KEEP_ALIVE, Event, EventTooLong, Parser, encode_event


def parse(data: bytes, size: int | None = None) -> list[Event]:
    parser = Parser()
    step = size or max(1, len(data))
    return [e for i in range(0, len(data), step) for e in parser.feed(data[i : i + step])]


STREAMS: dict[str, tuple[bytes, list[Event]]] = {
    "one": (b"data: a\n\n", [Event("a")]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [Event("a"), Event("b")]),
    "cr": (b"data: a\r\rdata: b\r\r", [Event("a"), Event("b")]),
    "two lines": (b"data: a\ndata: b\n\n", [Event("a\nb")]),
    "no space": (b"data:a\n\n", [Event("a")]),
    "two spaces": (b"data:  a\n\n", [Event(" a")]),
    "no colon": (b"data\n\ndata: x\n\n", [Event("x")]),
    "comment": (b": hello\ndata: a\n\n", [Event("a")]),
    "keep alive": (KEEP_ALIVE + b"data: a\n\n", [Event("a")]),
    "named": (b"event: ping\ndata: a\n\ndata: b\n\n", [Event("a", "ping"), Event("b")]),
    "ids": (b"id: 1\ndata: a\n\ndata: b\n\n", [Event("a", id="1"), Event("b", id="1")]),
    "priming": (b"id: p1-1\ndata: \n\ndata: b\n\n", [Event("b", id="p1-1")]),
    "empty id resets": (
        b"id: 1\ndata: a\n\nid\ndata: b\n\n",
        [Event("a", id="1"), Event("b", id="")],
    ),
    "id with NUL": (b"id: a\0b\ndata: a\n\n", [Event("a")]),
    "unknown field": (b"foo: bar\ndata: a\n\n", [Event("a")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [Event("a")]),
    "unfinished": (b"data: a\n\ndata: b\n", [Event("a")]),
    "utf-8": ("data: grüße\n\n".encode(), [Event("grüße")]),
}


@pytest.mark.parametrize("size", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("name", STREAMS)
def test_streams(name: str, size: int | None) -> None:
    data, events = STREAMS[name]
    assert parse(data, size) == events


def test_what_a_reconnection_needs() -> None:
    parser = Parser()
    assert list(parser.feed(encode_event(b"", id="p1-1", retry_ms=500))) == []
    assert (parser.last_id, parser.retry_ms) == ("p1-1", 500)
    list(parser.feed(b"retry: soon\n\n"))
    assert parser.retry_ms == 500


def test_an_event_that_does_not_end() -> None:
    parser = Parser(max_event=100)
    with pytest.raises(EventTooLong):
        list(parser.feed(b"data: " + b"x" * 200))
    parser = Parser(max_event=100)
    for _ in range(9):
        assert list(parser.feed(b"data: xxxxxxxxx\n")) == []
    with pytest.raises(EventTooLong):
        list(parser.feed(b"data: xxxxxxxxxxxxx\n"))


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8"), min_size=1), max_size=5
    ),
    st.integers(1, 20),
)
def test_encoded_is_parsed(texts: list[str], size: int) -> None:
    data = b"".join(encode_event(t.encode(), id=str(i)) for i, t in enumerate(texts))
    assert [e.data for e in parse(data, size)] == texts


@given(st.binary(max_size=300), st.integers(1, 50))
def test_noise_only_makes_events(data: bytes, size: int) -> None:
    assert parse(data, size) == parse(data)
