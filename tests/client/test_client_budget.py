"""What a call of the client costs, counted: calls, tasks and timers, not seconds."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

from clientkit import Line, over, script, stamped

from support import run

CALLS = 200
# Python functions per call on the client's side, with this test's own. Raise it only with a
# reason in docs/design.md.
BUDGET = 45


def serve(message: dict[str, Any], line: Line) -> None:
    answer = {**stamped(), "content": [{"type": "text", "text": "3"}], "structuredContent": 3}
    line.result(message, answer)


def test_a_plain_call_is_one_coroutine_no_task_and_no_timer() -> None:
    async def main() -> None:
        tool = {
            "name": "add",
            "inputSchema": {"type": "object"},
            "outputSchema": {"type": "integer"},
        }
        async with over(script(serve, revision="2026-07-28", tools=[tool])) as client:
            await client.call("add", {"a": 1})
            loop = asyncio.get_running_loop()
            tasks, timers = [], []
            loop.set_task_factory(
                lambda loop, coro, **more: (
                    tasks.append(coro) or asyncio.Task(coro, loop=loop, **more)
                )
            )
            call_at = loop.call_at
            loop.call_at = lambda *a, **k: timers.append(a) or call_at(*a, **k)  # type: ignore[method-assign]
            count = 0

            def count_calls(frame: FrameType, event: str, argument: Any) -> None:
                nonlocal count
                inside = frame.f_code.co_filename
                count += event == "call" and "dovetail" in inside

            sys.setprofile(count_calls)
            try:
                for number in range(CALLS):
                    assert (await client.call("add", {"a": number})).value == 3
            finally:
                sys.setprofile(None)
            loop.set_task_factory(None)
            assert not tasks
            assert not timers
            assert count / CALLS <= BUDGET, count / CALLS

    run(main())
