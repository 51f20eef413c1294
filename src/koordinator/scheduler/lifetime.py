"""From start to stop: caches run, health is served, work is done while leading, and nothing stays half done.

A leader that loses its lease ends the process, as upstream's do: a new process starts from what the API has.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final, Protocol

from koordinator.base.errors import KoordinatorError
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.leader_election import LeaderElector
from koordinator.scheduler.program import Scheduler

logger = logging.getLogger(__name__)

_FLUSH_SECONDS: Final = 3.0
_STOP_SECONDS: Final = 10.0


class Server(Protocol):
    """What answers requests while the program runs."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class LeadershipLostError(KoordinatorError):
    """Another instance leads now, or may."""


async def run(
    scheduler: Scheduler,
    events: EventBroadcaster,
    elector: LeaderElector | None,
    server: Server | None,
    stop: asyncio.Event,
) -> None:
    """Run everything until ``stop``. Raises LeadershipLostError when the lease was lost before."""
    async with asyncio.TaskGroup() as tasks:
        background = [
            tasks.create_task(events.run(), name="events"),
            tasks.create_task(scheduler.watch(), name="informers"),
        ]
        try:
            if server is not None:
                await server.start()
            await _work(scheduler, elector, stop)
            left = await events.flush(_FLUSH_SECONDS)
            if left:
                logger.warning("%d events could not be written before the end", left)
        finally:
            if server is not None:
                await server.stop()
            for task in background:
                task.cancel()


async def _work(scheduler: Scheduler, elector: LeaderElector | None, stop: asyncio.Event) -> None:
    if elector is None:
        await scheduler.schedule(stop)
        return
    working = asyncio.create_task(elector.run(lambda: scheduler.schedule(stop)), name="leader-election")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            await working
            raise LeadershipLostError("leader election lost: another instance schedules from here on")
        await _end(working, elector.is_leading)
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


async def _end(working: asyncio.Task[None], leading: bool) -> None:
    """Let a leader finish what is under way and give up the lease; one that only waits to lead is just ended."""
    if leading:
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await asyncio.shield(working)
