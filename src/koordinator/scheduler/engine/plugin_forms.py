"""The forms of a Filter and of a Score beside that of arrays: arithmetic that reads the same for one row, in plain
numbers, and for many rows, in arrays; and a look at one node at a time.

Most decisions evaluate a single row, where plain numbers are several times as fast as arrays; a new class of pods
evaluates all rows. With either form, a rule is written once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import Ints, Mask, Rows, at
from koordinator.scheduler.engine.framework import FEASIBLE, FilterPlugin, Plugin, Reason, ScorePlugin
from koordinator.scheduler.engine.pod_info import PodInfo

SomeRows = Rows | int
"""Row numbers, which ascend, or a single one."""


def of_rows(column: NDArray[Any], rows: SomeRows) -> Any:
    """``column[rows]``, to be read only."""
    return column.item(rows) if isinstance(rows, int) else at(column, rows)


def look_up(table: NDArray[Any], column: NDArray[Any], rows: SomeRows) -> Any:
    """``table[column[rows]]``."""
    return table.item(column.item(rows)) if isinstance(rows, int) else table.take(at(column, rows))


def chosen(condition: Any, value: Any, otherwise: Any) -> Any:
    """``value`` where the condition holds, else ``otherwise``."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, value, otherwise)
    return value if condition else otherwise


def zeros(rows: SomeRows) -> Any:
    """0 for each of ``rows``: the code FEASIBLE, or the lowest score."""
    return 0 if isinstance(rows, int) else np.zeros(rows.shape[0], dtype=np.int64)


def weighted_sum(weights: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum over the first axis, to which the weights belong."""
    # Costs half of the operator for few rows.
    flat = values if values.ndim == 1 + weights.ndim else values.reshape(values.shape[0], -1)
    sums: NDArray[np.float64] = weights.dot(flat)
    return sums if flat is values else sums.reshape(values.shape[1:])


class ElementwiseFilterPlugin(FilterPlugin):
    """A Filter whose ``filter`` takes a single row as well. As arithmetic, a rule reads the same for the numbers of one
    row and for arrays of many; ``of_rows`` and the other functions here are what differs."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _use_for_one(cls, "filter")

    @abstractmethod
    def filter(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        """As FilterPlugin.filter; for the number of a row in place of an array, its code as a plain integer."""


class ElementwiseScorePlugin(ScorePlugin):
    """A Score whose ``score`` takes a single row as well, see ElementwiseFilterPlugin."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _use_for_one(cls, "score")

    @abstractmethod
    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        """As ScorePlugin.score; for the number of a row in place of an array, its score as a plain integer."""


def _use_for_one(plugin: type[Plugin], point: str) -> None:
    """The method of ``point`` is that for one row, too. A method that called it would cost as much as many a rule."""
    if f"{point}_one" in vars(plugin):
        raise TypeError(f"{plugin.__name__} writes {point}_one beside {point}, which takes a single row as well")
    setattr(plugin, f"{point}_one", getattr(plugin, point))


class RankingScorePlugin(ElementwiseScorePlugin):
    """A Score that compares all feasible nodes, so that nothing is known of one alone: it implements ``normalize``."""

    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        return zeros(rows)


class RowFilterPlugin(FilterPlugin):
    """A Filter that evaluates one node at a time, as an allocator has to: it implements ``filter_one``."""

    @abstractmethod
    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        """The reason code of the row, see FilterPlugin.filter."""

    def filter_likeness(self, pod: PodInfo, state: Any) -> Callable[[int], Hashable] | None:
        """What makes rows alike, see ``each_row``; worth implementing where that is quicker than ``filter_one``, and
        many nodes are alike."""
        return None

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return each_row(rows, partial(self.filter_one, pod, state), self.filter_likeness(pod, state))


class RowScorePlugin(ScorePlugin):
    """A Score that evaluates one node at a time: it implements ``score_one``."""

    @abstractmethod
    def score_one(self, pod: PodInfo, state: Any, row: int) -> int:
        """The score of the row, see ScorePlugin.score."""

    def score_likeness(self, pod: PodInfo, state: Any) -> Callable[[int], Hashable] | None:
        """See RowFilterPlugin.filter_likeness."""
        return None

    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return each_row(rows, partial(self.score_one, pod, state), self.score_likeness(pod, state))


def each_row(rows: Rows, of_one: Callable[[int], int], likeness: Callable[[int], Hashable] | None = None) -> Ints:
    """``of_one`` of each row. With ``likeness``, it is called once for all rows for which that is equal; for a row that
    is like no other, ``likeness`` is None."""
    if likeness is None:
        return np.fromiter(map(of_one, rows.tolist()), dtype=np.int64, count=rows.shape[0])
    known: dict[Hashable, int] = {}
    found = np.empty(rows.shape[0], dtype=np.int64)
    for index, row in enumerate(rows.tolist()):
        key = likeness(row)
        value = known.get(key) if key is not None else None
        if value is None:
            value = of_one(row)
            if key is not None:
                known[key] = value
        found[index] = value
    return found


class ReasonCodes:
    """Codes for combinations of reasons, for a Filter that finds them node by node."""

    def __init__(self) -> None:
        self._codes: dict[tuple[Reason, ...], int] = {(): FEASIBLE}
        self._reasons: list[tuple[Reason, ...]] = [()]

    def has_room(self, most: int, reason: Reason) -> bool:
        """Whether ``reason`` alone has a code, or one of the first ``most`` is left for it."""
        return len(self._codes) <= most or (reason,) in self._codes

    def of(self, *reasons: Reason) -> int:
        """The code of these reasons; FEASIBLE for none."""
        code = self._codes.get(reasons)
        if code is None:
            code = self._codes[reasons] = len(self._reasons)
            self._reasons.append(reasons)
        return code

    def reasons(self, code: int) -> tuple[Reason, ...]:
        """The reasons of a code."""
        return self._reasons[code]


class FilterCodes(Protocol):
    """Filter results of all rows for one class of pods. See ElementwiseFilterPlugin for the methods."""

    def codes(self, rows: SomeRows) -> Any: ...

    def apply_delta(self, rows: Rows) -> Rows | None: ...


class Scores(Protocol):
    """Scores of all rows for one class of pods. See RankingScorePlugin for the methods."""

    def apply_delta(self, rows: Rows) -> bool: ...

    def scores(self, feasible: Mask) -> Ints: ...


class CrossNodeFilterState(ElementwiseFilterPlugin):
    """A Filter plugin whose PreFilter returns FilterCodes as state."""

    def filter(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        filter_results: FilterCodes = state
        return filter_results.codes(rows)

    def apply_delta(self, pod: PodInfo, state: Any, rows: Rows) -> Rows | None:
        filter_results: FilterCodes = state
        return filter_results.apply_delta(rows)


class CrossNodeScoreState(RankingScorePlugin):
    """A Score plugin whose PreScore returns Scores as state. All final scores depend on which rows are feasible."""

    def apply_score_delta(self, pod: PodInfo, state: Any, rows: Rows) -> bool:
        scores: Scores = state
        return scores.apply_delta(rows)

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        scores: Scores = state
        return scores.scores(feasible)
