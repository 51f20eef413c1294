"""PrioritySort: pods of higher priority first, then those that have waited longer."""

from __future__ import annotations

from typing import Any

from koordinator.scheduler.engine.framework import QueueSortPlugin
from koordinator.scheduler.engine.pod_info import PodInfo


class PrioritySort(QueueSortPlugin):
    name = "PrioritySort"

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        return -pod.priority, queued_at
