"""Servers as child processes: how they start, die and are ended."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Limits
from dovetail.client.negotiate import Verdicts
from dovetail.errors import ConnectionClosed, RemoteProtocolError
from dovetail.transport.process import Process
from support import run

HERE = Path(__file__).parent
UNRULY = str(HERE / "unruly.py")


def unruly(mode: str, step: float = 0.2, **options: Any) -> Client:
    options.setdefault("known", Verdicts())
    settings = {k: options.pop(k) for k in ("env", "cwd", "stderr", "inherit_env") if k in options}
    process = Process(sys.executable, [UNRULY, mode], step_seconds=step, **settings)
    return Client(process, **options)


def alive(pid: int) -> bool:
    """Not gone, and no zombie either."""
    with suppress(OSError):
        return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
    return False


def pid_of(client: Client) -> int:
    process = client._transport
    assert isinstance(process, Process)
    assert process.pid is not None
    return process.pid


@pytest.mark.parametrize("revision", [None, "2024-11-05", "2025-11-25", "2026-07-28"])
@pytest.mark.verifies("C28")
def test_our_own_server(revision: str | None, tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        "from dovetail import Server\n"
        "server = Server('own')\n"
        "@server.tool\n"
        "async def double(n: int) -> int:\n"
        "    return 2 * n\n"
        "server.run()\n"
    )

    async def main() -> int:
        async with Client.stdio(sys.executable, str(server), revision=revision) as client:
            assert client.revision == (revision or "2026-07-28")
            assert (await client.call("double", {"n": 4}, returns=int)).value == 8
            calls = [client.call("double", {"n": n}, returns=int) for n in range(100)]
            results = await asyncio.gather(*calls)
            assert [r.value for r in results] == [2 * n for n in range(100)]
            return pid_of(client)

    assert not alive(run(main()))


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("dies-at-once", "exited with code 3; it said last:\nno such luck"),
        ("dies-in-probe", "exited with code 3; it said last:\nprobed to death"),
        ("dies-in-handshake", "exited with code 3; it said last:\nshaken"),
    ],
)
def test_death_before_the_first_call(mode: str, words: str) -> None:
    async def main() -> None:
        client = unruly(mode, stderr=None)
        with pytest.raises(ConnectionClosed) as caught:
            async with client:
                pass
        assert words in str(caught.value)
        assert not alive(pid_of(client))

    run(main())


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("dies-in-call", "exited with code 7; it said last:\nTraceback: it was the tool"),
        ("killed-in-call", "was ended by SIGKILL"),
        ("half-an-answer", "exited with code 3; it said last:\nhalf"),
    ],
)
def test_death_fails_every_waiting_call_at_once(mode: str, words: str) -> None:
    async def main() -> None:
        async with unruly(mode, timeout=None) as client:
            calls = [asyncio.ensure_future(client.call("t")) for _ in range(5)]
            await asyncio.wait(calls)
            for call in calls:
                with pytest.raises(ConnectionClosed) as caught:
                    call.result()
                assert words in str(caught.value)
            with pytest.raises(ConnectionClosed) as caught:
                await client.call("t")
            assert words in str(caught.value)

    run(main())


@pytest.mark.verifies("SH-restart")
def test_a_server_that_died_is_started_again_if_wished() -> None:
    async def main() -> None:
        async with unruly("fine", reconnect=True, stderr=None) as client:
            first = pid_of(client)
            os.kill(first, 9)
            await client.session.connection.ended
            assert (await client.call("t")).text == "fine"
            assert pid_of(client) != first
            assert not alive(first)

    run(main())


def test_silence_at_the_start_times_out() -> None:
    async def main() -> None:
        client = unruly("silent", timeout=0.2, probe_seconds=0.05)
        with pytest.raises(TimeoutError, match="initialize"):
            async with client:
                pass
        assert not alive(pid_of(client))

    run(main())


@pytest.mark.parametrize("mode", ["closes-stdout", "closes-stdin"])
def test_a_server_that_hangs_up_but_lives_on(mode: str) -> None:
    async def main() -> None:
        client = unruly(mode, timeout=5)
        with pytest.raises((ConnectionClosed, TimeoutError)):
            async with client:
                pass
        assert not alive(pid_of(client))

    run(main())


@pytest.mark.parametrize("mode", ["fine", "deaf", "stubborn"])
def test_the_ladder_ends_everyone(mode: str) -> None:
    async def main() -> int:
        async with unruly(mode) as client:
            assert (await client.call("t")).text == "fine"
            return pid_of(client)

    assert not alive(run(main()))


def test_no_grandchild_is_left() -> None:
    async def main() -> list[int]:
        heard = io.BytesIO()
        async with unruly("family", stderr=heard) as client:
            await client.call("t")
            kids = [int(word) for word in heard.getvalue().split()]
            assert len(kids) == 2
            assert all(map(alive, kids))
        return kids

    assert not any(map(alive, run(main())))


def test_the_child_has_a_process_group_of_its_own() -> None:
    async def main() -> None:
        async with unruly("fine") as client:
            assert os.getpgid(pid_of(client)) == pid_of(client) != os.getpgid(0)

    run(main())


def test_garbage_between_the_messages_is_ignored() -> None:
    async def main() -> None:
        async with unruly("garbage") as client:
            assert (await client.call("t")).text == "fine"

    run(main())


def test_a_line_without_end_fails_its_call_only() -> None:
    async def main() -> None:
        async with unruly("endless-line", limits=Limits(max_frame=1_000_000)) as client:
            with pytest.raises(RemoteProtocolError, match="longer than 1000000 bytes"):
                await client.call("t")
            await client.tools.all()

    run(main())


def test_stderr_goes_where_the_caller_wants_and_is_never_a_bottleneck() -> None:
    async def main() -> None:
        heard: list[bytes] = []
        async with unruly("chatty", stderr=heard.append) as client:
            await client.call("t")
        assert b"".join(heard).endswith(b"last words\n")
        async with unruly("chatty", stderr=lambda data: 1 / 0) as client:
            assert (await client.call("t")).text == "fine"

    run(main())


def test_environment_and_directory(tmp_path: Path) -> None:
    async def main() -> None:
        os.environ["UNRULY"] = "inherited"
        try:
            async with unruly("fine", cwd=tmp_path) as client:
                assert (await client.call("t")).text == "inherited"
            async with unruly("fine", env={"UNRULY": "given"}) as client:
                assert (await client.call("t")).text == "given"
            few = {"PATH": os.environ["PATH"]}
            async with unruly("fine", env=few, inherit_env=False) as client:
                assert (await client.call("t")).text == "fine"
        finally:
            del os.environ["UNRULY"]

    run(main())


@pytest.mark.parametrize("command", ["no-such-command-anywhere", "/etc/passwd", ""])
def test_what_cannot_be_started(command: str) -> None:
    async def main() -> None:
        with pytest.raises(ConnectionClosed, match=r"no command|could not be started"):
            async with Client.stdio(command):
                pass

    run(main())


def test_closing_twice_and_from_elsewhere() -> None:
    async def main() -> None:
        client = unruly("fine")
        await client.__aenter__()
        pid = pid_of(client)
        await asyncio.gather(client.close(), asyncio.create_task(client.close()))
        await client.close()
        assert not alive(pid)

    run(main())


def test_many_servers_leave_no_descriptor_and_no_process() -> None:
    async def main() -> None:
        async def once() -> None:
            async with unruly("fine") as client:
                await client.call("t")

        await once()
        before = set(os.listdir("/proc/self/fd"))
        for _ in range(5):
            await asyncio.gather(*(once() for _ in range(4)))
        assert len(os.listdir("/proc/self/fd")) <= len(before)

    run(main())
