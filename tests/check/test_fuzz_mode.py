"""`--fuzz` finds what kills a server, makes it small, and prints how to see it again."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest
from zoo import FRAGILE

from dovetail.check.fuzz import Failure, fuzz
from dovetail.check.mutate import mutate
from dovetail.check.paste import curl, pipe
from dovetail.check.target import StdioTarget
from dovetail.spec.revisions import BY_ID

ZOO = [sys.executable, str(Path(__file__).with_name("zoo.py"))]
D, E = BY_ID["2025-11-25"], BY_ID["2026-07-28"]
GOOD = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}'


def run(command: list[str], rounds: int, seed: int = 0) -> Failure | None:
    return asyncio.run(fuzz(StdioTarget(command), D, rounds, seed))


def test_a_good_server_lives() -> None:
    assert run(ZOO, 60) is None


def test_a_fragile_server_is_found_out_by_one_frame() -> None:
    command = [*ZOO, FRAGILE]
    failure = run(command, 300)
    assert failure is not None
    assert "status 7" in failure.what
    assert len(failure.frames) == 1
    again = run(command, 300)
    assert again == failure  # the seed decides
    pasted = pipe(command, D, failure.frames)
    assert subprocess.run(["bash", "-c", f"set -o pipefail; {pasted}"], timeout=30).returncode == 7


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, second = random.Random("1/2"), random.Random("1/2")
    frames = [mutate(GOOD, first) for _ in range(200)]
    assert frames == [mutate(GOOD, second) for _ in range(200)]
    assert len(set(frames)) > 100
    assert all(b"\n" not in frame for frame in frames)


@pytest.mark.parametrize("frame", [b"a'b\\c\x00\xff%s", GOOD])
def test_what_is_pasted_arrives_as_it_was(frame: bytes) -> None:
    done = subprocess.run(
        ["bash", "-c", pipe(["cat"], E, [frame])], capture_output=True, timeout=30
    )
    assert done.stdout == frame + b"\n"


def test_a_curl_line() -> None:
    line = curl("http://h/mcp?a=1&b", {"accept": "x, y"}, b"{'}")
    assert line == (
        "printf '%b' '{\\0047}' | curl -sS -H 'accept: x, y' --data-binary @- 'http://h/mcp?a=1&b'"
    )
