"""The client that the official conformance suite judges: ``client.py URL``.

Which scenario is asked for, what it gives us to know and which revision its server speaks
comes in the environment (``MCP_CONFORMANCE_SCENARIO``, ``_CONTEXT``, ``_PROTOCOL_VERSION``).
Everything here is the public API of Dovetail; what a scenario wants of a user (to list, to
call, to say yes) is a function of a few lines.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from dovetail import Client
from dovetail.client.oauth import (
    Authorizer,
    ClientCredentials,
    EnterpriseManaged,
    OAuth,
    OwnBrowser,
    PrivateKey,
    WorkloadIdentity,
)

REDIRECT = "http://localhost:3000/callback"
DOCUMENT = "https://conformance-test.local/client-metadata.json"

CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION")

Scenario = Callable[[Client], Awaitable[None]]


# -- what a user would do ------------------------------------------------------------------------


async def use(client: Client) -> None:
    """List the tools and call each that needs nothing."""
    for tool in await client.tools.all():
        if not tool.input_schema.get("required"):
            await client.call(tool.name)


async def connect(client: Client) -> None:
    """The server of this scenario declares no tools, so there is nothing to ask for."""
    assert client.revision


async def list_only(client: Client) -> None:
    await client.tools.all()


async def add(client: Client) -> None:
    await client.tools.all()
    result = await client.call("add_numbers", {"a": 5, "b": 3})
    assert not result.is_error, result.content


async def defaults(client: Client) -> None:
    await client.tools.all()
    await client.call("test_client_elicitation_defaults")


async def reconnect(client: Client) -> None:
    await client.tools.all()
    result = await client.call("test_reconnection")
    assert not result.is_error, result.content


async def everything(client: Client) -> None:
    """Every method that has a standard header."""
    await use(client)
    for resource in await client.resources.all():
        await client.read(resource.uri)
    for prompt in await client.prompts.all():
        await client.prompt(prompt.name)


async def given_calls(client: Client) -> None:
    await client.tools.all()
    for call in CONTEXT["toolCalls"]:
        await client.call(call["name"], call["arguments"])


async def valid_only(client: Client) -> None:
    """Call whatever is left of the list: tools with invalid headers are not in it."""
    for tool in await client.tools.all():
        await client.call(tool.name, {name: "x" for name in tool.input_schema["properties"]})


async def rounds(client: Client) -> None:
    for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
        await client.call(f"test_mrtr_{name}")


async def echo_schema(client: Client) -> None:
    tools = {tool.name: tool for tool in await client.tools.all()}
    schema = tools["json_schema_2020_12_tool"].input_schema
    await client.call("json_schema_echo", {"schema": schema})


async def twice(client: Client) -> None:
    """The authorization server changes between the first use and the second."""
    await use(client)
    await use(client)


SCENARIOS: dict[str, Scenario] = {
    "initialize": connect,
    "tools_call": add,
    "elicitation-sep1034-client-defaults": defaults,
    "sse-retry": reconnect,
    "request-metadata": connect,
    "http-standard-headers": everything,
    "http-custom-headers": given_calls,
    "http-invalid-tool-headers": valid_only,
    "sep-2322-client-request-state": rounds,
    "json-schema-ref-no-deref": list_only,
    "json-schema-2020-12-preservation": echo_schema,
    "auth/authorization-server-migration": twice,
}


# -- the user at the browser ---------------------------------------------------------------------


async def consent(url: str) -> str:
    """The suite's page says yes at once and sends us to an address where nobody listens."""
    return await asyncio.to_thread(_location, url)


def _location(url: str) -> str:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        location = connection.getresponse().headers["Location"]
    finally:
        connection.close()
    assert location is not None, "the page did not say yes"
    return location


def given(name: str) -> Callable[[], Awaitable[str]]:
    """A token that the suite gives, as something that fetches it."""

    async def fetch() -> str:
        return str(CONTEXT[name])

    return fetch


def authorizer(scenario: str) -> Authorizer | None:
    if not scenario.startswith("auth/"):
        return None
    if scenario == "auth/client-credentials-jwt":
        key = PrivateKey(pem=CONTEXT["private_key_pem"], algorithm=CONTEXT["signing_algorithm"])
        return ClientCredentials(CONTEXT["client_id"], private_key=key)
    if scenario == "auth/client-credentials-basic":
        return ClientCredentials(CONTEXT["client_id"], client_secret=CONTEXT["client_secret"])
    if scenario == "auth/enterprise-managed-authorization":
        return EnterpriseManaged(
            CONTEXT["client_id"],
            client_secret=CONTEXT["client_secret"],
            id_token=given("idp_id_token"),
            idp_issuer=CONTEXT["idp_issuer"],
            idp_client_id=CONTEXT["idp_client_id"],
            idp_token_endpoint=CONTEXT["idp_token_endpoint"],
        )
    if scenario == "auth/wif-jwt-bearer":
        return WorkloadIdentity(CONTEXT["client_id"], assertion=given("valid_jwt"))
    return OAuth(
        "Dovetail conformance",
        client_id=CONTEXT.get("client_id"),
        client_secret=CONTEXT.get("client_secret"),
        issuer=CONTEXT.get("issuer"),
        client_metadata_url=DOCUMENT,
        browser=OwnBrowser(REDIRECT, consent),
    )


async def main(url: str, scenario: str) -> None:
    auth = authorizer(scenario)
    # A model and roots are declared so that the suite can judge the declaration.
    client = Client.http(
        url, auth=auth, revision=REVISION, on_sample=lambda params: "a word", roots=[]
    )

    @client.on_elicit
    def accept(question: Any) -> Any:
        """Yes to everything that has no default."""
        return {name: True for name in question.required if name not in question.defaults}

    async with client:
        await SCENARIOS.get(scenario, use)(client)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], os.environ["MCP_CONFORMANCE_SCENARIO"]))
