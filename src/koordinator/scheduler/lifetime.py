"""From start to stop: caches run, health is served, work is done while leading, and nothing stays half done.

A leader that loses its lease ends the process, as upstream's do: a new process starts from what the API has.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.leader_election import LeaderElector
from koordinator.kube.serving import HealthServer
from koordinator.scheduler.configuration import SchedulerConfiguration
from koordinator.scheduler.program import Scheduler
from koordinator.scheduler.services.configuration import add_configuration
from koordinator.scheduler.services.debug_flags import add_debug_flags
from koordinator.scheduler.services.explanations import add_explanations
from koordinator.scheduler.services.node_document import node_service
from koordinator.scheduler.services.routes import Services

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


def serve(
    scheduler: Scheduler,
    metrics: Metrics,
    elector: LeaderElector | None,
    host: str,
    port: int,
    configuration: SchedulerConfiguration,
) -> HealthServer:
    """Health, readiness, metrics, and the services that show what the scheduler knows and why it decided."""
    server = HealthServer(metrics, host=host, port=port)
    server.health.add("informer-sync", lambda: "" if scheduler.synced else "not in sync", "readyz")
    if elector is not None:
        server.health.add("leaderElection", elector.check, "healthz", "livez")
    make_services(scheduler, (lambda: elector.is_leading) if elector is not None else lambda: True).mount(server)
    add_configuration(server, configuration)
    if configuration.document.enable_profiling:
        add_debug_flags(server, scheduler.debug.settings)
    return server


def make_services(scheduler: Scheduler, is_leading: Callable[[], bool]) -> Services:
    """Everything that this instance answers while it leads."""
    services = Services(is_leading)
    add_explanations(services, scheduler.sources)
    services.add("/apis/v1/nodes/:nodeName", node_service(scheduler.state.view))
    services.add_plugins(engine.profile for engine in scheduler.engines.values())
    return services


def end_process() -> None:
    """The last resort of a leader whose work does not stop in time: what is not running cannot bind."""
    os._exit(1)
