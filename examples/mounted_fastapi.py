"""An MCP server inside a FastAPI application: `uvicorn examples.mounted_fastapi:app`.

The endpoint is http://127.0.0.1:8000/mcp. There is no lifespan to wire up: it starts with the
first request. `add_route` makes it answer at exactly that path; `mount` would work, too, but
Starlette redirects `/mcp` to `/mcp/` then.
"""

from fastapi import FastAPI

from dovetail import Server

server = Server("orders", version="1.0.0")
ORDERS = {"A1": 3, "B2": 5}


@server.tool
async def in_stock(article: str) -> int:
    """How many of an article are in stock."""
    return ORDERS.get(article, 0)


app = FastAPI()


@app.get("/orders/{article}")
async def order(article: str) -> dict[str, int]:
    return {article: ORDERS.get(article, 0)}


app.add_route("/mcp", server.asgi())  # type: ignore[arg-type]
