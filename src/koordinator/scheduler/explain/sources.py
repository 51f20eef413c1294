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
    """The scheduler's books; they are only read. ``profiles`` by scheduler name."""

    decisions: DecisionLog
    queue: SchedulingQueue
    view: ClusterView
    profiles: Mapping[str, Profile]
    now: Callable[[], datetime]
    monotonic: Callable[[], float]

    def notify_time(self) -> None:
        """Let plugins know how late it is, as before a decision: without any, reports would seem to stay fresh. Raises
        whatever a plugin raises."""
        now = self.view.now = self.now()
        for profile in self.profiles.values():
            for handler in profile.event_handlers:
                handler.on_time(now)

    def queued(self, key: str) -> QueuedPod | None:
        """The pod ``namespace/name`` in the queue."""
        return next((entry for entry in self.queue.pods() if entry.pod.key == key), None)
