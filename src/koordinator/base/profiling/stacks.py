"""What every thread and every task of a program is doing at this moment."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

from koordinator.base.profiling.profile import MOST_FRAMES, Frame, Stack, place_of, places_from


def running_stacks() -> Iterator[tuple[str, Stack]]:
    """A title and a stack for each thread, then for each task of the running event loop that waits for something."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}", tuple(place.frame for place in places_from(frame))
    current = asyncio.current_task()
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        if task is not current:
            yield f"task {task.get_name()}", _of_task(task)


def _of_task(task: asyncio.Task[Any]) -> Stack:
    """From the task's coroutine to what it waits for, through all that it awaits."""
    frames: list[Frame] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(frames) < MOST_FRAMES:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            frames.append(place_of(frame).frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return tuple(reversed(frames))
