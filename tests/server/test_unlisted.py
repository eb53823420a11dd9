"""Tools that are served but not listed."""

from __future__ import annotations

from dovetail import Server
from dovetail.testing import connect
from support import run


def test_a_tool_that_is_not_listed_can_be_called_by_those_who_know_it() -> None:
    async def main() -> None:
        server = Server("s")
        server.tool(name="shown")(lambda: "a")
        hidden = server.tool(name="hidden")(lambda: "b")
        hidden.listed = False
        host = Server("host")
        host.mount(server, "guest")
        for each in (server, host):
            async with connect(each) as client:
                [shown] = (await client.request("tools/list"))["tools"]
                assert shown["name"].endswith("shown")
                result = await client.call(shown["name"].replace("shown", "hidden"))
                assert result["content"][0]["text"] == "b"

    run(main())
