"""What the tests of the Lisp product share: a server with a real SBCL, and its texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dovetail.servers.lisp.limits import LispLimits
from dovetail.servers.lisp.product import lisp_server
from dovetail.servers.lisp.sessions import Config
from dovetail.testing import TestClient, connect


class Client:
    """A client of a Lisp server of its own."""

    def __init__(self, client: TestClient) -> None:
        self.raw = client

    async def result(self, code: str, **arguments: Any) -> Any:
        given = {name.replace("_", "-"): value for name, value in arguments.items()}
        return await self.raw.call("evaluate-lisp", {"code": code, **given})

    async def text(self, code: str, **arguments: Any) -> str:
        """Of an evaluation that ends well."""
        result = await self.result(code, **arguments)
        assert result["isError"] is False, result
        return text_of(result)

    async def error(self, code: str, **arguments: Any) -> str:
        """Of one that does not."""
        result = await self.result(code, **arguments)
        assert result["isError"] is True, result
        return text_of(result)

    async def tool(self, tool: str, /, **arguments: Any) -> str:
        result = await self.raw.call(tool, arguments)
        assert result["isError"] is False, result
        return text_of(result)


def text_of(result: Any) -> str:
    (block,) = result["content"]
    assert block["type"] == "text"
    return str(block["text"])


@asynccontextmanager
async def lisp(
    revision: str = "2025-11-25",
    config: Config | None = None,
    *,
    capabilities: dict[str, Any] | None = None,
    **limits: float,
) -> AsyncIterator[Client]:
    chosen = config or Config(limits=LispLimits(**limits))  # type: ignore[arg-type]
    async with connect(lisp_server(chosen), revision, capabilities=capabilities) as client:
        yield Client(client)
