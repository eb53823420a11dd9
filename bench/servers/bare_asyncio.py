"""The floor for asyncio: one task per call, one write per turn of the loop."""

import asyncio
import sys

from bare import answer_call, answer_other, decode_arguments, decode_call, decode_envelope


async def add(a: int, b: int) -> int:
    return a + b


class Bench(asyncio.Protocol):
    def __init__(self, writer: asyncio.WriteTransport) -> None:
        self.loop = asyncio.get_running_loop()
        self.writer = writer
        self.rest = b""
        self.answers: list[bytes] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.closed = self.loop.create_future()

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.receive(line)

    def receive(self, line: bytes) -> None:
        envelope = decode_envelope(line)
        if envelope.method != "tools/call":
            self.send(answer_other(envelope))
            return
        task = self.loop.create_task(self.call(envelope))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def call(self, envelope) -> None:
        arguments = decode_arguments(decode_call(envelope.params).arguments)
        self.send(answer_call(envelope.id, await add(arguments.a, arguments.b)))

    def send(self, answer: bytes) -> None:
        if not self.answers:
            self.loop.call_soon(self.flush)
        self.answers.append(answer)

    def flush(self) -> None:
        self.writer.write(b"".join(self.answers))
        self.answers.clear()

    def eof_received(self) -> None:
        self.closed.set_result(None)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    _, bench = await loop.connect_read_pipe(lambda: Bench(writer), sys.stdin)
    await bench.closed


asyncio.run(serve())
