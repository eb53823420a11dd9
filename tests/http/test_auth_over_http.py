"""Bearer tokens before the application: who gets in, and what belongs to whom."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from http_lab import Answer, B, Client, D, E, Lab, lab, result, text
from uvicorn_lab import served
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from dovetail import Context, Elicit, Server
from dovetail.ext.auth import AccessToken, BearerAuth, StaticTokens
from dovetail.spec.meta import TASKS_EXTENSION
from support import run, until

MCP = Subprotocol("mcp")
RESOURCE = "http://127.0.0.1:8000/mcp"
METADATA = "http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp"
WELL_KNOWN = "/.well-known/oauth-protected-resource/mcp"
TASKS: dict[str, Any] = {"elicitation": {}, "extensions": {TASKS_EXTENSION: {}}}


def token(subject: str, *scopes: str, **more: Any) -> AccessToken:
    audience = frozenset([RESOURCE])
    return AccessToken(subject=subject, audience=audience, scopes=frozenset(scopes), **more)


TOKENS = {
    "ann": token("ann", "use", "write"),
    "ann-again": token("ann", "use"),
    "bob": token("bob", "use", "write"),
    "short": token("ann", "use", expires_at=100.0),
    "elsewhere": AccessToken(subject="ann", audience=frozenset(["https://other.org"])),
}


class Sure(msgspec.Struct):
    sure: bool


class Vault:
    """A server with something worth protecting."""

    def __init__(self) -> None:
        self.server = server = Server("vault")
        self.clock = 0.0
        self.calls = 0
        self.go = asyncio.Event()
        self.auth = BearerAuth(
            server,
            StaticTokens(TOKENS),
            resource=RESOURCE,
            authorization_servers=["https://auth.example.org"],
            scopes=["use"],
            clock=lambda: self.clock,
        )

        @server.tool
        async def whoami(ctx: Context) -> str | None:
            self.calls += 1
            return ctx.session.principal

        @server.tool(scopes=["write"])
        async def write() -> str:
            self.calls += 1
            return "written"

        @server.tool
        async def confirm(ctx: Context) -> str:
            return str((await ctx.ask("sure", Elicit("Sure?", Sure))).value.sure)

        @server.tool(task="optional")
        async def bake() -> str:
            await self.go.wait()
            return "bread"

        @server.tool
        async def slowly(ctx: Context) -> str:
            ctx.progress(1)
            await self.go.wait()
            return f"for {ctx.session.principal}"


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


async def call(lab: Lab, who: str, tool: str, **more: Any) -> Answer:
    params = {"name": tool, "arguments": {}, **more.pop("params", {})}
    return await lab.modern("tools/call", params, bearer(who), **more).whole()


def challenge(answer: Answer) -> str:
    return answer.headers["www-authenticate"]


# -- at the door -----------------------------------------------------------------------------------


@pytest.mark.verifies("S65", "S68", "S69", "S74")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "PUT"])
@pytest.mark.parametrize("given", [None, "nobody", "elsewhere"])
def test_no_way_in_without_a_token(method: str, given: str | None) -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            ann = await http.session(D, **bearer("ann"))
            headers = {**ann.headers, "accept": "text/event-stream"}
            del headers["authorization"]
            headers |= {} if given is None else bearer(given)
            answer = await http.send(method, headers, b"{").whole()
            assert answer.status == 401
            assert answer._parts == [b"{"], "the body was not even read"
            assert f'resource_metadata="{METADATA}"' in challenge(answer)
            assert ('error="invalid_token"' in challenge(answer)) == (given is not None)
            assert text(await ann.call("whoami").whole()) == "ann", "the session is as it was"

    run(main())
    assert vault.calls == 1


def test_a_malformed_header_is_400() -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            answer = await http.post({}, {"authorization": "Bearer a b"}).whole()
            assert (answer.status, 'error="invalid_request"' in challenge(answer)) == (400, True)

    run(main())


@pytest.mark.parametrize("revision", [B, D, E])
def test_a_handler_knows_whom_it_serves(revision: str) -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            if revision == E:
                answer = await call(http, "bob", "whoami")
            else:
                bob = await http.session(revision, **bearer("bob"))
                answer = await bob.call("whoami").whole()
            assert text(answer) == "bob"

    run(main())


@pytest.mark.verifies("S67")
@pytest.mark.parametrize("path", ["/mcp", None])
def test_the_metadata_need_no_token(path: str | None) -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth, path=path) as http:
            answer = await http.send("GET", path=WELL_KNOWN).whole()
            assert answer.status == 200
            assert answer.json["resource"] == RESOURCE
            assert answer.json["authorization_servers"] == ["https://auth.example.org"]
            other = await http.send("GET", path="/.well-known/oauth-protected-resource").whole()
            assert other.status in (401, 404)

    run(main())


# -- scopes ----------------------------------------------------------------------------------------


def refused_for_write(answer: Answer) -> bool:
    assert answer.status == 403
    assert 'error="insufficient_scope"' in challenge(answer)
    return 'scope="use write"' in challenge(answer)


@pytest.mark.verifies("S65")
@pytest.mark.parametrize("revision", [B, D, E])
def test_a_tool_that_needs_more(revision: str) -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            if revision == E:
                assert refused_for_write(await call(http, "ann-again", "write"))
                assert vault.calls == 0
                assert text(await call(http, "ann", "write")) == "written"
                return
            client = await http.session(revision, **bearer("ann-again"))
            assert refused_for_write(await client.call("write").whole())
            assert vault.calls == 0
            # With more scopes the same session goes on.
            client.headers |= bearer("ann")
            assert text(await client.call("write").whole()) == "written"

    run(main())


def test_a_batch_is_no_way_around() -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            client = await http.session(B, **bearer("ann-again"))
            names = ("whoami", "write")
            batch = [
                {
                    "jsonrpc": "2.0",
                    "id": id,
                    "method": "tools/call",
                    "params": {"name": name, "arguments": {}},
                }
                for id, name in enumerate(names)
            ]
            assert refused_for_write(await client.post(batch).whole())
            assert vault.calls == 0, "all of it or nothing"
            client.headers |= bearer("ann")
            assert len((await client.post(batch).whole()).json) == 2

    run(main())


def test_a_token_that_expires_during_a_session() -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            client = await http.session(D, **bearer("short"))
            assert text(await client.call("whoami").whole()) == "ann"
            vault.clock = 100.0
            answer = await client.call("whoami").whole()
            assert answer.status == 401
            assert "expired" in challenge(answer)
            client.headers |= bearer("ann-again")  # a new token of the same person
            assert text(await client.call("whoami").whole()) == "ann"

    run(main())


# -- what belongs to whom --------------------------------------------------------------------------


@pytest.mark.verifies("S74")
@pytest.mark.parametrize("revision", [B, D])
def test_a_session_is_of_one_principal(revision: str) -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            ann = await http.session(revision, **bearer("ann"))
            thief = Client(http, revision, ann.id, bearer("bob"))
            unknown = Client(http, revision, "never-was", bearer("bob"))
            for attempt in (lambda one: one.call("whoami"), Client.get, Client.delete):
                first, second = [await attempt(one).whole() for one in (thief, unknown)]
                assert first.status == 404
                assert first.body == second.body, "nothing tells that the session exists"
            assert vault.calls == 0
            assert text(await ann.call("whoami").whole()) == "ann"

    run(main())


def test_a_stream_is_resumed_by_its_principal_only() -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            ann = await http.session(D, **bearer("ann"))
            calling = ann.call("slowly", progressToken=1)
            await calling.until(lambda: calling.events)
            place = calling.events[0].id
            calling.disconnect()
            thief = Client(http, D, ann.id, bearer("bob"))
            assert (await thief.get(place).whole()).status == 404
            vault.go.set()
            resumed = await ann.get(place).whole()
            assert text(resumed) == "for ann"

    run(main())


@pytest.mark.verifies("S96", "S103")
def test_a_task_of_2026_is_of_one_principal() -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            made = result(await call(http, "ann", "bake", capabilities=TASKS))
            task = {"taskId": made["taskId"]}

            async def ask(who: str, method: str, **params: Any) -> Answer:
                asked = http.modern(method, {**task, **params}, bearer(who), TASKS)
                return await asked.whole()

            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                params = {"inputResponses": {}} if method == "tasks/update" else {}
                answer = await ask("bob", method, **params)
                assert answer.error == -32602
                assert "Unknown task" in answer.messages[0]["error"]["data"]
            wanted = {"notifications": {"taskIds": [made["taskId"]]}}
            watching = {
                who: http.modern("subscriptions/listen", wanted, bearer(who), TASKS)
                for who in ("ann", "bob")
            }
            granted = {who: (await one.event(1))["params"] for who, one in watching.items()}
            assert granted["ann"]["notifications"]["taskIds"] == [made["taskId"]]
            assert not granted["bob"]["notifications"].get("taskIds")
            vault.go.set()
            told = await watching["ann"].event(2)
            assert told["params"]["status"] == "completed"
            assert len(watching["bob"].events) == 1
            assert result(await ask("ann-again", "tasks/get"))["status"] == "completed"
            for one in watching.values():
                one.disconnect()
                await one.whole()

    run(main())


@pytest.mark.verifies("S96")
def test_a_task_of_2025_is_of_one_principal() -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            ann = await http.session(D, **bearer("ann"))
            bob = await http.session(D, **bearer("bob"))
            params = {"name": "bake", "arguments": {}, "task": {}}
            made = result(await ann.request("tools/call", params).whole())["task"]
            task = {"taskId": made["taskId"]}
            for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                assert (await bob.request(method, task).whole()).error == -32602
            assert result(await bob.request("tasks/list").whole())["tasks"] == []
            vault.go.set()
            other = await http.session(D, **bearer("ann-again"))  # another connection of hers
            answer = await other.request("tasks/result", task).whole()
            assert text(answer) == "bread"

    run(main())


@pytest.mark.verifies("S19", "S81")
def test_a_state_that_a_client_holds_is_of_one_principal() -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            asked = result(await call(http, "ann", "confirm", capabilities=TASKS))
            retry = {
                "requestState": asked["requestState"],
                "inputResponses": {"sure": {"action": "accept", "content": {"sure": True}}},
            }
            stolen = await call(http, "bob", "confirm", capabilities=TASKS, params=retry)
            assert stolen.error == -32602
            assert (
                text(await call(http, "ann", "confirm", capabilities=TASKS, params=retry)) == "True"
            )

    run(main())


def test_sessions_of_two_principals_do_not_hear_each_other() -> None:
    vault = Vault()

    async def main() -> None:
        async with lab(vault.server, auth=vault.auth) as http:
            ann = await http.session(D, **bearer("ann"))
            bob = await http.session(D, **bearer("bob"))
            streams = [ann.get(), bob.get()]
            for stream in streams:
                await stream.until(lambda stream=stream: stream.status == 200)
            params = {"name": "bake", "arguments": {}, "task": {}}
            await ann.request("tools/call", params).whole()
            vault.go.set()
            await until(lambda: b"completed" in streams[0].body)
            assert b"bake" not in streams[1].body
            assert b"taskId" not in streams[1].body
            for stream in streams:
                stream.disconnect()
                await stream.whole()

    run(main())


def test_a_websocket_lives_no_longer_than_its_token() -> None:
    """Every request of HTTP brings its token; on a socket there is none after the first."""
    vault = Vault()

    async def main() -> int | None:
        soon = time.time() + 0.3
        vault.auth._verifier = StaticTokens({"soon": token("ann", "use", expires_at=soon)})
        headers = {"Authorization": "Bearer soon"}
        async with served(vault.server, auth=vault.auth) as http:
            url = http.url.replace("http:", "ws:")
            async with connect(url, subprotocols=[MCP], additional_headers=headers) as ws:
                with pytest.raises(ConnectionClosed):
                    await ws.recv()
                return ws.close_code

    assert run(main()) == 1008


def test_what_needs_scopes_is_not_served_to_everybody() -> None:
    """Over HTTP without authentication nobody would ask for them."""
    vault = Vault()
    with pytest.raises(ValueError, match="'write' needs scopes"):
        vault.server.asgi()


def test_the_command_line_serves_no_such_server(tmp_path: Path) -> None:
    program = tmp_path / "guarded.py"
    program.write_text(
        "from dovetail import Server\nserver = Server('guarded')\n"
        "server.tool(name='write', scopes=['write'])(lambda: 'done')\n"
    )
    command = [sys.executable, "-m", "dovetail.cli.main", "serve", program, "--http", "127.0.0.1:0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "tool 'write' needs scopes (write)" in ended.stderr
    assert "Traceback" not in ended.stderr
