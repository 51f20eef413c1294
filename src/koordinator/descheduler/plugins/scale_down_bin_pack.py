"""ScaleDownBinPack: when workloads shrink, they leave whole nodes empty.

Pods get a rank: first those on nodes that are the least busy with anything else. Controllers delete the lowest deletion
cost first, so that the rank is written as that cost, or pods are evicted in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf, isfinite
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from koordinator.api import annotations as annotation_keys
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.framework import DeletionCost, Eviction, Plan, Remark, Snapshot
from koordinator.descheduler.plugins.selection import SelectiveArguments, SelectivePlugin
from koordinator.descheduler.requests import amount, requests_of

CALCULATE_ONLY: Final = "CalculateOnly"
EVICT_DIRECTLY: Final = "EvictDirectly"
LAST: Final = 2**31 - 1
_BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)


class ScaleDownBinPackArgs(SelectiveArguments):
    strategy: str = CALCULATE_ONLY
    max_pods_to_evict: int | None = None
    resources: list[str] = msgspec.field(default_factory=lambda: [CPU, MEMORY])
    resource_weights: dict[str, float] = {}

    def completed(self, path: str) -> Self:
        super().completed(path)
        if self.strategy not in (CALCULATE_ONLY, EVICT_DIRECTLY):
            raise ConfigurationError(f"{path}.strategy", self.strategy, f"{CALCULATE_ONLY} or {EVICT_DIRECTLY}")
        if self.strategy == EVICT_DIRECTLY and (self.max_pods_to_evict or 0) <= 0:
            raise ConfigurationError(f"{path}.maxPodsToEvict", self.max_pods_to_evict, "at least 1")
        weights = {**dict.fromkeys(self.resources, 1.0), **self.resource_weights}
        for name, weight in weights.items():
            if not (isfinite(weight) and weight > 0):
                raise ConfigurationError(f"{path}.resourceWeights[{name}]", weight, "a finite number above 0")
        return replace(self, resource_weights=weights)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The pods of one node: those that may leave, those that are selected but may not, and how soon."""

    node: Node
    eligible: Sequence[Pod]
    skipped: Sequence[Pod]
    score: float


class ScaleDownBinPack(SelectivePlugin):
    name = "ScaleDownBinPack"
    args_type = ScaleDownBinPackArgs

    args: ScaleDownBinPackArgs

    def _balance(self, snapshot: Snapshot) -> Plan:
        found = [self._candidates(snapshot, node) for node in self._selected(snapshot.nodes)]
        chosen = sorted(
            (each for each in found if each.eligible),
            key=lambda each: (each.score, len(each.eligible), each.node.metadata.name),
        )
        ranked = [pod for each in chosen for pod in self._ordered(each)]
        if self.args.strategy == EVICT_DIRECTLY:
            yield from self._evict(ranked)
        else:
            yield from self._mark(ranked, [pod for each in found for pod in each.skipped])

    def _evict(self, ranked: Iterable[Pod]) -> Plan:
        evicted = 0
        for pod in ranked:
            if evicted >= (self.args.max_pods_to_evict or 0):
                return
            evicted += bool((yield Eviction(pod, "scale-down binpack")))

    def _mark(self, ranked: Iterable[Pod], skipped: Iterable[Pod]) -> Plan:
        """Only what is not marked so already; skipped pods only if a selector matches them."""
        costs = [(pod, rank) for rank, pod in enumerate(ranked)]
        if self._selection.is_selective:
            costs += [(pod, LAST) for pod in skipped]
        failed = 0
        for pod, cost in costs:
            if pod.metadata.annotations.get(annotation_keys.POD_DELETION_COST) != str(cost):
                failed += not (yield DeletionCost(pod, cost, "scale-down binpack"))
        if failed:
            yield Remark(f"failed to patch {failed} pods")

    def _candidates(self, snapshot: Snapshot, node: Node) -> _Candidates:
        eligible: list[Pod] = []
        skipped: list[Pod] = []
        others: list[Pod] = []
        for pod in snapshot.pods_on(node.metadata.name):
            if not self._selection.matches(pod):
                others.append(pod)
            elif self.handle.evictor.filter(pod):
                skipped.append(pod)
            else:
                eligible.append(pod)
        weights = self.args.resource_weights
        taxed = sum(_size(pod, node, weights) for pod in (*others, *skipped))
        gained = sum(_size(pod, node, weights) for pod in eligible)
        score = taxed / gained if gained > 0 else inf if taxed > 0 else 0.0
        return _Candidates(node, eligible, skipped, score)

    def _ordered(self, candidates: _Candidates) -> list[Pod]:
        """The largest first, then the youngest."""
        weights = self.args.resource_weights

        def key(pod: Pod) -> tuple[float, float, str, str]:
            created = (pod.metadata.creation_timestamp or _BEGINNING).timestamp()
            return -_size(pod, candidates.node, weights), -created, pod.metadata.namespace, pod.metadata.name

        return sorted(candidates.eligible, key=key)


def _size(pod: Pod, node: Node, weights: Mapping[str, float]) -> float:
    """The weighted sum of the shares of the node that the pod requests."""
    requests, allocatable = requests_of(pod), node.status.allocatable
    return sum(
        weight * requests.get(name, 0) / amount(name, allocatable[name])
        for name, weight in weights.items()
        if allocatable.get(name)
    )
