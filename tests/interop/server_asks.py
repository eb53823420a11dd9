"""A server that asks its client and tells it things; real clients are run against it."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from dovetail import Context, Elicit, ElicitUrl, Roots, Sample, Server, ToolError
from dovetail.server.session import LEVELS
from dovetail.spec.types import (
    ModelPreferences,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
)

server = Server("asks", version="1.0.0")


# -- questions -------------------------------------------------------------------------------


class Contact(msgspec.Struct):
    name: Annotated[str, Meta(min_length=1, max_length=40, description="Who you are")]
    age: Annotated[int, Meta(ge=0, le=150)]
    size: Literal["small", "large"]
    born: date | None = None
    news: bool = False


@dataclass
class Said:
    """What the user did, and the form if there is one."""

    action: str
    contact: Contact | None = None


@server.tool
async def form(ctx: Context, message: str) -> Said:
    """Show a form."""
    answer = await ctx.ask("contact", Elicit(message, Contact))
    return Said(answer.action, answer.value if answer.accepted else None)


@server.tool
async def form_as_task(ctx: Context, message: str) -> Said:
    """Show a form; a client that can may run the question as a task of its own."""
    answer = await ctx.ask("contact", Elicit(message, Contact), as_task=True)
    return Said(answer.action, answer.value if answer.accepted else None)


@server.tool
async def page(ctx: Context, message: str) -> Said:
    """Ask the user to open a page, and say when the visit has happened."""
    question = ElicitUrl(message, "https://example.org/consent?for=asks")
    answer = await ctx.ask("page", question)
    if answer.accepted:
        ctx.elicitation_complete(question)
    return Said(answer.action)


@server.tool
async def page_first(ctx: Context) -> Said:
    """Nothing can be done before the user has opened a page."""
    question = ElicitUrl("Sign in first", "https://example.org/sign-in")
    return Said((await ctx.require_url("page", question)).action)


@server.tool
async def sample(ctx: Context, text: str) -> dict[str, Any]:
    """Let the client's model say something."""
    sampled = await ctx.sample(
        text,
        max_tokens=100,
        system_prompt="Be short.",
        temperature=0.5,
        stop_sequences=["END"],
        model_preferences=ModelPreferences(speed_priority=1),
    )
    return {"text": sampled.text, "model": sampled.model, "stop": sampled.stop_reason}


WEATHER = Tool(name="weather", input_schema={"type": "object"}, description="How it is outside")


@server.tool
async def sample_with_tool(ctx: Context, text: str) -> dict[str, Any]:
    """Let the client's model use a tool, and go on with what the tool says."""
    asked = SamplingMessage(role="user", content=TextContent(text=text))
    first = await ctx.sample([asked], max_tokens=100, tools=[WEATHER], tool_choice="required")
    messages = [asked, SamplingMessage(role="assistant", content=first.blocks)]
    results = [_used(use.id, use.input) for use in first.tool_uses]
    messages.append(SamplingMessage(role="user", content=results))
    second = await ctx.sample(messages, max_tokens=100, tools=[WEATHER])
    return {"uses": [use.name for use in first.tool_uses], "text": second.text}


def _used(id: str, given: dict[str, Any]) -> ToolResultContent:
    text = TextContent(text=f"rain in {given['city']}")
    return ToolResultContent(tool_use_id=id, content=[text])


@server.tool
async def roots(ctx: Context) -> list[str]:
    """Where the client works."""
    return [_named(root.uri, root.name) for root in await ctx.roots()]


def _named(uri: str, name: Any) -> str:
    return uri if name is UNSET else f"{name}: {uri}"


@server.tool
async def three_things(ctx: Context) -> dict[str, Any]:
    """Ask three things at once."""
    answers = await ctx.ask_all(
        {
            "contact": Elicit("accept", Contact),
            "model": Sample("Say hello", max_tokens=10),
            "roots": Roots(),
        }
    )
    return {
        "name": answers["contact"].value.name,
        "text": answers["model"].text,
        "roots": len(answers["roots"]),
    }


@server.tool
async def one_by_one(ctx: Context) -> dict[str, Any]:
    """Ask three things, the later ones only after the earlier ones were answered."""
    contact = (await ctx.ask("contact", Elicit("accept", Contact))).value
    sampled = await ctx.sample(f"Greet {contact.name}", max_tokens=10)
    return {"name": contact.name, "text": sampled.text, "roots": len(await ctx.roots())}


@server.prompt
async def letter(ctx: Context, to: str) -> str:
    """A prompt that needs to know who writes."""
    contact = (await ctx.ask("contact", Elicit("accept", Contact))).value
    return f"Write a letter to {to}, from {contact.name}"


@server.resource("asks://home", mime_type="text/plain")
async def home(ctx: Context) -> str:
    """A resource that depends on where the client works."""
    return ", ".join(root.uri for root in await ctx.roots())


# -- progress and logs ------------------------------------------------------------------------


go = asyncio.Event()
go_thread = threading.Event()


@server.tool
async def go_on() -> str:
    """Let the tool that waits for it come to its end."""
    go.set()
    go_thread.set()
    return "go"


@server.tool
async def steps(ctx: Context, count: int, wait: bool) -> str:
    """Report progress, and wait until somebody says ``go_on`` or not."""
    go.clear()
    for step in range(1, count + 1):
        ctx.progress(step, count, f"step {step}")
        await asyncio.sleep(0)
    if wait:
        await go.wait()
    return f"{count} steps"


@server.tool
def steps_in_a_thread(ctx: Context, count: int) -> str:
    """Report progress without a total, from the thread of a sync tool, and wait."""
    go_thread.clear()
    for step in range(1, count + 1):
        ctx.progress(step / 2)
    go_thread.wait(60)
    return f"{count} steps"


@server.tool
async def talk(ctx: Context) -> str:
    """Log one message of each level."""
    for level in LEVELS:
        ctx.log(level, {"text": f"it is {level}"}, "asks")
    return "said"


# -- changes ----------------------------------------------------------------------------------

extra: dict[str, Any] = {}


@server.tool
async def add_tools(names: list[str]) -> str:
    """Offer more tools, in one burst."""
    for name in names:
        extra[name] = server.tool(name=name)(_extra)
    return "added"


async def _extra() -> str:
    """A tool that was not there before."""
    return "here now"


@server.tool
async def remove_tools(names: list[str]) -> str:
    """Take tools back."""
    for name in names:
        extra.pop(name).remove()
    return "removed"


count = 0


@server.resource("asks://count", mime_type="text/plain")
def counter() -> str:
    """How often it was counted."""
    return str(count)


@server.resource("asks://other")
def other() -> str:
    """Nobody subscribes to this one."""
    return "other"


@server.tool
async def add_one(ctx: Context) -> int:
    """Change a resource to which clients subscribe, and one to which none does."""
    global count
    count += 1
    ctx.updated("asks://count")
    ctx.updated("asks://other")
    return count


roots_changes = 0


@server.notification("notifications/roots/list_changed")
async def on_roots() -> None:
    global roots_changes
    roots_changes += 1


@server.tool
async def times_roots_changed() -> int:
    """How often a client said that its roots have changed."""
    return roots_changes


# -- tasks ------------------------------------------------------------------------------------


@server.tool(task="optional")
async def bake(ctx: Context, what: str) -> dict[str, str]:
    """Takes a while, and says how far it is."""
    for step in (1, 2):
        ctx.progress(step, 2)
        await asyncio.sleep(0.02)
    ctx.log("error", f"{what} is hot")
    return {"baked": what}


@server.tool(task="optional")
async def deliver(ctx: Context) -> Said:
    """A task that needs to know something while it runs."""
    answer = await ctx.ask("contact", Elicit("accept", Contact))
    return Said(answer.action, answer.value)


@server.tool(task="optional")
async def burn() -> str:
    """A task that fails."""
    raise ToolError("it is black")


@server.tool(task="optional")
async def wait_forever() -> str:
    """A task to be cancelled."""
    await asyncio.Event().wait()
    return "never"


@server.tool(task="required")
async def only_as_task() -> str:
    """Cannot be called otherwise."""
    return "as a task"


if __name__ == "__main__":
    server.run()
