"""The evictions for CPU and for memory: two loops, each of which waits for the API server and then for a cool-down."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.loops import Loop
from koordinator.koordlet.enforce.evictor import Evictor
from koordinator.koordlet.enforce.node_snapshot import (
    SnapshotSources,
    best_effort_cpu,
    node_cpu_average,
    take_snapshot,
)
from koordinator.koordlet.enforce.strategies import eviction
from koordinator.koordlet.options import Options

_DEADLINE: Final = 30.0


class Evictions:
    """Add its ``loops`` to the agent's."""

    def __init__(
        self,
        options: Options,
        sources: SnapshotSources,
        evictor: Evictor,
        say: Callable[[str, str], None],
        clock: Clock,
    ) -> None:
        """``say`` is called with the name of the evictions and what is wrong with their settings."""
        self._options = options
        self._sources = sources
        self._evictor = evictor
        self._say = say
        self._clock = clock
        # As the original: for CPU the first pause begins with the agent, for memory there is none before an eviction.
        self._last = {"CPU": clock.monotonic(), "memory": -math.inf}

    def loops(self) -> list[Loop]:
        """Of what a gate enables, and has an interval."""
        given, loops = self._options.enforcement, list[Loop]()
        for resource, of_resource, interval, cool_down in (
            ("CPU", eviction.CPU_FEATURES, given.cpu_evict_interval, given.cpu_evict_cool_down),
            ("memory", eviction.MEMORY_FEATURES, given.memory_evict_interval, given.memory_evict_cool_down),
        ):
            enabled = [feature for feature in of_resource if self._options.features.enabled(feature)]
            if enabled and interval > 0:
                evict = partial(self._evict, resource, enabled, cool_down)
                loops.append(Loop(f"evictions for {resource}", evict, interval, _DEADLINE))
        return loops

    async def _evict(self, resource: str, enabled: Sequence[eviction.Feature], cool_down: float) -> None:
        if self._clock.monotonic() - self._last[resource] < cool_down:
            return
        await self._sources.usage.table.is_whole.wait()
        usage, snapshot = self._sources.usage, take_snapshot(self._sources)
        inputs = eviction.Inputs(
            snapshot,
            best_effort_cpu(usage, snapshot.policy) if eviction.Feature.BE_CPU in enabled else None,
            node_cpu_average(usage, snapshot.policy) if eviction.Feature.CPU in enabled else None,
        )
        plan = eviction.plan(inputs, enabled)
        self._say(f"evictions for {resource}", "; ".join(plan.problems) or "settings are valid")
        try:
            has_evicted = bool(await self._evictor.carry_out(plan, {usage.pod.uid for usage in snapshot.pods}))
        except asyncio.CancelledError:
            # The eviction that was requested last may have taken place.
            self._last[resource] = self._clock.monotonic()
            raise
        if has_evicted:
            self._last[resource] = self._clock.monotonic()
