"""What explanations are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from koordinator.scheduler.engine.decision import DecisionLog
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.queue.queued_pod import QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue


@dataclass(frozen=True, slots=True)
class Sources:
    """The scheduler's books; all of them are only read. ``profiles`` by scheduler name."""

    decisions: DecisionLog
    queue: SchedulingQueue
    view: ClusterView
    profiles: Mapping[str, Profile]
    now: Callable[[], datetime]
    monotonic: Callable[[], float]

    def queued(self, key: str) -> QueuedPod | None:
        """The pod ``namespace/name`` in the queue."""
        return next((entry for entry in self.queue.pods() if entry.pod.key == key), None)
