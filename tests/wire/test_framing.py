"""Newline framing, each case fed whole, byte by byte, and with more data behind it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from dovetail.wire.framing import Frame, LineFramer, Oversize

CAP = 16
FULL = b"x" * CAP
LONG = b"y" * (CAP + 1)
CUT = Oversize(b"y" * CAP, CAP)

Case = tuple[bytes, list[Frame], list[Frame]]

# what comes in, the frames it completes, the frame that the end of the stream completes
CASES: dict[str, Case] = {
    "nothing": (b"", [], []),
    "one": (b"one\n", [b"one"], []),
    "two": (b"one\ntwo\n", [b"one", b"two"], []),
    "many": (b"a\n" * 50, [b"a"] * 50, []),
    "unfinished": (b"one\ntw", [b"one"], [b"tw"]),
    "no newline at all": (b"one", [], [b"one"]),
    "CRLF": (b"one\r\ntwo\r\n", [b"one\r", b"two\r"], []),
    "CR is no newline": (b"one\rtwo\n", [b"one\rtwo"], []),
    "CR at the end of the stream": (b"one\r", [], [b"one\r"]),
    "empty lines": (b"\n\n\none\n\n\ntwo\n\n", [b"one", b"two"], []),
    "empty CRLF lines": (b"\r\n\r\none\r\n\r\n", [b"one\r"], []),
    "lines of white space": (b"  \n\t\none\n \t \r\n", [b"one"], []),
    "white space at the end of the stream": (b"one\n  \t", [b"one"], []),
    "white space around a frame stays": (b"  one  \n", [b"  one  "], []),
    "other separators of text are no newlines": (
        b"a\x0bb\x0cc\x1cd\x85e\n",
        [b"a\x0bb\x0cc\x1cd\x85e"],
        [],
    ),
    "zero bytes": (b"\x00\n\x00\x00\n", [b"\x00", b"\x00\x00"], []),
    "any bytes": (bytes(range(11, 27)) + b"\n", [bytes(range(11, 27))], []),
    "at the cap": (FULL + b"\n", [FULL], []),
    "at the cap, unfinished": (FULL, [], [FULL]),
    "over the cap by one": (LONG + b"\n", [CUT], []),
    "over the cap by one, unfinished": (LONG, [], [CUT]),
    "over the cap by its CR": (b"y" * CAP + b"\r\n", [CUT], []),
    "far over the cap": (LONG * 40 + b"\n", [CUT], []),
    "far over the cap, unfinished": (LONG * 40, [], [CUT]),
    "over the cap, then good": (LONG + b"\none\n" + FULL + b"\n", [CUT, b"one", FULL], []),
    "good, then over the cap": (b"one\n" + LONG + b"\n", [b"one", CUT], []),
    "over the cap between good": (b"one\n" + LONG + b"\ntwo\n", [b"one", CUT, b"two"], []),
    "over the cap twice": (LONG + b"\n" + LONG + b"\n", [CUT, CUT], []),
    "over the cap, then empty": (LONG + b"\n\n\n", [CUT], []),
    "over the cap, then unfinished": (LONG + b"\non", [CUT], [b"on"]),
    "over the cap with blanks only": (b" " * 17 + b"\n", [Oversize(b" " * 16, CAP)], []),
    "together over the cap, each under it": (b"0123456789\n" * 5, [b"0123456789"] * 5, []),
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def whole(data: bytes) -> list[bytes]:
    return [data]


def single_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def with_empty_chunks(data: bytes) -> list[bytes]:
    return [part for at in range(0, len(data), 3) for part in (b"", data[at : at + 3], b"")]


def in_cap_sized_chunks(data: bytes) -> list[bytes]:
    return [data[at : at + CAP] for at in range(0, len(data), CAP)]


Cut = Callable[[bytes], list[bytes]]
every_cut = pytest.mark.parametrize(
    "cut", [whole, single_bytes, with_empty_chunks, in_cap_sized_chunks]
)


def feed(framer: LineFramer, chunks: list[bytes]) -> list[Frame]:
    return [frame for chunk in chunks for frame in framer.feed(chunk)]


@pytest.mark.verifies("F-split-input", "X15", "E-crlf", "E-empty-line", "E-no-newline")
@every_case
@every_cut
def test_frames(case: Case, cut: Cut) -> None:
    data, frames, last = case
    framer = LineFramer(CAP)
    assert feed(framer, cut(data)) == frames
    assert framer.finish() == last
    assert framer.finish() == []


@pytest.mark.verifies("F-split-input")
@every_case
@every_cut
def test_frames_with_trailing_data(case: Case, cut: Cut) -> None:
    data, frames, last = case
    framer = LineFramer(CAP)
    assert feed(framer, cut(data + b"\nmore\nrest")) == [*frames, *last, b"more"]
    assert framer.finish() == [b"rest"]


@every_case
def test_a_framer_can_be_used_again_after_the_end(case: Case) -> None:
    framer = LineFramer(CAP)
    feed(framer, [case[0]])
    framer.finish()
    assert framer.feed(b"one\n") == [b"one"]


@pytest.mark.verifies("F-split-input")
@pytest.mark.parametrize("place", range(1, 12))
def test_every_place_to_cut(place: int) -> None:
    data = b"ab\r\n\n\nc\nde\n"
    framer = LineFramer(CAP)
    assert feed(framer, [data[:place], data[place:]]) == [b"ab\r", b"c", b"de"]


@pytest.mark.verifies("E-oversize")
@pytest.mark.parametrize("cap", [1, 100, 1023, 1024, 1025, 5000])
@every_cut
def test_the_beginning_of_a_long_frame_is_kept(cap: int, cut: Cut) -> None:
    """So that the request can be answered; the same beginning however it arrives."""
    data = bytes(range(48, 58)) * 600
    framer = LineFramer(cap)
    (frame,) = feed(framer, [*cut(data), b"\n"])
    assert frame == Oversize(data[: min(cap, 1024)], cap)


def touched(framer: LineFramer, chunks: list[bytes]) -> tuple[list[Frame], Counter[str]]:
    """What the framer does with the bytes: how many each method of ``bytes`` goes over.

    ``join`` says nothing of the pieces it joins, so its calls are counted instead.
    """
    work: Counter[str] = Counter()

    def look(_: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and isinstance(owner := function.__self__, bytes):
            work[function.__name__] += 1 if function.__name__ == "join" else len(owner)

    sys.setprofile(look)
    try:
        frames = feed(framer, chunks)
    finally:
        sys.setprofile(None)
    return frames, work


@pytest.mark.verifies("E-oversize", "F-split-input")
@every_cut
def test_linear_time_by_count(cut: Cut) -> None:
    """Every byte is split once, joined once, looked at for blanks once, however it arrives."""
    data = b"z" * 40_000
    frames, work = touched(LineFramer(1 << 20), [*cut(data), b"\n"])
    assert frames == [data]
    assert work["split"] == len(data) + 1
    assert work["join"] == 1
    assert sum(work.values()) <= 2 * len(data) + 2


@pytest.mark.verifies("E-oversize")
@every_cut
def test_linear_time_over_the_cap(cut: Cut) -> None:
    frames, work = touched(LineFramer(1000), [*cut(b"z" * 40_000), b"\nok\n"])
    assert frames == [Oversize(b"z" * 1000, 1000), b"ok"]
    assert work["join"] == 1
    assert sum(work.values()) <= 40_000 + 10


@pytest.mark.verifies("E-oversize")
@every_cut
def test_what_is_over_the_cap_is_not_kept(cut: Cut) -> None:
    framer = LineFramer(1000)
    for chunk in cut(b"z" * 50_000):
        assert framer.feed(chunk) == []
        assert sum(map(len, framer._pending)) <= 1000
    assert framer.feed(b"\nok\n") == [Oversize(b"z" * 1000, 1000), b"ok"]
