"""Whether nodes have enough for many kinds of pods at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from koordinator.scheduler.engine.batch.kernel import BatchKernel
from koordinator.scheduler.engine.columns import Ints, NodeColumns, Rows
from koordinator.scheduler.engine.pod_info import PodInfo

_NOT_WANTED: Final = int(np.iinfo(np.int64).min)
"""Never missing, even where a node is overcommitted."""


class BatchFit(BatchKernel):
    """Enough or not is found out for all kinds together, what is missing for each by itself: mostly nothing is."""

    def __init__(
        self,
        columns: NodeColumns,
        wanted: Callable[[Any], tuple[Rows, Ints]],
        code: Callable[[PodInfo, Any, int], int],
    ) -> None:
        """``wanted`` gives resources and their amounts from the plugin's state; ``code`` says why a row is not good
        enough."""
        self._columns = columns
        self._wanted_of = wanted
        self._code = code
        self._kinds: list[tuple[PodInfo, Any]] = []
        self._wanted: Ints = np.zeros((0, 0), dtype=np.int64)
        """(resources, kinds), with room for more."""

    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        self._kinds.append((pod, state))
        width, capacity = self._wanted.shape
        if len(self._columns.resources) > width or slot >= capacity:
            larger = np.full((len(self._columns.resources), max(2 * slot, 16)), _NOT_WANTED)
            larger[:width, :capacity] = self._wanted
            self._wanted = larger
        resources, amounts = self._wanted_of(state)
        self._wanted[resources, slot] = amounts

    def evaluate(self, rows: Rows) -> Ints:
        wanted = self._wanted[:, : len(self._kinds)]
        codes = np.zeros((rows.shape[0], len(self._kinds)), dtype=np.int64)
        free = self._columns.amounts(rows).free[: wanted.shape[0]]
        # There are more kinds than rows, and numpy is quick along the last axis.
        short = free[:, :, np.newaxis] < wanted[:, np.newaxis, :]
        if np.count_nonzero(short):
            for index, slot in np.argwhere(short.any(axis=0)).tolist():
                codes[index, slot] = self._code(*self._kinds[slot], int(rows[index]))
        return codes
