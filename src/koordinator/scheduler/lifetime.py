"""From start to stop: caches run, health is served, work is done while leading, and nothing stays half done.

A leader that loses its lease ends the process, as upstream's do: a new process starts from what the API has.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from aiohttp import web

from koordinator.api.codec import encode
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.leader_election import LeaderElector
from koordinator.kube.serving import HealthServer
from koordinator.scheduler.explain import explain
from koordinator.scheduler.program import Scheduler

logger = logging.getLogger(__name__)

_FLUSH_SECONDS: Final = 3.0
_STOP_SECONDS: Final = 10.0


class LeadershipLostError(KoordinatorError):
    """Another instance leads now, or may."""


async def run(
    scheduler: Scheduler,
    events: EventBroadcaster,
    elector: LeaderElector | None,
    server: HealthServer | None,
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


def serve(scheduler: Scheduler, metrics: Metrics, elector: LeaderElector | None, host: str, port: int) -> HealthServer:
    """Health, readiness, metrics, and the explanations of decisions."""
    server = HealthServer(metrics, host=host, port=port)
    server.health.add("informer-sync", lambda: "" if scheduler.synced else "not in sync", "readyz")
    if elector is not None:
        server.health.add("leaderElection", elector.check, "healthz", "livez")
    server.add_route("/debug/explain/{namespace}/{name}", _explain(scheduler))
    return server


def _explain(scheduler: Scheduler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        document = explain(scheduler.decisions, scheduler.queue, namespace, name)
        if document is None:
            message = f"pod {namespace}/{name} is not in the queue and was not tried lately by this instance"
            return web.Response(status=404, body=encode({"message": message}), content_type="application/json")
        return web.Response(body=encode(document), content_type="application/json")

    return handle


def end_process() -> None:
    """The last resort of a leader whose work does not stop in time: what is not running cannot bind."""
    os._exit(1)
