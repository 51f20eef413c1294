"""What was found out about each node that depends on nothing else: classes of pods that ask the same share it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

import numpy as np

from koordinator.api.node import Node
from koordinator.scheduler.engine.columns import Aspect, Ints, NodeColumns, Rows

_CELLS: Final = 2_000_000
_NEVER: Final = -1


class _Answers:
    """One question: an answer for each row, and the version of the node that it holds for."""

    def __init__(self) -> None:
        self.values: Ints = np.zeros(0, dtype=np.int64)
        self.versions: Ints = np.zeros(0, dtype=np.int64)

    def fit(self, rows: int) -> None:
        known = self.values.shape[0]
        if known < rows:
            self.values = np.concatenate([self.values, np.zeros(rows - known, dtype=np.int64)])
            self.versions = np.concatenate([self.versions, np.full(rows - known, _NEVER, dtype=np.int64)])


class NodeAnswers:
    """Questions by what they ask; those not asked for the longest time go first."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._questions: OrderedDict[Hashable, _Answers] = OrderedDict()

    def ask(self, question: Hashable, answer: Callable[[Node | None], int], rows: Rows) -> Ints:
        """``answer`` of the node of each of ``rows`` (None: a free row), asked anew only where the node has changed.
        ``question`` is equal for functions that answer alike."""
        columns = self._columns
        known = self._of(question)
        versions = columns.versions(Aspect.NODE)
        stale = rows[known.versions[rows] != versions[rows]]
        if stale.shape[0]:
            known.values[stale] = [answer(columns.nodes[row]) for row in stale.tolist()]
            known.versions[stale] = versions[stale]
        return known.values[rows]

    def _of(self, question: Hashable) -> _Answers:
        size = self._columns.size
        known = self._questions.get(question)
        if known is None:
            while self._questions and (len(self._questions) + 1) * size > _CELLS:
                self._questions.popitem(last=False)
            known = self._questions[question] = _Answers()
        else:
            self._questions.move_to_end(question)
        known.fit(size)
        return known
