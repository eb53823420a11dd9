"""The floor: a blocking loop, no asyncio, one write for each chunk read."""

import os

from bare import answer_call, answer_other, decode_arguments, decode_call, decode_envelope


def add(a: int, b: int) -> int:
    return a + b


def answer(line: bytes) -> bytes:
    envelope = decode_envelope(line)
    if envelope.method != "tools/call":
        return answer_other(envelope)
    arguments = decode_arguments(decode_call(envelope.params).arguments)
    return answer_call(envelope.id, add(arguments.a, arguments.b))


def write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def serve() -> None:
    rest = b""
    while chunk := os.read(0, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        write_all(b"".join([answer(line) for line in lines]))


serve()
