"""The page a browser is sent back to: one answer, from the right place, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import pytest

from dovetail.client.oauth import LoopbackBrowser, OwnBrowser
from dovetail.errors import AuthorizationError
from support import run


async def raw(uri: str, request: bytes) -> bytes:
    """Send bytes to the receiver, as anybody on this machine could."""
    parts = urlsplit(uri)
    reader, writer = await asyncio.open_connection("127.0.0.1", parts.port)
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def get(uri: str, target: str, host: str | None = None) -> bytes:
    host = urlsplit(uri).netloc if host is None else host
    return await raw(uri, f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


def asking(visitor: Callable[[str], Awaitable[None]], uri: str = "http://127.0.0.1:0/cb") -> str:
    """What ``ask`` returns while somebody visits the redirect URI."""

    async def main() -> str:
        async with LoopbackBrowser(uri, opener=lambda url: True, seconds=10).visit(()) as visit:
            asked = asyncio.create_task(visit.ask("https://as.example/?state=S", "S"))
            await asyncio.sleep(0)
            await visitor(visit.redirect_uri)
            return await asked

    return run(main())


def test_the_answer_comes_back_whole() -> None:
    async def visitor(uri: str) -> None:
        page = await get(uri, "/cb?state=S&code=%20x")
        assert page.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Security-Policy: default-src 'none'" in page
        assert b"code" not in page.partition(b"\r\n\r\n")[2], "nothing that was sent is shown"

    callback = asking(visitor)
    assert urlsplit(callback).query == "state=S&code=%20x"


@pytest.mark.verifies("C50")
def test_only_the_answer_to_our_question_counts() -> None:
    async def visitor(uri: str) -> None:
        assert b" 404 " in await get(uri, "/favicon.ico")
        assert b" 404 " in await get(uri, "/cb/?state=S&code=1")
        assert b" 404 " in await raw(uri, b"POST /cb?state=S HTTP/1.1\r\n\r\n")
        assert b" 400 " in await get(uri, "/cb?state=T&code=evil")
        assert b" 400 " in await get(uri, "/cb?code=evil")
        assert b" 400 " in await get(uri, "/cb?state=S&state=S&code=evil")
        assert b" 403 " in await get(uri, "/cb?state=S&code=evil", "evil.example")
        assert b" 403 " in await raw(uri, b"GET /cb?state=S&code=evil HTTP/1.1\r\n\r\n")
        assert await raw(uri, b"x" * 70_000 + b"\r\n\r\n") == b""
        assert b" 404 " in await raw(uri, b"\r\n\r\n")
        assert b" 404 " in await raw(uri, b"\xff\xfe \x00\r\n\r\n")
        assert b" 200 " in await get(uri, "/cb?state=S&code=good")
        assert b" 400 " in await get(uri, "/cb?state=S&code=late")

    assert asking(visitor).endswith("code=good")


def test_other_ways_to_write_this_machine() -> None:
    async def visitor(uri: str) -> None:
        assert urlsplit(uri).hostname == "localhost"
        assert b" 200 " in await get(uri, "/cb?state=S&code=1")

    assert asking(visitor, "http://localhost:0/cb").startswith("http://localhost:")


def test_the_registered_port_is_taken_again_if_it_is_free() -> None:
    async def main() -> None:
        browser = LoopbackBrowser()
        async with browser.visit(()) as first:
            uri = first.redirect_uri
            async with browser.visit([uri]) as second:
                assert second.redirect_uri != uri, "taken"
        async with browser.visit(["http://other.example:80/callback", uri]) as again:
            assert again.redirect_uri == uri
        async with LoopbackBrowser("http://127.0.0.1:0/elsewhere").visit([uri]) as other:
            assert urlsplit(other.redirect_uri).port != urlsplit(uri).port

    run(main())


def test_a_fixed_port_that_is_taken() -> None:
    async def main() -> None:
        async with LoopbackBrowser().visit(()) as first:
            with pytest.raises(AuthorizationError, match="cannot listen"):
                async with LoopbackBrowser(first.redirect_uri).visit(()):
                    pass

    run(main())


def test_nobody_answers() -> None:
    async def main() -> None:
        async with LoopbackBrowser(opener=lambda url: True, seconds=0.01).visit(()) as visit:
            with pytest.raises(AuthorizationError, match="nobody answered"):
                await visit.ask("https://as.example/", "S")

    run(main())


def test_no_browser() -> None:
    async def main() -> None:
        async with LoopbackBrowser(opener=lambda url: False).visit(()) as visit:
            with pytest.raises(AuthorizationError, match="no browser could be opened"):
                await visit.ask("https://as.example/", "S")

    run(main())


def test_connections_that_only_wait_end_with_the_visit() -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        async with LoopbackBrowser(opener=lambda url: True).visit(()) as visit:
            port = urlsplit(visit.redirect_uri).port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /callback")
            await writer.drain()
            # Connections are taken in order: once this one is answered, the first is there.
            assert b" 404 " in await get(visit.redirect_uri, "/favicon.ico")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert asyncio.all_tasks() == before

    run(main())


@pytest.mark.parametrize("uri", ["https://127.0.0.1/cb", "http://app.example/cb", "x"])
def test_a_receiver_stays_on_this_machine(uri: str) -> None:
    with pytest.raises(ValueError, match="loopback redirect URI"):
        LoopbackBrowser(uri)


def test_a_page_of_ones_own() -> None:
    async def main() -> None:
        async def ask(url: str) -> str:
            return f"https://app.example/cb?seen={url}"

        async with OwnBrowser("https://app.example/cb", ask).visit(()) as visit:
            assert visit.redirect_uri == "https://app.example/cb"
            assert await visit.ask("u", "S") == "https://app.example/cb?seen=u"

    run(main())


@pytest.mark.verifies("C42")
def test_no_shell_sees_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """The opener hands the URL to the desktop as one argument, whatever is in it."""
    import subprocess
    import webbrowser

    from dovetail.client.oauth.browser import open_browser

    seen = []

    class Process:
        def __init__(self, command: list[str], **options: object) -> None:
            seen.append((command, options.get("shell", False)))

        def wait(self, timeout: float | None = None) -> int:
            return 0

        def poll(self) -> int:
            return 0

    url = "https://as.example/?a=$(id)&b=`id`;id"
    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(webbrowser, "_tryorder", ["x"])
    monkeypatch.setattr(webbrowser, "_browsers", {"x": [None, webbrowser.GenericBrowser("true")]})
    monkeypatch.setattr(webbrowser, "_os_preferred_browser", None)
    assert open_browser(url)
    assert seen == [(["true", url], False)]
