"""A server that wants tokens: ``python protected.py ISSUER``. It says its URL when it listens.

2025-03-26 looks for the authorization server's metadata at the server itself, so they are
passed on from there; everything else is ``BearerAuth``.
"""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from dovetail import Context, Server
from dovetail.ext.auth import BearerAuth
from dovetail.ext.auth_jwks import fetch
from dovetail.ext.auth_jwt import JwtVerifier
from dovetail.transport.http.auth import HttpAnswer
from dovetail.transport.http.run import bind, serve

server = Server("protected", version="1.0.0")
OLD = "/.well-known/oauth-authorization-server"


@server.tool
async def whoami(ctx: Context) -> str | None:
    """Who the token says you are."""
    return ctx.session.principal


@server.tool(scopes=["write"])
async def write() -> str:
    """Needs a scope of its own."""
    return "written"


class WithOldMetadata(BearerAuth):
    """What an author who wants to serve 2025-03-26 with tokens adds."""

    old: bytes

    def metadata(self, scope: Mapping[str, Any]) -> HttpAnswer | None:
        if scope["path"] == OLD:
            return HttpAnswer(200, ((b"content-type", b"application/json"),), self.old)
        return super().metadata(scope)


def main(issuer: str) -> None:
    listener = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    auth = WithOldMetadata(
        server,
        JwtVerifier(issuer),
        resource=url,
        authorization_servers=[issuer],
        scopes=["use"],
        scopes_supported=["use", "write"],
    )
    auth.old = asyncio.run(fetch(issuer + OLD))
    print(url, flush=True)
    serve(server.asgi(path="/mcp", auth=auth), listener)


if __name__ == "__main__":
    main(sys.argv[1])
