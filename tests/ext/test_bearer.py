"""Who is let in by ``BearerAuth``, and what the others are told (RFC 6750, RFC 9728)."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from dovetail import Server
from dovetail.ext.auth import (
    MAX_TOKEN,
    AccessToken,
    BearerAuth,
    InvalidToken,
    StaticTokens,
    VerifierUnavailable,
)
from dovetail.transport.http.auth import HttpAnswer, Principal, Rejection
from support import run

RESOURCE = "https://mcp.example.org/mcp"
METADATA = "https://mcp.example.org/.well-known/oauth-protected-resource/mcp"
ISSUER = "https://auth.example.org"
NOW = 1_800_000_000.0


def token(*scopes: str, **changed: Any) -> AccessToken:
    given = {"subject": "ann", "issuer": ISSUER, "audience": frozenset([RESOURCE])}
    return AccessToken(**{**given, "scopes": frozenset(scopes), **changed})


TOKENS = {
    "good": token("mcp"),
    "late": token("mcp", expires_at=NOW),
    "timely": token("mcp", expires_at=NOW + 1),
    "strange": token("mcp", audience=frozenset(["https://other.example.org/mcp"])),
    "slash": token("mcp", audience=frozenset([RESOURCE + "/"])),
    "nobodys": token("mcp", audience=frozenset()),
    "weak": token("other"),
    "writer": token("mcp", "files:write"),
    "admin": token("mcp", "admin"),
}


def auth(server: Server | None = None, verifier: Any = None, **options: Any) -> BearerAuth:
    given = {"resource": RESOURCE, "authorization_servers": [ISSUER], "scopes": ["mcp"]}
    return BearerAuth(
        server or Server("files"),
        verifier or StaticTokens(TOKENS),
        **{**given, "clock": lambda: NOW, **options},
    )


def scope(*authorizations: str, **changed: Any) -> dict[str, Any]:
    headers = [(b"host", b"mcp.example.org")]
    headers += [(b"authorization", value.encode()) for value in authorizations]
    return {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, **changed}


def ask(*authorizations: str, **options: Any) -> Principal | Rejection:
    return run(auth(**options).authenticate(scope(*authorizations)))


def challenge(rejection: Any) -> dict[str, str]:
    assert isinstance(rejection, Rejection)
    (header,) = [value for name, value in rejection.headers if name == b"www-authenticate"]
    scheme, _, rest = header.decode().partition(" ")
    assert scheme == "Bearer"
    found = re.findall(r'(\w+)="([^"\\]*)"(?:, |$)', rest)
    assert ", ".join(f'{key}="{value}"' for key, value in found) == rest
    return dict(found)


@pytest.mark.parametrize("written", ["Bearer good", "bearer good", "BEARER  good ", " Bearer good"])
def test_a_token_for_us_is_let_in(written: str) -> None:
    assert ask(written) == Principal(f"{ISSUER} ann", frozenset(["mcp"]), {})


@pytest.mark.verifies("S65", "S68")
@pytest.mark.parametrize("headers", [(), ("Basic Z29vZA==",), ("good",), ("Digest a=b",)])
def test_without_a_token_one_is_told_where_to_get_it(headers: tuple[str, ...]) -> None:
    rejection = ask(*headers)
    assert challenge(rejection) == {"scope": "mcp", "resource_metadata": METADATA}
    assert (rejection.status, rejection.body) == (401, b"{}")  # type: ignore[union-attr]


@pytest.mark.verifies("S65", "S69", "S70")
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("unknown", "The token is unknown"),
        ("late", "The token has expired"),
        ("strange", "The token was not issued for this server"),
        ("slash", "The token was not issued for this server"),
        ("nobodys", "The token was not issued for this server"),
    ],
)
def test_a_token_that_is_no_good_is_401(given: str, text: str) -> None:
    rejection = ask(f"Bearer {given}")
    said = {"error": "invalid_token", "error_description": text}
    assert challenge(rejection) == {**said, "scope": "mcp", "resource_metadata": METADATA}
    assert rejection.status == 401  # type: ignore[union-attr]
    assert json.loads(rejection.body) == said  # type: ignore[union-attr]


def test_a_token_is_good_until_it_expires() -> None:
    found = ask("Bearer timely")
    assert isinstance(found, Principal)
    assert found.expires_at == NOW + 1


@pytest.mark.verifies("S65")
@pytest.mark.parametrize(
    "headers",
    [
        ("Bearer good", "Bearer good"),
        ("Bearer good", "Basic x"),
        ("Bearer ",),
        ("Bearer",),
        ("Bearer good good",),
        ("Bearer gööd",),
        ('Bearer "good"',),
        ("Bearer good\x00",),
        ("Bearer =good",),
        ("Bearer " + "x" * (MAX_TOKEN + 1),),
    ],
)
def test_what_is_malformed_is_400(headers: tuple[str, ...]) -> None:
    rejection = ask(*headers)
    assert rejection.status == 400  # type: ignore[union-attr]
    assert challenge(rejection)["error"] == "invalid_request"


def test_the_longest_token_is_looked_at() -> None:
    rejection = ask("Bearer " + "x" * MAX_TOKEN)
    assert challenge(rejection)["error_description"] == "The token is unknown"


def test_a_token_in_the_query_is_not_seen() -> None:
    asked = scope(query_string=b"access_token=good")
    rejection = run(auth().authenticate(asked))
    assert isinstance(rejection, Rejection)
    assert rejection.status == 401


@pytest.mark.verifies("S65")
def test_every_request_needs_the_scopes_of_the_server() -> None:
    rejection = ask("Bearer weak")
    assert rejection.status == 403  # type: ignore[union-attr]
    assert challenge(rejection)["error"] == "insufficient_scope"
    assert challenge(rejection)["scope"] == "mcp"
    assert challenge(rejection)["resource_metadata"] == METADATA


def test_other_names_of_the_audience_replace_the_resource() -> None:
    names = {"audiences": ["https://other.example.org/mcp"]}
    assert isinstance(ask("Bearer strange", **names), Principal)
    assert isinstance(ask("Bearer good", **names), Rejection)


def test_who_a_principal_is_can_be_chosen() -> None:
    found = ask("Bearer good", principal=lambda token: token.subject.upper())
    assert isinstance(found, Principal)
    assert found.id == "ANN"


def test_two_issuers_may_have_the_same_subject() -> None:
    other = {
        "a": token("mcp", issuer="https://one.org"),
        "b": token("mcp", issuer="https://two.org"),
    }
    one, two = (ask(f"Bearer {name}", verifier=StaticTokens(other)) for name in "ab")
    assert one.id != two.id  # type: ignore[union-attr]


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def verify(self, token: str) -> AccessToken:
        raise self.error


@pytest.mark.parametrize(
    "error", [VerifierUnavailable("the issuer is away"), RuntimeError("a bug")]
)
def test_who_cannot_be_checked_may_come_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "dovetail"):
        rejection = ask("Bearer good", verifier=Failing(error))
    assert isinstance(rejection, Rejection)
    assert rejection.status == 503
    assert (b"retry-after", b"5") in rejection.headers
    assert str(error) not in rejection.body.decode()
    assert str(error) in caplog.text
    assert ("Traceback" in caplog.text) == isinstance(error, RuntimeError)


def test_what_a_verifier_says_cannot_break_the_header() -> None:
    rejection = ask("Bearer x", verifier=Failing(InvalidToken('no "way"\r\nSet-Cookie: ä\\')))
    assert challenge(rejection)["error_description"] == "no ?way???Set-Cookie: ??"


# -- scopes per tool -----------------------------------------------------------------------------


def files() -> Server:
    server = Server("files")
    server.tool(name="read", scopes=["files:read"])(lambda: "text")
    server.tool(name="write", scopes=["files:write", "files:read"])(lambda: "done")
    server.tool(name="time")(lambda: "12:00")
    return server


def needs(given: str, method: str, name: str | None, **options: Any) -> set[str]:
    """The scopes that are asked for, none if it is allowed."""
    server = options.pop("server", None) or files()
    policy = auth(server, **options)
    principal = run(policy.authenticate(scope(f"Bearer {given}")))
    assert isinstance(principal, Principal)
    rejection = policy.allows(principal, method, name)
    if rejection is None:
        return set()
    assert rejection.status == 403
    assert challenge(rejection)["error"] == "insufficient_scope"
    return set(challenge(rejection)["scope"].split(" "))


@pytest.mark.verifies("S65", "SH-scopes")
def test_a_tool_needs_its_scopes_and_all_are_named_at_once() -> None:
    assert needs("good", "tools/call", "time") == set()
    assert needs("good", "tools/call", "read") == {"mcp", "files:read"}
    assert needs("writer", "tools/call", "write") == {"mcp", "files:read", "files:write"}


def test_what_is_no_call_of_the_tool_needs_none_of_its_scopes() -> None:
    for method, name in [("tools/list", None), ("prompts/get", "read"), ("tools/call", "nobody")]:
        assert needs("good", method, name) == set()


@pytest.mark.verifies("S71")
def test_a_scope_may_contain_others() -> None:
    contains = {"admin": ["files:write"], "files:write": ["files:read"], "files:read": ["admin"]}
    assert needs("writer", "tools/call", "write", implies=contains) == set()
    assert needs("admin", "tools/call", "write", implies=contains) == set()
    assert needs("admin", "tools/call", "read", implies={"admin": ["other"]}) != set()
    everything = auth(scopes=["mcp"], implies={"root": ["all"], "all": ["mcp"]})
    everything._verifier = StaticTokens({"root": token("root")})
    assert isinstance(run(everything.authenticate(scope("Bearer root"))), Principal)


def test_a_policy_names_the_scopes_of_anything_else() -> None:
    def policy(method: str, name: str | None) -> list[str]:
        return ["files:read"] if name == "file:///etc" else []

    assert needs("good", "resources/read", "file:///etc", policy=policy) == {"mcp", "files:read"}
    assert needs("good", "resources/read", "file:///tmp", policy=policy) == set()
    assert needs("good", "tools/call", "read", policy=policy) == {"mcp", "files:read"}


def test_a_mounted_tool_keeps_its_scopes() -> None:
    house = Server("house")
    house.mount(files(), "f")
    assert needs("good", "tools/call", "f_read", server=house) == {"mcp", "files:read"}


# -- metadata ------------------------------------------------------------------------------------


def document(policy: BearerAuth, path: str, method: str = "GET") -> HttpAnswer | None:
    return policy.metadata(scope(path=path, method=method))


@pytest.mark.verifies("S67")
def test_the_metadata_say_where_tokens_come_from() -> None:
    answer = document(
        auth(scopes_supported=["mcp", "files:read"]), "/.well-known/oauth-protected-resource/mcp"
    )
    assert answer is not None
    assert answer.status == 200
    assert (b"content-type", b"application/json") in answer.headers
    assert (b"access-control-allow-origin", b"*") in answer.headers
    assert json.loads(answer.body) == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["files:read", "mcp"],
        "resource_name": "files",
    }


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        ("https://example.org", ""),
        ("https://example.org/", ""),
        ("https://example.org:8443/a/b", "/a/b"),
        ("http://localhost:8000/mcp", "/mcp"),
        ("http://[::1]:8000/mcp/", "/mcp/"),
    ],
)
def test_where_the_metadata_are(resource: str, path: str) -> None:
    policy = auth(resource=resource, scopes=())
    url = challenge(run(policy.authenticate(scope())))["resource_metadata"]
    origin = re.match(r"https?://[^/]+", resource)[0]  # type: ignore[index]
    assert url == f"{origin}/.well-known/oauth-protected-resource{path}"
    found = document(policy, f"/.well-known/oauth-protected-resource{path}")
    assert found is not None
    assert json.loads(found.body)["resource"] == resource, "as it was written"
    assert "scopes_supported" not in json.loads(found.body)
    assert document(policy, "/mcp") is None
    assert document(policy, "/.well-known/oauth-authorization-server") is None


def test_the_metadata_may_be_elsewhere() -> None:
    policy = auth(metadata_url="https://mcp.example.org/app/metadata")
    assert challenge(run(policy.authenticate(scope())))["resource_metadata"].endswith(
        "/app/metadata"
    )
    assert document(policy, "/app/metadata") is not None


def test_other_ways_to_ask_for_the_metadata() -> None:
    path = "/.well-known/oauth-protected-resource/mcp"
    policy = auth()
    head, options = document(policy, path, "HEAD"), document(policy, path, "OPTIONS")
    post = document(policy, path, "POST")
    assert head is not None
    assert (head.status, head.body) == (200, b"")
    assert options is not None
    assert options.status == 204
    assert post is not None
    assert (post.status, post.headers) == (405, ((b"allow", b"GET, HEAD, OPTIONS"),))
    assert policy.metadata({"type": "websocket", "path": path}) is None


# -- mistakes of the author -----------------------------------------------------------------------


@pytest.mark.verifies("SH-scopes")
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"authorization_servers": []}, "at least one issuer"),
        ({"authorization_servers": ISSUER}, "at least one issuer"),
        ({"authorization_servers": ["http://auth.example.org"]}, "must be https"),
        ({"resource": "http://mcp.example.org/mcp"}, "must be https"),
        ({"resource": "mcp.example.org"}, "no URL"),
        ({"resource": "https://mcp.example.org/mcp#x"}, "no URL"),
        ({"resource": 'https://mcp.example.org/"mcp'}, "no URL"),
        ({"scopes": ["two words"]}, "no scope"),
        ({"scopes": ["offline_access"]}, "offline_access"),
        ({"scopes_supported": ["offline_access"]}, "offline_access"),
        ({"implies": {"a": ["ä"]}}, "no scope"),
    ],
)
def test_a_wrong_setting_is_refused_at_once(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        auth(**wrong)


def test_scopes_of_a_tool_are_checked() -> None:
    server = Server("s")
    with pytest.raises(TypeError, match=re.escape("write ['files:read']")):
        server.tool(name="t", scopes="files:read")(lambda: "x")
    with pytest.raises(ValueError, match="no scope"):
        server.tool(name="t", scopes=[""])(lambda: "x")
