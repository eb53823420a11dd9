"""docs/auth.md says what is so: its programs run, its limits are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dovetail.ext import auth, auth_jwks, auth_jwt
from dovetail.ext.auth import AccessToken, InvalidToken
from dovetail.transport.http.auth import Principal, Rejection
from support import run

PAGE = (Path(__file__).parents[2] / "docs" / "auth.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def program(number: int, **names: Any) -> dict[str, Any]:
    exec(compile(PROGRAMS[number], f"docs/auth.md, {number}", "exec"), names)  # noqa: S102
    return names


def test_the_protected_server_is_one() -> None:
    made = program(0)
    policy = made["auth"]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": []}
    rejection = run(policy.authenticate(scope))
    assert isinstance(rejection, Rejection)
    challenge = dict(rejection.headers)[b"www-authenticate"].decode()
    assert 'scope="notes:read"' in challenge
    assert "https://mcp.example.org/.well-known/oauth-protected-resource/mcp" in challenge
    assert "https://mcp.example.org/.well-known/oauth-protected-resource/mcp" in PAGE
    reader = Principal("ann", frozenset(["notes:read"]))
    assert policy.allows(reader, "tools/call", "whoami") is None
    refused = policy.allows(reader, "tools/call", "write")
    assert b'scope="notes:read notes:write"' in dict(refused.headers)[b"www-authenticate"]


@pytest.mark.parametrize("active", [True, False])
def test_a_verifier_is_one_method(active: bool) -> None:
    async def ask_the_issuer(token: str) -> dict[str, Any]:
        return {"active": active, "sub": "ann", "aud": ["me"]}

    made = program(1, ask_the_issuer=ask_the_issuer)
    if active:
        found = run(made["Introspection"]().verify("t"))
        assert found == AccessToken(subject="ann", audience=frozenset(["me"]))
    else:
        with pytest.raises(InvalidToken):
            run(made["Introspection"]().verify("t"))


def test_the_limits_are_those_of_the_code() -> None:
    table = dict(re.findall(r"^\| `([^|]+?)` \| (.+?) \|", PAGE, re.MULTILINE))
    said = {
        "auth.MAX_TOKEN": f"{auth.MAX_TOKEN // 1024} KiB",
        "auth_jwt.LEEWAY": f"{auth_jwt.LEEWAY:g} s",
        "auth_jwt.MAX_REMEMBERED": f"{auth_jwt.MAX_REMEMBERED:,}",
        "auth_jwks.MAX_DOCUMENT": f"{auth_jwks.MAX_DOCUMENT // 1024} KiB",
        "auth_jwks.FETCH_SECONDS": f"{auth_jwks.FETCH_SECONDS:g} s",
        "auth_jwks.MIN_INTERVAL": f"{auth_jwks.MIN_INTERVAL:g} s",
        "auth_jwks.MAX_AGE`, `MAX_STALE": f"{auth_jwks.MAX_AGE / 3600:g} h,"
        f" {auth_jwks.MAX_STALE / 3600:g} h",
    }
    assert {name: table[name] for name in said} == said
