"""What the clients in Python have in common when they are asked and told things.

FastMCP stands on the official session, so only the outermost calls differ.
"""

import asyncio
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Literal

import mcp_types as types
from mcp import MCPError
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged, listen
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

warnings.simplefilter("ignore", MCPDeprecationWarning)

MODERN = "2026-07-28"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
RELATED = "io.modelcontextprotocol/related-task"
PATIENCE = 30.0
ANYTHING = TypeAdapter(dict[str, Any])


def plain(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Witness:
    """Answers as the plan says, and writes down what it was asked and told."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._times: Counter[str] = Counter()
        self.heard: list[dict[str, Any]] = []
        self.modern = False
        self.listening = asyncio.Event()  # the stream that was opened last is acknowledged

    def hear(self, kind: str, **what: Any) -> None:
        self.heard.append({"kind": kind, **what})

    async def until(self, wanted: dict[str, int]) -> None:
        """Notifications may arrive after the answer they belong to."""
        end = time.monotonic() + PATIENCE
        while not Counter(one["kind"] for one in self.heard) >= Counter(wanted):
            if time.monotonic() > end:
                self.hear("nothing more", wanted=wanted)
                return
            await asyncio.sleep(0.01)

    # -- callbacks of the official client; FastMCP's are made of them

    async def elicit(self, ctx: Any, params: Any) -> Any:
        related = ((ctx.meta or {}) if ctx else {}).get(RELATED, {}).get("taskId")
        self.hear("elicit", params=plain(params), related=related)
        answers = self._plan["elicit"][params.message]
        answer = answers[min(self._times[params.message], len(answers) - 1)]
        self._times[params.message] += 1
        return types.ElicitResult(**answer)

    async def sample(self, ctx: Any, params: Any) -> Any:
        asked = plain(params)
        self.hear("sample", params=asked)
        block = asked["messages"][-1]["content"]
        block = block[-1] if isinstance(block, list) else block
        if block.get("text") == "reject":
            return types.ErrorData(code=-1, message="User rejected sampling request")
        answer = self._plan["sample"]["tool" if "tools" in asked else "text"]
        if block["type"] == "tool_result":
            answer = self._plan["sample"]["after"]
        kind = types.CreateMessageResultWithTools if "tools" in asked else types.CreateMessageResult
        return kind.model_validate(answer)

    async def roots(self, ctx: Any) -> Any:
        self.hear("roots")
        return types.ListRootsResult.model_validate({"roots": self._plan["roots"]})

    async def log(self, params: Any) -> None:
        self.hear("log", **plain(params))

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.hear("progress", progress=progress, total=total, message=message)

    async def message(self, message: Any) -> None:
        if isinstance(message, Exception):
            self.hear("exception", text=str(message))
        elif isinstance(message, types.ElicitCompleteNotification):
            self.hear("complete", id=message.params.elicitation_id)
        elif isinstance(message, types.SubscriptionsAcknowledgedNotification):
            self.listening.set()
        elif self.modern:
            pass  # changes come by the stream
        elif isinstance(message, types.ToolListChangedNotification):
            self.hear("tools_changed")
        elif isinstance(message, types.ResourceUpdatedNotification):
            self.hear("updated", uri=str(message.params.uri))

    async def task(self, params: Any) -> None:
        self.hear("task", **plain(params))


# -- tasks: the client has no word for them, but lets an extension speak --------------------------


class Told(BaseModel):
    model_config = ConfigDict(extra="allow")


class TaskResult(types.Result):
    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = "task"
    task_id: str


class Tasks(ClientExtension):
    """io.modelcontextprotocol/tasks, as an application could write it for this client."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.statuses: list[str] = []
        self.told = 0  # how many notifications to wait for before the stream is closed

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskResult, resolve=self._resolve)]

    def notifications(self) -> list[NotificationBinding[Any]]:
        methods = ("notifications/tasks/status", "notifications/tasks")
        return [
            NotificationBinding(method=method, params_type=Told, handler=self.witness.task)
            for method in methods
        ]

    async def _resolve(self, claimed: TaskResult, ctx: ClaimContext) -> types.CallToolResult:
        """Follow the task to its end; listen to it meanwhile."""
        session = ctx.session
        watch = {"notifications": {"taskIds": [claimed.task_id]}}
        self.witness.listening.clear()
        watching = asyncio.create_task(ask(session, "subscriptions/listen", watch))
        try:
            await asyncio.wait_for(self.witness.listening.wait(), PATIENCE)
            task = await self._ended(session, claimed.task_id)
            await self.witness.until({"task": self.told})
        finally:
            watching.cancel()
            await asyncio.wait([watching])
        if task["status"] != "completed":
            raise MCPError(task["error"]["code"], task["error"]["message"])
        return types.CallToolResult.model_validate(task["result"])

    async def _ended(self, session: Any, task_id: str) -> dict[str, Any]:
        answered = False
        while True:
            task = await ask(session, "tasks/get", {"taskId": task_id})
            self.statuses.append(task["status"])
            if task["status"] == "input_required" and not answered:
                answered = True
                responses = await self._answers(session, task["inputRequests"])
                given = {"taskId": task_id, "inputResponses": responses}
                await ask(session, "tasks/update", given)
            elif task["status"] in ("completed", "failed", "cancelled"):
                return task
            await asyncio.sleep(0.02)

    async def _answers(self, session: Any, requests: dict[str, Any]) -> dict[str, Any]:
        answers = {}
        for key, request in requests.items():
            context = ClientRequestContext(session=session, request_id=key, meta=None)
            parsed = TypeAdapter(types.InputRequest).validate_python(request)
            answers[key] = plain(await session.dispatch_input_request(context, parsed))
        return answers


class AnyRequest(types.Request[dict[str, Any], str]):
    """A request that the client has no word for."""


class TaskRequest(AnyRequest):
    name_param: ClassVar[str | None] = "taskId"  # what Mcp-Name repeats over HTTP


async def ask(session: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Any request at all, by the method that the session offers for it."""
    kind = TaskRequest if method.startswith("tasks/") and "taskId" in params else AnyRequest
    request = kind(method=method, params=params)
    answer: dict[str, Any] = await session.send_request(request, ANYTHING)
    return answer


# -- the steps of the plan -------------------------------------------------------------------------


async def outcome(asking: Awaitable[Any]) -> Any:
    try:
        answer = await asking
    except MCPError as error:
        return {"error": plain(error.error)}
    return plain(answer) if isinstance(answer, BaseModel) else answer


class Steps:
    """Runs the steps of the plan; each is written down with what was heard during it."""

    def __init__(self, client: Any, witness: Witness, tasks: Tasks) -> None:
        self.client = client
        self.witness = witness
        self.tasks = tasks
        self.modern = witness.modern = client.protocol_version == MODERN
        self._listening = AsyncExitStack()
        self._known: set[str] = set()

    @property
    def session(self) -> Any:
        return self.client.session

    async def run(self, steps: list[dict[str, Any]]) -> dict[str, Any]:
        seen = {}
        for step in steps:
            self.witness.heard = []
            operation: Callable[..., Awaitable[Any]] = getattr(self, step["op"])
            result = await outcome(operation(**step.get("with", {})))
            await self.witness.until(step.get("until", {}))
            seen[step["name"]] = {"result": result, "heard": self.witness.heard}
        return seen

    async def call(self, tool: str, arguments: Any, level: str | None = None) -> Any:
        raise NotImplementedError

    async def paced(self, tool: str, arguments: Any, progress: int) -> Any:
        """The tool ends after its progress has been seen."""
        running = asyncio.create_task(self.call(tool, arguments))
        await self.witness.until({"progress": progress})
        await self.call("go_on", {})
        return await running

    async def read(self, uri: str) -> Any:
        raise NotImplementedError

    async def get(self, prompt: str, arguments: Any) -> Any:
        raise NotImplementedError

    async def set_level(self, level: str) -> Any:
        raise NotImplementedError

    async def tools(self) -> Any:
        raise NotImplementedError

    async def meta_for(self, level: str | None) -> Any:
        """2026-07-28 names the level in the request; before, it is set once for all."""
        if level is None or self.modern:
            return {LOG_LEVEL: level} if level else None
        await self.set_level(level)
        return None

    async def roots_changed(self) -> Any:
        await self.session.send_roots_list_changed()

    # -- changes

    async def listen(self, uri: str) -> Any:
        if not self.modern:
            return await self.session.subscribe_resource(uri)
        stream = listen(self.session, tools_list_changed=True, resource_subscriptions=[uri])
        subscription = await self._listening.enter_async_context(stream)
        reading = asyncio.create_task(self._read(subscription))
        self._listening.callback(reading.cancel)
        return plain(subscription.honored)

    async def _read(self, subscription: Any) -> None:
        async for event in subscription:
            if isinstance(event, ToolsListChanged):
                self.witness.hear("tools_changed")
            elif isinstance(event, ResourceUpdated):
                self.witness.hear("updated", uri=event.uri)

    async def unlisten(self, uri: str) -> Any:
        if not self.modern:
            return await self.session.unsubscribe_resource(uri)
        await self._listening.aclose()
        return None

    # -- tasks

    async def task(self, tool: str, arguments: Any, told: int = 0) -> Any:
        """A call that becomes a task, until it has a result."""
        self.tasks.statuses, self.tasks.told = [], told
        if self.modern:
            result = await outcome(self.call(tool, arguments))
            return {"statuses": self.tasks.statuses, "result": result}
        task, refused = await self._started(tool, arguments)
        named = {"taskId": task["taskId"]}
        result = await outcome(ask(self.session, "tasks/result", named))
        end = await ask(self.session, "tasks/get", named)
        statuses = [task["status"], end["status"]]
        return {**named, "statuses": statuses, "result": result, "refused": refused}

    async def _started(self, tool: str, arguments: Any) -> tuple[dict[str, Any], str | None]:
        """The session takes nothing but a tool result from tools/call: look the task up."""
        params = {"name": tool, "arguments": arguments, "task": {"ttl": 60_000}}
        try:
            await ask(self.session, "tools/call", params)
            refused = None
        except ValidationError as error:
            refused = error.title
        tasks = (await ask(self.session, "tasks/list", {}))["tasks"]
        (task,) = [one for one in tasks if one["taskId"] not in self._known]
        self._known.add(task["taskId"])
        return task, refused

    async def task_cancelled(self, tool: str, arguments: Any) -> Any:
        if self.modern:
            claimed = await self.session.call_tool(tool, arguments, allow_claimed=True)
            named = {"taskId": claimed.task_id}
        else:
            named = {"taskId": (await self._started(tool, arguments))[0]["taskId"]}
        cancelled = await outcome(ask(self.session, "tasks/cancel", named))
        end = await ask(self.session, "tasks/get", named)
        return {"cancelled": cancelled, "status": end["status"]}


def start(main: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))  # type: ignore[arg-type]
