"""Broken servers: a good one behind a keeper that breaks exactly one rule.

``python zoo.py`` is the good server on stdio, ``python zoo.py RULE`` the one that
breaks RULE. The keeper sits between stdin, stdout and the engine: it sees every
line of both sides and may change, drop, double or invent some.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta

from dovetail import Context, ResourceNotFound, Server
from dovetail.runtime.connection import Connection

Message = dict[str, Any]


def build() -> Server:
    """A server with one of everything that the rules can try."""
    server = Server("zoo", version="1.0.0", page_size=2)
    add_tools(server)
    add_resources(server)
    add_prompts(server)
    return server


def add_tools(server: Server) -> None:
    @server.tool(read_only=True)
    async def now() -> dict[str, int]:
        """The time, which stands still here."""
        return {"hour": 12}

    @server.tool(read_only=True, task="optional")
    async def steps(*, ctx: Context) -> str:
        """Reports progress."""
        for done in (1, 2, 3):
            await ctx.progress(done, 3)
        return "done"

    @server.tool(read_only=True)
    async def square(
        number: Annotated[int, Meta(extra_json_schema={"x-mcp-header": "Number"})],
    ) -> int:
        """The square of a number."""
        return number * number


def add_resources(server: Server) -> None:
    @server.resource("zoo://animals")
    async def animals() -> str:
        return "many"

    @server.resource("zoo://picture", mime_type="image/png")
    async def picture() -> bytes:
        return b"\x89PNG"

    @server.resource("zoo://animal/{name}")
    async def animal(name: str) -> str:
        if name != "owl":
            raise ResourceNotFound(f"zoo://animal/{name}")
        return "hoots"


def add_prompts(server: Server) -> None:
    @server.prompt
    def greet() -> str:
        return "Say hello."

    @server.prompt
    def describe(animal: str) -> str:
        return f"Describe {animal}."

    @describe.complete("animal")
    async def complete(prefix: str) -> list[str]:
        return ["owl", "otter"]


class Keeper:
    """Lines of the client to the engine and back; ``incoming`` and ``outgoing`` are the breach."""

    def __init__(self, rule: str | None) -> None:
        self.incoming = dies_of_text_params if rule == FRAGILE else INCOMING.get(rule or "")
        self.outgoing = OUTGOING.get(rule or "")
        self.methods: dict[Any, str] = {}
        self.memory: dict[str, Any] = {}  # what a breach wants to remember
        self.connection: Connection | None = None
        self.ended = asyncio.Event()

    def feed(self, line: bytes) -> None:
        """A line of the client."""
        assert self.connection is not None
        message = parsed(line)
        if (
            isinstance(message, dict)
            and "method" in message
            and isinstance(message.get("id"), int | str)
        ):
            self.methods[message["id"]] = message["method"]
        if self.incoming is None or not self.incoming(self, line, message):
            self.connection.receive(line)

    def write(self, data: bytes | bytearray) -> None:
        """Lines of the engine, as its writer."""
        for line in data.splitlines():
            message = json.loads(line)
            if self.outgoing is not None and isinstance(message, dict):
                message = self.outgoing(self, message)
            if message is not None:
                self.say(json.dumps(message))

    def say(self, text: str) -> None:
        os.write(1, text.encode() + b"\n")

    def answer(self, id: Any, **members: Any) -> bool:
        self.say(json.dumps({"jsonrpc": "2.0", "id": id, **members}))
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


def parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def method_of(keeper: Keeper, message: Message) -> str:
    """The method that an answer answers."""
    return keeper.methods.get(message.get("id"), "")


def is_modern(message: Any) -> bool:
    meta = (message.get("params") or {}) if isinstance(message, dict) else {}
    meta = meta.get("_meta") if isinstance(meta, dict) else None
    return isinstance(meta, dict) and "io.modelcontextprotocol/protocolVersion" in meta


# A breach of what comes in says whether it dealt with the line itself.
INCOMING: dict[str, Callable[[Keeper, bytes, Any], bool]] = {}
# A breach of what goes out returns the message to send instead, or None.
OUTGOING: dict[str, Callable[[Keeper, Message], Message | None]] = {}


def incoming(rule: str) -> Callable[[Any], Any]:
    return lambda function: INCOMING.setdefault(rule, function)


def outgoing(rule: str) -> Callable[[Any], Any]:
    return lambda function: OUTGOING.setdefault(rule, function)


# -- envelope ----------------------------------------------------------------------------


@incoming("parse-error")
def drop_broken_json(keeper: Keeper, line: bytes, message: Any) -> bool:
    return message is None and line.startswith(b'{"jsonrpc":"2.0","id":1,')


@incoming("not-utf8")
def mend_bad_bytes(keeper: Keeper, line: bytes, message: Any) -> bool:
    return b"\xff" in line and keeper.answer("utf", error={"code": -32603, "message": "what?"})


@incoming("jsonrpc-member")
def serve_without_jsonrpc(keeper: Keeper, line: bytes, message: Any) -> bool:
    if isinstance(message, dict) and message and message.get("jsonrpc") != "2.0":
        keeper.feed(json.dumps({**message, "jsonrpc": "2.0"}).encode())
        return True
    return False


@incoming("id-type")
def drop_odd_ids(keeper: Keeper, line: bytes, message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("id", 0), float)


@incoming("method-member")
def drop_without_method(keeper: Keeper, line: bytes, message: Any) -> bool:
    return isinstance(message, dict) and message.get("id") == "m1"


@incoming("params-type")
def serve_array_params(keeper: Keeper, line: bytes, message: Any) -> bool:
    if isinstance(message, dict) and message.get("params") == []:
        return keeper.answer(message["id"], error={"code": -32603, "message": "no object"})
    return False


@outgoing("unknown-method")
def wrong_code(keeper: Keeper, message: Message) -> Message:
    if method_of(keeper, message) == "no/such/method" and "error" in message:
        message["error"]["code"] = -32603
    return message


@outgoing("id-echo")
def ids_as_text(keeper: Keeper, message: Message) -> Message:
    return message | {"id": "zero"} if message.get("id") == "0" else message


@incoming("notification-silence")
def answer_notifications(keeper: Keeper, line: bytes, message: Any) -> bool:
    if isinstance(message, dict) and message.get("method") == "notifications/no_such":
        keeper.say('{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"unknown"}}')
        return True
    return False


@incoming("stray-response")
def answer_responses(keeper: Keeper, line: bytes, message: Any) -> bool:
    if isinstance(message, dict) and message.get("id") == "nobody-asked":
        keeper.say('{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"unasked"}}')
        return True
    return False


@incoming("batch")
def refuse_batches(keeper: Keeper, line: bytes, message: Any) -> bool:
    return isinstance(message, list) and b'"b1"' in line


@incoming("no-batch")
def drop_batches(keeper: Keeper, line: bytes, message: Any) -> bool:
    return isinstance(message, list) and len(message) == 1 and isinstance(message[0], dict)


# -- lifecycle ---------------------------------------------------------------------------


# -- lifecycle ---------------------------------------------------------------------------


def result_of(keeper: Keeper, message: Message, method: str) -> Message | None:
    """The result in an answer to this method."""
    return message.get("result") if method_of(keeper, message) == method else None


@incoming("version-unknown")
def repeat_any_version(keeper: Keeper, line: bytes, message: Any) -> bool:
    params = message.get("params") if isinstance(message, dict) else None
    if isinstance(params, dict) and params.get("protocolVersion") == "1999-01-01":
        keeper.memory["version"] = params["protocolVersion"]
        params["protocolVersion"] = "2025-11-25"
        keeper.feed(json.dumps(message).encode())
        return True
    return False


@outgoing("version-unknown")
def as_asked(keeper: Keeper, message: Message) -> Message:
    result = result_of(keeper, message, "initialize")
    if result and "version" in keeper.memory:
        result["protocolVersion"] = keeper.memory["version"]
    return message


@outgoing("initialize-params")
def odd_refusal(keeper: Keeper, message: Message) -> Message:
    if method_of(keeper, message) == "initialize" and "error" in message:
        message["error"]["code"] = -32603
    return message


@incoming("before-initialize")
def serve_before(keeper: Keeper, line: bytes, message: Any) -> bool:
    if isinstance(message, dict) and message.get("method") == "initialize":
        keeper.memory["open"] = True
    early = isinstance(message, dict) and message.get("method") == "tools/list"
    if early and not is_modern(message) and "open" not in keeper.memory:
        return keeper.answer(message["id"], result={"tools": []})
    return False


@incoming("ping-early")
def no_early_ping(keeper: Keeper, line: bytes, message: Any) -> bool:
    if isinstance(message, dict) and message.get("method") == "notifications/initialized":
        keeper.memory["ready"] = True
    early = isinstance(message, dict) and message.get("method") == "ping"
    if early and not is_modern(message) and "ready" not in keeper.memory:
        return keeper.answer(message["id"], error={"code": -32600, "message": "too early"})
    return False


@incoming("initialize-twice")
def start_again(keeper: Keeper, line: bytes, message: Any) -> bool:
    again = isinstance(message, dict) and message.get("method") == "initialize"
    if again and "first" in keeper.memory:
        return keeper.answer(message["id"], result=keeper.memory["first"])
    return False


@outgoing("initialize-twice")
def remember_first(keeper: Keeper, message: Message) -> Message:
    if result := result_of(keeper, message, "initialize"):
        keeper.memory["first"] = result
    return message


@outgoing("quiet-start")
def early_news(keeper: Keeper, message: Message) -> Message:
    if result_of(keeper, message, "initialize"):
        keeper.say(json.dumps(message))
        keeper.say('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
        return None  # type: ignore[return-value]
    return message


@incoming("late-cancel")
def dies_of_late_cancel(keeper: Keeper, line: bytes, message: Any) -> bool:
    if b'"requestId":"never"' in line:
        keeper.say(
            '{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no such request"}}'
        )
    return False


# -- capabilities and lists ----------------------------------------------------------------


@incoming("declared-works")
def prompts_missing(keeper: Keeper, line: bytes, message: Any) -> bool:
    if isinstance(message, dict) and message.get("method") == "resources/templates/list":
        return keeper.answer(message["id"], error={"code": -32603, "message": "not yet"})
    return False


@outgoing("undeclared-refused")
def hide_prompts(keeper: Keeper, message: Message) -> Message:
    for method in ("initialize", "server/discover"):
        if result := result_of(keeper, message, method):
            result["capabilities"].pop("prompts")
    return message


@incoming("logging-level")
def any_level(keeper: Keeper, line: bytes, message: Any) -> bool:
    if b'"loud"' in line:
        return keeper.answer(message["id"], result={})
    return False


@outgoing("completion-works")
def too_many_values(keeper: Keeper, message: Message) -> Message:
    if (result := result_of(keeper, message, "completion/complete")) and "error" not in message:
        message["error"] = {"code": -32603, "message": "tired"}
        del message["result"]
        assert result
    return message


@incoming("completion-unknown")
def complete_anything(keeper: Keeper, line: bytes, message: Any) -> bool:
    if b'"no-such-prompt"' in line and message.get("method") == "completion/complete":
        return keeper.answer(message["id"], error={"code": -32603, "message": "what?"})
    return False


@incoming("cursor-unknown")
def any_cursor(keeper: Keeper, line: bytes, message: Any) -> bool:
    if b"no-such-cursor" in line:
        del message["params"]["cursor"]
        keeper.feed(json.dumps(message).encode())
        return True
    return False


@outgoing("names-unique")
def twice(keeper: Keeper, message: Message) -> Message:
    if result := result_of(keeper, message, "prompts/list"):
        result["prompts"] *= 2
    return message


@outgoing("tool-schema")
def odd_schema(keeper: Keeper, message: Message) -> Message:
    for tool in (result_of(keeper, message, "tools/list") or {}).get("tools", []):
        tool["inputSchema"]["properties"] = {"number": {"type": "whole"}}
    return message


@outgoing("tool-name")
def odd_name(keeper: Keeper, message: Message) -> Message:
    for tool in (result_of(keeper, message, "tools/list") or {}).get("tools", []):
        if tool["name"] == "square":
            tool["name"] = "square root"
            tool.pop("annotations", None)
    return message


@outgoing("header-annotations")
def odd_header(keeper: Keeper, message: Message) -> Message:
    for tool in (result_of(keeper, message, "tools/list") or {}).get("tools", []):
        if tool["name"] == "square":
            tool["inputSchema"]["properties"]["number"]["x-mcp-header"] = "a b"
    return message


@incoming("tool-unknown")
def tool_result_for_unknown(keeper: Keeper, line: bytes, message: Any) -> bool:
    if b'"no_such_tool"' in line and isinstance(message, dict) and "id" in message:
        result = {"content": [{"type": "text", "text": "no such tool"}], "isError": True}
        modern = {"resultType": "complete"} if is_modern(message) else {}
        return keeper.answer(message["id"], result=result | modern)
    return False


@incoming("call-params")
def call_without_name(keeper: Keeper, line: bytes, message: Any) -> bool:
    params = message.get("params") if isinstance(message, dict) else None
    if isinstance(params, dict) and params.get("name") == 1 and "id" in message:
        modern = {"resultType": "complete"} if is_modern(message) else {}
        return keeper.answer(message["id"], result={"content": [], **modern})
    return False


def refuse_oddly(needle: bytes, method: str) -> Callable[[Keeper, bytes, Any], bool]:
    def breach(keeper: Keeper, line: bytes, message: Any) -> bool:
        if needle in line and message.get("method") == method:
            return keeper.answer(message["id"], error={"code": -32603, "message": "what?"})
        return False

    return breach


INCOMING["prompt-unknown"] = refuse_oddly(b'"no-such-prompt"', "prompts/get")
INCOMING["prompt-arguments"] = refuse_oddly(b'"describe"', "prompts/get")
INCOMING["resource-unknown"] = refuse_oddly(b"check-no-such:", "resources/read")
INCOMING["resources-readable"] = refuse_oddly(b'"zoo://animals"', "resources/read")
INCOMING["prompts-work"] = refuse_oddly(b'"greet"', "prompts/get")
INCOMING["tool-result"] = refuse_oddly(b'"steps"', "tools/call")


# -- content -----------------------------------------------------------------------------


@outgoing("structured-output")
def wrong_shape(keeper: Keeper, message: Message) -> Message:
    result = result_of(keeper, message, "tools/call") or {}
    if result.get("structuredContent") == {"hour": 12}:
        result["structuredContent"] = {"hour": "noon"}
    return message


@incoming("argument-check")
def any_arguments(keeper: Keeper, line: bytes, message: Any) -> bool:
    params = message.get("params") if isinstance(message, dict) else None
    if isinstance(params, dict) and params.get("name") == "square" and params["arguments"] == {}:
        params["arguments"] = {"number": 3}
        keeper.feed(json.dumps(message).encode())
        return True
    return False


@outgoing("progress-order")
def standing_still(keeper: Keeper, message: Message) -> Message:
    if message.get("method") == "notifications/progress":
        keeper.say(json.dumps(message))
    return message


# -- 2026-07-28 ----------------------------------------------------------------------------


@incoming("meta-required")
def without_capabilities(keeper: Keeper, line: bytes, message: Any) -> bool:
    if (
        is_modern(message)
        and "io.modelcontextprotocol/clientCapabilities" not in message["params"]["_meta"]
    ):
        message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {}
        keeper.feed(json.dumps(message).encode())
        return True
    return False


@incoming("client-info-optional")
def without_client_info(keeper: Keeper, line: bytes, message: Any) -> bool:
    if (
        is_modern(message)
        and "io.modelcontextprotocol/clientInfo" not in message["params"]["_meta"]
    ):
        return keeper.answer(message["id"], error={"code": -32602, "message": "who are you?"})
    return False


@outgoing("version-unsupported")
def refuse_version_oddly(keeper: Keeper, message: Message) -> Message:
    if message.get("error", {}).get("code") == -32022:
        message["error"]["data"]["requested"] = "something"
    return message


@incoming("removed-methods")
def old_ping(keeper: Keeper, line: bytes, message: Any) -> bool:
    if is_modern(message) and message["method"] == "ping":
        return keeper.answer(message["id"], error={"code": -32600, "message": "no more"})
    return False


@outgoing("cache-scope")
def scope_by_page(keeper: Keeper, message: Message) -> Message:
    result = result_of(keeper, message, "tools/list") or {}
    if "cacheScope" in result and "nextCursor" not in result:
        result["cacheScope"] = "public"
    return message


@outgoing("lists-stable")
def own_list(keeper: Keeper, message: Message) -> Message:
    result = result_of(keeper, message, "tools/list") or {}
    if "cacheScope" in result:
        result["tools"][0]["description"] = f"of process {os.getpid()}"
    return message


@outgoing("listen")
def untagged(keeper: Keeper, message: Message) -> Message:
    if message.get("method") == "notifications/subscriptions/acknowledged":
        message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] = "other"
    return message


# -- robustness ----------------------------------------------------------------------------


@incoming("survives-nonsense")
def dies_of_nonsense(keeper: Keeper, line: bytes, message: Any) -> bool:
    if line == b"[[[[":
        os._exit(3)
    return False


@incoming("survives-oversize")
def dies_of_length(keeper: Keeper, line: bytes, message: Any) -> bool:
    if len(line) > 2**22:
        os._exit(3)
    return False


@incoming("survives-nesting")
def dies_of_depth(keeper: Keeper, line: bytes, message: Any) -> bool:
    if b"[" * 1000 in line:
        os._exit(3)
    return False


@outgoing("answers-all")
def forgets_some(keeper: Keeper, message: Message) -> Message | None:
    return None if message.get("id") == "many-77" else message


@incoming("duplicate-id")
def forgets_both(keeper: Keeper, line: bytes, message: Any) -> bool:
    return isinstance(message, dict) and message.get("id") == "same"


# -- stdio ---------------------------------------------------------------------------------


@incoming("line-split")
def forgets_pieces(keeper: Keeper, line: bytes, message: Any) -> bool:
    return isinstance(message, dict) and message.get("id") == "joined-1"


@outgoing("only-messages")
def prints(keeper: Keeper, message: Message) -> Message:
    if "printed" not in keeper.memory:
        keeper.memory["printed"] = True
        keeper.say("starting up ...")
    return message


@outgoing("schema")
def odd_capabilities(keeper: Keeper, message: Message) -> Message:
    if result := result_of(keeper, message, "prompts/list"):
        for prompt in result["prompts"]:
            prompt["description"] = 5
    return message


@outgoing("no-leaks")
def extra_member(keeper: Keeper, message: Message) -> Message:
    if result := result_of(keeper, message, "prompts/list"):
        for prompt in result["prompts"]:
            prompt["colour"] = "green"
    return message


@outgoing("answered-once")
def answers_twice(keeper: Keeper, message: Message) -> Message:
    if result_of(keeper, message, "prompts/get") and "twice" not in keeper.memory:
        keeper.memory["twice"] = True
        keeper.say(json.dumps(message))
    return message


@outgoing("no-server-requests")
def asks(keeper: Keeper, message: Message) -> Message:
    if "cacheScope" in (result_of(keeper, message, "prompts/list") or {}):
        keeper.say('{"jsonrpc":"2.0","id":"s1","method":"zoo/feed"}')
    return message


@outgoing("codes")
def reserved_code(keeper: Keeper, message: Message) -> Message:
    error = message.get("error") or {}
    if method_of(keeper, message) == "tools/call" and "Unknown tool" not in str(error.get("data")):
        error["code"] = -32050
    return message


@outgoing("logs-asked")
def logs_unasked(keeper: Keeper, message: Message) -> Message:
    if "cacheScope" in (result_of(keeper, message, "prompts/list") or {}):
        note = {"method": "notifications/message", "params": {"level": "info", "data": "listed"}}
        keeper.say(json.dumps({"jsonrpc": "2.0", **note}))
    return message


INCOMING["subscribe-works"] = refuse_oddly(b'"zoo://', "resources/subscribe")
INCOMING["tasks-unknown"] = refuse_oddly(b'"no-such-task"', "tasks/get")


# Not a rule's own, but for `--fuzz` to find: it dies where params have no place.
def dies_of_text_params(keeper: Keeper, line: bytes, message: Any) -> bool:
    if isinstance(message, dict) and isinstance(message.get("params"), str):
        os._exit(7)
    return False


# Breaches of the process rather than of a message.
FRAGILE = "fragile"
STAYS = {"end-of-input", "sigterm", "no-orphans", "answers-before-end"}


async def main(rule: str | None) -> None:
    if rule == "sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    keeper = Keeper(rule)
    server = build()
    async with server.running():
        keeper.connection = server.connection()
        keeper.connection.attach(keeper, keeper)
        reader = asyncio.StreamReader(limit=2**27)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            if rule == "answers-before-end" and b'"last"' in line:
                os._exit(0)
            keeper.feed(line.rstrip(b"\n"))
        if rule == "end-of-input":
            await asyncio.Event().wait()
        if rule == "no-orphans":
            subprocess.Popen(["sleep", "30"], stdin=-3, stdout=-3, stderr=-3)  # noqa: ASYNC220
        keeper.connection.end_of_input()
        await keeper.connection.ended
        await keeper.connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
