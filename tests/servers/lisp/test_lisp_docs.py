"""What docs/lisp.md says is so: its session is replayed, its tables are compared."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lisp_support import lisp, text_of

from dovetail.servers.lisp.limits import LispLimits
from support import ALL, run

PAGE = (Path(__file__).parents[3] / "docs" / "lisp.md").read_text("utf-8")
DOVETAIL = str(Path(sys.executable).with_name("dovetail"))


def steps() -> list[tuple[str, dict[str, Any], str]]:
    """Tool, arguments and answer of every call on the page."""
    blocks = re.findall(r"```session\n(.*?)```", PAGE, re.DOTALL)
    entries = re.split(r"\n\n(?=[*!] )", "\n\n".join(block.strip() for block in blocks))
    return [step(entry) for entry in entries]


def step(entry: str) -> tuple[str, dict[str, Any], str]:
    head, *rest = entry.split("\n")
    while rest and rest[0].startswith("    "):
        head += "\n" + rest.pop(0)
    answer = "\n".join(rest)
    if head.startswith("! "):
        tool, _, arguments = head[2:].partition(" ")
        return tool, json.loads(arguments), answer
    found = re.fullmatch(r"\* (.*?)( \{.*\})?", head, re.DOTALL)
    assert found is not None
    return "evaluate-lisp", {"code": found[1], **json.loads(found[2] or "{}")}, answer


def test_the_session_goes_as_recorded() -> None:
    async def main() -> None:
        async with lisp() as client:
            for tool, arguments, answer in steps():
                shown = text_of(await client.raw.call(tool, arguments))
                shown = re.sub(r"started in \d+ ms", "started in N ms", shown)
                assert shown == answer, (tool, arguments)

    assert len(steps()) >= 15
    run(main())


def test_the_limits_are_as_listed() -> None:
    defaults = LispLimits()
    rows = re.findall(r"^\| `--([a-z-]+)` \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert len(rows) == 7
    for name, default in rows:
        assert str(getattr(defaults, name.replace("-", "_"))) == default
    shown = subprocess.run(
        [DOVETAIL, "serve", "lisp", "--help"], capture_output=True, text=True, timeout=30
    ).stdout
    for name, _ in rows:
        assert f"--{name}" in shown


@pytest.mark.verifies("R001-22", "D-lisp-lists")
def test_every_tool_and_argument_is_on_the_page() -> None:
    async def main() -> list[Any]:
        async with lisp() as client:
            tools: list[Any] = (await client.raw.request("tools/list"))["tools"]
            return tools

    tools = run(main())
    for tool in tools:
        assert f"`{tool['name']}`" in PAGE, tool["name"]
    (evaluate,) = (tool for tool in tools if tool["name"] == "evaluate-lisp")
    for name in evaluate["inputSchema"]["properties"]:
        assert f"| `{name}` |" in PAGE, name


@pytest.mark.verifies("R001-21")
@pytest.mark.parametrize("revision", ALL)
def test_the_image_can_be_read(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            await client.text('(defun greet (whom) "Say hello." (list :hello whom))')

            async def read(path: str) -> Any:
                params = {"uri": f"lisp://default/{path}"}
                (contents,) = (await client.raw.request("resources/read", params))["contents"]
                return json.loads(contents["text"])

            described = await read("symbol/cl-user/greet")
            assert described["arglist"] == "(WHOM)"
            assert "COMMON-LISP" in [package["name"] for package in await read("packages")]
            (entry,) = await read("history")
            assert entry["text"] == "=> GREET"

    run(main())


def test_every_resource_is_on_the_page() -> None:
    async def main() -> list[str]:
        async with lisp() as client:
            listed = (await client.raw.request("resources/templates/list"))["resourceTemplates"]
            return [template["uriTemplate"] for template in listed]

    for uri in run(main()):
        assert f"`{uri}`" in PAGE, uri


def test_the_configuration_is_json_that_starts_the_server(tmp_path: Path) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    entry = json.loads(block)["mcpServers"]["lisp"]
    ran = subprocess.run(
        [DOVETAIL, *entry["args"]],
        input='{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        capture_output=True,
        text=True,
        timeout=30,
        cwd=tmp_path,
    )
    assert json.loads(ran.stdout)["result"] == {}
