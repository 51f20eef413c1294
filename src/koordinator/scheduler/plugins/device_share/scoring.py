"""How full devices and nodes would be with a pod, as a score: the emptier the better, or the fuller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.scheduler.engine.framework import MAX_NODE_SCORE

MOST_ALLOCATED = "MostAllocated"


class DeviceScorer:
    """By the argument ``scoringStrategy``: its type, and the resources with their weights."""

    def __init__(self, strategy: Any) -> None:
        self._most = strategy.type == MOST_ALLOCATED
        self._weights = {each.name: each.weight for each in strategy.resources}

    def score(self, request: Mapping[str, int], total: Mapping[str, int], free: Mapping[str, int]) -> int:
        """0..100, the weighted mean over the resources that there are."""
        score = weights = 0
        for name, weight in self._weights.items():
            whole = total.get(name, 0)
            if whole > 0:
                score += weight * self._score(whole - free.get(name, 0) + request.get(name, 0), whole)
                weights += weight
        return score // weights if weights else 0

    def _score(self, requested: int, whole: int) -> int:
        if self._most:
            return min(requested, whole) * MAX_NODE_SCORE // whole
        return max(0, whole - requested) * MAX_NODE_SCORE // whole
