"""What threads and tasks do is told with their names and places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from koordinator.base.profiling import running_stacks


async def waits(event: asyncio.Event) -> None:
    await event.wait()


async def through(event: asyncio.Event) -> None:
    await waits(event)


async def numbers(event: asyncio.Event) -> AsyncIterator[int]:
    await waits(event)
    yield 1


async def iterates(event: asyncio.Event) -> None:
    async for _ in numbers(event):
        pass


def stacks_beside(make: object) -> dict[str, list[str]]:
    async def scenario() -> dict[str, list[str]]:
        event = asyncio.Event()
        task = asyncio.create_task(make(event), name="the task")  # type: ignore[operator]
        await asyncio.sleep(0)
        found = {
            title: [frame.function.removeprefix(f"{__name__}.") for frame in stack] for title, stack in running_stacks()
        }
        event.set()
        await task
        return found

    return asyncio.run(scenario())


def test_a_task_is_shown_from_what_it_waits_for_to_where_it_began() -> None:
    assert stacks_beside(through)["task the task"] == ["asyncio.locks.Event.wait", "waits", "through"]


def test_a_task_is_shown_as_far_as_python_reports_what_it_iterates_over() -> None:
    assert stacks_beside(iterates)["task the task"][-1] == "iterates"


def test_the_thread_that_asks_is_among_the_threads() -> None:
    found = stacks_beside(through)
    assert any(
        functions[0].endswith(".profiling.running_stacks")
        for title, functions in found.items()
        if title.startswith("thread ")
    )


def test_the_task_that_asks_is_seen_as_a_thread_only() -> None:
    assert [title for title in stacks_beside(through) if title.startswith("task ")] == ["task the task"]
