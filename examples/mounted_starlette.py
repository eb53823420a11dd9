"""Two MCP servers inside one Starlette application: `uvicorn examples.mounted_starlette:app`."""

from starlette.applications import Starlette
from starlette.routing import Mount, Route

from dovetail import Context, Server

orders = Server("orders", version="1.0.0")
stock = Server("stock", version="1.0.0")


@orders.tool
async def place(article: str, ctx: Context) -> str:
    """Place an order."""
    ctx.progress(1, 2, "reserved")
    return f"placed {article}"


@stock.tool
async def count(article: str) -> int:
    """Count an article."""
    return len(article)


app = Starlette(
    routes=[
        Route("/orders/mcp", orders.asgi()),  # at exactly this path
        Mount("/stock", stock.asgi()),  # at this path and everything below it
    ]
)
