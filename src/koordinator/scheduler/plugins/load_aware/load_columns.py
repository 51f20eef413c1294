"""The load of all nodes as columns, for Filter and Score: one row for each node.

Decisions read only what follows from loads, thresholds and capacity: how much more a pod may add to each resource, and
how much of it is free. So a pod is compared with one number for each resource, on many nodes at once or on one. Most
events are pods that come and go; these shrink or grow the numbers of their row, and a row is recomputed only when
loads, thresholds or capacity themselves change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordinator.api.resource_names import MEMORY
from koordinator.model.huge_pages import without_pool
from koordinator.scheduler.engine.columns import EXACT_BELOW, Ints, Mask
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.engine.plugin_forms import SomeRows, chosen, of_rows
from koordinator.scheduler.plugins.expirations import Expirations
from koordinator.scheduler.plugins.load_aware.node_load import NodeLoad, Report
from koordinator.scheduler.plugins.load_aware.pod_load import OF_ESTIMATES, OF_NODE, OF_PROD, Share, added
from koordinator.scheduler.plugins.load_aware.settings import (
    LONGEST_WINDOW,
    AggregatedKey,
    Settings,
    Thresholds,
    Vector,
)

SORTS: Final = 2
"""Pods that are not of the prod class, and those that are: an index into what is left."""
Number = TypeVar("Number", np.int64, np.float64)


class Left(NamedTuple):
    """What is left on a row for pods of one sort, by resource."""

    amounts: list[int]
    taken_by: int | None
    """The load that reduces it, as an index into Share.loads; None when pods do not change it."""


class Remainders(Generic[Number]):
    """``of`` is indexed by row, sort of pods and resource: most decisions read a single row, where an array costs more
    to read than it saves. ``matrix`` has shape (sorts, resources, rows), each number multiplied by ``factor``; it
    follows when it is read."""

    def __init__(self, width: int, kind: type[Number], initial: int, factor: int = 1) -> None:
        self._width = width
        self._initial = initial
        self._factor = factor
        self.of: list[list[list[int]]] = []
        self._matrix: NDArray[Number] = np.zeros((SORTS, width, 0), dtype=kind)
        self._late: set[int] = set()
        """The rows of which the matrix does not show the last changes."""
        self._taken: dict[int, list[tuple[list[int], int]]] = {}
        """Row -> what each load reduces: the amounts, the load."""

    @property
    def matrix(self) -> NDArray[Number]:
        """To be read only."""
        if self._late:
            rows = list(self._late)
            of_rows = chain.from_iterable(chain.from_iterable([self.of[row] for row in rows]))
            # Several times as fast as an array from lists.
            numbers = np.fromiter(of_rows, dtype=self._matrix.dtype).reshape(len(rows), SORTS, self._width)
            self._matrix[:, :, rows] = numbers.transpose(1, 2, 0) * self._factor
            self._late.clear()
        return self._matrix

    def grow(self, rows: int) -> None:
        """Grow to ``rows`` in all."""
        known = len(self.of)
        larger = np.full((SORTS, self._width, rows), self._initial * self._factor, dtype=self._matrix.dtype)
        larger[..., :known] = self._matrix
        self._matrix = larger
        self.of.extend([[self._initial] * self._width] * SORTS for _ in range(rows - known))

    def write(self, row: int, left: Sequence[Left]) -> bool:
        """Store the recomputed remainders for pods of each sort; returns whether they have changed. If both are the
        same object, they are always the same for both sorts."""
        before = self.of[row]
        now = self.of[row] = [each.amounts for each in left]
        self._taken.pop(row, None)
        parts = left[:1] if left[0] is left[1] else left
        taken = [(part.amounts, part.taken_by) for part in parts if part.taken_by is not None]
        if taken:
            self._taken[row] = taken
        self._late.add(row)
        return before != now

    def take(self, row: int, loads: Sequence[Vector], sign: int) -> bool:
        """The loads of ``row`` have grown by these (``sign`` 1) or shrunk (-1); returns whether that changes anything.
        Called for every pod that comes or goes, so it must be quick."""
        changed = False
        for amounts, load in self._taken.get(row, ()):
            for index, more in enumerate(loads[load]):
                if more:
                    amounts[index] -= sign * more
                    changed = True
        if changed:
            self._late.add(row)
        return changed


USAGE: Final = 0
"""All pods: measured usage and what was assigned since."""
PROD: Final = 1
"""Pods of the prod class alone."""
AGGREGATED: Final = 2
"""Usage aggregated over a window, as configured for Filter."""
SCORE_AGGREGATED: Final = 3
"""The same as configured for Score; a load only."""
CAPACITY: Final = 3
"""The node's capacity; a limit only."""
NO_LIMIT: Final = 1 << 62
"""A remainder that no pod exceeds."""
EXPIRED: Final = -(1 << 62)
"""The remainder on a node that takes no pod because its report has expired."""
_NOTHING: Final = -(1 << 62)
_FIRST_ROWS: Final = 64
Floats = NDArray[np.float64]
Item = TypeVar("Item", bound=np.generic)


class Load(NamedTuple):
    """One kind of load of a node that has reported."""

    amounts: Vector
    """Measured usage, plus what the pods add."""
    added: int
    """The index of the pods' part in Share.loads."""


class LoadColumns:
    """Loads and thresholds of all nodes. Changes of a node or of its report take effect in the remainders once
    ``conclude`` is called for the row."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._width = len(settings.resources)
        self.rows = 0
        self.limits_of: list[list[Vector]] = []
        """By row, kind (``USAGE``, ``PROD``, ``AGGREGATED``, ``CAPACITY``) and resource: percentages, and capacity."""
        self._aggregation_of: list[AggregatedKey | None] = []
        """The aggregation that Filter compares instead of plain usage, by row."""
        self._huge_pages_of: list[int] = []
        """The pool of huge pages, in bytes, by row."""
        self.expired: list[bool] = []
        self.aggregates: Mask = np.zeros(0, dtype=np.bool_)
        """Whether Filter compares aggregated usage on the node."""
        self.limits_prod: Mask = np.zeros(0, dtype=np.bool_)
        """Whether Filter compares the load of prod pods with thresholds of their own for an incoming prod pod."""
        self._remaining = Remainders(self._width, np.int64, NO_LIMIT)
        self._free = Remainders(self._width, np.float64, _NOTHING, MAX_NODE_SCORE)
        self.remaining_of = self._remaining.of
        """``remaining`` by row, sort of pods and resource."""
        self.free_of = self._free.of
        """``free`` by row, sort of pods and resource, not multiplied."""
        self.capacity: Floats = np.ones((self._width, 0))
        """(resources, rows), at least 1."""
        self.exact = True
        """Whether percentages computed from ``free`` and ``capacity`` come out exact when rounded down. They are floats
        since a division of integers takes several times as long."""
        self.lacks: Mask = np.zeros((self._width, 0), dtype=np.bool_)
        """(resources, rows): the node has nothing of it."""
        self.score_percent: Ints = np.zeros(0, dtype=np.int64)
        """What is left of the score of each row."""
        self.lowered: dict[int, int] = {}
        """The same of the rows of which less than all is left."""
        scored = SCORE_AGGREGATED if settings.score_aggregation is not None else USAGE
        self._scored = scored, PROD if settings.scores_prod_usage else scored
        """The kind of load that Score uses, by sort of pods."""
        self.expirations = Expirations[int]()
        """The expiry of reports that have not expired."""

    @property
    def remaining(self) -> Ints:
        """(sorts of pods, resources, rows): the largest expected usage of a pod that passes here."""
        return self._remaining.matrix

    @property
    def free(self) -> Floats:
        """(sorts of pods, resources, rows): a hundred times the capacity minus the load that Score uses."""
        return self._free.matrix

    def ensure(self, row: int) -> None:
        """Grow the columns for ``row``."""
        if row < self.rows:
            return
        rows = max(_FIRST_ROWS, 2 * self.rows, row + 1)
        more = rows - self.rows
        self.aggregates = _grown(self.aggregates, np.zeros(rows, dtype=np.bool_))
        self.limits_prod = _grown(self.limits_prod, np.zeros(rows, dtype=np.bool_))
        self.capacity = _grown(self.capacity, np.ones((self._width, rows)))
        self.score_percent = _grown(self.score_percent, np.full(rows, 100))
        self.lacks = _grown(self.lacks, np.ones((self._width, rows), dtype=np.bool_))
        self._remaining.grow(rows)
        self._free.grow(rows)
        self.expired.extend([False] * more)
        self._aggregation_of.extend([None] * more)
        self._huge_pages_of.extend([0] * more)
        nothing = (0,) * self._width
        self.limits_of.extend([nothing, nothing, nothing, nothing] for _ in range(more))
        self.rows = rows

    def write_node(self, row: int, capacity: Vector, thresholds: Thresholds, huge_pages: int) -> bool:
        """Apply a new or changed node; returns whether that changes anything here."""
        self.ensure(row)
        limits = [thresholds.usage, thresholds.prod, thresholds.aggregated, capacity]
        beside = thresholds.aggregation, huge_pages
        if self.limits_of[row] == limits and (self._aggregation_of[row], self._huge_pages_of[row]) == beside:
            return False
        self.limits_of[row] = limits
        self._aggregation_of[row], self._huge_pages_of[row] = beside
        self.limits_prod[row] = any(thresholds.prod)
        self.aggregates[row] = thresholds.aggregation is not None
        self.capacity[:, row] = [max(amount, 1) for amount in capacity]
        self.exact = self.exact and all(amount < EXACT_BELOW for amount in capacity)
        self.lacks[:, row] = [amount <= 0 for amount in capacity]
        return True

    def write_score_percent(self, row: int, percent: int) -> bool:
        """Set what is left of the row's score; returns whether that has changed."""
        if self.lowered.get(row, 100) == percent:
            return False
        self.score_percent[row] = percent
        self.lowered[row] = percent
        if percent == 100:
            del self.lowered[row]
        return True

    def write_report_time(self, row: int, since: float | None, now: float) -> None:
        """Set the time from which the report ages; without a time it has expired already."""
        self.ensure(row)
        expires = (since or 0.0) + self._settings.expiration_seconds
        self.expired[row] = since is None or expires <= now
        if self.expired[row]:
            self.expirations.discard(row)
        else:
            self.expirations.set(row, expires)

    def write_expired(self, row: int, expired: bool) -> bool:
        """Set whether the report counts as expired; returns whether that has changed."""
        news = self.expired[row] != expired
        self.expired[row] = expired
        return news

    def conclude(self, row: int, node: NodeLoad | None) -> bool:
        """Recompute what decisions read; returns whether any of it has changed."""
        self.ensure(row)
        metric = node.metric if node is not None else None
        loads = self.loads(row, node) if node is not None else ()
        compared = self.compared(row, prod=False), self.compared(row, prod=True)
        remaining = [self._remaining_left(row, metric, loads, kind) for kind in dict.fromkeys(compared)]
        free = [self._free_left(row, metric, loads, kind) for kind in dict.fromkeys(self._scored)]
        # Not short-circuited: both have to be written.
        news = self._remaining.write(row, (remaining[0], remaining[-1])), self._free.write(row, (free[0], free[-1]))
        return any(news)

    def shift(self, row: int, share: Share, sign: int) -> bool:
        """The pods of the node add ``share`` more (``sign`` 1) or less (-1) to its load; returns whether anything that
        decisions read has changed. Equivalent to ``conclude``."""
        remaining = self._remaining.take(row, share.loads, sign)
        return self._free.take(row, share.loads, sign) or remaining

    def clear(self, row: int) -> None:
        """Clear the row of a node that is deleted, or whose report is."""
        self.ensure(row)
        self.expired[row] = False
        self.expirations.discard(row)
        self.conclude(row, None)

    def loads(self, row: int, node: NodeLoad) -> Sequence[Load]:
        """The estimated usage of the node, indexed by ``USAGE``, ``PROD``, ``AGGREGATED`` and ``SCORE_AGGREGATED``;
        empty while it has not reported."""
        metric = node.metric
        if metric is None:
            return ()
        by_pods, nothing = node.sums().loads, (0,) * self._width
        system = self._system(row, metric) if self._settings.prod_includes_system else nothing
        usage = Load(added(metric.usage, by_pods[OF_NODE]), OF_NODE)
        loads = [usage, Load(added(system, by_pods[OF_PROD]), OF_PROD)]
        for key in (self._aggregation_of[row], self._settings.score_aggregation):
            if key is None:
                loads.append(usage)
            elif (measured := _aggregated(metric, key)) is not None:
                loads.append(Load(added(measured, by_pods[OF_NODE]), OF_NODE))
            else:
                loads.append(Load(by_pods[OF_ESTIMATES], OF_ESTIMATES))
        return loads

    def _system(self, row: int, metric: Report) -> Vector:
        """What the system uses of the capacity, which does not contain the pool of huge pages."""
        pool = self._huge_pages_of[row]
        if not pool:
            return metric.system
        named = zip(self._settings.resources, metric.system, strict=True)
        return tuple([without_pool(used, pool) if name == MEMORY else used for name, used in named])

    def compared(self, rows: SomeRows, *, prod: bool) -> Any:
        """The kind of load that Filter compares for an incoming pod of the prod class, or of another."""
        of_all = chosen(of_rows(self.aggregates, rows), AGGREGATED, USAGE)
        return chosen(of_rows(self.limits_prod, rows), PROD, of_all) if prod else of_all

    def _remaining_left(self, row: int, metric: Report | None, loads: Sequence[Load], kind: int) -> Left:
        bounds, capacity = self.limits_of[row][kind], self.limits_of[row][CAPACITY]
        if metric is None or not any(bounds):
            return Left([NO_LIMIT] * self._width, None)
        if self._settings.filters_expired and self.expired[row]:
            return Left([NO_LIMIT if self._settings.passes_expired else EXPIRED] * self._width, None)
        if not metric.measured:
            return Left([NO_LIMIT] * self._width, None)
        used, taken_by = loads[kind]
        most = [largest_load(bound, whole) for bound, whole in zip(bounds, capacity, strict=True)]
        return Left([limit - load for limit, load in zip(most, used, strict=True)], taken_by)

    def _free_left(self, row: int, metric: Report | None, loads: Sequence[Load], kind: int) -> Left:
        if metric is None or not metric.measured or self.expired[row]:
            return Left([_NOTHING] * self._width, None)
        used, taken_by = loads[kind]
        return Left([whole - load for whole, load in zip(self.limits_of[row][CAPACITY], used, strict=True)], taken_by)


@lru_cache(maxsize=1 << 16)
def largest_load(bound: int, whole: int) -> int:
    """The largest load that is not above ``bound`` percent of ``whole``, in the original's rounding: half a percent is
    rounded up, computed in floating point."""
    if bound <= 0 or whole <= 0:
        return NO_LIMIT
    load = whole * (2 * bound + 1) // 200
    while math.floor(load / whole * 100 + 0.5) > bound:
        load -= 1
    while math.floor((load + 1) / whole * 100 + 0.5) <= bound:
        load += 1
    return load


def _aggregated(metric: Report, key: AggregatedKey) -> Vector | None:
    """Aggregated usage; with no particular window, plain usage stands in. None when the requested window is missing:
    then only the estimates are known."""
    usage = metric.aggregated.get(key)
    return metric.usage if usage is None and key[1] == LONGEST_WINDOW else usage


def _grown(old: NDArray[Item], new: NDArray[Item]) -> NDArray[Item]:
    new[..., : old.shape[-1]] = old
    return new
