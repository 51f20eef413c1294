"""The rules of LoadAwareScheduling's Filter and Score, and the same for many kinds of pods at once.
tests/scheduler/engine/test_single_rows.py compares all of them."""

from __future__ import annotations

from functools import partial
from operator import lt
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.batch_kernel import BatchKernel, Slots
from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.framework import FEASIBLE, MAX_NODE_SCORE
from koordinator.scheduler.engine.plugin_forms import SomeRows, chosen, each_row, weighted_sum, zeros
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.load_aware.load_columns import (
    AGGREGATED,
    CAPACITY,
    EXPIRED,
    SORTS,
    Floats,
    LoadColumns,
)
from koordinator.scheduler.plugins.load_aware.pod_load import Incoming
from koordinator.scheduler.plugins.load_aware.settings import Settings

REPORT_IS_EXPIRED: Final = 1
FIRST_RESOURCE: Final = 2
"""Codes from here on: 2 × resource, plus 1 where aggregated usage was compared."""
_NO_RESOURCE: Final = MAX_NODE_SCORE + 1
_NOT_USED: Final = int(np.iinfo(np.int64).min)
"""Less than what remains anywhere."""
_ZERO: Final = np.zeros(())
"""Costs half of a plain number, which numpy converts at each use."""
Item = TypeVar("Item", bound=np.generic)


class LoadRules:
    """The rules of Filter and Score."""

    def __init__(self, settings: Settings, columns: LoadColumns) -> None:
        self._settings = settings
        self._columns = columns
        self._weights = np.array(settings.weights, dtype=np.float64)

    def codes(self, expected: Incoming, rows: SomeRows) -> Any:
        """Filter: of each of ``rows``, the first resource, in the order of names, of which too little remains."""
        columns, prod = self._columns, expected.prod
        remaining: Any
        if is_one := isinstance(rows, int):
            remaining, codes = columns.remaining_of[rows][prod], FEASIBLE
            if not any(map(lt, remaining, expected.amounts)):
                return codes
        else:
            columns.ensure(rows.item(-1) if rows.size else 0)
            remaining, codes = _at(columns.remaining[int(prod)], rows), zeros(rows)
        for index, amount in enumerate(expected.amounts):
            short = remaining[index] < amount
            if short if is_one else np.count_nonzero(short):
                over = FIRST_RESOURCE + 2 * index + (columns.compared(rows, prod=prod) == AGGREGATED)
                code = chosen(remaining[index] == EXPIRED, REPORT_IS_EXPIRED, over)
                codes = chosen(short & (codes == FEASIBLE), code, codes)
        return codes

    def scores(self, expected: Incoming, rows: Rows) -> Ints:
        """Score: the weighted mean of what would be free, in percent; the fullest resource counts once more."""
        columns = self._columns
        columns.ensure(rows.item(-1) if rows.size else 0)
        if not columns.exact:
            return each_row(rows, partial(self.score, expected))
        return self.scores_of(_at(columns.free[int(expected.prod)], rows) - expected.hundredfold, rows)

    def scores_of(self, left: Floats, rows: Rows) -> Ints:
        """The same from what would be ``left``, times a hundred, which is overwritten; of shape (resources, rows), or
        (resources, rows, kinds) for many kinds of pods."""
        settings, columns, kinds = self._settings, self._columns, left.shape[2:]
        shares = np.maximum(left, _ZERO, out=left)
        capacity = _at(columns.capacity, rows)
        shares /= capacity[:, :, np.newaxis] if kinds else capacity
        np.floor(shares, out=shares)
        total = weighted_sum(self._weights, shares)
        if settings.dominant_weight:
            # A resource that the node does not have is not part of its load.
            lacks = _at(columns.lacks, rows)
            lowest = np.where(lacks[:, :, np.newaxis] if kinds else lacks, _NO_RESOURCE, shares).min(axis=0)
            total += np.where(lowest == _NO_RESOURCE, 0, lowest) * settings.dominant_weight
        total /= settings.total_weight
        scores: Ints = total.astype(np.int64)
        if columns.lowered:
            percent = columns.score_percent.take(rows)
            scores *= percent[:, np.newaxis] if kinds else percent
            scores //= 100
        return scores

    def score(self, expected: Incoming, row: int) -> int:
        """The same for one row, exact whatever the amounts are."""
        columns, settings = self._columns, self._settings
        free, capacity = columns.free_of[row][expected.prod], columns.limits_of[row][CAPACITY]
        total, lowest = 0, _NO_RESOURCE
        for weight, whole, left, amount in zip(settings.weights, capacity, free, expected.amounts, strict=True):
            if whole > 0:
                left -= amount
                share = left * MAX_NODE_SCORE // whole if left > 0 else 0
                total += share * weight
                if share < lowest:
                    lowest = share
        if lowest != _NO_RESOURCE:
            total += lowest * settings.dominant_weight
        score = total // settings.total_weight
        return score * columns.lowered[row] // 100 if row in columns.lowered else score


def _at(matrix: NDArray[Item], rows: Rows) -> NDArray[Item]:
    """The columns ``rows`` of a matrix (resources, all rows), to be read only."""
    count = rows.shape[0]
    return matrix[:, :count] if count and rows[-1] == count - 1 else matrix.take(rows, axis=1)


Number = TypeVar("Number", np.int64, np.float64)


class BatchLoadFilter(BatchKernel):
    """Compares thresholds for all kinds together: mostly the most that any of them uses is below. The reason is
    determined for each kind separately."""

    def __init__(self, columns: LoadColumns, evaluate: LoadRules, width: int) -> None:
        """``width`` is the number of resources."""
        self._columns = columns
        self._rules = evaluate
        self._kinds: list[Incoming] = []
        self._slots = Slots(prod=np.zeros(0, dtype=np.intp), amounts=np.zeros((width, 0), dtype=np.int64))
        self._largest = np.full((SORTS, width, 1), _NOT_USED)
        """Of the kinds of each sort, by resource."""

    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        expected: Incoming = state
        self._kinds.append(expected)
        self._slots.put(prod=expected.prod, amounts=expected.amounts)
        largest = self._largest[int(expected.prod), :, 0]
        np.maximum(largest, expected.amounts, out=largest)

    def evaluate(self, rows: Rows) -> Ints | None:
        scarce = self._columns.remaining.take(rows, axis=2) < self._largest
        if not np.count_nonzero(scarce):
            return None
        codes = np.zeros((rows.shape[0], len(self._kinds)), dtype=np.int64)
        few = np.flatnonzero(scarce.any(axis=(0, 1)))
        remaining = _by_kind(self._columns.remaining, rows[few], self._slots["prod"])
        short = (remaining < self._slots["amounts"][:, np.newaxis, :]).any(axis=0)
        for index, slot in np.argwhere(short).tolist():
            codes[few[index], slot] = self._rules.codes(self._kinds[slot], rows.item(few[index]))
        return codes


class BatchLoadScores(BatchKernel):
    """See LoadRules.scores."""

    def __init__(self, columns: LoadColumns, evaluate: LoadRules, width: int) -> None:
        self._columns = columns
        self._rules = evaluate
        self._kinds: list[Incoming] = []
        self._slots = Slots(prod=np.zeros(0, dtype=np.intp), hundredfold=np.zeros((width, 0)))

    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        expected: Incoming = state
        self._kinds.append(expected)
        self._slots.put(prod=expected.prod, hundredfold=expected.hundredfold[:, 0])

    def evaluate(self, rows: Rows) -> Ints:
        columns = self._columns
        if not columns.exact:
            return np.stack([self._rules.scores(expected, rows) for expected in self._kinds], axis=1)
        left = _by_kind(columns.free, rows, self._slots["prod"]) - self._slots["hundredfold"][:, np.newaxis, :]
        return self._rules.scores_of(left, rows)


def _by_kind(matrix: NDArray[Number], rows: Rows, prod: NDArray[np.intp]) -> NDArray[Number]:
    """Of a matrix (sorts, resources, all rows), the values for each kind: shape (resources, rows, kinds)."""
    return matrix.take(rows, axis=2).transpose(1, 2, 0).take(prod, axis=2)
