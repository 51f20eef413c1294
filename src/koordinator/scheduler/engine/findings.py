"""What one plugin says of all rows, for pods that are alike to it.

Classes of pods often differ in a single respect: one keeps to a zone, another does not, and both request the same. So
what a plugin found out is kept apart from the classes, and shared by all classes of pods for which the plugin's keys
are equal. It follows the columns by itself, whenever a class asks. Only what depends on more than the pod and the row
(a plugin that looks across nodes, a class that looks at some nodes only) belongs to one class, which then says what to
judge and when.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, MutableMapping
from functools import cache
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.framework import (
    MAX_NODE_SCORE,
    FilterPlugin,
    Plugin,
    PluginError,
    ScorePlugin,
    ScoreType,
    is_built_in,
)
from koordinator.scheduler.engine.joint import Joint
from koordinator.scheduler.engine.pod_info import PodInfo

FEW_CHANGES: Final = 24
"""So many are looked through faster than the versions of all rows are compared."""
ONE_BY_ONE: Final = 6
"""So many rows are done faster in plain integers, one after the other, than as arrays; also to put them together."""
_SPARE_ROWS: Final = 64
_OF_NODE: Final = 1 << Aspect.NODE


@cache
def _aspects_of(reads: int) -> tuple[int, ...]:
    return tuple(aspect for aspect in range(reads.bit_length()) if reads >> aspect & 1)


class Carrier(Protocol):
    """Who brings findings up to date together with others."""

    version: int
    """What it carries is current for at least this version of the columns."""

    def keep_up(self) -> None:
        """Go on to the present version if that is far."""


class Together(Protocol):
    """What findings of one origin are brought up to date with."""

    judge: Callable[[Rows], Ints]
    """See Joint.judge."""


class Findings(ABC):
    """``values`` has one number a row. Those of freed rows mean nothing."""

    def __init__(self, columns: NodeColumns, pod: PodInfo, state: Any, reads: int, *, follows: bool) -> None:
        self._columns = columns
        self.pod = pod
        self.state = state
        self.reads = reads
        """Bit mask of the aspects on which a row's value depends."""
        self._aspects = _aspects_of(reads)
        self.follows = follows
        """It depends on other rows as well."""
        self.is_shared = not follows
        """Whether ``refresh`` is all that has to be called. Otherwise ``judge`` is, by the class that has it."""
        self.moves = bool(reads & ~columns.static_aspects)
        """Whether values change as pods come and go, and not with the nodes alone."""
        self.carrier: Carrier | None = None
        self.together: Together | None = None
        """Where there is a carrier."""
        self._few = 1
        """So many rows are done faster one by one than as arrays."""
        self.values: NDArray[np.signedinteger[Any]] = np.zeros(0, dtype=np.int64)
        self.version = -1
        """The version of the columns that all values are current for, if they are shared."""
        self.changed_at = -1
        """At what version of the columns a value last became another."""

    def refresh(self) -> None:
        """Bring all rows up to the present version of the columns."""
        columns = self._columns
        if self.version == columns.version:
            return
        if self.carrier is not None:
            self.carrier.keep_up()
            self.adopt()
        version = self.version
        if version == columns.version:
            return
        if version < 0:
            self.judge(columns.alive_rows)
        elif columns.has_changed(self._aspects, version):
            changed = columns.changes_since(version, FEW_CHANGES)
            if changed is not None:
                rows = [row for row, aspects in changed.items() if aspects & self.reads and columns.alive[row]]
                self.judge(np.array(sorted(rows), dtype=np.intp))
            else:
                self.judge(self._touched())
        self.version = columns.version

    def adopt(self) -> None:
        """Take note of how far the carrier has come."""
        if self.carrier is not None and self.carrier.version > self.version:
            self.version = self.carrier.version

    def _touched(self) -> Rows:
        touched = self._columns.touched_since(self.version)
        if self.reads == _OF_NODE:
            # Few nodes change as nodes; of the other aspects it is cheaper to compute a little more than to sort out.
            return touched.alive[self._columns.touched_in(Aspect.NODE, touched.alive, self.version)]
        return touched.alive

    def judge(self, rows: Rows) -> None:
        """Compute the values of ``rows``, which ascend and are in use."""
        size = self._columns.size
        if self.values.shape[0] < size:
            larger = np.zeros(size + max(_SPARE_ROWS, size >> 4), dtype=self.values.dtype)
            larger[: self.values.shape[0]] = self.values
            self.values = larger
        count = rows.shape[0]
        if count <= self._few:
            for row in rows.tolist():
                self.judge_one(row)
        else:
            # When all rows are meant, a slice is several times as fast.
            self._judge(rows, slice(count) if rows[-1] == count - 1 else rows)

    def judge_few(self, rows: Collection[int]) -> None:
        """The same for a few rows in any order, all of which have been judged before."""
        if len(rows) <= self._few:
            for row in rows:
                self.judge_one(row)
        else:
            self.judge(np.array(sorted(rows), dtype=np.intp))

    @property
    @abstractmethod
    def origin(self) -> Hashable:
        """Findings of the same origin, for other pods, can be brought up to date together with these."""

    @abstractmethod
    def joint(self) -> Joint | None:
        """What judges many of the same origin at once; none has been put in yet."""

    @abstractmethod
    def _judge(self, rows: Rows, where: Any) -> None:
        """``where`` is what to index with instead of ``rows``."""

    @abstractmethod
    def judge_one(self, row: int) -> None:
        """Compute the value of ``row``, without numpy's cost per call where plain integers do."""


class FilterFindings(Findings):
    """Codes: FEASIBLE, or a number that the plugin's ``reasons`` explains."""

    def __init__(
        self, columns: NodeColumns, plugin: FilterPlugin, pod: PodInfo, state: Any, reads: int, *, follows: bool
    ) -> None:
        super().__init__(columns, pod, state, reads, follows=follows)
        self.plugin = plugin
        self._few = ONE_BY_ONE if type(plugin).filter_one is not FilterPlugin.filter_one else 1
        self._has_ruled_out = False
        """Whether any row ever; until then there is nothing to compare with."""

    @property
    def origin(self) -> Hashable:
        return FilterFindings, self.plugin.name

    def joint(self) -> Joint | None:
        return self.plugin.joint_filter()

    def _judge(self, rows: Rows, where: Any) -> None:
        codes = self.plugin.filter(self.pod, self.state, rows)
        # Counting is several times as fast as any().
        if not self._has_ruled_out and not np.count_nonzero(codes):
            return
        if np.count_nonzero(self.values[where] != codes):
            self.values[where] = codes
            self.note_news()

    def judge_one(self, row: int) -> None:
        code = self.plugin.filter_one(self.pod, self.state, row)
        if self.values.item(row) != code:
            self.values[row] = code
            self.note_news()

    def note_news(self) -> None:
        """Some value has become another."""
        self._has_ruled_out = True
        self.changed_at = self._columns.version


class ScoreFindings(Findings):
    """Weighted scores; what ``normalize`` starts from where the plugin has one."""

    def __init__(
        self,
        columns: NodeColumns,
        plugin: ScorePlugin,
        pod: PodInfo,
        state: Any,
        reads: int,
        *,
        follows: bool,
        weight: int,
        scales: bool,
        score_type: ScoreType = np.int64,
    ) -> None:
        """``score_type`` holds weighted scores."""
        super().__init__(columns, pod, state, reads, follows=follows)
        self.plugin = plugin
        self._few = ONE_BY_ONE if type(plugin).score_one is not ScorePlugin.score_one else 1
        self.weight = weight
        self.scales = scales
        """Whether the plugin brings its scores to 0..100 by ``normalize``."""
        self.factor = 1 if scales else weight
        if not scales:
            self.values = np.zeros(0, dtype=score_type)
        self._is_foreign = not is_built_in(plugin)

    @property
    def origin(self) -> Hashable:
        return ScoreFindings, self.plugin.name

    def joint(self) -> Joint | None:
        return None if self.scales else self.plugin.joint_score()

    def _judge(self, rows: Rows, where: Any) -> None:
        scores = self.plugin.score(self.pod, self.state, rows)
        if not self.scales:
            self.check(scores)
        if self.factor != 1:
            scores = scores * self.factor
        if not self.scales or np.count_nonzero(self.values[where] != scores):
            self.values[where] = scores
            self.changed_at = self._columns.version

    def score_of(self, row: int) -> int:
        """What the value of ``row`` is by now."""
        score = self.plugin.score_one(self.pod, self.state, row)
        if not self.scales and not 0 <= score <= MAX_NODE_SCORE:
            raise self._out_of_range(score)
        return score * self.factor

    def judge_one(self, row: int) -> None:
        # ``score_of``, without its call: each decision comes by here for each plugin.
        score = self.plugin.score_one(self.pod, self.state, row)
        if not self.scales and not 0 <= score <= MAX_NODE_SCORE:
            raise self._out_of_range(score)
        score *= self.factor
        if self.values.item(row) != score:
            self.values[row] = score
            self.changed_at = self._columns.version

    def check(self, scores: Ints, meant: Mask | None = None) -> None:
        """Raises PluginError if a final score, of those that are meant, is out of range. Plugins of this package are
        trusted, since to look costs a tenth of what it takes them to compute a few scores."""
        if self._is_foreign:
            for score in (scores if meant is None else scores[meant]).tolist():
                if not 0 <= score <= MAX_NODE_SCORE:
                    raise self._out_of_range(score)

    def _out_of_range(self, score: int) -> PluginError:
        return PluginError(f"{self.plugin.name}: a score of {score} is not usable: allowed are 0 to {MAX_NODE_SCORE}")


F = TypeVar("F", bound=Findings)


class SharedFindings:
    """Findings by what the pods have in common for the plugin, as long as some class of pods uses them."""

    def __init__(self) -> None:
        self._known: MutableMapping[Hashable, Findings] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, kind: type[F], plugin: Plugin, pod: PodInfo, make: Callable[[], F]) -> F:
        """Those that are known, or what ``make`` makes."""
        key = kind, plugin.name, plugin.class_key(pod), plugin.context_key(pod)
        found = self._known.get(key)
        if not isinstance(found, kind):
            found = self._known[key] = make()
        return found
