"""Load columns into results and scores for many kinds of pods at once."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.batch.kernel import BatchKernel, Slots
from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.load_aware.load_columns import LoadColumns
from koordinator.scheduler.plugins.load_aware.rules import Expected, LoadRules

Item = TypeVar("Item", np.int64, np.float64)


class BatchLoadFilter(BatchKernel):
    """Whether there is room is found out for all kinds together, what is lacking for each by itself: mostly nothing."""

    def __init__(self, columns: LoadColumns, evaluate: LoadRules, width: int) -> None:
        """``width`` is the number of resources."""
        self._columns = columns
        self._rules = evaluate
        self._kinds: list[Expected] = []
        self._slots = Slots(prod=np.zeros(0, dtype=np.intp), amounts=np.zeros((width, 0), dtype=np.int64))

    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        expected: Expected = state
        self._kinds.append(expected)
        self._slots.put(prod=expected.prod, amounts=expected.amounts)

    def evaluate(self, rows: Rows) -> Ints:
        codes = np.zeros((rows.shape[0], len(self._kinds)), dtype=np.int64)
        remaining = _by_kind(self._columns.remaining, rows, self._slots["prod"])
        short = remaining < self._slots["amounts"][:, np.newaxis, :]
        if np.count_nonzero(short):
            for index, slot in np.argwhere(short.any(axis=0)).tolist():
                codes[index, slot] = self._rules.code(self._kinds[slot], int(rows[index]))
        return codes


class BatchLoadScores(BatchKernel):
    """See LoadRules.scores."""

    def __init__(self, columns: LoadColumns, evaluate: LoadRules, width: int) -> None:
        self._columns = columns
        self._rules = evaluate
        self._kinds: list[Expected] = []
        self._slots = Slots(prod=np.zeros(0, dtype=np.intp), hundredfold=np.zeros((width, 0)))

    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        expected: Expected = state
        self._kinds.append(expected)
        self._slots.put(prod=expected.prod, hundredfold=expected.hundredfold[:, 0])

    def evaluate(self, rows: Rows) -> Ints:
        columns = self._columns
        if not columns.exact:
            return np.stack([self._rules.scores(expected, rows) for expected in self._kinds], axis=1)
        left = _by_kind(columns.free, rows, self._slots["prod"]) - self._slots["hundredfold"][:, np.newaxis, :]
        kinds = len(self._kinds)
        return self._rules.scores_of(left.reshape(left.shape[0], -1), rows, kinds).reshape(rows.shape[0], kinds)


def _by_kind(matrix: NDArray[Item], rows: Rows, prod: NDArray[np.intp]) -> NDArray[Item]:
    """Of a matrix (sorts, resources, all rows), what holds for each kind: shape (resources, rows, kinds)."""
    return matrix.take(rows, axis=2).transpose(1, 2, 0).take(prod, axis=2)
