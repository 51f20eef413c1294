"""A cluster in this process: the embedded API with a snapshot in it, the real koord-scheduler, and simulated kubelets
and workload controllers. Nothing runs by itself: ``settle`` runs everything until nothing changes any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.api.modification import Modification
from koordinator.api.pod import Pod
from koordinator.base.garbage_collection import collecting_rarely
from koordinator.base.metrics import Metrics
from koordinator.scheduler.assembly import make_scheduler
from koordinator.scheduler.configuration import SchedulerConfiguration
from koordinator.scheduler.options import parse_options
from koordinator.scheduler.program import Scheduler, SchedulerOptions
from koordinator.scheduler.queue.queued_pod import Pool
from koordinator.simulate.in_process_api import InProcessApi
from koordinator.simulate.in_process_client import InProcessClient
from koordinator.simulate.pod_life import PodLife
from koordinator.simulate.simulated_clock import SimulatedClock
from koordinator.simulate.snapshot import Snapshot
from koordinator.simulate.volume_life import VolumeLife

_STEP_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 120.0
"""Of simulated time, after which pods that are retried again and again count as pending."""
_DECISIONS_KEPT: Final = 1 << 20
_AT_ONCE: Final = 512
"""Concurrent bindings: in a simulation none takes any time."""


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """``look_ahead``: simulated seconds that pass after the last placement, in which controllers may still act.
    ``seed`` decides between nodes with the same score. ``scheduler_flags``: those command line flags of the cluster's
    scheduler that affect placements, such as ``--feature-gates=...``."""

    look_ahead: float = 5.0
    seed: int = 0
    scheduler_flags: tuple[str, ...] = ()


class PreemptionLog:
    """Implements ``Events`` of the scheduler: of all events it keeps which pods were preempted by which."""

    def __init__(self) -> None:
        self.preemptors: dict[str, str] = {}
        """The uid of a victim -> its preemptor, as ``namespace/name``."""

    def pod_event(
        self,
        pod: Pod,
        event_type: Literal["Normal", "Warning"],
        reason: str,
        action: str,
        note: str,
        *,
        reporter: Pod | None = None,
        modification: Modification | None = None,
    ) -> None:
        if reason == "Preempted" and reporter is not None:
            self.preemptors[pod.metadata.uid] = reporter.metadata.key

    def object_event(
        self,
        scheduler_name: str,
        kind: Kind[Any],
        obj: Object,
        event_type: Literal["Normal", "Warning"],
        reason: str,
        action: str,
        note: str,
        *,
        modification: Modification | None = None,
    ) -> None:
        """These events are dropped."""


class SimulatedCluster:
    """Created by ``simulated``; changes are made through ``api``, and take effect by ``settle``."""

    def __init__(
        self,
        api: InProcessApi,
        configuration: SchedulerConfiguration,
        clock: SimulatedClock,
        options: SimulationOptions,
    ) -> None:
        self.api = api
        self.loaded_at = api.environment.storage.revision()
        """The revision of the store after loading."""
        self.clock = clock
        self.client = InProcessClient(api.environment)
        self.preemptions = PreemptionLog()
        self.pods = PodLife(api, self.preemptions.preemptors)
        self.volumes = VolumeLife(api)
        self._options = options
        self.scheduler = _scheduler(self.client, self.preemptions, configuration, clock, options)
        self.unsettled = False
        """Whether pods were still moving when the time limit was exceeded."""
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def start(self) -> None:
        """Run the scheduler until ``stop``."""
        self._tasks = (
            asyncio.create_task(self.scheduler.watch(), name="watch"),
            asyncio.create_task(self.scheduler.schedule(asyncio.Event()), name="schedule"),
            asyncio.create_task(self.api.run_quotas(), name="resource quotas"),
        )

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = ()

    async def restart(self, configuration: SchedulerConfiguration) -> None:
        """Stop the scheduler and start one with another configuration on the present cluster."""
        await self.stop()
        self.scheduler = _scheduler(self.client, self.preemptions, configuration, self.clock, self._options)
        self.start()

    async def settle(self) -> None:
        """Return when nothing changes any more: each pod has a node or waits for something that does not come."""
        started = self.clock.monotonic()
        quiet_since: float | None = None
        while True:
            await self.clock.run_ready()
            self._check()
            # Both in each round, since each may have to react to the other.
            if any([await self.pods.react(), await self.volumes.react()]):
                quiet_since = None
                continue
            now = self.clock.monotonic()
            if self._is_busy():
                quiet_since = None
                if now - started >= _LONGEST_SECONDS:
                    self.unsettled = True
                    return
            elif quiet_since is None:
                quiet_since = now
            if quiet_since is not None and now - quiet_since >= self._options.look_ahead:
                return
            await self.clock.advance(_STEP_SECONDS)

    def _check(self) -> None:
        """Raise what has ended the scheduler, which never ends by itself."""
        for task in self._tasks:
            if task.done():
                task.result()

    def _is_busy(self) -> bool:
        """Whether pods are being decided about, bound, or about to be retried by themselves. A pod that waits for the
        rest of its gang is not: others have to come first."""
        queue, waiting = self.scheduler.queue, len(self.scheduler.state.view.waiting)
        moving = sum(queue.size(pool) for pool in (Pool.ACTIVE, Pool.BACKOFF, Pool.PREEMPTING))
        return bool(moving or queue.size(Pool.IN_FLIGHT) > waiting or self.scheduler.is_binding)


@asynccontextmanager
async def simulated(
    snapshot: Snapshot, configuration: SchedulerConfiguration, options: SimulationOptions | None = None
) -> AsyncIterator[SimulatedCluster]:
    """A cluster in the state of the snapshot, settled: whatever happens afterwards is the effect of a change."""
    options = options or SimulationOptions()
    clock = SimulatedClock(snapshot.ended)
    api = await InProcessApi.loaded(snapshot, clock, options.seed)
    cluster = SimulatedCluster(api, configuration, clock, options)
    with collecting_rarely():
        try:
            await cluster.pods.begin()
            cluster.start()
            await cluster.settle()
            yield cluster
        finally:
            await cluster.stop()


def _scheduler(
    client: InProcessClient,
    events: PreemptionLog,
    configuration: SchedulerConfiguration,
    clock: SimulatedClock,
    options: SimulationOptions,
) -> Scheduler:
    return make_scheduler(
        client,
        events,
        configuration,
        parse_options(options.scheduler_flags),
        SchedulerOptions(bind_concurrency=_AT_ONCE, decisions_kept=_DECISIONS_KEPT),
        metrics=Metrics(),
        clock=clock,
        random=Random(options.seed),
    )
