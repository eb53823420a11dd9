"""The floor for the Lisp product: an asyncio loop that only forwards to the same bridge.

No protocol rules, no sessions, no limits, no timeouts, no warnings: a line is decoded, its code
goes to the bridge, the first value comes back.
"""

import asyncio
import sys

import msgspec
from msgspec import Raw, Struct

from dovetail.servers.lisp.limits import LispLimits
from dovetail.servers.lisp.process import Isolation, start_process
from dovetail.servers.lisp.sbcl import Sbcl


class Arguments(Struct):
    code: str


class Params(Struct):
    arguments: Arguments


class Request(Struct):
    method: str
    id: int | None = None
    params: Raw = Raw(b"{}")


class Value(Struct):
    text: str


class Data(Struct):
    values: list[Value]


decode = msgspec.json.Decoder(Request).decode
decode_params = msgspec.json.Decoder(Params).decode
decode_data = msgspec.json.Decoder(Data).decode


class Forward(asyncio.Protocol):
    def __init__(self, writer, image) -> None:
        self.loop = asyncio.get_running_loop()
        self.writer = writer
        self.image = image
        self.rest = b""
        self.closed = self.loop.create_future()
        self.tasks = set()

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            request = decode(line)
            if request.method == "tools/call":
                task = self.loop.create_task(self.call(request))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            elif request.id is not None:
                self.answer(request.id, {})

    async def call(self, request: Request) -> None:
        code = decode_params(request.params).arguments.code
        frame = await self.image.start("evaluate", {"code": code}).future
        text = "=> " + decode_data(frame.data).values[0].text
        self.answer(request.id, {"content": [{"type": "text", "text": text}], "isError": False})

    def answer(self, id: int, result: object) -> None:
        message = {"jsonrpc": "2.0", "id": id, "result": result}
        self.writer.write(msgspec.json.encode(message) + b"\n")

    def eof_received(self) -> None:
        self.closed.set_result(None)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    image = await start_process(Sbcl(), LispLimits(), Isolation())
    writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    _, forward = await loop.connect_read_pipe(lambda: Forward(writer, image), sys.stdin)
    await forward.closed
    await image.close()


asyncio.run(serve())
