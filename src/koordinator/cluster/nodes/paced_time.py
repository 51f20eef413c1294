"""Simulated time whose pace another program sets: when told, it goes on to a moment, event by event, and stops there.

The programs of a cluster live in real time, and on a busy machine they lag behind. Whoever plays a day with them lets
simulated time wait until they have dealt with what has happened. A ConfigMap tells up to which moment simulated time
may go on, and is told when it is there: all pods that were due to start or end until then have done so, and the
NodeMetrics of that moment have been written.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final, NoReturn, Protocol

from koordinator.api.core import ConfigMap
from koordinator.api.kinds import CONFIG_MAPS
from koordinator.base.clock import Clock
from koordinator.base.deadline import unless
from koordinator.cluster.nodes.population import Population
from koordinator.cluster.nodes.registration import persistently
from koordinator.cluster.nodes.rotation import SimulatedTime
from koordinator.kube.informer import Informer
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.object_cache import is_older

_TURNS: Final = 20
"""Of the event loop, in which a task that has been woken puts its work into its queue."""
_REPORT_AGAIN_SECONDS: Final = 30.0
"""Real time: a NodeMetric expires, though nothing has happened since it was written."""


class PacedClock:
    """A clock whose monotonic time moves only when it is moved; its wall time is the real one."""

    def __init__(self, wall: Clock) -> None:
        self._wall = wall
        self._at = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._wall.now()

    def monotonic(self) -> float:
        return self._at

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._at + seconds, next(self._order), future))
        await future

    def move(self, to: float) -> bool:
        """Move to a moment that is not before the present one. Returns whether this has woken anybody."""
        self._at = max(self._at, to)
        has_woken = False
        while self._sleepers and self._sleepers[0][0] <= self._at:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
                has_woken = True
        return has_woken


@dataclass(frozen=True, slots=True)
class Pace:
    """What the ConfigMap says. Times are simulated seconds since the start."""

    until: float
    reached: float | None
    """None before the nodes have reported for the first time."""
    pods: str
    nodes: str
    """The resourceVersions up to which the changes of pods that are bound and of nodes must have been seen before."""

    @classmethod
    def of(cls, found: ConfigMap) -> Pace:
        """What is no number counts as missing."""
        data = found.data
        until, reached = _seconds(data, "until"), _seconds(data, "reached")
        return cls(until or 0.0, reached, data.get("pods", ""), data.get("nodes", ""))

    @staticmethod
    def wanted(until: float, pods: str, nodes: str) -> Mapping[str, Any]:
        """The patch of whoever sets the pace."""
        return {"data": {"until": str(until), "pods": pods, "nodes": nodes}}


class Runtime(Protocol):
    """What runs the pods of the nodes."""

    async def idle(self) -> None:
        """Wait until all that is due has been done."""
        ...


@dataclass(frozen=True, slots=True)
class PacedParts:
    """What moves with simulated time."""

    population: Population
    sample_interval: float
    runtime: Runtime
    report: Callable[[], Awaitable[None]]
    """Writes the NodeMetrics of all nodes."""
    pods: Informer[Any]
    nodes: Informer[Any]


class PacedTime:
    """Run ``run``. ``name`` and ``namespace`` are those of the ConfigMap."""

    def __init__(
        self, client: Client, namespace: str, name: str, clock: PacedClock, wall: Clock, random: Random
    ) -> None:
        self.clock = clock
        self._client = client
        self._namespace = namespace
        self._name = name
        self._wall = wall
        self._random = random
        self._changed = asyncio.Event()
        self._informer = Informer(
            client, CONFIG_MAPS, namespace=namespace, field_selector=f"metadata.name={name}", clock=wall, random=random
        )

    async def run(self, time: SimulatedTime, parts: PacedParts) -> NoReturn:
        """Follow the pace until cancelled."""
        for informer in (self._informer, parts.pods, parts.nodes):
            informer.add_handlers(
                on_add=lambda _, initial: self._changed.set(),
                on_update=lambda _, new: self._changed.set(),
                on_delete=lambda _: self._changed.set(),
            )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run(), name="pace")
            await self._informer.wait_synced()
            # After a restart, the day goes on from where it was.
            self.clock.move(self._pace().reached or 0.0)
            parts.population.sample(time.now())
            while True:
                await parts.report()
                await self._acknowledge(self.clock.monotonic())
                pace = await self._next(parts)
                await self._go_on(pace.until, time, parts)
        raise AssertionError("the loop above ends by cancellation only")

    def _pace(self) -> Pace:
        found = self._informer.get(f"{self._namespace}/{self._name}")
        return Pace(0.0, None, "", "") if found is None else Pace.of(found)

    async def _next(self, parts: PacedParts) -> Pace:
        """Wait until time may go on, and what has happened before that is known here."""
        while True:
            self._changed.clear()
            pace = self._pace()
            lags = is_older(parts.pods.resource_version, pace.pods) or is_older(
                parts.nodes.resource_version, pace.nodes
            )
            if not lags and pace.until > self.clock.monotonic():
                return pace
            if await unless(self._changed, self._wall.sleep(_REPORT_AGAIN_SECONDS)):
                await parts.report()

    async def _go_on(self, until: float, time: SimulatedTime, parts: PacedParts) -> None:
        """From one sample to the next. What is due before a sample has been done when it is taken."""
        interval = parts.sample_interval
        await _all_done(parts.runtime)
        while (at := self.clock.monotonic()) < until:
            to = min((at // interval + 1) * interval, until)
            while self.clock.move(to):
                await _all_done(parts.runtime)
            if to % interval == 0:
                parts.population.sample(time.now())

    async def _acknowledge(self, reached: float) -> None:
        patch = {"data": {"reached": str(reached)}}

        async def write() -> None:
            await self._client.patch(CONFIG_MAPS, self._name, patch, PatchType.MERGE, self._namespace)

        await persistently(write, "saying which moment is reached", self._wall, self._random)


async def _all_done(runtime: Runtime) -> None:
    """Wait until what is due has been done, and what follows from it sleeps on the clock."""
    for wait in (_turns, runtime.idle, _turns):
        await wait()


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def _seconds(data: Mapping[str, str], key: str) -> float | None:
    try:
        return float(data[key])
    except (KeyError, ValueError):
        return None
