"""The filter results or the scores of one plugin for all nodes, cached for pods that the plugin treats alike.

Classes of pods often differ in a single respect: one keeps to a zone, another does not, and both request the same. So
the results of a plugin are cached apart from the classes, and shared by all classes of pods for which the plugin's keys
are equal. The cache refreshes itself from the dirty nodes whenever a class uses it. Only what depends on more than the
pod and the row (a plugin that looks across nodes, a class that considers some nodes only) belongs to one class, which
then decides what to evaluate and when.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.batch_kernel import BatchHandle, BatchKernel, BatchRefresher
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.framework import (
    FEASIBLE,
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
    FilterPlugin,
    Plugin,
    Reason,
    ScorePlugin,
    ScoreType,
    is_built_in,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.row_amounts import grown

FEW_CHANGES: Final = 12
"""Up to so many changes are looked through faster than the versions of all rows are compared."""
ONE_BY_ONE: Final = 6
"""Up to so many rows are faster in plain integers, one after the other, than as arrays; also when results are
combined."""
Scores = NDArray[np.signedinteger[Any]]
_SPARE_ROWS: Final = 64
_OF_NODE: Final = 1 << Aspect.NODE


@cache
def _aspects_of(reads: int) -> tuple[int, ...]:
    return tuple(aspect for aspect in range(reads.bit_length()) if reads >> aspect & 1)


class RowValues:
    """One number for each row. Those of freed rows are meaningless."""

    def keep(self, values: Scores) -> None:
        """Have the values in this array from now on."""
        self.values = values
        self.of_row = values.data
        """The same numbers, to read and write one by one in half the time."""


class CachedResults(RowValues, ABC):
    """The results of one plugin, which ``refresh`` or ``evaluate`` keeps current."""

    def __init__(self, columns: NodeColumns, pod: PodInfo, state: Any, reads: int, *, is_cross_node: bool) -> None:
        self._columns = columns
        self.pod = pod
        self.state = state
        self.reads = reads
        """Bit mask of the aspects on which a row's value depends."""
        self._aspects = _aspects_of(reads)
        self.is_cross_node = is_cross_node
        """Whether values depend on other rows as well."""
        self.is_shared = not is_cross_node
        """Whether calling ``refresh`` is enough. Otherwise the class that owns the results calls ``evaluate``."""
        self.is_pod_dependent = bool(reads & ~columns.static_aspects)
        """Whether values change as pods come and go, and not only with the nodes."""
        self.refresher: BatchRefresher | None = None
        self.in_batch: BatchHandle | None = None
        """Set where a batch evaluator refreshes these results."""
        self.few = 1
        """Up to so many rows are evaluated faster one by one than as arrays."""
        self.keep(np.zeros(0, dtype=self.number))
        self.version = -1
        """The version of the columns that all values are current for, if the results are shared."""
        self.changed_at = -1
        """The version of the columns at which a value last changed, if that ``is_noted``."""

    number: ScoreType = np.int64
    """The type of the values."""
    is_noted = True
    """Whether a value is written by ``note``, and only when it changes."""
    factor = 1
    one: Callable[[PodInfo, Any, int], int]
    """The plugin's method for a single row; its result times ``factor`` is the value. Plain integers cost a fraction
    of numpy's calls."""

    def refresh(self) -> None:
        """Refresh all rows to the present version of the columns."""
        columns = self._columns
        if self.version == columns.version:
            return
        if self.refresher is not None:
            self.refresher.refresh()
            self.adopt()
        version = self.version
        if version == columns.version:
            return
        if version < 0:
            self.evaluate(columns.alive_rows)
        elif columns.has_changed(self._aspects, version):
            changed = columns.changes_since(version, FEW_CHANGES)
            if changed is not None:
                reads, alive = self.reads, columns.alive
                self._evaluate_some([row for row, aspects in changed.items() if aspects & reads and alive[row]])
            else:
                self.evaluate(self._touched())
        self.version = columns.version

    def adopt(self) -> None:
        """Adopt the version up to which the batch evaluator has refreshed these results."""
        if self.refresher is not None and self.refresher.version > self.version:
            self.version = self.refresher.version

    def _touched(self) -> Rows:
        touched = self._columns.touched_since(self.version)
        if self.reads == _OF_NODE:
            # Few Node objects change; for the other aspects, computing a little too much is cheaper than selecting
            # rows.
            return touched.alive[self._columns.touched_in(Aspect.NODE, touched.alive, self.version)]
        return touched.alive

    def evaluate(self, rows: Rows) -> None:
        """Compute the values of ``rows``, which ascend and are in use."""
        count = rows.shape[0]
        if count <= self.few:
            self._evaluate_some(rows.tolist())
            return
        self._make_room()
        # When these are all rows, a slice is several times as fast.
        self._evaluate(rows, slice(count) if rows[-1] == count - 1 else rows)

    def _evaluate_some(self, rows: Sequence[int]) -> None:
        """The same for rows in any order."""
        if len(rows) > self.few:
            self.evaluate(np.array(sorted(rows), dtype=np.intp))
            return
        self._make_room()
        for row in rows:
            value = self.one(self.pod, self.state, row) * self.factor
            if self.of_row[row] != value:
                self.note(row, value)

    def _make_room(self) -> None:
        size = self._columns.size
        if self.values.shape[0] < size:
            self._grow(size + max(_SPARE_ROWS, size >> 4))

    def _grow(self, capacity: int) -> None:
        self.keep(grown(self.values, (capacity,)))

    @property
    @abstractmethod
    def origin(self) -> Hashable:
        """Cached results of the same origin, for other pods, can be refreshed together with these."""

    @abstractmethod
    def batch_kernel(self) -> BatchKernel | None:
        """The kernel that evaluates many results of the same origin at once; new and empty. None if the plugin has
        none."""

    @abstractmethod
    def _evaluate(self, rows: Rows, where: Any) -> None:
        """``where`` is what to index with instead of ``rows``."""

    @abstractmethod
    def note(self, where: Any, values: Any) -> None:
        """Write values that have changed."""


class CachedFilterResults(CachedResults):
    """Codes: FEASIBLE, or a number that the plugin's ``reasons`` explains."""

    def __init__(
        self, columns: NodeColumns, plugin: FilterPlugin, pod: PodInfo, state: Any, reads: int, *, is_cross_node: bool
    ) -> None:
        super().__init__(columns, pod, state, reads, is_cross_node=is_cross_node)
        self.use(plugin)
        self.few = ONE_BY_ONE if type(plugin).filter_one is not FilterPlugin.filter_one else 1
        self.has_rejected = False
        """Whether any row has ever been rejected. Until then there is nothing to compare with, and ``values`` may be an
        array that others use as well."""

    def use(self, plugin: FilterPlugin) -> None:
        """Call this plugin from now on."""
        self.plugin, self.one = plugin, plugin.filter_one

    @property
    def origin(self) -> Hashable:
        return CachedFilterResults, self.plugin.name

    def batch_kernel(self) -> BatchKernel | None:
        return self.plugin.batch_filter()

    def _evaluate(self, rows: Rows, where: Any) -> None:
        codes = self.plugin.filter(self.pod, self.state, rows)
        # Counting is several times as fast as any().
        if not self.has_rejected and not np.count_nonzero(codes):
            return
        if np.count_nonzero(self.values[where] != codes):
            self.note(where, codes)

    def failure(self, pod: PodInfo, row: int) -> Failure | None:
        """The plugin's rejection of the row as it looks now, also in a simulation; None if it passes."""
        code = self.one(pod, self.state, row)
        return Failure(self.plugin, self.state, code, np.array((row,), dtype=np.intp)) if code else None

    def _grow(self, capacity: int) -> None:
        if self.has_rejected:
            super()._grow(capacity)
        else:
            self.keep(_nothing_rejected(capacity))

    def note(self, where: Any, values: Any) -> None:
        if not self.values.flags.writeable:
            self.keep(self.values.copy())
        self.values[where] = values
        self.note_news()

    def note_news(self) -> None:
        """Record that a value has changed."""
        if not self.has_rejected:
            self.has_rejected = True
            self._columns.rejecting += 1
        if self.in_batch is not None:
            self.in_batch.has_rejected = True
        self.changed_at = self._columns.version


@lru_cache(maxsize=4)
def _nothing_rejected(capacity: int) -> Ints:
    """The codes of filters that have rejected no row yet, which are most: to be read only. With zeros of its own, a
    class that no other is like would need twice the memory, and the time in which the kernel maps it."""
    codes = np.full(capacity, FEASIBLE, dtype=np.int64)
    codes.flags.writeable = False
    return codes


class CachedScores(CachedResults):
    """Weighted scores; the input of ``normalize`` where the plugin has one."""

    def __init__(
        self,
        columns: NodeColumns,
        plugin: ScorePlugin,
        pod: PodInfo,
        state: Any,
        reads: int,
        *,
        is_cross_node: bool,
        weight: int,
        scales: bool,
        score_type: ScoreType = np.int64,
    ) -> None:
        """``score_type`` holds weighted scores."""
        if not scales:
            self.number = score_type
        super().__init__(columns, pod, state, reads, is_cross_node=is_cross_node)
        self.few = ONE_BY_ONE if type(plugin).score_one is not ScorePlugin.score_one else 1
        self.weight = weight
        self.scales = self.is_noted = scales
        """Whether the plugin brings its scores to 0..100 by ``normalize``."""
        self.factor = 1 if scales else weight
        self.is_trusted = is_built_in(plugin)
        """Plugins of this package are: to look at all scores costs a tenth of what it takes them to compute a few."""
        self.use(plugin)

    def use(self, plugin: ScorePlugin) -> None:
        """Call this plugin from now on."""
        self.plugin, self.one = plugin, plugin.score_one
        if not self.is_trusted and not self.scales:
            self.one = partial(_usable_one, plugin, self._columns)

    @property
    def origin(self) -> Hashable:
        return CachedScores, self.plugin.name

    def batch_kernel(self) -> BatchKernel | None:
        return None if self.scales else self.plugin.batch_score()

    def _evaluate(self, rows: Rows, where: Any) -> None:
        scores = self.plugin.score(self.pod, self.state, rows)
        if not self.scales:
            scores = self.usable(scores, rows)
        if self.factor != 1:
            scores = scores * self.factor
        if not self.scales or np.count_nonzero(self.values[where] != scores):
            self.values[where], self.changed_at = scores, self._columns.version

    def score_of(self, pod: PodInfo, row: int) -> int:
        """What the value of ``row`` would be now for a pod of the same class."""
        return self.one(pod, self.state, row) * self.factor

    def note(self, where: Any, values: Any) -> None:
        self.values[where] = values
        self.changed_at = self._columns.version

    def usable(self, scores: Ints, rows: Rows | None, meant: Mask | None = None) -> Ints:
        """Final scores of ``rows`` (None: of all), without those out of range: such a node counts with the lowest
        score, and the plugin is reported with it. ``meant`` selects the scores that count at all."""
        if self.is_trusted:
            return scores
        wrong = (scores < 0) | (scores > MAX_NODE_SCORE)
        if meant is not None:
            wrong &= meant
        found = np.flatnonzero(wrong)
        if not found.shape[0]:
            return scores
        first = int(found[0])
        of = first if rows is None else int(rows[first])
        lowest = _instead_of(self.plugin, self._columns, int(scores[first]), of)
        return np.where(wrong, lowest, scores)


def _usable_one(plugin: ScorePlugin, columns: NodeColumns, pod: PodInfo, state: Any, row: int) -> int:
    score = plugin.score_one(pod, state, row)
    return score if 0 <= score <= MAX_NODE_SCORE else _instead_of(plugin, columns, score, row)


def _instead_of(plugin: ScorePlugin, columns: NodeColumns, score: int, row: int) -> int:
    """The score that counts for one that is out of range. An error of the plugin, or of what somebody has written about
    the node, concerns that node alone."""
    plugin.handle.unusable_score(plugin.name, columns.names[row], score)
    return MIN_NODE_SCORE


class ScaledScores(RowValues):
    """The weighted scores of a plugin after scaling, which differ by class, since the feasible rows do."""

    def __init__(self, values: Scores) -> None:
        self.keep(values)


R = TypeVar("R", bound=CachedResults | None)


class SharedResults:
    """Cached results by the plugin's keys of the pods, as long as some class of pods uses them."""

    def __init__(self) -> None:
        self._known: MutableMapping[Hashable, CachedResults] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, kind: type[CachedResults], plugin: Plugin, pod: PodInfo, make: Callable[[], R]) -> R:
        """The cached results that exist already, or else what ``make`` returns, which makes such of this kind."""
        key = kind, plugin.name, plugin.class_key(pod), plugin.context_key(pod)
        known: Any = self._known.get(key)
        found: R = known if known is not None else make()
        if known is None and found is not None:
            self._known[key] = found
        return found


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows that the same plugin rejected with the same code."""

    plugin: FilterPlugin
    state: Any
    code: int
    rows: Rows

    def reasons(self, pod: PodInfo) -> tuple[Reason, ...]:
        """The reasons for ``pod``, as shown to users."""
        return tuple(self.plugin.reasons(pod, self.state, self.code))


def failures(filters: Sequence[CachedFilterResults], rows: Rows, codes: Ints | None = None) -> list[Failure]:
    """``rows``, none of which is feasible, grouped by the first plugin that rejects them and its code. ``codes``, of
    shape (filters, rows), count in place of the cached ones."""
    if not rows.size or not filters:
        return []
    of_rows = np.stack([entry.values[rows] for entry in filters]) if codes is None else codes
    first = (of_rows != FEASIBLE).argmax(axis=0)
    code = of_rows[first, np.arange(rows.size)]
    groups: list[Failure] = []
    for index in np.unique(first):
        entry, of_plugin = filters[index], first == index
        groups.extend(
            Failure(entry.plugin, entry.state, int(value), rows[of_plugin & (code == value)])
            for value in np.unique(code[of_plugin])
        )
    return groups
