"""Batch evaluation: the dirty nodes are evaluated once for many classes of pods.

Where many classes alternate, each finds that dozens of rows have changed since it was last evaluated. Evaluating these
rows once for all classes, every few placements, costs hardly more than doing so for one. So classes that were evaluated
twice become members, if all their plugins can evaluate many kinds of pods at once (see BatchKernel). Changes after the
version of the batch evaluator are applied by each class itself, row by row.

The batch evaluator handles the usual case only: nodes whose feasibility stays as it is. A class for which it may change
is left behind, and refreshes itself when it is evaluated next. Batch evaluation can be switched off
(``Engine(batches=False)``): decisions are the same without it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.batch_kernel import BatchKernel, BatchRefresher
from koordinator.scheduler.engine.cached_results import (
    CachedFilterResults,
    CachedResults,
    CachedScores,
    Scores,
)
from koordinator.scheduler.engine.class_state import INFEASIBLE, ClassState
from koordinator.scheduler.engine.columns import Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.framework import ScoreType

Values = NDArray[np.signedinteger[Any]]
_SKIPPED: Final = -1
"""In place of the slot of a class for which the plugin is skipped."""


class BatchResults:
    """The cached results of one plugin."""

    def __init__(
        self, batch_kernel: BatchKernel, columns: NodeColumns, like: CachedResults, *, classes: int, rows: int
    ) -> None:
        self._kernel = batch_kernel
        self.evaluate: Callable[[Rows], Ints | None] = batch_kernel.evaluate
        """May be replaced by a function that measures its run time."""
        self._columns = columns
        self._members: list[CachedResults] = []
        self._slot_of: dict[int, int] = {}
        """By the identity of the member."""
        self._slots: NDArray[np.intp] = np.full(classes, _SKIPPED, dtype=np.intp)
        """The slot of each class, which is the index of a member."""
        self._classes = 0
        """How many classes have one."""
        self._values: Values = np.zeros((classes, rows), dtype=like.values.dtype)
        self.has_rejected = False
        """Whether any member ever has rejected a row, also where it refreshed itself."""

    def take_in(self, number: int, cached: CachedResults, refresher: BatchRefresher) -> None:
        """The class ``number`` uses ``cached``, which is current. These results become a member if they are none
        yet."""
        slot = self._slot_of.get(id(cached))
        if slot is None:
            slot = self._slot_of[id(cached)] = len(self._members)
            self._kernel.put(slot, cached.pod, cached.state)
            self._members.append(cached)
            values, size = self._values[slot], self._columns.size
            values[:size] = cached.values[:size]
            cached.keep(values)
            cached.refresher, cached.in_batch = refresher, self
            self.has_rejected |= isinstance(cached, CachedFilterResults) and cached.has_rejected
        self._slots[number] = slot
        self._classes += 1

    def filter(self, rows: Rows, classes: int) -> Mask | None:
        """Evaluate ``rows``; returns a mask of the first ``classes`` for which one of the rows is rejected, None if
        none is."""
        codes = self.evaluate(rows)
        if codes is None and not self.has_rejected:
            return None
        own, now = self._values[: len(self._members)], codes.T if codes is not None else 0
        news = own.take(rows, axis=1) != now
        if np.count_nonzero(news):
            for index in np.flatnonzero(news.any(axis=1)).tolist():
                member = self._members[index]
                assert isinstance(member, CachedFilterResults)
                member.note_news()
            own[:, rows] = now
        if codes is None or not np.count_nonzero(codes):
            return None
        # The last is for the classes for which the plugin is skipped.
        rejected = np.zeros(len(self._members) + 1, dtype=np.bool_)
        codes.any(axis=0, out=rejected[:_SKIPPED])
        return rejected[self._slots[:classes]]

    def score(self, rows: Rows, classes: int) -> Values:
        """Evaluate ``rows``; returns weighted scores of shape (rows, classes)."""
        scores, first, kinds = self.evaluate(rows), self._members[0], len(self._members)
        assert isinstance(first, CachedScores)
        if scores is None:
            scores = np.zeros((rows.shape[0], kinds), dtype=np.int64)
        if not first.is_trusted:
            scores = np.stack([first.usable(of_class, rows) for of_class in scores.T], axis=1)
        weighted = scores.astype(self._values.dtype)
        if first.factor != 1:
            weighted *= first.factor
        self._values[:kinds, rows] = weighted.T
        slots = self._slots[:classes]
        of_classes: Values = weighted.take(slots, axis=1, mode="clip")
        if self._classes < classes:
            of_classes *= slots != _SKIPPED
        return of_classes

    def dissolve(self) -> None:
        """Give the members arrays of their own again."""
        for cached in self._members:
            cached.adopt()
            cached.refresher = cached.in_batch = None
            if cached.values.base is self._values:
                cached.keep(cached.values.copy())


FAR: Final = 6
"""A placement makes one change of a row, of its pods and its load. A member evaluates half as many rows by itself, on
average. Chosen by the CPU of mixed pods in the running program: with 3 they need a tenth fewer bytecodes and a
twentieth more CPU, since numpy's code is out of the processor's caches each time; with 10 and more both grow."""
CLASSES: Final = 256
"""When one more class joins, the batch is dissolved and begins again."""
OLD: Final = 32
"""A class that is evaluated all the time refreshes itself, but the batch evaluator must not fall so far behind that it
is dissolved."""
_FEW_CHANGES: Final = 128
"""After more changes the batch is dissolved: only the classes that are still in use are worth refreshing."""
_UNDECIDED: Final = -2
"""In place of a score: pods that come or go may change the feasibility."""


class BatchEvaluator:
    """A class of pods calls only ``advance`` and ``take_note``; without a batch evaluator, it refreshes itself alone.

    ``version``: all members but those that were left behind are current for that version of the columns."""

    def __init__(
        self, columns: NodeColumns, score_type: ScoreType, *, far: int = FAR, old: int = OLD, classes: int = CLASSES
    ) -> None:
        """Takes up to ``classes`` members. Refreshes when both it and a member that is being evaluated are more than
        ``far`` changes behind, or when it is more than ``old`` changes behind."""
        self._columns = columns
        self.far = far
        self._old = old
        self._classes = classes
        self._score_type = score_type
        self.version = -1
        self._class_states: list[ClassState] = []
        self._behind: set[int] = set()
        """The numbers of the members that were left behind."""
        self._by_origin: dict[Hashable, BatchResults] = {}
        """By CachedResults.origin."""
        self._filters: list[BatchResults] = []
        self._scores: list[BatchResults] = []
        self._reads = columns.static_aspects
        """Bit mask of the aspects that members depend on."""
        self._rows = 0
        self._totals: Scores = np.zeros((0, 0), dtype=score_type)
        """(classes, rows), of which each member has one row."""
        self._static_totals: Scores = np.zeros((0, 0), dtype=score_type)
        """(rows, classes): the static part of the total, INFEASIBLE where the node itself is infeasible, or _UNDECIDED.
        One row of all classes is contiguous, since it is read so."""

    def advance(self, member: ClassState) -> None:
        """Refresh all members if so much has changed that it pays, and advance ``member`` to the version that holds for
        it. Raises what plugins raise, with all members dismissed."""
        if self.is_far(member.version):
            self.refresh()
        elif (distance := self._columns.count_since(self.version)) > self._old:
            if len(self._class_states) > 1:
                self.refresh()
            elif distance > _FEW_CHANGES:
                # It is alone and refreshes itself all the time.
                self.dissolve()
        if member.number is not None and member.number not in self._behind:
            member.adopt(self.version)

    def take_note(self, class_state: ClassState, before: int) -> bool:
        """``class_state`` has refreshed itself from version ``before`` to the present one: let it join if that was far,
        or store its changes if it is a member. False if its plugins cannot evaluate in a batch."""
        if class_state.number is not None:
            if class_state.has_news or class_state.number in self._behind:
                self._rejoin(class_state.number)
        elif self.is_far(before) and not self._join(class_state):
            return False
        class_state.has_news = False
        return True

    def _join(self, class_state: ClassState) -> bool:
        """Add ``class_state``, which is current, as a member; returns whether all its plugins can evaluate in a
        batch."""
        if any(
            each.origin not in self._by_origin and each.batch_kernel() is None for each in class_state.pod_dependent
        ):
            return False
        for cached in class_state.pod_dependent:
            cached.refresh()
        if len(self._class_states) == self._classes or self._columns.size > self._rows:
            self.dissolve()
        if not self._class_states:
            self._begin(class_state.totals.shape[0])
        number = len(self._class_states)
        self._class_states.append(class_state)
        self._reads = reduce(or_, (cached.reads for cached in class_state.pod_dependent), self._reads)
        for cached in class_state.pod_dependent:
            if cached.origin not in self._by_origin:
                self._by_origin[cached.origin] = self._new(cached)
            self._by_origin[cached.origin].take_in(number, cached, self)
        class_state.keep_totals_in(self._totals[number])
        class_state.number = number
        self._store_static_totals(number)
        return True

    def _begin(self, rows: int) -> None:
        self.version = self._columns.version
        self._rows = rows
        self._reads = self._columns.static_aspects
        # The operating system commits only the memory that is written.
        self._totals = np.zeros((self._classes, rows), dtype=self._score_type)
        self._static_totals = np.zeros((rows, self._classes), dtype=self._score_type)

    def _new(self, cached: CachedResults) -> BatchResults:
        batch_kernel = cached.batch_kernel()
        assert batch_kernel is not None, "_join has checked"
        made = BatchResults(batch_kernel, self._columns, cached, classes=self._classes, rows=self._rows)
        (self._filters if isinstance(cached, CachedFilterResults) else self._scores).append(made)
        return made

    def _store_static_totals(self, number: int) -> None:
        self._static_totals[: self._columns.size, number] = self._class_states[number].static_totals(_UNDECIDED)

    def is_far(self, version: int) -> bool:
        """Whether so much has changed since ``version`` that refreshing in a batch pays."""
        columns, far = self._columns, self.far
        # There are at most as many changes as versions.
        return columns.version - version > far and columns.count_since(version) > far

    def refresh(self) -> None:
        """Refresh the members, if they are far behind. Raises what plugins raise, with all of them dismissed."""
        columns = self._columns
        if not self.is_far(self.version):
            return
        changed = columns.changes_since(self.version, _FEW_CHANGES)
        if changed is None or columns.size > self._rows:
            self.dissolve()
            return
        rows = [row for row, aspects in changed.items() if aspects & self._reads and columns.alive[row]]
        try:
            if rows:
                self._evaluate(np.array(sorted(rows), dtype=np.intp))
        except Exception:
            self.dissolve()
            raise
        if reduce(or_, changed.values(), 0) & columns.static_aspects:
            self._behind.update(range(len(self._class_states)))
        self.version = columns.version

    def _evaluate(self, rows: Rows) -> None:
        classes = len(self._class_states)
        totals = self._static_totals.take(rows, axis=0)[:, :classes]
        negative = totals < 0
        if has_negative := np.count_nonzero(negative):
            undecided = totals == _UNDECIDED
            if np.count_nonzero(undecided):
                self._leave_behind(undecided.any(axis=0))
        for each in self._filters:
            rejected = each.filter(rows, classes)
            if rejected is not None:
                self._leave_behind(rejected)
        for of_plugin in self._scores:
            totals += of_plugin.score(rows, classes)
        if has_negative:
            totals += (INFEASIBLE - totals) * negative
        self._totals[:classes, rows] = totals.T

    def _leave_behind(self, members: Mask) -> None:
        self._behind.update(np.flatnonzero(members).tolist())

    def _rejoin(self, number: int) -> None:
        """The member has refreshed itself."""
        self._behind.discard(number)
        self._store_static_totals(number)

    def dissolve(self) -> None:
        """Dismiss all members, which refresh themselves from now on, from the versions that they have."""
        class_states, behind = self._class_states, self._behind
        for number, class_state in enumerate(class_states):
            class_state.dismiss(None if number in behind else self.version)
        for each in self._by_origin.values():
            each.dissolve()
        self._class_states, self._behind = [], set()
        self._by_origin, self._filters, self._scores = {}, [], []
        self._totals = np.zeros((0, 0), dtype=self._score_type)
        self._static_totals = np.zeros((0, 0), dtype=self._score_type)
