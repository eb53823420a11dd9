"""``--wire-log FILE``: every message, both ways, one JSON object a line."""

import logging
import time
from typing import IO

import msgspec

__all__ = ["WireLog"]

log = logging.getLogger("dovetail")


class WireLog:
    """A tap that writes ``{"time": …, "dir": "in"|"out", "message": …}``.

    What is not JSON is kept as text under "raw", so that nothing is missing
    when somebody looks for the frame that went wrong.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._broken = False

    def __call__(self, direction: str, frame: bytes) -> None:
        if self._broken:
            return
        entry = {"time": time.time(), "dir": direction}
        try:
            self._file.write(msgspec.json.encode({**entry, **_shown(frame)}) + b"\n")
        except (OSError, ValueError) as error:  # a full disk must not end the conversation
            self._broken = True
            log.error("the wire log ends here: %s", error)


def _shown(frame: bytes) -> dict[str, object]:
    try:
        return {"message": msgspec.json.decode(frame)}
    except (ValueError, RecursionError):
        return {"raw": frame.decode(errors="backslashreplace")}
