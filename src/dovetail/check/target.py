"""The server under test: how a new channel to it is opened."""

from collections.abc import Sequence
from typing import Protocol

from dovetail.check.channel import StdioChannel
from dovetail.check.conversation import Conversation, Message, StreamConversation
from dovetail.spec.revisions import Revision

__all__ = ["StdioTarget", "Target"]


class Target(Protocol):
    transport: str
    patience: float
    calls: dict[str, Message]  # tools the user allows to be called, with their arguments

    async def open(self, revision: Revision) -> Conversation:
        """A new conversation, in which nothing has been said yet."""
        ...


class StdioTarget:
    transport = "stdio"

    def __init__(
        self, command: Sequence[str], calls: dict[str, Message] | None = None, patience: float = 10
    ) -> None:
        self.command = list(command)
        self.calls = calls or {}
        self.patience = patience

    async def open(self, revision: Revision) -> StreamConversation:
        channel = await StdioChannel.open(self.command)
        return StreamConversation(channel, revision, self.patience)

    def __str__(self) -> str:
        return " ".join(self.command)
