"""What a session knows of its calls: running, suspended, ended, lost, remembered."""

from typing import Any

from msgspec import Struct

from dovetail import ToolError
from dovetail.servers.lisp import descendants
from dovetail.servers.lisp.frames import Failure, Frame
from dovetail.servers.lisp.image import Call, Image

__all__ = ["Entry", "NeverBegan", "Outcome", "Running", "SessionLost", "Suspended"]


class Outcome(Struct):
    """How a call ended: the answer, and what the answer does not know."""

    number: int
    frame: Frame
    raw: tuple[str, str] = ("", "")  # from the process's own stdout and stderr
    expired: float = 0.0  # the timeout that ended it, in seconds
    note: str = ""  # a loss since the last call
    token: str = ""  # names the suspended evaluation, if it is one


class SessionLost(ToolError):
    """The Lisp went away under a call; the text tells what happened and what is gone."""

    def __init__(self, text: str, partial: Frame | None = None, expired: float = 0.0) -> None:
        super().__init__(text)
        self.partial = partial
        self.expired = expired


class NeverBegan(SessionLost):
    """The same, but nothing of the call was done."""


class Running:
    """One call of a session, from its start to its answer, suspensions included."""

    __slots__ = ("arguments", "call", "expired", "image", "number", "partial", "rounds", "since")

    def __init__(self, number: int, image: Image, call: Call, arguments: dict[str, Any]) -> None:
        self.number = number
        self.image = image
        self.call = call
        self.arguments = arguments
        self.since = descendants.now()
        self.expired = 0.0
        self.partial: Frame | None = None
        self.rounds = 0


class Suspended:
    """An evaluation that waits in the debugger, or for a line of input."""

    def __init__(self, token: str, running: Running, frame: Frame, timer: Any) -> None:
        self.token = token
        self.round = running.rounds  # it may wait several times
        self.running = running
        self.frame = frame
        self.timer = timer


class Entry(Struct):
    """A line of the session's history."""

    number: int
    code: str
    text: str
    is_error: bool
    failure: Failure | None = None
