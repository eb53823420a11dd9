"""The floor for HTTP: an ASGI application that decodes a call, adds, and encodes the answer."""

from bare import answer_call, decode_arguments, decode_call, decode_envelope
from http_listen import listen


async def add(a: int, b: int) -> int:
    return a + b


async def app(scope, receive, send) -> None:
    if scope["type"] != "http":
        return
    if scope["method"] == "GET":  # an event stream that says nothing, until the client goes
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    message = await receive()
    envelope = decode_envelope(message["body"])
    arguments = decode_arguments(decode_call(envelope.params).arguments)
    body = answer_call(envelope.id, await add(arguments.a, arguments.b))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


listen(app)
