"""Scores single nodes and NUMA nodes by how much is allocated. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from koordinator.scheduler.configuration.upstream_arguments import ResourceSpec
from koordinator.scheduler.plugins.node_resources.allocation import is_scalar, least_of_one, most_of_one

_OF_EVERY_NODE = ("cpu", "memory", "ephemeral-storage")


class NUMAScorer:
    """``most``: fuller is better. Amounts are by resource, in canonical units."""

    def __init__(self, resources: Sequence[ResourceSpec], *, most: bool) -> None:
        self._weights = [
            (each.name, each.weight) for each in resources if each.name in _OF_EVERY_NODE or is_scalar(each.name)
        ]
        self._of_one = most_of_one if most else least_of_one

    def score(
        self, requested: Mapping[str, int], allocatable: Mapping[str, int], pod_requests: Mapping[str, int]
    ) -> int:
        """The score for a pod with these requests. An extended resource that the pod does not request is omitted."""
        items = [
            (name, pod_requests.get(name, 0), weight)
            for name, weight in self._weights
            if name in allocatable and (pod_requests.get(name, 0) or not is_scalar(name))
        ]
        return self._of_one(items, Counter(requested), allocatable)
