"""A running scheduler on an API server in memory and a clock of its own, and what must hold at the end of any story."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.api.modification import Modification
from koordinator.api.pod import Pod
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.plugins.reservation.reserve_pod import allocated_record, is_available, reserve_pod
from koordinator.scheduler.program import Scheduler
from tests.scheduler.fakes import describe, make_node, make_profile
from tests.scheduler.scheduler_api import SchedulerApi

MakeProfile = Callable[[ClusterView], Profile]


class EventList:
    def __init__(self) -> None:
        self.notes: list[tuple[str, str, str]] = []
        self.records: list[Modification] = []

    def pod_event(
        self,
        pod: Pod,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        *,
        reporter: Pod | None = None,
        modification: Modification | None = None,
    ) -> None:
        self.notes.append((pod.metadata.name, reason, note))
        self.records += [modification] if modification is not None else []

    def object_event(
        self,
        scheduler_name: str,
        kind: Kind[Any],
        obj: Object,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        *,
        modification: Modification | None = None,
    ) -> None:
        self.notes.append((obj.metadata.name, reason, note))


class RunningScheduler:
    """A running scheduler, its API and its clock."""

    def __init__(
        self,
        api: SchedulerApi,
        profile: MakeProfile = make_profile,
        make_info: Callable[[Pod, ClusterView], PodInfo] = lambda pod, view: describe(pod),
        gates: frozenset[str] = frozenset(),
    ) -> None:
        self.api = api
        self.clock = ManualClock()
        self.events = EventList()
        metrics = Metrics()
        self.registry = metrics.registry
        view = ClusterView(NodeColumns(), gates=gates)
        self.scheduler = Scheduler(
            api.client(self.clock),
            self.events,
            lambda view: [profile(view)],
            lambda pod: make_info(pod, view),
            view,
            SchedulerMetrics(metrics),
            clock=self.clock,
            random=Random(7),
        )
        self.stop = asyncio.Event()

    async def until_idle(self, seconds: float = 0.0) -> None:
        """Let everything happen that happens within ``seconds``."""
        for _ in range(20):
            await self.clock.advance(0)
        if seconds:
            await self.clock.advance(seconds)
            for _ in range(20):
                await self.clock.advance(0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self.scheduler.watch())
            schedule = tasks.create_task(self.scheduler.schedule(self.stop))
            try:
                await self.until_idle()
                yield
                self.stop.set()
                await self.until_idle()
                await schedule
            finally:
                schedule.cancel()
                watch.cancel()


def simulate(
    story: Callable[[RunningScheduler], Awaitable[None]],
    api: Callable[[], SchedulerApi] = SchedulerApi,
    profile: MakeProfile = make_profile,
    gates: frozenset[str] = frozenset(),
) -> RunningScheduler:
    """Run a story on a scheduler, and check at its end that it is as it must always be."""

    async def run() -> RunningScheduler:
        fixture = RunningScheduler(api(), profile, gates=gates)
        async with fixture.running():
            await story(fixture)
            await fixture.until_idle()
        check(fixture)
        return fixture

    return asyncio.run(run())


def check(fixture: RunningScheduler) -> None:
    """No pod bound twice, no node over its allocatable, and our books equal those of the API: what pods request, and
    what Reservations keep beyond that of their users."""
    api, columns = fixture.api, fixture.scheduler.state.view.columns
    pods = [name for name, _ in api.bindings]
    assert len(pods) == len(set(pods))
    requested = dict.fromkeys(columns.row_of, 0)
    used: Counter[str] = Counter()
    for pod in api.objects("pods").values():
        if pod.spec.node_name in requested and pod.status.phase not in ("Succeeded", "Failed"):
            requested[pod.spec.node_name] += _cpu(pod)
            record = allocated_record(pod)
            used[record.uid if record is not None else ""] += _cpu(pod)
    for reservation in api.objects("reservations").values():
        node_name, uid = reservation.status.node_name, reservation.metadata.uid
        if is_available(reservation) and node_name in requested:
            requested[node_name] += max(_cpu(reserve_pod(reservation)) - used[uid], 0)
    for name, row in columns.row_of.items():
        assert columns.requested[row, CPU] == requested[name] <= columns.allocatable[row, CPU]
    assert fixture.scheduler.state.assumed_count == 0


def _cpu(pod: Pod) -> int:
    return describe(pod).request.amounts.get("cpu", 0)


def check_nothing_waits_for_nothing(fixture: RunningScheduler) -> None:
    """No pod is pending that some node could take, by its CPU and cordons alone."""
    columns, placed = fixture.scheduler.state.view.columns, fixture.api.placed()
    free = max(
        (
            int(columns.allocatable[row, CPU] - columns.requested[row, CPU])
            for row in columns.row_of.values()
            if not columns.unschedulable[row]
        ),
        default=-1,
    )
    waiting = [pod for pod in fixture.api.objects("pods").values() if pod.metadata.name not in placed]
    assert [pod.metadata.name for pod in waiting if _cpu(pod) <= free] == []


def two_nodes() -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a"))
    api.store(make_node("b"))
    return api
