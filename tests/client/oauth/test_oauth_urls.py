"""Which addresses are safe: tables, no network."""

from __future__ import annotations

import pytest

from dovetail.client.oauth.fetch import redirected
from dovetail.client.oauth.messages import get, post_form
from dovetail.client.oauth.urls import (
    Depth,
    checked,
    covers,
    depth,
    depth_of_server,
    judge_addresses,
)
from dovetail.errors import AuthorizationError


@pytest.mark.verifies("C42", "X42")
@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,hello",
        "file:///etc/passwd",
        "vbscript:x",
        "ftp://as.example/",
        "unix:///run/docker.sock",
        "http://as.example/token",
        "http://10.0.0.1/token",
        "http://127.0.0.1.evil.example/",
        "http://localhost.evil.example/",
        "https://",
        "https:///token",
        "https://as.example:0/",
        "https://as.example:99999/",
        "https://as.example:port/",
        "https://user@as.example/",
        "https://user:secret@as.example/",
        "https://as.example/#fragment",
        "https://as.example/#",
        "https://as.example\\@evil.example/",
        "https://as.example/a b",
        "https://as.example/\r\nX-Evil: 1",
        "https://as.example/\t",
        " https://as.example/",
        "https://ás.example/",
        "https://[::1/",
        "https://[fe80::1%25eth0]/",
        "https://%6cocalhost/",
        "https://as..example/",
        "https://as.example../",
        "https://.example/",
        "https://*.example/",
        "https://as.example,evil.example/",
        "//as.example/token",
        "token",
        "",
        None,
        7,
        "https://as.example/" + "a" * 2048,
    ],
)
def test_refused(url: object) -> None:
    with pytest.raises(AuthorizationError, match="is not safe"):
        checked(url, "token_endpoint")


@pytest.mark.parametrize(
    "url",
    [
        "https://as.example",
        "https://As.Example./",
        "https://my_service/",
        "https://xn--bcher-kva.example/",
        "https://[2606:4700::1111]/",
        "https://as.example:8443/realms/a/token?tenant=1",
        "http://localhost:3000/token",
        "http://as.localhost/token",
        "http://127.0.0.1:3000/",
        "http://[::1]:3000/",
    ],
)
def test_accepted_as_it_is(url: str) -> None:
    assert checked(url, "token_endpoint") == url


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("93.184.216.34", Depth.PUBLIC),
        ("2606:4700::1111", Depth.PUBLIC),
        ("10.1.2.3", Depth.PRIVATE),
        ("172.16.0.1", Depth.PRIVATE),
        ("192.168.1.1", Depth.PRIVATE),
        ("100.64.0.1", Depth.PRIVATE),
        ("fd00::1", Depth.PRIVATE),
        ("::ffff:10.0.0.1", Depth.PRIVATE),
        ("64:ff9b::a00:1", Depth.PRIVATE),
        ("2002:0a00:0001::1", Depth.PRIVATE),
        ("127.0.0.1", Depth.LOOPBACK),
        ("127.255.0.9", Depth.LOOPBACK),
        ("::1", Depth.LOOPBACK),
        ("::ffff:127.0.0.1", Depth.LOOPBACK),
        ("64:ff9b::7f00:1", Depth.LOOPBACK),
        ("169.254.169.254", None),
        ("::ffff:169.254.169.254", None),
        ("64:ff9b::a9fe:a9fe", None),
        ("fe80::1%eth0", None),
        ("0.0.0.0", None),
        ("::", None),
        ("224.0.0.1", None),
        ("255.255.255.255", None),
        ("240.0.0.1", None),
    ],
)
def test_depth(address: str, where: Depth | None) -> None:
    assert depth(address) is where


@pytest.mark.parametrize(
    ("server", "private_network", "allowed"),
    [
        ("https://mcp.example/mcp", False, Depth.PUBLIC),
        ("https://mcp.example/mcp", True, Depth.PRIVATE),
        ("https://10.0.0.7/mcp", False, Depth.PRIVATE),
        ("https://93.184.216.34/mcp", False, Depth.PUBLIC),
        ("http://localhost:8000/mcp", False, Depth.LOOPBACK),
        ("http://[::1]:8000/mcp", False, Depth.LOOPBACK),
    ],
)
def test_how_far_inside_a_server_may_point(
    server: str, private_network: bool, allowed: Depth
) -> None:
    assert depth_of_server(server, private_network) is allowed


def test_one_inner_address_among_many_is_enough_to_refuse() -> None:
    judge_addresses("https://as.example", ["93.184.216.34"], Depth.PUBLIC)
    with pytest.raises(AuthorizationError, match=r"10\.0\.0\.1"):
        judge_addresses("https://as.example", ["93.184.216.34", "10.0.0.1"], Depth.PUBLIC)
    with pytest.raises(AuthorizationError, match=r"169\.254"):
        judge_addresses("http://localhost", ["169.254.169.254"], Depth.LOOPBACK)


@pytest.mark.parametrize(
    ("resource", "server", "covered"),
    [
        ("https://a.example/mcp", "https://a.example/mcp", True),
        ("https://a.example", "https://a.example/mcp", True),
        ("https://a.example/", "https://a.example/mcp", True),
        ("https://A.example:443/mcp", "https://a.example/mcp", True),
        ("https://a.example/mcp", "https://a.example/mcp/notes", True),
        ("https://a.example/mcp", "https://a.example/mcpx", False),
        ("https://a.example/mcp/notes", "https://a.example/mcp", False),
        ("https://b.example/mcp", "https://a.example/mcp", False),
        ("https://a.example:8443/mcp", "https://a.example/mcp", False),
        ("https://a.example.evil.example", "https://a.example/mcp", False),
    ],
)
def test_covers(resource: str, server: str, covered: bool) -> None:
    assert covers(resource, server) is covered


def test_redirects_are_for_reading_and_stay_at_home() -> None:
    url = "https://as.example/.well-known/x"
    assert redirected(get(url), url, "/.well-known/x/") == url + "/"
    for location in (
        "https://evil.example/",
        "//evil.example/",
        "http://as.example/",
        "https://as.example:8443/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://as.example@evil.example/",
        "http://169.254.169.254/latest/meta-data",
    ):
        with pytest.raises(AuthorizationError):
            redirected(get(url), url, location)
    with pytest.raises(AuthorizationError, match="must not be redirected"):
        redirected(post_form(url, {}, {}), url, "/token/")
