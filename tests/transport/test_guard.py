"""Which names and origins a listening server accepts (digest S48)."""

import pytest

from dovetail.transport.guard import Guard, is_loopback

LOCAL = Guard.of("127.0.0.1")
PUBLIC = Guard.of("0.0.0.0", hosts=["mcp.example"], origins=["https://App.example/"])


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:80", "LOCALHOST:3"]
)
def test_loopback_is_known_by_its_names(host: str) -> None:
    assert LOCAL.refuse([host], []) is None


@pytest.mark.parametrize(
    ("hosts", "origins"),
    [
        ([], []),
        (["localhost", "localhost"], []),
        (["localhost"], ["http://localhost", "http://localhost"]),
        (["evil.example"], []),
        (["localhost.evil.example:8000"], []),
        (["192.0.2.1"], []),
        (["[::1"], []),
        ([""], []),
        (["localhost"], ["http://evil.example"]),
        (["localhost"], ["null"]),
        (["localhost"], [""]),
        (["localhost"], ["file://"]),
        (["localhost"], ["chrome-extension://localhost"]),
        (["localhost"], ["http://[::1"]),
    ],
)
def test_what_a_server_on_loopback_refuses(hosts: list[str], origins: list[str]) -> None:
    assert LOCAL.refuse(hosts, origins)


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:1"])
def test_pages_of_the_same_machine_may_use_it(origin: str) -> None:
    assert LOCAL.refuse(["localhost:8000"], [origin]) is None


def test_a_public_server_knows_its_names_and_its_numbers() -> None:
    assert PUBLIC.refuse(["mcp.example"], []) is None
    assert PUBLIC.refuse(["192.0.2.1:8000"], []) is None
    assert PUBLIC.refuse(["mcp.example"], ["https://app.example"]) is None
    assert PUBLIC.refuse(["mcp.example"], ["https://mcp.example"]) is None
    refusal = PUBLIC.refuse(["proxy.example:443"], [])
    assert refusal is not None
    assert "--allow-host proxy.example" in refusal
    refusal = PUBLIC.refuse(["mcp.example"], ["https://other.example"])
    assert refusal is not None
    assert "--allow-origin https://other.example" in refusal


def test_a_star_allows_everything() -> None:
    guard = Guard.of("0.0.0.0", hosts=["*"], origins=["*"])
    assert guard.refuse(["anything"], ["https://any.where"]) is None


def test_loopback() -> None:
    assert [is_loopback(h) for h in ("localhost", "127.0.0.2", "::1")] == [True] * 3
    assert [is_loopback(h) for h in ("0.0.0.0", "::", "example.org", "")] == [False] * 4
