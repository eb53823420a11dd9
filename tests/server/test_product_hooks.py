"""What products need of the engine: names in another case, who wants progress, who answered."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel

from dovetail import Context, Elicit, Server
from dovetail.testing import connect
from support import ALL, run


class Name(Struct):
    name: str


def server_of() -> Server:
    server = Server("hooks")

    @server.tool(names="kebab")
    async def kebab(first_name: str, last_name: str = "none") -> str:
        """Say a name.

        Args:
            first_name: The first.
        """
        return f"{first_name} {last_name}"

    @server.tool(names="camel")
    async def camel(first_name: str) -> str:
        return first_name

    @server.tool
    async def wants(ctx: Context) -> bool:
        return ctx.wants_progress

    @server.tool
    async def who(ctx: Context) -> list[str]:
        before = sorted(ctx.answered)
        answer = await ctx.ask("name", Elicit("Who?", Name))
        return [*before, answer.value.name]

    return server


@pytest.mark.parametrize("revision", ALL)
def test_clients_write_arguments_in_the_case_of_the_tool(revision: str) -> None:
    async def main() -> None:
        async with connect(server_of(), revision) as client:
            listed = (await client.request("tools/list"))["tools"]
            schema = listed[0]["inputSchema"]
            assert list(schema["properties"]) == ["first-name", "last-name"]
            assert schema["properties"]["first-name"]["description"] == "The first."
            assert schema["required"] == ["first-name"]
            assert list(listed[1]["inputSchema"]["properties"]) == ["firstName"]
            said = await client.call("kebab", {"first-name": "Ada", "last-name": "Lovelace"})
            assert said["content"][0]["text"] == "Ada Lovelace"
            assert (await client.call("camel", {"firstName": "Ada"}))["isError"] is False
            for wrong, named in (
                ({"first_name": "Ada"}, "'first_name'"),
                ({"first-name": 5}, "'first-name'"),
                ({}, "'first-name'"),
            ):
                refused = await client.call("kebab", wrong)
                assert refused["isError"] is True
                assert named in refused["content"][0]["text"]

    run(main())


def test_pydantic_types_keep_their_names() -> None:
    class Model(BaseModel):
        a_b: int

    with pytest.raises(TypeError, match="does not go with pydantic"):

        @Server("x").tool(names="kebab")
        async def tool(a_model: Model) -> None: ...


@pytest.mark.parametrize("revision", ALL)
def test_a_tool_can_know_whether_progress_is_wanted(revision: str) -> None:
    async def main() -> None:
        async with connect(server_of(), revision) as client:
            for meta, wanted in (({}, "false"), ({"_meta": {"progressToken": 1}}, "true")):
                params: dict[str, Any] = {"name": "wants", "arguments": {}, **meta}
                result = await client.request("tools/call", params)
                assert result["content"][0]["text"] == wanted

    run(main())


def test_a_tool_that_runs_again_knows_which_questions_were_answered() -> None:
    async def main() -> None:
        able = {"elicitation": {"form": {}}}
        async with connect(server_of(), "2026-07-28", capabilities=able) as client:
            params: dict[str, Any] = {"name": "who", "arguments": {}}
            asked = await client.request("tools/call", params)
            given = {"name": {"action": "accept", "content": {"name": "Ada"}}}
            state = asked["requestState"]
            answer = {**params, "inputResponses": given, "requestState": state}
            result = await client.request("tools/call", answer)
            assert result["structuredContent"] == ["name", "Ada"]

    run(main())
