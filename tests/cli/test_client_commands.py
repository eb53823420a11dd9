"""``dovetail list``, ``call``, ``read``, ``prompt``, ``complete``, ``listen``, ``proxy``."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.cli.arguments import BadArgument, read_arguments
from dovetail.cli.completion import words

SERVER = '''
from typing import Literal
from msgspec import Struct
from dovetail import Context, Elicit, Server

server = Server("shop", version="1.0")

class Sure(Struct):
    sure: bool
    size: Literal["s", "l"] = "s"

@server.tool
async def add(a: int, b: int = 1, factor: float = 1.0, loud: bool = False) -> float:
    """Add two numbers."""
    return (a + b) * factor

@server.tool
async def broken() -> str:
    raise ValueError

@server.tool
async def echo(text: str, tags: list[str]) -> str:
    return text + ",".join(tags)

@server.tool
async def slow(*, ctx: Context) -> str:
    for step in range(3):
        ctx.progress(step + 1, 3, "working")
    return "ready"

@server.tool
async def ask(*, ctx: Context) -> str:
    answer = await ctx.ask("q", Elicit("Are you sure?", Sure))
    return f"{answer.action} {answer.value.sure} {answer.value.size}"

@server.tool
async def grow() -> str:
    @server.tool(name=f"grown{len(server.tools)}")
    async def grown() -> int:
        return 1
    server.updated("shop://text")
    return "grown"

@server.resource("shop://text")
def text() -> str:
    return "hello"

@server.resource("shop://bytes")
def data() -> bytes:
    return b"\\x00\\xff"

@server.prompt
def greet(name: str) -> str:
    return f"Hello {name}"

@greet.complete("name")
def names(prefix: str) -> list[str]:
    return [prefix + "a", prefix + "b"]
'''


@pytest.fixture
def shop(tmp_path: Path) -> list[str]:
    file = tmp_path / "shop.py"
    file.write_text(SERVER)
    return ["--", sys.executable, "-m", "dovetail", "serve", str(file)]


def dovetail(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "dovetail", *arguments]
    return subprocess.run(command, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)


def output(*arguments: str) -> str:
    done = dovetail(*arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_list(shop: list[str]) -> None:
    shown = output("list", *shop)
    assert "shop 1.0 speaks 2026-07-28" in shown
    assert "  add a [b] [factor] [loud]\n      Add two numbers." in shown
    assert "shop://text" in shown
    assert "greet name" in shown
    assert "\x1b" not in shown  # colours are for terminals
    assert output("list", "prompts", "--names", *shop) == "greet\n"
    data = json.loads(output("list", "--json", "--revision", "2025-06-18", *shop))
    assert data["server"]["revision"] == "2025-06-18"
    assert [tool["name"] for tool in data["tools"]][:2] == ["add", "broken"]


def test_call(shop: list[str]) -> None:
    assert output("call", "add", "a=1", "b=2", *shop) == "3.0\n"
    assert output("call", "add", "a=1", "loud=true", "factor=2.5", *shop) == "5.0\n"
    assert output("call", "echo", "text=5", 'tags:=["x","y"]', *shop) == "5x,y\n"
    assert output("call", "add", "--args", '{"a": 2}', *shop) == "3.0\n"
    data = json.loads(output("call", "add", "a=1", "--json", *shop))
    assert data["structuredContent"] == 2.0
    assert data["isError"] is False
    failed = dovetail("call", "broken", *shop)
    assert failed.returncode == 1
    assert failed.stdout == b""
    assert b"Internal error in tool 'broken'" in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["call", "nobody"], "there is no tool 'nobody'; there are add"),
        (["call", "add"], "'a' is missing"),
        (["call", "add", "a=x"], "a: 'x' is no integer"),
        (["call", "add", "a=1", "c=2"], "there is no argument 'c'"),
        (["call", "add", "a"], "name=value"),
        (["call", "add", "--args", "{"], "--args"),
        (["prompt", "greet", "name"], "name=value"),
    ],
)
def test_mistakes_are_one_line_and_two(shop: list[str], arguments: list[str], words: str) -> None:
    done = dovetail(*arguments, *shop)
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_read_prompt_complete(shop: list[str]) -> None:
    assert output("read", "shop://text", *shop) == "hello\n"
    assert dovetail("read", "shop://bytes", *shop).stdout == b"\x00\xff"
    contents = json.loads(output("read", "shop://text", "--json", *shop))["contents"]
    assert contents[0]["text"] == "hello"
    refused = dovetail("read", "shop://nothing", *shop)
    assert refused.returncode == 1
    assert output("prompt", "greet", "name=Eve", *shop) == "user: Hello Eve\n"
    assert json.loads(output("prompt", "greet", "name=E", "--json", *shop))["messages"]
    assert output("complete", "greet", "name", "x", *shop) == "xa\nxb\n"


def test_listen(shop: list[str]) -> None:
    """Two commands at one server: the second changes what the first listens to."""
    file = shop[-1]
    serve = [sys.executable, "-m", "dovetail", "serve", file, "--http", "127.0.0.1:0"]
    server = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        url = next(word for word in server.stderr.readline().split() if word.startswith("http"))
        command = [sys.executable, "-m", "dovetail", "listen", "--url", url, "--count", "1"]
        listening = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True)
        changes = 0
        while listening.poll() is None and changes < 50:  # it may not listen yet
            changes += 1
            dovetail("call", "grow", "--url", url)
            try:
                listening.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
        assert listening.poll() == 0
        assert listening.stdout is not None
        assert json.loads(listening.stdout.read())["kind"] in ("tools", "resources")
    finally:
        listening.kill()
        listening.communicate()
        server.terminate()
        server.wait(10)
        assert server.stderr is not None
        server.stderr.close()


def test_servers_of_a_file(shop: list[str], tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    entry = {"command": shop[1], "args": shop[2:]}
    file.write_text(json.dumps({"mcpServers": {"shop": entry, "other": entry}}))
    where = ["--config", str(file), "--server", "shop"]
    assert output("call", "add", "a=1", "b=1", *where) == "2.0\n"
    for missing in (["--config", str(file)], ["--config", str(file), "--server", "x"]):
        done = dovetail("list", *missing)
        assert done.returncode == 2
        assert b"shop, other" in done.stderr


def test_a_server_that_is_not_there() -> None:
    for where in (["--url", "http://127.0.0.1:1/"], ["--", "/bin/false"], ["--", "no-such-thing"]):
        done = dovetail("list", *where)
        assert done.returncode == 3
        assert b"Traceback" not in done.stderr
    for where in ([], ["--url", "ftp://x"], ["--url", "http://x", "--", "y"]):
        assert dovetail("list", *where).returncode == 2


def test_the_wire_log(shop: list[str], tmp_path: Path) -> None:
    log = tmp_path / "wire.jsonl"
    output("call", "add", "a=1", "--wire-log", str(log), *shop)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert {entry["dir"] for entry in entries} == {"in", "out"}
    assert entries[0]["message"]["method"] == "server/discover"
    assert entries[-1]["message"]["result"]["structuredContent"] == 2.0


def test_a_person_sees_progress_and_is_asked(shop: list[str]) -> None:
    """At a terminal: a bar, colours, and questions that can be answered."""
    said = at_terminal(["call", "slow", *shop], "")
    assert "[██████████████████████████████] 100% working" in said
    assert "ready" in said
    said = at_terminal(["call", "ask", *shop], "y\ntrue\nl\n")
    assert "The server asks: Are you sure?" in said
    assert "accept True l" in said
    assert "\x1b[1m" in at_terminal(["list", *shop], "")


def at_terminal(arguments: list[str], typed: str) -> str:
    main, child = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    command = [sys.executable, "-m", "dovetail", *arguments]
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment)
    os.close(child)
    os.write(main, typed.encode())
    said = b""
    while True:
        try:
            data = os.read(main, 4096)
        except OSError:  # the terminal is closed with its last user
            break
        if not data:
            break
        said += data
    os.close(main)
    assert process.wait(30) == 0
    return said.decode().replace("\r\n", "\n")


def test_completion_of_names(shop: list[str]) -> None:
    line = ["dovetail", "call", "a", *shop]
    assert words(2, line) == ["add", "ask"]
    assert words(2, ["dovetail", "prompt", "", *shop]) == ["greet"]
    assert "call" in words(1, ["dovetail", "c"])
    assert words(3, ["dovetail", "call", "add", "", *shop]) == []
    assert words(2, ["dovetail", "call", ""]) == []
    for shell in ("bash", "zsh", "fish"):
        assert "dovetail completion words" in output("completion", shell)
    script = output("completion", "bash") + (
        "\nCOMP_WORDS=(dovetail call e " + " ".join(shop) + "); COMP_CWORD=2; _dovetail; "
        'echo "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert done.stdout == "echo\n"


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_proxy_on_stdio(shop: list[str], revision: str) -> None:
    """A server of one revision, offered to a client of another, twice over."""
    proxy = ["--", sys.executable, "-m", "dovetail", "proxy", "--revision", "2025-06-18", *shop]
    assert output("call", "add", "a=4", "--revision", revision, *proxy).strip() in ("5", "5.0")


def test_proxy_on_http(shop: list[str]) -> None:
    command = [sys.executable, "-m", "dovetail", "proxy", "--http", "127.0.0.1:0", *shop]
    proxy = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert proxy.stderr is not None
        url = proxy.stderr.readline().split()[-1]
        for revision in ("2025-03-26", "2025-11-25", "2026-07-28"):
            said = output("call", "add", "a=1", "--url", url, "--revision", revision)
            assert said.strip() in ("2", "2.0")
    finally:
        proxy.terminate()
        assert proxy.wait(20) in (0, -15)
        assert proxy.stderr is not None
        proxy.stderr.close()


SCHEMA = {
    "type": "object",
    "properties": {
        "i": {"type": "integer"},
        "n": {"type": "number"},
        "b": {"type": "boolean"},
        "s": {"type": "string"},
        "l": {"type": "array"},
        "m": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "any": {},
    },
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("i=5", 5),
        ("n=5", 5),
        ("n=1e3", 1000.0),
        ("b=True", True),
        ("s=5", "5"),
        ("s=", ""),
        ("s=a=b", "a=b"),
        ("l=[1]", [1]),
        ("m=null", None),
        ("any=5", 5),
        ("any=five", "five"),
        ("i:=5", 5),
        ("new=x", "x"),
    ],
)
def test_values_are_read_by_their_schema(word: str, value: object) -> None:
    assert list(read_arguments([word], SCHEMA).values()) == [value]


@pytest.mark.parametrize("word", ["i=5.5", "i=x", "b=maybe", "l=x", "i:=x", "=5", "x", "s=@/none"])
def test_values_that_do_not_fit(word: str) -> None:
    with pytest.raises(BadArgument):
        read_arguments([word], SCHEMA)
