"""MCP Apps (``io.modelcontextprotocol/ui``): a tool with a page that a host can show.

    page(server, "ui://clock", "<h1 id=clock></h1>…")

    @server.tool(meta=shows("ui://clock"))
    def clock() -> str: ...

A client that cannot show pages ignores all of this and reads the tool's text.
"""

from collections.abc import Sequence
from typing import Any, Literal

from dovetail.content import ResourceContents
from dovetail.server.app import Server
from dovetail.server.context import Context
from dovetail.spec.meta import UI_EXTENSION

__all__ = ["MIME_TYPE", "can_show", "page", "shows"]

MIME_TYPE = "text/html;profile=mcp-app"

Audience = Literal["model", "app"]


def shows(uri: str, *, visibility: Sequence[Audience] | None = None) -> dict[str, Any]:
    """The ``meta`` of a tool whose result the page at ``uri`` shows."""
    _check(uri)
    ui: dict[str, Any] = {"resourceUri": uri}
    if visibility is not None:
        ui["visibility"] = list(visibility)
    return {"ui": ui}


def page(
    server: Server,
    uri: str,
    html: str,
    *,
    name: str | None = None,
    csp: dict[str, list[str]] | None = None,
    permissions: dict[str, Any] | None = None,
    domain: str | None = None,
    prefers_border: bool | None = None,
) -> None:
    """Register a page; the options say what the host's sandbox may allow it."""
    _check(uri)
    options = {
        "csp": csp,
        "permissions": permissions,
        "domain": domain,
        "prefersBorder": prefers_border,
    }
    ui = {key: value for key, value in options.items() if value is not None}
    contents = ResourceContents.of(uri, html, MIME_TYPE, **({"meta": {"ui": ui}} if ui else {}))

    @server.resource(uri, name=name or uri.removeprefix("ui://"), mime_type=MIME_TYPE, inline=True)
    def read() -> ResourceContents:
        return contents

    server.extend(UI_EXTENSION)


def can_show(ctx: Context[Any]) -> bool:
    """Whether the client of this request says that it shows pages."""
    settings = (ctx.capabilities.extensions or {}).get(UI_EXTENSION)
    types = settings.get("mimeTypes") if isinstance(settings, dict) else None
    return isinstance(types, list) and MIME_TYPE in types


def _check(uri: str) -> None:
    if not uri.startswith("ui://"):
        raise ValueError(f"{uri!r} is not a page: its URI must start with ui://")
