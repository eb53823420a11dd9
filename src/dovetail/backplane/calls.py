"""Conversations between two nodes, over their mailboxes.

One node opens a conversation of some kind with another and gives it the first message; then
both may send, until one ends it. Mailboxes keep nothing, so a conversation breaks when either
node or its link to the engine does: then whoever waits in it gets `NodeGone`, soon, because
the nodes of open conversations are pinged, and a ping names the conversations it is about.

Every message carries a MAC of the key ring: whoever can write to the engine still cannot speak
for a node, and what a node says about the principal of a request can be believed.
"""

import asyncio
import hmac
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from dovetail.backplane.base import Backplane, BackplaneAway
from dovetail.backplane.keys import KeyRing

__all__ = ["Calls", "Conversation", "NodeGone"]

log = logging.getLogger("dovetail")

# Seconds between two pings of a node that we have a conversation with: how long a client waits
# for the news that the node which served it is dead.
PING_SECONDS = 1.0
# Bytes received and not yet read in one conversation. The other side does not see how fast our
# client reads; past this we give up, and the client resumes its stream.
MAX_UNREAD = 16 * 1024 * 1024
# Conversations that others may hold with us at once, each a request in flight.
MAX_INCOMING = 10_000

_OPEN, _DATA, _LAST, _END, _FAIL, _PING = range(6)
_MAC = 16

# sender, whether the sender opened it, number, verb, kind of conversation, data
_Message = tuple[str, bool, int, int, str, bytes]
_Key = tuple[str, bool, int]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Message).decode
_decode_open = msgspec.msgpack.Decoder(list[tuple[bool, int]]).decode

Serve = Callable[["Conversation", bytes], Awaitable[None]]


class NodeGone(BackplaneAway):
    """The other node has ended, or cannot be reached."""


class Conversation:
    """One side of it."""

    def __init__(self, calls: "Calls", node: str, is_ours: bool, number: int, kind: str) -> None:
        self.node = node
        self._calls = calls
        self._is_ours = is_ours
        self._number = number
        self._kind = kind
        self._unread: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._ended = False  # by either side
        self._left = False  # by us
        self.failed = False

    @property
    def key(self) -> _Key:
        return self.node, self._is_ours, self._number

    async def send(self, data: bytes, last: bool = False) -> None:
        """Raises `NodeGone` when nobody is there to hear it. The last message ends it."""
        if last:
            self._ended = True
            self._calls.forget(self)
        if self.failed or not await self.post(_LAST if last else _DATA, data):
            self.fail()
            raise NodeGone("The other node is gone")

    async def receive(self) -> bytes | None:
        """The next message; None after the last. Raises `NodeGone`."""
        while not self._unread:
            if self.failed:
                raise NodeGone("The other node is gone")
            if self._ended or self._left:
                return None
            self._news.clear()
            await self._news.wait()
        data = self._unread.popleft()
        self._size -= len(data)
        return data

    def leave(self) -> None:
        """We listen no more: whoever waits in `receive` gets None."""
        self._left = True
        self._news.set()

    async def close(self) -> None:
        """We have said everything, and listen no more."""
        self._calls.forget(self)
        self.leave()
        if not self.failed and not self._ended:
            with suppress(BackplaneAway):
                await self.post(_END, b"")

    async def post(self, verb: int, data: bytes) -> bool:
        return await self._calls.post(self.key, verb, data, self._kind)

    def received(self, verb: int, data: bytes) -> None:
        if verb in (_DATA, _LAST):
            self._unread.append(data)
            self._size += len(data)
        if verb in (_LAST, _END):
            self._ended = True
            self._calls.forget(self)
        if verb == _FAIL or self._size > MAX_UNREAD:
            self.fail()
        self._news.set()

    def fail(self) -> None:
        self.failed = True
        self._calls.forget(self)
        self._news.set()


class Calls:
    """The conversations of one node."""

    def __init__(self, backplane: Backplane, ring: KeyRing) -> None:
        self._backplane = backplane
        self._ring = ring
        self._serving: dict[str, Serve] = {}
        self._open: dict[_Key, Conversation] = {}
        self._last = 0
        self._heard: dict[str, int] = {}  # the last number of each node that opened one with us
        self._tasks: set[asyncio.Task[None]] = set()
        self._pinging: asyncio.Task[None] | None = None
        backplane.mailbox.receive(self._received, self._fail)

    def serve(self, kind: str, handler: Serve) -> None:
        """Let ``handler`` lead the conversations of this kind that others open."""
        self._serving[kind] = handler

    async def open(self, node: str, kind: str, data: bytes) -> Conversation:
        """Begin a conversation; `NodeGone` if the node is not there."""
        self._last += 1
        made = Conversation(self, node, True, self._last, kind)
        self._keep(made)
        try:
            there = await made.post(_OPEN, data)
        except BaseException:
            self.forget(made)
            raise
        if not there:
            self.forget(made)
            raise NodeGone(f"The node {node} is gone")
        return made

    async def ask(self, node: str, kind: str, data: bytes) -> bytes:
        """One message there, one back."""
        conversation = await self.open(node, kind, data)
        try:
            answer = await conversation.receive()
        finally:
            await conversation.close()
        if answer is None:
            raise NodeGone("The other node did not answer")
        return answer

    async def close(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- inside ------------------------------------------------------------------------

    def _keep(self, conversation: Conversation) -> None:
        self._open[conversation.key] = conversation
        if self._pinging is None or self._pinging.done():
            self._pinging = asyncio.create_task(self._ping(), name="pings of nodes")

    def forget(self, conversation: Conversation) -> None:
        self._open.pop(conversation.key, None)

    async def post(self, key: _Key, verb: int, data: bytes = b"", kind: str = "") -> bool:
        node, is_ours, number = key
        message = _encode((self._backplane.node, is_ours, number, verb, kind, data))
        mac = self._macs(node, message)[0]
        return await self._backplane.mailbox.send(node, mac + message)

    def _macs(self, node: str, message: bytes) -> list[bytes]:
        macs = self._ring.macs(node.encode() + message, b"dovetail mailbox")
        return [mac[:_MAC] for mac in macs]

    def _received(self, data: bytes) -> None:
        mac, message = data[:_MAC], data[_MAC:]
        good = self._macs(self._backplane.node, message)
        if not any([hmac.compare_digest(mac, ours) for ours in good]):
            log.warning("a message in our mailbox has a wrong MAC: do all nodes share the keys?")
            return
        sender, is_theirs, number, verb, kind, content = _decode(message)
        key = sender, not is_theirs, number
        conversation = self._open.get(key)
        if conversation is not None:
            conversation.received(verb, content)
        elif verb == _OPEN and number > self._heard.get(sender, 0):  # not a message repeated
            self._heard[sender] = number
            self._start(Conversation(self, *key, kind), kind, content)
        elif verb == _PING:
            self._pinged(sender, content)
        elif verb == _DATA:
            self._refuse(key)

    def _pinged(self, sender: str, content: bytes) -> None:
        """The other side believes that these are open."""
        for is_theirs, number in _decode_open(content):
            key = sender, not is_theirs, number
            if key not in self._open:
                self._refuse(key)

    def _refuse(self, key: _Key) -> None:
        """Tell the other side that we know nothing of this conversation."""

        async def tell() -> None:
            with suppress(BackplaneAway):
                await self.post(key, _FAIL)

        self._spawn(tell())

    def _start(self, conversation: Conversation, kind: str, data: bytes) -> None:
        handler = self._serving.get(kind)
        if handler is None or len(self._tasks) >= MAX_INCOMING:
            self._refuse(conversation.key)
            return
        self._keep(conversation)
        self._spawn(self._lead(handler, conversation, data))

    def _spawn(self, coroutine: Awaitable[None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lead(self, handler: Serve, conversation: Conversation, data: bytes) -> None:
        try:
            await handler(conversation, data)
        except BackplaneAway:
            pass
        except Exception:
            log.exception("a message of another node could not be served")
        finally:
            await conversation.close()

    async def _ping(self) -> None:
        """See that those we speak with are there, as long as there are any."""
        while self._open:
            await asyncio.sleep(PING_SECONDS)
            for node in {node for node, _, _ in self._open}:
                named = [(ours, number) for there, ours, number in self._open if there == node]
                try:
                    if not await self.post((node, True, 0), _PING, _encode(named)):
                        self._fail(node)
                except BackplaneAway:
                    break  # the link is lost, and they with it

    def _fail(self, node: str | None = None) -> None:
        for conversation in list(self._open.values()):
            if node in (None, conversation.node):
                conversation.fail()
