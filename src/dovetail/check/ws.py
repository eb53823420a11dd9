"""WebSocket: a frame per message, through the library's client but with our bytes."""

import asyncio
from contextlib import suppress

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from dovetail.check.channel import Closed, Entry
from dovetail.check.conversation import Message, StreamConversation
from dovetail.spec.revisions import Revision

__all__ = ["WsTarget"]

_LIMIT = 64 * 1024 * 1024


class WsChannel:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.log: list[Entry] = []

    async def send(self, frame: bytes) -> None:
        self.log.append(Entry("sent", frame))
        try:
            await self._socket.send(frame, text=True)
        except ConnectionClosed as error:
            raise Closed(f"the server closed the socket: {error}") from None

    async def receive(self, seconds: float) -> bytes | None:
        try:
            async with asyncio.timeout(seconds):
                data = await self._socket.recv(decode=False)
        except TimeoutError:
            return None
        except ConnectionClosed as error:
            raise Closed(f"the server closed the socket: {error}") from None
        self.log.append(Entry("received", data))
        return data

    def last_words(self) -> str:
        return self._socket.close_reason or ""

    async def close(self) -> None:
        with suppress(WebSocketException, OSError):
            await self._socket.close()


class WsTarget:
    transport = "ws"

    def __init__(
        self, url: str, calls: dict[str, Message], patience: float, headers: dict[str, str]
    ) -> None:
        self.url = url
        self.calls = calls
        self.patience = patience
        self.headers = headers

    async def open(self, revision: Revision) -> StreamConversation:
        try:
            socket = await connect(
                self.url,
                subprotocols=[Subprotocol("mcp")],
                additional_headers=self.headers,
                max_size=_LIMIT,
                proxy=None,
            )
        except InvalidStatus as error:
            response = error.response
            text = response.body.decode(errors="replace")[:200]
            raise Closed(f"the upgrade was refused: {response.status_code} {text}") from None
        except (WebSocketException, OSError) as error:
            raise Closed(f"no WebSocket at {self.url}: {error}") from None
        return StreamConversation(WsChannel(socket), revision, self.patience)

    def __str__(self) -> str:
        return self.url
