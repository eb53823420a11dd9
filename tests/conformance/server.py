"""The server that the official conformance suite judges: every fixture it asks for, and real.

    python server.py --port N [--answers sse]     HTTP on http://127.0.0.1:N/mcp
    python server.py --stdio                      stdin and stdout

The names and shapes are the suite's; what they do goes through the public API only.
"""

import argparse
import asyncio
import struct
import zlib
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from dovetail import (
    Answer,
    Choices,
    Context,
    Elicit,
    McpError,
    Roots,
    Sample,
    Server,
    ToolError,
    unstructured,
)
from dovetail.errors import INTERNAL_ERROR
from dovetail.spec.types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceContents,
    TextContent,
)

server = Server("conformance", version="1.0.0", ttl_ms=1000)

Text = Annotated[str, unstructured]


def png() -> bytes:
    """A black pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def wav() -> bytes:
    """A millisecond of silence."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    data = struct.pack("<4sI", b"data", 8) + b"\x80" * 8
    return struct.pack("<4sI4s", b"RIFF", 4 + len(form) + len(data), b"WAVE") + form + data


def image() -> ImageContent:
    return ImageContent.of(png(), "image/png")


def embedded(uri: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(resource=ResourceContents.of(uri, text, "text/plain"))


# -- tools: what comes out ---------------------------------------------------------------------


@server.tool
def test_simple_text() -> Text:
    """A text. The suite calls the first tool of the list with nothing."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> ImageContent:
    """An image."""
    return image()


@server.tool
def test_audio_content() -> AudioContent:
    """A sound."""
    return AudioContent.of(wav(), "audio/wav")


@server.tool
def test_embedded_resource() -> EmbeddedResource:
    """A resource inside the result."""
    return embedded("test://embedded-resource", "This is an embedded resource content.")


@server.tool
def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    """One of each."""
    text = TextContent(text="Multiple content types test:")
    return [text, image(), embedded("test://mixed-content-resource", '{"test": "data"}')]


@server.tool
def test_error_handling() -> Text:
    """A failure that the model is told."""
    raise ToolError("This tool intentionally returns an error for testing")


SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(input_schema=SCHEMA_2020_12)
def json_schema_2020_12_tool(person: dict[str, Any]) -> Text:
    """A schema with the keywords that serializers like to lose."""
    return f"Hello, {person.get('name', 'nobody')}"


@server.tool
def custom_header(
    region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})] = "",
    attempt: Annotated[int, Meta(extra_json_schema={"x-mcp-header": "Attempt"})] = 0,
) -> Text:
    """Arguments that are repeated in headers, so that a proxy can route by them."""
    return f"served in {region or 'no region'}, attempt {attempt}"


# -- tools: telling while they run ---------------------------------------------------------------


@server.tool
async def test_tool_with_progress(ctx: Context) -> Text:
    """Three reports, all of them before the answer."""
    for done in (0, 50, 100):
        ctx.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return "done"


@server.tool
async def test_tool_with_logging(ctx: Context) -> Text:
    """Three messages."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log("info", text)
        await asyncio.sleep(0.05)
    return "logged"


@server.tool
async def test_logging_tool(ctx: Context) -> Text:
    """Logs; who did not ask for messages (2026-07-28) gets none, and the answer all the same."""
    ctx.log("info", "This is for those who asked")
    return "logged"


@server.tool
async def test_reconnection(ctx: Context) -> Text:
    """Let go of the stream in the middle; the client comes back for the answer."""
    ctx.hang_up(retry_ms=100)
    await asyncio.sleep(0.2)
    return "Reconnection test completed successfully"


# -- tools: asking, in both eras -----------------------------------------------------------------


class Contact(msgspec.Struct):
    username: Annotated[str, Meta(description="User's response")]
    email: Annotated[str, Meta(description="User's email address")]


class Name(msgspec.Struct):
    name: str


NAME = Elicit("What is your name?", Name)


def told(answer: Answer[Any]) -> str:
    content = msgspec.json.encode(answer.value).decode() if answer.accepted else "{}"
    return f"Elicitation completed: action={answer.action}, content={content}"


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> Text:
    """Let the client's model answer."""
    return f"LLM response: {(await ctx.sample(prompt, max_tokens=100)).text}"


@server.tool
async def test_elicitation(message: str, ctx: Context) -> Text:
    """Show the user a form."""
    return told(await ctx.ask("contact", Elicit(message, Contact)))


class Defaults(msgspec.Struct):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> Text:
    """A form that is filled in already."""
    return told(await ctx.ask("defaults", Elicit("Please check your data", Defaults)))


VALUES = Choices({"value1": "First", "value2": "Second", "value3": "Third"})
OPTIONS = Literal["option1", "option2", "option3"]


class Enums(msgspec.Struct, rename="camel"):
    untitled_single: OPTIONS
    titled_single: Annotated[str, VALUES]
    legacy_enum: Annotated[
        Literal["opt1", "opt2", "opt3"],
        Meta(extra_json_schema={"enumNames": ["One", "Two", "Three"]}),
    ]
    untitled_multi: list[OPTIONS]
    titled_multi: list[Annotated[str, VALUES]]


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> Text:
    """All five ways to let the user choose."""
    return told(await ctx.ask("enums", Elicit("Please choose", Enums)))


@server.tool
async def test_streaming_elicitation(ctx: Context) -> Text:
    """Says something on its stream, then asks; in 2026-07-28 never by a request."""
    ctx.progress(1, 2, "about to ask")
    return told(await ctx.ask("user_name", NAME))


@server.tool
async def test_missing_capability(ctx: Context) -> Text:
    """Nothing without sampling."""
    ctx.require("sampling")
    return "The client can sample"


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> Text:
    """A form."""
    return f"Hello, {(await ctx.ask('user_name', NAME)).value.name}!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> Text:
    """The client's model."""
    sampled = await ctx.sample("What is the capital of France?", max_tokens=100)
    return f"The model says: {sampled.text}"


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> Text:
    """Where the client works."""
    return "Roots: " + ", ".join(root.uri for root in await ctx.roots())


class Confirmed(msgspec.Struct):
    ok: bool


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> Text:
    """A question whose state comes back sealed; a seal that does not hold is refused before."""
    answer = await ctx.ask("confirm", Elicit("Please confirm", Confirmed))
    return f"state-ok: {answer.value.ok}"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> Text:
    """Three questions at once."""
    greeting = Sample("Generate a greeting", max_tokens=50)
    asked = {"user_name": NAME, "greeting": greeting, "client_roots": Roots()}
    answers = await ctx.ask_all(asked)
    return f"{answers['greeting'].text} {answers['user_name'].value.name}!"


class Colour(msgspec.Struct):
    color: str


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> Text:
    """Two questions, one after the other."""
    name = (await ctx.ask("step1", Elicit("Step 1: What is your name?", Name))).value.name
    colour = await ctx.ask("step2", Elicit("Step 2: What is your favorite color?", Colour))
    return f"{name} likes {colour.value.color}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> Text:
    """State that comes back changed is refused."""
    return f"state-ok: {(await ctx.ask('confirm', Elicit('Please confirm', Confirmed))).value.ok}"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> Text:
    """Ask only what the client can answer."""
    able = ctx.capabilities
    questions: dict[str, Any] = {}
    if able.sampling is not UNSET:
        questions["greeting"] = Sample("Generate a greeting", max_tokens=50)
    if able.elicitation is not UNSET:
        questions["user_name"] = NAME
    answers = await ctx.ask_all(questions)
    return f"Answered: {', '.join(answers)}"


# -- tools: changing what there is -----------------------------------------------------------------


async def passing() -> str:
    """Here for a moment."""
    return "I am about to go"


@server.tool
async def test_trigger_tool_change() -> Text:
    """A tool comes and goes: whoever listens to tools is told."""
    server.tool(passing).remove()
    return "the tools have changed"


@server.tool
async def test_trigger_prompt_change() -> Text:
    """The same for prompts."""
    server.prompt(passing).remove()
    return "the prompts have changed"


# -- tasks -----------------------------------------------------------------------------------------


@server.tool
def greet(name: str) -> Text:
    """Never a task."""
    return f"Hello, {name}!"


@server.tool(task="optional")
async def slow_compute(seconds: float, label: str = "") -> Text:
    """Sleeps; can be cancelled at any time."""
    await asyncio.sleep(seconds)
    return f"{label or 'slow_compute'} done after {seconds:g} s"


@server.tool(task="required")
async def failing_job() -> Text:
    """A task that completes with a tool's error."""
    await asyncio.sleep(1)
    raise ToolError("The job failed on purpose")


@server.tool(task="optional")
async def protocol_error_job() -> Text:
    """A task that fails."""
    raise McpError(INTERNAL_ERROR, "The job broke on purpose")


class Deletion(msgspec.Struct):
    confirm: bool


@server.tool(task="optional")
async def confirm_delete(filename: str, ctx: Context) -> Text:
    """A task with a question."""
    answer = await ctx.ask("confirm", Elicit(f"Delete {filename}?", Deletion))
    agreed = answer.accepted and answer.value.confirm
    return f"deleted {filename}" if agreed else f"kept {filename}"


@server.tool(task="optional")
async def multi_input(ctx: Context) -> Text:
    """A task with two questions at once."""
    answers = await ctx.ask_all({"first": NAME, "second": Elicit("And you?", Name)})
    return " and ".join(f"{key}: {answer.action}" for key, answer in answers.items())


@server.tool(task="required")
async def test_tool_with_task(ctx: Context) -> Text:
    """A task that is only made once its question was answered."""
    return f"Hello, {(await ctx.ask('user_name', NAME)).value.name}, from a task!"


@test_tool_with_task.before_task
async def ask_before_the_task(ctx: Context, arguments: dict[str, Any]) -> None:
    await ctx.ask("user_name", NAME)


# -- resources -------------------------------------------------------------------------------------


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """Bytes."""
    return png()


@server.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A resource that clients subscribe to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:
    """A resource for every id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# -- prompts ---------------------------------------------------------------------------------------


@server.prompt
def completed(value: str) -> str:
    """MCPJam completes an argument of this name, of the first prompt it finds."""
    return value


@completed.complete("value")
def complete_value(prefix: str) -> list[str]:
    return [f"{prefix}!"]


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt that repeats its arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@test_prompt_with_arguments.complete("arg1")
def complete_arg1(prefix: str) -> list[str]:
    return [value for value in ("paris", "park", "party") if value.startswith(prefix)]


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:
    """A prompt with a resource in it."""
    resource = embedded(resourceUri, "Embedded resource content for testing.")
    request = TextContent(text="Please process the embedded resource above.")
    return [
        PromptMessage(role="user", content=resource),
        PromptMessage(role="user", content=request),
    ]


@server.prompt
def test_prompt_with_image() -> list[Any]:
    """A prompt with an image in it."""
    return [image(), "Please analyze the image above."]


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that needs to know something."""
    asked = await ctx.ask("user_context", Elicit("What context should the prompt use?", Context_))
    return f"Use this context: {asked.value.context}"


class Context_(msgspec.Struct):
    context: str


def serve_http(port: int, answers: Literal["auto", "sse"]) -> None:
    """Say the URL as soon as somebody may connect; port 0 is any that is free."""
    from dovetail.transport.http.run import bind, serve

    listener = bind("127.0.0.1", port)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    serve(server.asgi(path="/mcp", answers=answers), listener)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--port", type=int)
    way.add_argument("--stdio", action="store_true")
    parser.add_argument("--answers", choices=["auto", "sse"], default="auto")
    options = parser.parse_args()
    if options.stdio:
        server.run()
        return
    serve_http(options.port, options.answers)


if __name__ == "__main__":
    main()
