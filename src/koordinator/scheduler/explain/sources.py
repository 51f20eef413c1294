"""The scheduler's state from which explanations are made."""

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
    """The scheduler's state, only to be read. ``profiles`` by scheduler name."""

    decisions: DecisionLog
    queue: SchedulingQueue
    view: ClusterView
    profiles: Mapping[str, Profile]
    now: Callable[[], datetime]
    monotonic: Callable[[], float]

    def notify_time(self) -> None:
        """Notify plugins of the present time, as before a decision: otherwise stale reports would seem fresh. Raises
        what a plugin raises."""
        now = self.view.now = self.now()
        for profile in self.profiles.values():
            for handler in profile.event_handlers:
                handler.on_time(now)

    def queued(self, key: str) -> QueuedPod | None:
        """The pod ``namespace/name`` in the queue, else None."""
        return next((entry for entry in self.queue.pods() if entry.pod.key == key), None)
