"""Every feature of the server API once; the tests with real clients talk to this one."""

import asyncio
import struct
import zlib
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from dovetail import Context, McpError, Server, ToolError, unstructured
from dovetail.errors import INVALID_PARAMS
from dovetail.spec.types import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    Icon,
    ImageContent,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    TextContent,
)

server = Server(
    "everything",
    version="1.2.3",
    title="Everything",
    description="One of each.",
    instructions="Call whatever you like: nothing here has an effect.",
    website_url="https://example.org/everything",
)


# -- tools: three ways to run ------------------------------------------------------------


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers. A sync tool runs in a thread and may block."""
    return a + b


@server.tool
async def wait(seconds: Annotated[float, Meta(ge=0, le=60)]) -> str:
    """Wait. An async tool runs on the event loop, beside others, and can be cancelled.

    Args:
        seconds: How long.
    """
    await asyncio.sleep(seconds)
    return f"waited {seconds:g} seconds"


@server.tool(inline=True)
def shout(text: str) -> str:
    """Write in capitals. A short sync tool may run inline, without a thread."""
    return text.upper()


# -- tools: what goes in -------------------------------------------------------------------


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Topping(msgspec.Struct):
    name: Annotated[str, Meta(min_length=1, max_length=40)]
    grams: Annotated[int, Meta(gt=0, le=500)] = 50


class Order(msgspec.Struct):
    """What was ordered."""

    summary: str
    price: float
    toppings: list[str]


@server.tool(
    title="Order a pizza",
    read_only=False,
    destructive=False,
    idempotent=False,
    open_world=True,
    icons=[Icon(src="https://example.org/pizza.png", mime_type="image/png")],
    meta={"example.org/kitchen": "north"},
)
def order(
    size: Size,
    crust: Literal["thin", "thick"] = "thin",
    toppings: Annotated[list[Topping], Meta(max_length=5)] | None = None,
    count: Annotated[int, Meta(ge=1, le=10)] = 1,
) -> Order:
    """Take an order. The result is structured, as its type says.

    Args:
        size: How large.
        crust: What kind of crust.
        toppings: What goes on it.
        count: How many.
    """
    chosen = toppings or []
    return Order(
        summary=f"{count} {size.value} pizza with a {crust} crust",
        price=count * ((8.0 if size is Size.SMALL else 12.0) + 1.5 * len(chosen)),
        toppings=[f"{one.grams} g {one.name}" for one in chosen],
    )


POINT = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


@server.tool(
    input_schema=POINT,
    output_schema={
        "type": "object",
        "properties": {"distance": {"type": "number"}},
        "required": ["distance"],
    },
)
def distance(point: dict[str, Any]) -> dict[str, float]:
    """How far a point is from the origin. Both schemas are written by hand."""
    return {"distance": (point["x"] ** 2 + point["y"] ** 2) ** 0.5}


@server.tool
def whoami(ctx: Context) -> dict[str, Any]:
    """What the server knows about its caller. The client does not see the parameter."""
    return {
        "client": ctx.client.name if ctx.client else None,
        "revision": ctx.revision,
        "sampling": ctx.capabilities.sampling is not msgspec.UNSET,
        "method": ctx.method,
    }


# -- tools: what comes out -------------------------------------------------------------------


def png(width: int, height: int) -> bytes:
    """A black picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (width + 1) * height)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def wav(samples: int) -> bytes:
    """Silence, 8,000 samples a second."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    data = struct.pack("<4sI", b"data", samples) + b"\x80" * samples
    return struct.pack("<4sI4s", b"RIFF", 4 + len(form) + len(data), b"WAVE") + form + data


@server.tool
def picture() -> ImageContent:
    """An image."""
    return ImageContent.of(png(2, 2), "image/png")


@server.tool
def sound() -> AudioContent:
    """A sound; clients of 2024-11-05 get a text instead."""
    return AudioContent.of(wav(8), "audio/wav")


@server.tool
def link() -> ResourceLink:
    """A link to a resource; clients before 2025-06-18 get a text instead."""
    return ResourceLink(uri="text://motto", name="motto", mime_type="text/plain")


@server.tool
def attachment() -> EmbeddedResource:
    """The contents of a resource inside the result."""
    contents = ResourceContents.of("text://motto", MOTTO, "text/plain")
    return EmbeddedResource(resource=contents, annotations=Annotations(audience=["user"]))


@server.tool
def mixed() -> list[TextContent | ImageContent]:
    """Several blocks of content."""
    text = TextContent(text="A picture:", annotations=Annotations(priority=0.5))
    return [text, ImageContent.of(png(1, 1), "image/png")]


@server.tool
def table(rows: Annotated[int, Meta(ge=0, le=100)] = 3) -> Annotated[list[int], unstructured]:
    """A value that is only shown as text."""
    return list(range(rows))


@server.tool
def fail(text: str = "It did not work") -> str:
    """Fail with a text the model can read."""
    raise ToolError(text)


@server.tool
def crash() -> str:
    """Fail by mistake: the client learns no more than that."""
    raise RuntimeError("a secret")


# -- resources -------------------------------------------------------------------------------

MOTTO = "One message per line."
PLANETS = ["mercury", "venus", "earth", "mars", "jupiter", "saturn", "uranus", "neptune"]


@server.resource(
    "text://motto",
    title="The motto",
    mime_type="text/plain",
    size=len(MOTTO),
    ttl_ms=3_600_000,
    annotations=Annotations(audience=["assistant"], priority=1),
)
def motto() -> str:
    """A text that never changes, so clients may keep it."""
    return MOTTO


@server.resource("bytes://pixel", mime_type="image/png", inline=True)
def pixel() -> bytes:
    """Bytes."""
    return png(1, 1)


@server.resource("planets://{name}/{detail}", title="A planet")
async def planet(name: str, detail: Literal["order", "letters"], ctx: Context) -> dict[str, Any]:
    """A detail of a planet, as JSON."""
    if name not in PLANETS:
        raise McpError(INVALID_PARAMS, f"There is no planet {name!r}")
    value = PLANETS.index(name) + 1 if detail == "order" else len(name)
    return {"planet": name, detail: value, "revision": ctx.revision}


@planet.complete("name")
def complete_name(prefix: str) -> list[str]:
    return [name for name in PLANETS if name.startswith(prefix)]


@planet.complete("detail")
async def complete_detail(prefix: str, given: dict[str, str]) -> list[str]:
    """``given`` holds what has been chosen already."""
    known = ["letters", "order"] if given.get("name") in PLANETS else []
    return [detail for detail in known if detail.startswith(prefix)]


# -- prompts ---------------------------------------------------------------------------------


@server.prompt
def hello() -> str:
    """A prompt without arguments."""
    return "Say hello."


@server.prompt(title="Describe a planet")
def describe(planet: str, words: int = 20) -> list[PromptMessage]:
    """Ask for a description of a planet.

    Args:
        planet: Which one.
        words: How long it may be.
    """
    question = f"Describe {planet} in at most {words} words."
    return [
        PromptMessage(role="user", content=TextContent(text=question)),
        PromptMessage(role="assistant", content=TextContent(text=f"{planet.title()} is")),
    ]


@describe.complete("planet")
def complete_planet(prefix: str) -> list[str]:
    return complete_name(prefix)


@server.prompt
async def look(ctx: Context) -> list[Any]:
    """Texts and other content, mixed."""
    return ["What is in this picture?", ImageContent.of(png(1, 1), "image/png")]


if __name__ == "__main__":
    server.run()
