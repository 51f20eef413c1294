"""Scores by how much is allocated, of single nodes and of NUMA nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.plugins.node_resources.allocation import ResourceWeight, is_scalar

_OF_EVERY_NODE = ("cpu", "memory", "ephemeral-storage")


class NUMAScorer:
    """``most``: fuller is better. Amounts are by resource, in canonical units."""

    def __init__(self, resources: Sequence[ResourceWeight], *, most: bool) -> None:
        self._weights = [
            (each.name, each.weight) for each in resources if each.name in _OF_EVERY_NODE or is_scalar(each.name)
        ]
        self._most = most

    def score(self, requested: Mapping[str, int], allocatable: Mapping[str, int], asked: Mapping[str, int]) -> int:
        """How good it would be for a pod that asks for this. A resource that is not there is left out, and so is an
        extended one that the pod does not ask for."""
        total = weights = 0
        for name, weight in self._weights:
            whole, more = allocatable.get(name, 0), asked.get(name, 0)
            if not whole or (not more and is_scalar(name)):
                continue
            used = requested.get(name, 0) + more
            part = min(used, whole) if self._most else max(0, whole - used)
            total += part * MAX_NODE_SCORE // whole * weight
            weights += weight
        return total // weights if weights else 0
