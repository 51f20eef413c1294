"""The scores of AllocationScorer for many kinds of pods at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from koordinator.scheduler.engine.batch.kernel import BatchKernel, Slots
from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.node_resources.allocation import CPU_AND_MEMORY, Allocation, AllocationScorer


class BatchAllocation(BatchKernel):
    """Kinds of which CPU and memory are scored are done together, others one after the other."""

    def __init__(self, scorer: AllocationScorer) -> None:
        self._scorer = scorer
        self._kinds: list[Allocation] = []
        self._usual: Allocation | None = None
        """One of those of which CPU and memory are scored: all these have the same weights."""
        self._others: list[int] = []
        """The places of the rest."""
        self._added = Slots(added=np.zeros((len(CPU_AND_MEMORY), 0)))

    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        allocation: Allocation = state
        self._kinds.append(allocation)
        if allocation.columns == CPU_AND_MEMORY:
            self._usual = allocation
            self._added.put(added=allocation.added)
        else:
            self._others.append(slot)
            self._added.put(added=0)

    def evaluate(self, rows: Rows) -> Ints:
        scores = self._scorer.score_many(self._usual, self._added["added"], rows) if self._usual is not None else None
        if scores is None:
            return np.stack([self._scorer.score(allocation, rows) for allocation in self._kinds], axis=1)
        for slot in self._others:
            scores[:, slot] = self._scorer.score(self._kinds[slot], rows)
        return scores
