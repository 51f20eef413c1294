"""The parts of a program, and the order in which they start and stop.

All parts start concurrently. The order of the shutdown matters: first the work ends, and may finish what it has begun;
then its leftovers are flushed, such as queued events; then the background tasks end, which both depend on. Servers
respond until the very end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from koordinator.base.clock import Clock
from koordinator.base.deadline import within

logger = logging.getLogger(__name__)

Body = Callable[[], Coroutine[Any, Any, object]]


@dataclass(frozen=True, slots=True)
class _Work:
    name: str
    body: Body
    drain: Callable[[], float]
    grace: float


class Lifecycle:
    """The parts of a program: add them, then ``run`` once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._servers: list[AbstractAsyncContextManager[object]] = []
        self._background: list[tuple[str, Body]] = []
        self._work: list[_Work] = []
        self._last: list[Body] = []

    def serve(self, server: AbstractAsyncContextManager[object]) -> None:
        """Enter ``server`` before all other parts start, and leave it after all other parts have ended."""
        self._servers.append(server)

    def background(self, name: str, body: Body) -> None:
        """Run ``body`` until all work has ended, then cancel it."""
        self._background.append((name, body))

    def work(self, name: str, body: Body, *, drain: Callable[[], float] | None = None, grace: float = inf) -> None:
        """Run ``body`` until the program is stopped.

        ``drain`` returns for how many seconds ``body`` may continue then, if it watches for the stop by itself; without
        ``drain``, it is cancelled at once. If it has not ended ``grace`` seconds after the cancellation, it is
        cancelled once more, because it may await a response that never comes.
        """
        self._work.append(_Work(name, body, drain or _at_once, grace))

    def at_end(self, body: Body) -> None:
        """Await ``body`` after the work has ended and before the background tasks are cancelled."""
        self._last.append(body)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set or all work has ended. Raises an ExceptionGroup if a part fails."""
        async with AsyncExitStack() as servers, asyncio.TaskGroup() as tasks:
            for server in self._servers:
                await servers.enter_async_context(server)
            background = [tasks.create_task(_ignoring(body), name=name) for name, body in self._background]
            working = [(work, tasks.create_task(_ignoring(work.body), name=work.name)) for work in self._work]
            await _stopped_or_done(stop, [task for _, task in working])
            logger.info("stopping")
            await asyncio.gather(*(self._end(work, task) for work, task in working))
            for body in self._last:
                await body()
            for task in background:
                task.cancel()

    async def _end(self, work: _Work, task: asyncio.Task[None]) -> None:
        await self._wait(task, work.drain())
        task.cancel()
        await self._wait(task, work.grace)
        if not task.done():
            logger.warning("%s: did not end within %gs of its cancellation; cancelling again", work.name, work.grace)
            task.cancel()
            await asyncio.wait({task})

    async def _wait(self, task: asyncio.Task[None], seconds: float) -> None:
        if task.done() or seconds <= 0:
            return
        if seconds == inf:
            await asyncio.wait({task})
            return
        with suppress(TimeoutError):
            await within(self._clock, seconds, asyncio.wait({task}))


async def _stopped_or_done(stop: asyncio.Event, working: list[asyncio.Task[None]]) -> None:
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        while not stopping.done() and not (working and all(task.done() for task in working)):
            unfinished = {task for task in working if not task.done()}
            await asyncio.wait({stopping, *unfinished}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()


async def _ignoring(body: Body) -> None:
    await body()


def _at_once() -> float:
    return 0.0
