"""A FastMCP server behind the authorization server that comes with it."""

import socket

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from mcp.server.auth.settings import ClientRegistrationOptions

listening = socket.create_server(("127.0.0.1", 0))
origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
registration = ClientRegistrationOptions(enabled=True, valid_scopes=["read"])
auth = InMemoryOAuthProvider(
    base_url=origin, client_registration_options=registration, required_scopes=["read"]
)
server = FastMCP("guarded", auth=auth)


@server.tool
def hello() -> str:
    return "hello"


print(origin, flush=True)
uvicorn.Server(uvicorn.Config(server.http_app(), log_level="error")).run(sockets=[listening])
