"""The application inside others: FastAPI and Starlette, with no lifespan wired up."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from http_lab import D, Lab, result, text

from support import run

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class At(Lab):
    """The same lab, at another path."""

    def __init__(self, app: Any, path: str) -> None:
        super().__init__(app)
        self._path = path

    def send(self, *args: Any, **options: Any) -> Any:
        scope = {
            "scheme": "http",
            "http_version": "1.1",
            "raw_path": b"",
            "asgi": {"version": "3.0"},
        }
        options.setdefault("path", self._path)
        return super().send(*args, **scope, **options)


async def close(app: Any) -> None:
    """What nobody does in these examples: end what the first request started."""
    for route in app.routes:
        inner = getattr(route, "app", None)
        if hasattr(inner, "drain"):
            await inner.close()


def test_fastapi() -> None:
    app = load("mounted_fastapi").app

    async def main() -> None:
        http = At(app, "/mcp")
        answer = await http.modern(
            "tools/call", {"name": "in_stock", "arguments": {"article": "A1"}}
        ).whole()
        assert text(answer) == "3"
        client = await http.session(D)
        assert text(await client.call("in_stock", {"article": "B2"}).whole()) == "5"
        stream = client.get()
        await stream.until(lambda: stream.status)
        assert stream.is_stream
        await client.delete().whole()
        await stream.whole()
        other = await http.send("GET", path="/orders/A1").whole()
        assert other.json == {"A1": 3}
        await close(app)

    run(main())


@pytest.mark.parametrize(
    ("path", "name"), [("/orders/mcp", "place"), ("/stock/", "count"), ("/stock/x", "count")]
)
def test_starlette(path: str, name: str) -> None:
    app = load("mounted_starlette").app

    async def main() -> None:
        http = At(app, path)
        call = {"name": name, "arguments": {"article": "abc"}}
        answer = await http.modern("tools/call", call, meta={"progressToken": 1}).whole()
        assert result(answer)["content"][0]["text"] in ("placed abc", "3")
        client = await http.session(D)
        assert (await client.request("tools/list").whole()).status == 200
        await client.delete().whole()
        await close(app)

    run(main())


def test_a_lifespan_is_used_if_there_is_one() -> None:
    from dovetail import Server

    server = Server("alive")
    seen: list[str] = []

    @server.lifespan
    async def life(_: Server) -> Any:
        seen.append("open")
        yield
        seen.append("closed")

    async def main() -> None:
        app = server.asgi()
        messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
        said: list[str] = []

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            said.append(message["type"])

        await app({"type": "lifespan"}, receive, send)
        assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert seen == ["open", "closed"]

    run(main())


def test_a_lifespan_that_fails_says_so(caplog: pytest.LogCaptureFixture) -> None:
    from dovetail import Server

    server = Server("broken")

    @server.lifespan
    async def life(_: Server) -> Any:
        raise RuntimeError("no database")
        yield

    async def main() -> None:
        said: list[Any] = []

        async def receive() -> Any:
            return {"type": "lifespan.startup"}

        async def send(message: Any) -> None:
            said.append(message)

        await server.asgi()({"type": "lifespan"}, receive, send)
        assert said[0]["type"] == "lifespan.startup.failed"
        assert "no database" in said[0]["message"]

    run(main())
