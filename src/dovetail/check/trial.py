"""What a probe is given: a conversation to share, new ones of its own, and what is known."""

from contextlib import AsyncExitStack
from typing import Any

from dovetail.check.channel import Entry
from dovetail.check.conversation import Conversation, Message, StreamConversation, code_of
from dovetail.check.http import HttpConversation
from dovetail.check.rules import Broken, NotApplicable
from dovetail.check.target import Target
from dovetail.spec.revisions import Revision

__all__ = ["Trial"]

# How long a server may take over an answer that others gave at once, before it counts as silence.
GRACE = 0.5
# Pages read of one list: a server that never ends one is broken, whatever it has.
MAX_PAGES = 200


class Trial:
    """One revision of one server. Rules are tried on it one after the other."""

    def __init__(self, target: Target, revision: Revision) -> None:
        self.target = target
        self.revision = revision
        self.logs: list[list[Entry]] = []  # of every conversation here
        self.others: list[list[Entry]] = []  # of those that rules held apart from it
        self._shared: Conversation | None = None
        self._last: Conversation | None = None
        self._own = AsyncExitStack()
        self._lists: dict[str, list[Message] | None] = {}

    @property
    def transport(self) -> str:
        return self.target.transport

    async def talk(self) -> Any:
        """The shared conversation, with the greeting behind it; anew if it broke."""
        if self._shared is None:
            self._shared = await self.fresh()
        return self._shared

    async def fresh(self, *, greet: bool = True) -> Any:
        """A conversation of one's own, closed when the rule has been tried."""
        conversation = await self.target.open(self.revision)
        self._last = conversation
        self.logs.append(conversation.log)
        self._own.push_async_callback(conversation.close)
        if greet:
            await conversation.greet()
        return conversation

    def give_up(self) -> None:
        """The shared conversation is broken: the next rule gets a new one."""
        self._shared = None

    def last_words(self) -> str:
        return self._last.last_words() if self._last is not None else ""

    async def close(self) -> None:
        await self._own.aclose()

    # -- questions that many probes ask -------------------------------------------------

    async def declares(self, name: str) -> bool:
        return name in (await self.talk()).capabilities

    async def need(self, name: str) -> Any:
        """The shared conversation, of a server that declares this capability."""
        talk = await self.talk()
        if name not in talk.capabilities:
            raise NotApplicable(f"the server does not declare {name}")
        return talk

    async def items(self, method: str, key: str) -> list[Message]:
        """Everything a list method offers, read page by page once."""
        if method not in self._lists:
            self._lists[method] = None  # until it worked: only the first who asks is told why not
            self._lists[method] = await read_list(await self.talk(), method, key)
        found = self._lists[method]
        if found is None:
            raise NotApplicable(f"{method} does not work")
        return found

    async def tools(self) -> list[Message]:
        await self.need("tools")
        return await self.items("tools/list", "tools")

    async def reactions(self, frame: bytes) -> list[Message]:
        """Send what should be answered; what came, also from a server that takes its time."""
        talk = await self.talk()
        found: list[Message] = await talk.provoke(frame)
        if not found and isinstance(talk, StreamConversation):
            found = await talk.linger(GRACE)
        return found

    async def refused(self, frame: bytes, *codes: int) -> Message:
        """Send what must be refused; the error that came, which must have one of the codes."""
        found = await self.reactions(frame)
        if not found and self._refused_by_status():
            return {}
        if not found:
            raise Broken(f"nothing came back{self._status()}, so a client would wait for ever")
        error = found[0]
        if code_of(error) is None:
            raise Broken("it was served as if it were right")
        if code_of(error) not in codes:
            wanted = " or ".join(map(str, codes))
            raise Broken(f"the error has code {code_of(error)}, not {wanted}")
        return error

    async def ignored(self, frame: bytes) -> None:
        """Send what must not be answered."""
        found = await (await self.talk()).provoke(frame)
        if found and not self._refused_by_status():
            raise Broken(f"it was answered: {str(found[0])[:200]}")

    def _refused_by_status(self) -> bool:
        """Over HTTP an error status is an answer, with or without a message."""
        return isinstance(self._shared, HttpConversation) and self._shared.last_status >= 400

    def _status(self) -> str:
        over_http = isinstance(self._shared, HttpConversation)
        return f" but status {self._shared.last_status}" if over_http else ""  # type: ignore[union-attr]


async def read_list(talk: Any, method: str, key: str) -> list[Message]:
    found: list[Message] = []
    cursor = None
    for _ in range(MAX_PAGES):
        answer = await talk.request(method, {} if cursor is None else {"cursor": cursor})
        result = answer.get("result")
        if not isinstance(result, dict) or not isinstance(result.get(key), list):
            raise Broken(f"{method} gave no list: {str(answer)[:300]}")
        found += [item for item in result[key] if isinstance(item, dict)]
        if "nextCursor" not in result or result["nextCursor"] is None:
            return found
        cursor = result["nextCursor"]
    raise Broken(f"{method} had not ended after {MAX_PAGES} pages")
