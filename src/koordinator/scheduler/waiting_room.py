"""Pods that are assumed on a node and wait until Permit plugins allow them, each no longer than these are patient."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from koordinator.scheduler.binding import Binding
from koordinator.scheduler.engine.waiting_pods import Verdict, WaitingPods

_LONGEST_WAIT: Final = 900.0


class WaitingRoom:
    """``decided`` is called once for every binding that was held."""

    def __init__(
        self, pods: WaitingPods, monotonic: Callable[[], float], decided: Callable[[Binding, Verdict], None]
    ) -> None:
        self._pods = pods
        self._monotonic = monotonic
        self._decided = decided
        self._deadlines: list[tuple[float, str, str, float]] = []
        """(when, uid, plugin, seconds)."""

    def hold(self, binding: Binding, waits: Mapping[str, float]) -> None:
        """Keep the binding back for the plugins in ``waits``, at most so many seconds each."""
        now, pod = self._monotonic(), binding.placement.pod
        deadlines = {plugin: now + min(seconds, _LONGEST_WAIT) for plugin, seconds in waits.items()}
        self._pods.add(pod, binding.placement.node_name, deadlines, partial(self._decided, binding))
        for plugin, when in deadlines.items():
            heapq.heappush(self._deadlines, (when, pod.uid, plugin, when - now))

    def next_deadline(self) -> float | None:
        """When ``expire`` has something to do next."""
        while self._deadlines and not self._is_due_for(*self._deadlines[0][1:3]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self) -> None:
        """Turn away those that have waited too long."""
        now = self._monotonic()
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            _, uid, plugin, seconds = heapq.heappop(self._deadlines)
            waiting = self._pods.get(uid)
            if waiting is not None:
                waiting.reject(plugin, f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}")

    def _is_due_for(self, uid: str, plugin: str) -> bool:
        waiting = self._pods.get(uid)
        return waiting is not None and plugin in waiting.deadlines
