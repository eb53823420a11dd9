"""Questions to the editor's user, shown in a window of ours: nothing is blocked meanwhile."""

import asyncio
import itertools
from typing import Any

from msgspec import Raw

from dovetail.servers.neovim.editor import Editor, EditorError
from dovetail.servers.neovim.rpc import value_of

__all__ = ["Confirm"]

# Somebody who has left the desk must not keep a request for ever.
PATIENCE = 120.0


class Confirm:
    """Asks before something is run, and runs it only after a yes."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        self._numbers = itertools.count(1)
        editor.on("answer", self._answered)

    async def allowed(self, title: str, text: str) -> bool:
        number = next(self._numbers)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        editor = self._editor
        try:
            await editor.act("confirm", "ask", editor.channel, number, title, text)
            async with asyncio.timeout(PATIENCE):
                return await answer
        except TimeoutError:
            return False
        finally:
            del self._waiting[number]
            if not answer.done() or answer.cancelled():
                code = "require('dovetail.confirm').close(...)"
                editor.link.notify("nvim_exec_lua", code, [number])

    async def run_lua(self, code: str) -> str:
        """What the code returned and printed; EditorError if it failed or may not run."""
        if not await self.allowed("Claude wants to run this Lua code", code):
            raise EditorError("The user did not allow this code to run")
        result: Any = await self._editor.ask("confirm", "run_lua", code)
        return str(result)

    def _answered(self, number: Raw, yes: Raw) -> None:
        answer = self._waiting.get(value_of(number))
        if answer is not None and not answer.done():
            answer.set_result(value_of(yes) is True)
