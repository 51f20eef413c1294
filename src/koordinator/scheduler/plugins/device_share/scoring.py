"""Scores how full devices and nodes would be with a pod: emptier is better, or fuller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.scheduler.plugins.node_resources.strategies import least_of_one, most_of_one

MOST_ALLOCATED = "MostAllocated"


class DeviceScorer:
    """Scores by the argument ``scoringStrategy``: its type, and the resources with their weights."""

    def __init__(self, strategy: Any) -> None:
        self._of_one = most_of_one if strategy.type == MOST_ALLOCATED else least_of_one
        self._weights = {each.name: each.weight for each in strategy.resources}

    def score(self, request: Mapping[str, int], total: Mapping[str, int], free: Mapping[str, int]) -> int:
        """0..100, the weighted mean over the resources that there are."""
        items = [(name, request.get(name, 0), weight) for name, weight in self._weights.items() if name in total]
        return self._of_one(items, {name: total[name] - free.get(name, 0) for name, _, _ in items}, total)
