"""A server that wants tokens: ``python protected.py ISSUER``. It says its URL when it listens.

2025-03-26 looks for the authorization server's metadata at the server itself, so they are
passed on from there; everything else is ``BearerAuth``.
"""

import sys
from typing import Any

from dovetail import Context, Server
from dovetail.ext.auth import BearerAuth
from dovetail.ext.auth_jwks import fetch
from dovetail.ext.auth_jwt import JwtVerifier
from dovetail.transport.http.app import HttpApp
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


class WithOldMetadata(HttpApp):
    """What an author who wants to serve 2025-03-26 with tokens puts before it."""

    issuer: str

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != OLD:
            await super().__call__(scope, receive, send)
            return
        body = await fetch(self.issuer + OLD)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def main(issuer: str) -> None:
    listener = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    auth = BearerAuth(
        server,
        JwtVerifier(issuer),
        resource=url,
        authorization_servers=[issuer],
        scopes=["use"],
        scopes_supported=["use", "write"],
    )
    app = WithOldMetadata(server, path="/mcp", auth=auth)
    app.issuer = issuer
    print(url, flush=True)
    serve(app, listener)


if __name__ == "__main__":
    main(sys.argv[1])
