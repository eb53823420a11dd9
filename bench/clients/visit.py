"""What every client does in a visit: one call, calls in a row, calls at once. Not a library."""

import asyncio
import json
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

WINDOW = 128


async def visit(call: Callable[[int, int], Awaitable[Any]], started: float, plan: Any) -> None:
    """Measure ``call(a, b) -> a + b`` and print the figures as one line of JSON."""
    assert await call(1, 2) == 3
    opened = time.perf_counter() - started
    await _at_once(call, plan["warm_up"])
    times = []
    for number in range(plan["in_a_row"]):
        before = time.perf_counter()
        assert await call(number, 1) == number + 1
        times.append(time.perf_counter() - before)
    busy = time.process_time()
    rate = plan["at_once"] / await _at_once(call, plan["at_once"])
    busy = (time.process_time() - busy) / plan["at_once"]
    figures = {
        "opened": opened,
        "p50": statistics.median(times),
        "rate": rate,
        "busy": busy,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(figures))


async def _at_once(call: Callable[[int, int], Awaitable[Any]], count: int) -> float:
    """Seconds for so many calls with WINDOW of them under way."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            assert await call(number, 2) == number + 2

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(min(WINDOW, count))))
    return time.perf_counter() - started


def plan() -> Any:
    return json.loads(sys.argv[1])
