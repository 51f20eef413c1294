"""NodeResourcesBalancedAllocation: prefers nodes that would be equally full of each resource."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import reduce
from typing import Any, ClassVar, Final

import numpy as np

from koordinator.scheduler.engine.batch_kernel import BatchKernel
from koordinator.scheduler.engine.columns import Aspect, Ints
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE, SKIP_SCORE
from koordinator.scheduler.engine.plugin_forms import ElementwiseScorePlugin, SomeRows
from koordinator.scheduler.engine.pod_info import PodInfo, resources_key
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.node_resources.allocation import (
    AllocationScorer,
    BatchAllocation,
    Fill,
    Item,
    Scorer,
)


class NodeResourcesBalancedAllocation(ElementwiseScorePlugin):
    name = "NodeResourcesBalancedAllocation"
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.PODS)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._scorer = AllocationScorer(view.columns, args.resources, BALANCED)

    def class_key(self, pod: PodInfo) -> Hashable:
        return resources_key(pod)

    def pre_score(self, pod: PodInfo) -> Any:
        allocation = self._scorer.prepare(pod, non_zero=False)
        # A pod without requests would be drawn to the same node again and again.
        return allocation if any(allocation.added) else SKIP_SCORE

    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        return self._scorer.score(state, rows)

    def batch_score(self) -> BatchKernel:
        return BatchAllocation(self._scorer)


def balanced(fill: Fill) -> Ints:
    """100 × (1 − standard deviation of the used fractions), without resources that a node lacks, rounded down."""
    if fill.complete and fill.requested.shape[0] == 2:
        fractions = np.divide(fill.requested, fill.allocatable, out=fill.requested)
        np.minimum(fractions, 1.0, out=fractions)
        # The deviation of two fractions is half their distance.
        deviation = fractions[0] - fractions[1]
        np.abs(deviation, out=deviation)
        deviation *= 0.5
    else:
        deviation = _deviation_of_some(fill.requested, fill.allocatable)
    # In place: as many steps, but no array is made for each of them.
    np.subtract(1, deviation, out=deviation)
    deviation *= float(MAX_NODE_SCORE)
    scores: Ints = deviation.astype(np.int64)
    return scores


def _deviation_of_some(requested: Any, allocatable: Any) -> Any:
    """For any number of resources, of which a node may lack some."""
    present = allocatable > 0
    fractions = np.minimum(requested / np.maximum(allocatable, 1), 1.0)
    if fractions.shape[0] == 2:
        return np.where(present[0] & present[1], np.abs((fractions[0] - fractions[1]) / 2), 0.0)
    return _deviation(np.where(present, fractions, 0.0), present, present.sum(axis=0))


def balanced_pair(items: Sequence[Item], requested: Any, allocatable: Any) -> int | None:
    """The same for one node and two resources, the usual case; None for any other."""
    if len(items) != 2:
        return None
    (first, more_of_first, _), (second, more_of_second, _) = items
    if allocatable[first] <= 0 or allocatable[second] <= 0:
        return MAX_NODE_SCORE
    one = (requested[first] + more_of_first) / allocatable[first]
    other = (requested[second] + more_of_second) / allocatable[second]
    one, other = one if one < 1.0 else 1.0, other if other < 1.0 else 1.0
    deviation = (one - other if one > other else other - one) / 2
    return int((1 - deviation) * MAX_NODE_SCORE)


BALANCED: Final = Scorer(balanced, balanced_pair)


def _deviation(fractions: Any, present: Any, count: Any) -> Any:
    # One after the other, as upstream: numpy's sum of many numbers may round otherwise.
    mean = reduce(np.add, fractions) / np.maximum(count, 1)
    squares = np.where(present, (fractions - mean) ** 2, 0.0)
    deviation = np.sqrt(reduce(np.add, squares) / np.maximum(count, 1))
    # The deviation of two fractions is half their distance, computed without a root.
    ordered = np.sort(np.where(present, fractions, np.nan), axis=0)
    if fractions.shape[0] > 2:
        deviation = np.where(count == 2, np.abs(ordered[0] - ordered[1]) / 2, deviation)
    return np.where(count >= 2, deviation, 0.0)
