"""What agents can read and subscribe to: buffers, selection, diagnostics, quickfix, messages."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Raw

from dovetail import ResourceNotFound, Server, ToolError
from dovetail.servers.neovim.editor import EditorError, Refused
from dovetail.servers.neovim.finder import Desk, Workplace
from dovetail.servers.neovim.rpc import value_of

__all__ = ["Resources", "add_resources"]

log = logging.getLogger("dovetail.neovim")

SELECTION = "nvim://selection"
DIAGNOSTICS = "nvim://diagnostics"
QUICKFIX = "nvim://quickfix"
MESSAGES = "nvim://messages"

# Neither list of messages nor quickfix list tells of its changes: while somebody has
# subscribed to one, we look once a second.
POLL_SECONDS = 1.0


def add_resources(server: Server, resources: "Resources") -> None:
    @server.resource("nvim://buffer/{number}", mime_type="text/plain")
    async def buffer(number: int) -> str:
        """The text of an open buffer, saved or not."""
        try:
            part = await resources.read("buffers", "read", number, 1, 0)
        except Refused:
            raise ResourceNotFound(f"nvim://buffer/{number}") from None
        return str(part["text"])

    @server.resource(SELECTION, mime_type="application/json")
    async def selection() -> str:
        """What the user has selected, or where the cursor is."""
        found = (await (await resources.workplace()).model.selection()).value
        return msgspec.json.encode(None if found is None else found.wire()).decode()

    @server.resource(DIAGNOSTICS, mime_type="application/json")
    async def diagnostics() -> str:
        """What language servers and linters report."""
        found = (await (await resources.workplace()).model.diagnostics()).value
        rows = {path: msgspec.json.decode(items) for path, items in found.items()}
        return msgspec.json.encode(rows).decode()

    @server.resource(QUICKFIX, mime_type="application/json")
    async def quickfix() -> str:
        """The quickfix list."""
        return msgspec.json.encode(await resources.read("buffers", "quickfix")).decode()

    @server.resource(MESSAGES, mime_type="text/plain")
    async def messages() -> str:
        """What :messages shows."""
        return str(await resources.read("buffers", "messages"))


class Resources:
    """Tells subscribers what has changed; the editor is watched only if there are any."""

    def __init__(self, server: Server, desk: Desk) -> None:
        self._server = server
        self._desk = desk
        self._watched: Workplace | None = None
        self._wants: dict[str, bool] | None = None
        self._marks: Any = None

    async def workplace(self) -> Workplace:
        try:
            return await self._desk.workplace()
        except EditorError as error:
            raise ToolError(str(error)) from None

    async def read(self, module: str, name: str, *arguments: Any) -> Any:
        workplace = await self.workplace()
        try:
            return await workplace.editor.read(module, name, *arguments)
        except Refused:
            raise
        except EditorError as error:
            raise ToolError(str(error)) from None

    def _subscriptions(self) -> set[str]:
        found: set[str] = set()
        for session in self._server.sessions:
            found |= session.subscriptions
            for stream in session.streams.values():
                found |= set(stream.wanted.resource_subscriptions or ())
        return {uri for uri in found if uri.startswith("nvim://")}

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """For as long as the server runs."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS if self._wants else POLL_SECONDS / 2)
            try:
                await self._look()
            except (EditorError, ToolError) as error:
                log.debug("cannot watch the editor: %s", error)
                self._watched = None

    async def _look(self) -> None:
        wanted = self._subscriptions()
        wants = None
        if wanted:
            buffers = any(uri.startswith("nvim://buffer/") for uri in wanted)
            wants = {"agents": True, "buffers": buffers}
        if wants is None and self._wants is None:
            return
        workplace = await self.workplace()
        if workplace is not self._watched or workplace.editor.gone:
            self._watched, self._wants, self._marks = workplace, None, None
            self._subscribe(workplace)
        if wants != self._wants:
            await workplace.listen("agents", wants)
            self._wants = wants
        if wanted & {QUICKFIX, MESSAGES}:
            await self._compare(workplace)

    async def _compare(self, workplace: Workplace) -> None:
        marks = await workplace.editor.read("buffers", "marks")
        before, self._marks = self._marks or marks, marks
        if marks[0] != before[0]:
            self._server.updated(QUICKFIX)
        if marks[1:] != before[1:]:
            self._server.updated(MESSAGES)

    def _subscribe(self, workplace: Workplace) -> None:
        model, server = workplace.model, self._server
        model.on_selection.append(lambda selection: server.updated(SELECTION))
        model.on_diagnostics.append(lambda buffer: server.updated(DIAGNOSTICS))
        workplace.editor.on("buffer", self._buffer_changed)

    def _buffer_changed(self, raw: Raw) -> None:
        self._server.updated(f"nvim://buffer/{value_of(raw)}")
