"""Fuzz the wire layer: framing and the JSON-RPC envelope.

Allowed to escape: ``RemoteProtocolError`` from ``decode``, nothing else from anything. On top of
that two oracles: how the bytes are cut must not matter, and what ``decode`` accepts Python's own
JSON parser accepts too, with the same members.

Run it through ``fuzz/run.py``. Given files instead of a corpus, it replays them.
"""

import json
import sys

import atheris

with atheris.instrument_imports(include=["dovetail"]):
    from dovetail.errors import RemoteProtocolError
    from dovetail.wire import jsonrpc
    from dovetail.wire.framing import LineFramer, Oversize

from msgspec import UNSET
from seeds import write_corpus

MAX_DEPTH = 32
CAPS = (8, 64, 1024, 1 << 20)


def one(data: bytes) -> None:
    """First byte: the frame cap; second: the size of the chunks; the rest is the input."""
    if len(data) < 2:
        return
    cap, step, stream = CAPS[data[0] % len(CAPS)], data[1] % 64 + 1, data[2:]
    frames = framed(cap, [stream])
    chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert frames == framed(cap, chunks), "the cut of the bytes made a difference"
    for frame in frames:
        if isinstance(frame, Oversize):
            assert len(frame.prefix) <= 1024
            jsonrpc.too_long(frame.prefix, frame.limit)
        else:
            assert b"\n" not in frame
            assert len(frame) <= cap
            check_frame(frame)


def framed(cap: int, chunks: list[bytes]) -> list[bytes | Oversize]:
    framer = LineFramer(cap)
    frames = [frame for chunk in chunks for frame in framer.feed(chunk)]
    return frames + framer.finish()


def check_frame(frame: bytes) -> None:
    jsonrpc.too_long(frame[:1024], 1024)
    for item in jsonrpc.split_batch(frame) or ():
        assert isinstance(item, bytes)
    try:
        envelope = jsonrpc.decode(frame, MAX_DEPTH)
    except RemoteProtocolError as error:
        assert error.error.code in (-32700, -32600)  # noqa: PT017 - not a test
        jsonrpc.encode(jsonrpc.ErrorFrame(error.id, jsonrpc.WireError(error.error.code, "x")))
        return
    value = json.loads(frame, parse_constant=refuse, parse_int=str, parse_float=str)
    assert value["jsonrpc"] == "2.0"
    for name in ("params", "result"):
        raw = getattr(envelope, name)
        assert (raw is UNSET) == (name not in value)
        if raw is not UNSET:
            again = json.loads(bytes(raw), parse_int=str, parse_float=str)
            assert again == value[name]
    if isinstance(envelope.id, int | str):
        assert str(envelope.id) == value["id"] or envelope.id == int(value["id"])
        jsonrpc.encode(jsonrpc.ResultFrame(envelope.id, None))


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} was accepted")


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "--seed":
        write_corpus(sys.argv[2], prefix=b"\x03\x05")
        return
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
