"""A coroutine in the task that is already there: its first step, and the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.runtime.steps import begin, resumed
from support import run


async def whole(work: Any) -> tuple[bool, Any]:
    """Whether it never waited, and its result."""
    done, value = begin(work)
    return done, value if done else await resumed(work, value)


def test_one_that_never_waits_is_done_by_its_first_step() -> None:
    async def work() -> str:
        return "at once"

    assert begin(work()) == (True, "at once")


def test_one_that_waits_goes_on_in_the_same_task() -> None:
    async def work() -> list[Any]:
        seen = [asyncio.current_task()]
        for _ in range(3):
            await asyncio.sleep(0)
            seen.append(asyncio.current_task())
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            seen.append(await group.create_task(asyncio.sleep(0, "inner")))
        return seen

    async def main() -> None:
        done, seen = await whole(work())
        assert not done
        assert seen == [asyncio.current_task()] * 4 + ["inner"]

    run(main())


@pytest.mark.parametrize("waits", [0, 1, 2])
def test_what_it_raises_comes_out(waits: int) -> None:
    async def work() -> None:
        for _ in range(waits):
            await asyncio.sleep(0)
        raise LookupError(waits)

    async def main() -> None:
        with pytest.raises(LookupError, match=str(waits)):
            await whole(work())

    run(main())


def test_a_cancellation_goes_in_and_may_be_answered() -> None:
    log: list[str] = []

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.append("cleaning up")
            await asyncio.sleep(0)
            log.append("clean")
            raise
        return "never"

    async def main() -> None:
        task = asyncio.create_task(whole(work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log == ["cleaning up", "clean"]

    run(main())


def test_a_timeout_around_the_rest_counts_from_the_first_wait() -> None:
    async def main() -> None:
        work = asyncio.Event().wait()
        done, waits_for = begin(work)
        assert not done
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await resumed(work, waits_for)

    run(main())
