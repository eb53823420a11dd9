"""A developer's image behind Swank or Slynk: our channel inside a connection of theirs.

Both servers take packets of six hexadecimal digits (the length in bytes) and an s-expression.
The bridge is loaded once per image, from the cache or, where that is out of reach, as text. Then
each request is a call of ``tunnel-in``, and one call of ``tunnel-out`` waits for the next answer.
Nothing is evaluated in their threads but that, so an Emacs that is connected to the same image
sees neither our errors nor our output.
"""

import asyncio
import itertools
import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dovetail import ToolError
from dovetail.servers.lisp.image import Image, Lost
from dovetail.servers.lisp.sbcl import BRIDGE, PARTS, Sbcl, bridge_hash
from dovetail.servers.lisp.sexp import sexp

__all__ = ["connect_slynk", "connect_swank"]

_SECRETS = {"swank": ".slime-secret", "slynk": ".sly-secret"}
_SECONDS = 30.0  # to answer; a busy machine compiles the bridge in two
_WAIT = 10  # seconds a call of tunnel-out waits before it asks for another
_PIECE = 500_000  # characters of a packet, whose limit is 16 MB
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[()]|(?:\\.|[^\s()"])+', re.DOTALL)


class Refused(Exception):
    """The image did not do what it was asked; the text says why."""


class SwankChannel(asyncio.Protocol):
    """What Image expects of a channel, in packets of Swank."""

    def __init__(
        self, kind: str, on_frame: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self.kind = kind
        self._on_frame = on_frame
        self._on_end = on_end
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._requests: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    # -- of asyncio ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 6:
            try:
                end = 6 + int(buffer[:6], 16)
            except ValueError:
                return self.close()  # whatever that is, it is not Swank
            if len(buffer) < end:
                return None
            text = buffer[6:end].decode(errors="replace")
            del buffer[:end]
            self._received(text)
        return None

    def connection_lost(self, error: Exception | None) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Lost("it closed the connection"))
                future.exception()
        self._on_end()

    # -- of Swank ------------------------------------------------------------------------------

    def packet(self, text: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            data = text.encode(errors="replace")
            self._transport.write(b"%06x" % len(data) + data)

    async def evaluate(self, form: str) -> Any:
        """The value of a form, which is a list, a string, T or NIL; in a thread of its own."""
        id = next(self._ids)
        future = self._waiting[id] = asyncio.get_running_loop().create_future()
        self.packet(f'(:emacs-rex {form} "COMMON-LISP-USER" t {id})')
        try:
            return await future
        finally:
            del self._waiting[id]

    def _received(self, text: str) -> None:
        """Only what concerns us: an image tells its clients of much else."""
        if text.startswith("(:return "):
            _, (outcome, *rest), id = _read(text)
            future = self._waiting.get(int(id))
            if future is not None and not future.done():
                if outcome.lower() == ":ok":
                    future.set_result(rest[0])
                else:
                    future.set_exception(Refused("it went to the top level"))
        elif text.startswith("(:ping "):
            _, thread, tag = _read(text)
            self.packet(f"(:emacs-pong {thread} {tag})")
        elif text.startswith("(:debug "):
            # A call of ours failed: it is not to wait for somebody at a debugger.
            thread = _TOKEN.findall(text[:200])[2]
            leave = f"({self.kind}:throw-to-toplevel)"
            self.packet(f'(:emacs-rex {leave} "COMMON-LISP-USER" {thread} {next(self._ids)})')

    # -- of the tunnel -------------------------------------------------------------------------

    async def open(self) -> None:
        await self._load_bridge()
        key = secrets.token_hex(8)
        await self.evaluate(f'(dovetail-lisp::open-tunnel "{key}" "{self.kind.upper()}")')
        self._tasks = [
            asyncio.create_task(self._write_requests(key)),
            asyncio.create_task(self._read_frames(key)),
        ]

    async def _load_bridge(self) -> None:
        """Once per image, and never over another version that somebody may be using."""
        hash = bridge_hash()
        if not await self.evaluate(_IS_LOADED):
            await self.evaluate(_loading(f"{Sbcl().fasl_form()} :if-does-not-exist nil"))
        if not await self.evaluate(_IS_LOADED):
            for part in PARTS:
                text = f"(cl:make-string-input-stream {sexp(_source(part))})"
                if failure := await self.evaluate(_loading(text)):
                    raise Refused(f"the bridge cannot be loaded: {failure}")
        if not await self.evaluate(_WHICH):
            await self.evaluate(f'(cl:defparameter dovetail-lisp::*loaded* "{hash}")')
        there = await self.evaluate(_WHICH)
        if there != hash:
            raise Refused("it holds the bridge of another version of this server; restart it")

    def send(self, text: str) -> None:
        self._requests.put_nowait(text)

    async def _write_requests(self, key: str) -> None:
        """One at a time: calls have threads of their own, which may overtake each other."""
        with suppress(Lost, Refused):
            while True:
                text = await self._requests.get()
                for start in range(0, len(text), _PIECE):
                    piece = sexp(text[start : start + _PIECE])
                    last = "t" if start + _PIECE >= len(text) else "nil"
                    await self.evaluate(f'(dovetail-lisp::tunnel-in "{key}" {piece} {last})')

    async def _read_frames(self, key: str) -> None:
        pieces: list[str] = []
        try:
            while True:
                found = await self.evaluate(f'(dovetail-lisp::tunnel-out "{key}" {_WAIT})')
                if not found:
                    continue
                text, is_last = found
                pieces.append(text)
                if is_last:
                    frame = "".join(pieces).encode(errors="replace")
                    pieces.clear()
                    self._on_frame(frame)
        except (Lost, Refused):
            self.close()

    def close(self) -> None:
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        if self._transport is not None:
            self._transport.abort()


def _source(part: str) -> str:
    return (BRIDGE / f"{part}.lisp").read_text()


def _loading(what: str) -> str:
    """A form that loads something, whatever reader and printer the developer has set; its value
    is nil, or what went wrong."""
    return (
        f"(cl:with-standard-io-syntax (cl:handler-case (cl:handler-bind ((cl:warning "
        f"(cl:function cl:muffle-warning))) (cl:let ((cl:*standard-output* "
        f"(cl:make-broadcast-stream)) (cl:*error-output* (cl:make-broadcast-stream))) "
        f"(cl:load {what})) nil) (cl:error (e) (cl:princ-to-string e))))"
    )


def _asking(name: str, test: str) -> str:
    """A form about a symbol of the bridge; nil if there is none."""
    return (
        f'(cl:let ((p (cl:find-package "DOVETAIL-LISP"))) (cl:when p (cl:let ((s '
        f'(cl:find-symbol "{name}" p))) (cl:and s {test}))))'
    )


_IS_LOADED = _asking("TUNNEL-IN", "(cl:fboundp s) t")
_WHICH = _asking("*LOADED*", "(cl:boundp s) (cl:symbol-value s)")


def _read(text: str) -> Any:
    """Lists, strings, and atoms as they are written; NIL is an empty list."""
    stack: list[list[Any]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        elif token[0] == '"':
            stack[-1].append(re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL))
        else:
            stack[-1].append([] if token.lower() == "nil" else token)
    return stack[0][0]


class SwankImage(Image):
    """The image at the other end."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.channel: Any = SwankChannel(kind, self._received, self._ended)

    async def connect(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_SECONDS):
            await loop.create_connection(lambda: self.channel, host or "127.0.0.1", int(port))
            if (secret := _secret(self.channel.kind)) is not None:
                self.channel.packet(secret)  # the text itself, not as Lisp prints it
            await self._check_style()
            await self.channel.open()
            await asyncio.shield(self.hello)

    async def _check_style(self) -> None:
        """Other styles than threads serve one call at a time: a waiting one would block Emacs."""
        kind = self.channel.kind
        style = await self.channel.evaluate(
            f"(cl:string (cl:getf ({kind}:connection-info) :style))"
        )
        if style != "SPAWN":
            raise Refused(f"its communication style is {style}, and not :SPAWN")


def _secret(kind: str) -> str | None:
    """As Emacs does it: the first line of a file in the home directory, if there is one."""
    with suppress(OSError):
        return Path(os.path.expanduser("~"), _SECRETS[kind]).read_text().partition("\n")[0]
    return None


async def _connect(kind: str, address: str) -> Image:
    image = SwankImage(kind)
    try:
        await image.connect(address)
    except (OSError, TimeoutError, Lost, Refused, ValueError) as error:
        await image.close()
        why = str(error) or f"no answer; is its ~/{_SECRETS[kind]} the same as here?"
        raise ToolError(
            f"Cannot attach to {kind} at {address}: {why}\nIn the Lisp, "
            f"evaluate ({kind}:create-server :port 4005 :dont-close t): without :dont-close it "
            f"takes one client only."
        ) from None
    return image


async def connect_swank(address: str) -> Image:
    return await _connect("swank", address)


async def connect_slynk(address: str) -> Image:
    return await _connect("slynk", address)
