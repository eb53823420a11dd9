"""``--wire-log FILE``: every message, both ways, one JSON object a line."""

import time
from typing import IO

import msgspec

__all__ = ["WireLog"]


class WireLog:
    """A tap that writes ``{"time": …, "dir": "in"|"out", "message": …}``.

    What is not JSON is kept as text under "raw", so that nothing is missing
    when somebody looks for the frame that went wrong.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __call__(self, direction: str, frame: bytes) -> None:
        entry = {"time": time.time(), "dir": direction}
        self._file.write(msgspec.json.encode({**entry, **_shown(frame)}) + b"\n")
        self._file.flush()


def _shown(frame: bytes) -> dict[str, object]:
    try:
        return {"message": msgspec.json.decode(frame)}
    except (ValueError, RecursionError):
        return {"raw": frame.decode(errors="backslashreplace")}
