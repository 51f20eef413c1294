"""Keeps the conditions of pods current that a plugin rejected before any node was filtered: the numbers that it gave,
those of a quota for instance, change without any attempt of the pod."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.base.clock import Clock
from koordinator.scheduler.cycle.failure_report import Failure, FailureReporter
from koordinator.scheduler.engine.binding_points import CyclePreFilterPlugin
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.event_listeners import OnError
from koordinator.scheduler.queue.queued_pod import Pool, QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue

_PERIOD: Final = 5.0
"""Seconds between two looks, in which the condition of a pod is written once at most."""
_MOST: Final = 100
"""Pods whose conditions are written in one look: the numbers of a quota in use change all the time, and each write is a
request. Those that were written longest ago come first."""
_SLICE_SECONDS: Final = 0.004


@dataclass(eq=False, slots=True)
class ConditionRefresh:
    """``run`` looks at unschedulable pods until cancelled. A pod that its plugin would admit by now is left to the
    queueing hints."""

    engines: Mapping[str, Engine]
    queue: SchedulingQueue
    reporter: FailureReporter
    pseudo_pods: Collection[str]
    clock: Clock
    on_error: OnError

    async def run(self) -> None:
        while True:
            await self.clock.sleep(_PERIOD)
            await self._look()

    async def _look(self) -> None:
        monotonic, known, outdated = self.clock.monotonic, dict[Hashable, str](), list[tuple[QueuedPod, str]]()
        end = monotonic() + _SLICE_SECONDS
        for entry in self.queue.unschedulable():
            if not entry.refusal or entry.pool is not Pool.UNSCHEDULABLE:
                continue
            # The pods of a group wait for the same events, so they have the same reason.
            key = entry.group if entry.group is not None else entry.pod.uid
            text = known.get(key)
            if text is None:
                text = known[key] = self._present_refusal(entry)
                if monotonic() >= end:
                    await asyncio.sleep(0)
                    end = monotonic() + _SLICE_SECONDS
            if text and text != entry.refusal and entry.pod.uid not in self.pseudo_pods:
                outdated.append((entry, text))
        for entry, text in heapq.nsmallest(_MOST, outdated, key=_updated_at):
            if entry.pool is Pool.UNSCHEDULABLE:
                self.queue.update_refusal(entry, text)
                self.reporter.refresh(Failure(entry.pod.pod, "Unschedulable", entry.reason))

    def _present_refusal(self, entry: QueuedPod) -> str:
        """What the plugin would say now; empty if it would admit the pod, or cannot say."""
        engine = self.engines.get(entry.pod.pod.spec.scheduler_name)
        for name in entry.plugins:
            plugin = engine.profile.part(name, CyclePreFilterPlugin) if engine is not None else None
            if plugin is not None:
                try:
                    refusal = plugin.refusal_if_tried(entry.pod)
                except Exception as error:
                    # A plugin may raise anything; the pod keeps the condition that it has.
                    self.on_error(name, "refusal_if_tried", error)
                    return ""
                return refusal.text if refusal is not None else ""
        return ""


def _updated_at(outdated: tuple[QueuedPod, str]) -> float:
    return outdated[0].updated_at
