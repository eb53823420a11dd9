"""Real clients beside the official suite, each with its own idea of MCP, over both transports."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from judge import HERE, MODULES, NODE, PATIENCE, PYTHON, SERVER

pytestmark = pytest.mark.verifies("F-real-peers")

CLIENTS = HERE / "clients"
LEGACY, MODERN = "2025-11-25", "2026-07-28"
STDIO = [sys.executable, str(SERVER), "--stdio"]
TOOLS, RESOURCES, PROMPTS = 35, 3, 6
DATA = '{"id":"7","templateTest":true,"data":"Data for ID: 7"}'
PROMPT = "Prompt with arguments: arg1='a', arg2='b'"
FAILURE = "This tool intentionally returns an error for testing"


@pytest.fixture(scope="module", params=["stdio", "http"])
def target(request: pytest.FixtureRequest, judges: None) -> dict[str, Any]:
    if request.param == "stdio":
        return {"command": STDIO}
    return {"url": request.getfixturevalue("url")}


def ran(*command: Any, home: Path | None = None) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home or "/nonexistent")}
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def seen_by(client: str, task: dict[str, Any]) -> dict[str, Any]:
    runner = NODE if client.endswith(".mjs") else PYTHON
    seen: dict[str, Any] = json.loads(ran(runner, CLIENTS / client, json.dumps(task)))
    return seen


def text(result: dict[str, Any]) -> tuple[str, bool]:
    return result["content"][0]["text"], result["isError"]


# -- clients of the handshake ----------------------------------------------------------------------


def check_python_sdk_1(seen: dict[str, Any]) -> None:
    assert seen == {
        "revision": LEGACY,
        "tools": TOOLS,
        "resources": ["test://static-text", "test://static-binary", "test://watched-resource"],
        "templates": 1,
        "prompts": PROMPTS,
        "text": "This is a simple text response for testing.",
        "content": [["image"], ["audio"]],
        "embedded": ["resource"],
        "mixed": ["text", "image", "resource"],
        "error": True,
        "progress": ["text"],
        "logging": ["text"],
        "sampling": "LLM response: 42",
        "elicitation": "Elicitation completed: action=accept,"
        ' content={"username":"ann","email":"a@b.c"}',
        "read": "This is the content of the static text resource.",
        "binary": "image/png",
        "template": DATA,
        "prompt": PROMPT,
        "completion": ["paris", "park", "party"],
        "concurrent": 50,
        "heard": {
            "progress": [[0, 100], [50, 100], [100, 100]],
            "log": [
                ["info", "Tool execution started"],
                ["info", "Tool processing data"],
                ["info", "Tool execution completed"],
            ],
            "sampling": ["6 x 7?"],
            "elicitation": [["email", "username"]],
        },
    }


def test_the_python_sdk_1(target: dict[str, Any]) -> None:
    check_python_sdk_1(seen_by("mcp1_client.py", target))


def test_the_python_sdk_1_through_mcp_remote(url: str) -> None:
    """A bridge that many desktop clients use: stdio on their side, HTTP on ours."""
    proxy = MODULES / "mcp-remote" / "dist" / "proxy.js"
    command = [str(NODE), str(proxy), url, "--transport", "http-only", "--allow-http"]
    check_python_sdk_1(seen_by("mcp1_client.py", {"command": command}))


def test_chuk_mcp(target: dict[str, Any]) -> None:
    """The one client here that asks for 2025-06-18."""
    seen = seen_by("chuk_client.py", target)
    assert (seen["revision"], seen["ping"]) == ("2025-06-18", True)
    check_features(seen, "Hello, chuk!")


def check_features(seen: dict[str, Any], greeting: str) -> None:
    assert (seen["tools"], seen["resources"], seen["prompts"]) == (TOOLS, RESOURCES, PROMPTS)
    assert text(seen["text"]) == (greeting, False)
    assert text(seen["error"]) == (FAILURE, True)
    assert seen["read"]["contents"][0]["text"] == DATA
    assert seen["prompt"]["messages"][0]["content"]["text"] == PROMPT


def test_the_ai_sdk(target: dict[str, Any]) -> None:
    """Its client prefers 2026-07-28."""
    seen = seen_by("ai_sdk_client.mjs", target)
    assert (seen["revision"], seen["templates"]) == (MODERN, 1)
    check_features(seen, "Hello, ai!")


def test_mcpjam(url: str) -> None:
    result = seen_by("mcpjam_judge.mjs", {"url": url})
    statuses = {check["id"]: check["status"] for check in result["checks"]}
    assert set(statuses.values()) == {"passed"}, result["checks"]
    assert len(statuses) == 15
    assert result["passed"] is True


# -- the Inspector ---------------------------------------------------------------------------------

ERAS = {"legacy": LEGACY, "auto": MODERN, "modern": MODERN}
CALLS: dict[str, list[str]] = {
    "tools": ["tools/list", "--strict"],
    "text": ["tools/call", "--tool-name", "greet", "--tool-arg", "name=inspector"],
    "mixed": ["tools/call", "--tool-name", "test_multiple_content_types"],
    "headers": ["tools/call", "--tool-name", "custom_header", "--tool-arg", "region=zürich"],
    "resources": ["resources/list"],
    "templates": ["resources/templates/list"],
    "read": ["resources/read", "--uri", "test://template/7/data"],
    "prompts": ["prompts/list"],
    "prompt": [
        *("prompts/get", "--prompt-name", "test_prompt_with_arguments"),
        *("--prompt-args", "arg1=a", "arg2=b"),
    ],
}


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector(era: str, target: dict[str, Any], tmp_path: Path) -> None:
    program = MODULES / "@modelcontextprotocol" / "inspector/clients/launcher/build/index.js"
    if "url" in target:
        where = ["--transport", "http", "--server-url", target["url"]]
    else:
        python, server, option = target["command"]
        where = ["--transport", "stdio", python, server, "--", option]

    def ask(arguments: list[str]) -> Any:
        options = ["--cli", "--protocol-era", era, "--method", *arguments, *where]
        return json.loads(ran(NODE, program, *options, home=tmp_path))

    with ThreadPoolExecutor(2) as pool:
        seen = dict(zip(CALLS, pool.map(ask, CALLS.values()), strict=True))
    assert len(seen["tools"]["tools"]) == TOOLS
    assert text(seen["text"]) == ("Hello, inspector!", False)
    assert [one["type"] for one in seen["mixed"]["content"]] == ["text", "image", "resource"]
    assert text(seen["headers"]) == ("served in zürich, attempt 0", False)
    assert len(seen["resources"]["resources"]) == RESOURCES
    assert len(seen["templates"]["resourceTemplates"]) == 1
    assert seen["read"]["contents"][0]["text"] == DATA
    assert len(seen["prompts"]["prompts"]) == PROMPTS
    assert seen["prompt"]["messages"][0]["content"]["text"] == PROMPT
    assert ("resultType" in seen["text"]) == (ERAS[era] == MODERN)
    assert ("ttlMs" in seen["read"]) == (ERAS[era] == MODERN)
