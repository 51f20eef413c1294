"""Selects the GPUs of a pod: a partition, or GPUs near each other, or any that fit; scored by how full devices
would be with the pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koordinator.api.device_share import HONOR
from koordinator.api.labels import GPU_MODEL, GPU_PARTITION_POLICY, GPU_VENDOR
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.plugins.device_share.demand import SCOPE_LEVELS, GPUDemand, fits, with_both_memories
from koordinator.scheduler.plugins.device_share.gpu_partitions import (
    GPUScope,
    PartitionTable,
    best_packed,
    built_in_table,
    fitting_partitions,
)
from koordinator.scheduler.plugins.device_share.node_devices import Candidates, NodeDevices
from koordinator.scheduler.plugins.node_resources.allocation import least_of_one, most_of_one

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


MISSING_TABLE = Reason("node(s) missing GPU Partition Table", unresolvable=True)
NO_PARTITION_OF_COUNT = Reason("node(s) Unsupported number of GPU requests", unresolvable=True)
NO_PARTITION = Reason("Insufficient Partitioned GPU Devices")
MISSING_TOPOLOGY = Reason("node(s) missing GPU Device Topology Tree", unresolvable=True)
SEVERAL_SHARED = Reason("node(s) Unsupported Multi-Shared GPU", unresolvable=True)
NO_SCOPE = Reason("Insufficient Topology Scoped GPU Devices")
NO_GPUS = Reason("Insufficient GPU Devices")


@dataclass(frozen=True, slots=True)
class _Found:
    """GPUs of one scope. The larger the rank, the better: how deep the scope is, how many of the scopes around it are
    in use already, and how well a shared GPU suits."""

    minors: tuple[int, ...]
    rank: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class GPUAllocator:
    """Allocates for one pod among those GPUs of one node that it may have."""

    demand: GPUDemand
    node: NodeDevices
    labels: Mapping[str, str]
    """Of the node."""
    candidates: Candidates
    scorer: DeviceScorer

    def _partitions(self) -> tuple[PartitionTable | None, bool]:
        """The table, and whether the GPUs have to be one of its partitions."""
        table, labels = self.node.partitions, self.node.labels
        if table is None:
            labels = self.labels
            table = built_in_table(labels.get(GPU_VENDOR, ""), labels.get(GPU_MODEL, ""))
        return table, self.demand.is_partition or labels.get(GPU_PARTITION_POLICY) == HONOR

    def by_partition(self) -> tuple[int, ...] | Reason | None:
        """The minors of a partition; None if none fits and none is required."""
        table, is_required = self._partitions()
        found = self._partition(table)
        return None if isinstance(found, Reason) and not is_required else found

    def _partition(self, table: PartitionTable | None) -> tuple[int, ...] | Reason | None:
        count = self.demand.per_gpu.count
        if self.demand.per_gpu.is_shared:
            return None
        if table is None:
            return MISSING_TABLE
        groups = table.get(count)
        if not groups:
            return NO_PARTITION_OF_COUNT
        fitting = fitting_partitions(
            groups,
            self.candidates.total.keys(),
            self.candidates.used,
            self.demand.bandwidth,
            best_only=self.demand.best_partition_only,
        )
        return best_packed(fitting, table, self.candidates.used, count).minors if fitting else NO_PARTITION

    def by_topology(self) -> tuple[int, ...] | Reason | None:
        """The minors of GPUs that are as near each other as possible; None if no scope is required, and the topology of
        the GPUs is unknown."""
        required, per_gpu = self.demand.scope, self.demand.per_gpu
        if self.node.scopes is None:
            return MISSING_TOPOLOGY if required else None
        if per_gpu.is_shared and per_gpu.count > 1:
            return SEVERAL_SHARED if required else None
        found = self._in(self.node.scopes, 0, 0)
        if found is None:
            return NO_SCOPE if required else NO_GPUS
        return found.minors

    def _in(self, scope: GPUScope, depth: int, in_use: int) -> _Found | None:
        """The best of the deepest scopes that have enough GPUs; the first of equal ones."""
        if len(scope.minors) < self.demand.per_gpu.count:
            return None
        in_use += any(minor in self.candidates.used for minor in scope.minors)
        parts = [found for part in scope.parts if (found := self._in(part, depth + 1, in_use)) is not None]
        if parts:
            return max(parts, key=lambda found: found.rank)
        if SCOPE_LEVELS.get(self.demand.scope, 0) > scope.level:
            return None
        return (
            self._shared(scope, depth, in_use) if self.demand.per_gpu.is_shared else self._whole(scope, depth, in_use)
        )

    def _whole(self, scope: GPUScope, depth: int, in_use: int) -> _Found | None:
        minors = tuple(minor for minor, _ in self._fitting(scope))[: self.demand.per_gpu.count]
        return _Found(minors, (depth, in_use, 0)) if len(minors) == self.demand.per_gpu.count else None

    def _shared(self, scope: GPUScope, depth: int, in_use: int) -> _Found | None:
        total, free = self.candidates.total, self.candidates.free
        scored = [
            (self.scorer.score(amounts, total[minor], free[minor]), minor) for minor, amounts in self._fitting(scope)
        ]
        if not scored:
            return None
        score, minor = max(scored, key=lambda pair: pair[0])
        return _Found((minor,), (depth, in_use, score))

    def _fitting(self, scope: GPUScope) -> Iterator[tuple[int, dict[str, int]]]:
        """The GPUs that have enough left, with the amounts that the pod takes."""
        amounts = self.demand.amounts
        for minor in scope.minors:
            if minor in self.candidates.free:
                total = self.candidates.total[minor]
                if fits(amounts, total, self.candidates.free[minor]):
                    yield minor, with_both_memories(amounts, total)
