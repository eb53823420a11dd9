"""A recorder that follows a conversation and checks every message in it.

It works out for itself which revision a message belongs to: the envelope of
2026-07-28 names it, an answer has that of its request, everything else has
the one agreed in ``initialize``.
"""

from typing import Any

import msgspec

from dovetail.spec.meta import PROTOCOL_VERSION_KEY, SUBSCRIPTION_ID_KEY
from dovetail.spec.revisions import BY_ID, LATEST_HANDSHAKE, MODERN
from dovetail.testing.schema import SchemaViolation, Sender, check_message

__all__ = ["Recorder"]

_OTHER: dict[str, Sender] = {"client": "server", "server": "client"}


class Recorder:
    """The messages of one connection, in order, each checked against its revision."""

    def __init__(self) -> None:
        self.messages: list[tuple[Sender, Any]] = []
        self.problems: list[SchemaViolation] = []
        self.agreed: str | None = None
        self._last: str | None = None
        self._requests: dict[tuple[Sender, Any], tuple[str, str]] = {}

    def sent(self, sender: Sender, frame: bytes, *, check: bool = True) -> list[Any]:
        """Record one frame. ``check=False``: broken on purpose, only to be followed."""
        try:
            value = msgspec.json.decode(frame)
        except (ValueError, RecursionError):
            if check:
                self.problems.append(SchemaViolation(f"{sender} sent no JSON: {frame[:200]!r}"))
            return []
        messages = value if isinstance(value, list) else [value]
        for message in messages:
            self.messages.append((sender, message))
            if isinstance(message, dict):
                self._follow(sender, message, check)
            elif check:
                self.problems.append(SchemaViolation(f"{sender} sent {message!r}"))
        return messages

    def check(self) -> None:
        """Raise the first violation that was seen."""
        if self.problems:
            raise self.problems[0]

    def _follow(self, sender: Sender, message: dict[str, Any], check: bool) -> None:
        method = message.get("method")
        if isinstance(method, str):
            revision = self._revision_of_call(message)
            if "id" in message and isinstance(message["id"], int | str):
                # A second request under an id in use is refused; the first keeps the id.
                self._requests.setdefault((sender, message["id"]), (method, revision))
            answered = None
        else:
            revision, answered = self._revision_of_answer(sender, message)
        if not check:
            return
        try:
            known = self.agreed is not None or self._last == MODERN.id
            check_message(message, revision, sender, answered, allow_null_id=not known)
        except SchemaViolation as problem:
            self.problems.append(problem)

    def _revision_of_call(self, message: dict[str, Any]) -> str:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        if isinstance(meta, dict) and PROTOCOL_VERSION_KEY in meta:
            if meta[PROTOCOL_VERSION_KEY] == MODERN.id:
                self._last = MODERN.id
            return MODERN.id
        if isinstance(meta, dict) and SUBSCRIPTION_ID_KEY in meta:
            return MODERN.id  # on a stream, which no other revision has
        if message["method"] == "initialize" and params.get("protocolVersion") in BY_ID:
            return str(params["protocolVersion"])
        if "id" in message:  # without an envelope it belongs to the handshake
            return self.agreed or LATEST_HANDSHAKE.id
        return self._current()

    def _revision_of_answer(
        self, sender: Sender, message: dict[str, Any]
    ) -> tuple[str, str | None]:
        id = message.get("id")
        key = (_OTHER[sender], id if isinstance(id, int | str) else None)
        method, revision = self._requests.pop(key, (None, self._current()))
        result = message.get("result")
        if method == "initialize" and isinstance(result, dict):
            revision = self.agreed = str(result.get("protocolVersion"))
            return (revision if revision in BY_ID else LATEST_HANDSHAKE.id), method
        return revision, method

    def _current(self) -> str:
        return self.agreed or self._last or LATEST_HANDSHAKE.id
